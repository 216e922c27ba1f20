//! Messages of Social Feed Manager: requests to start and stop harvests, requests to start exports, statuses of
//! both, and new WARCs.
//!
//! The header `routing-key` gives the kind of message. Bodies are JSON; unknown members are ignored.
//! `docs/harvester-messages.md` describes the result of each message. Sources: the project's messaging specification and,
//! where actual messages differ, the code of `sfm-utils` and `sfm-ui`.
//!
//! * **Credentials** of a start are removed from the body before anything else ([`credentials`]).
//! * **Time.** A status contains the begin and the end of the harvest. The other messages have no time and may
//!   have waited in a queue for hours. They are ordered by arrival ([`DraftTime::Arrival`]), so that a request
//!   which is read late does not make a status late.
//! * **A start** after a status of its harvest does not reset the state: REQUESTED is only an initial state. A
//!   finished harvest stays finished, because SFM also requests a stop for each failed stream. A status of a
//!   restarted harvest is newer and therefore applies.
//! * **Duplicates.** A start and a WARC have identifiers. A status is a duplicate if its body is equal and it
//!   is not news ([`DuplicateDetection::ByBodyUnlessNews`]): in the sequence RUNNING, PAUSED, RUNNING, the
//!   first and the last message may be equal.
//! * **Seeds** are items if a harvest found a new token or uid for them. A start only lists seeds, which does
//!   not change them.

mod credentials;
mod description;
mod message;
mod status;
mod uri_template;
mod uri_templates;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::{
    message::{Export, Id, JsonObject, Start, Status, Stop, WarcCreated},
    uri_templates::{Settings, UriTemplates},
};
use super::{
    Dialect, DialectKind, DuplicateDetection, InvalidSettings, Limits, Location, Message, ParsedMessage, Rejection,
    json, parse_settings,
    routing::{ROUTING_KEY, routing_key, unknown_key},
};
use crate::model::{
    Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, EventId, NonEmpty, Reading, State, Text, Uri,
    User,
};

/// The dialect `sfm`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "sfm",
    about: "messages of Social Feed Manager: harvests, WARCs and exports",
    accepts: &["application/json"],
    headers: &[ROUTING_KEY],
    duplicates: DuplicateDetection::ByBodyUnlessNews,
    redact: Some(credentials::redact),
    repository: None,
    sample_settings: &[r#"{"base_url": "http://h.example/rest"}"#],
    build,
};

const EXPECTED: &str = "as in harvest.status.flickr.flickr_user";
const KEYS: &str = "harvest.start, harvest.stop, harvest.status, export.start and export.status, each followed by \
                    .<platform>.<type>, and warc_created, alone or after <name>";

/// Routing key of a new WARC.
const WARC_CREATED: &str = "warc_created";

/// Final states of a harvest or an export.
static FINAL_STATES: [State; 4] = [State::COMPLETED_SUCCESS, State::COMPLETED_FAILURE, State::VOIDED, State::SKIPPED];

fn build(value: Value, limits: Limits) -> Result<Box<dyn Dialect>, InvalidSettings> {
    let uris = parse_settings::<Settings>(value)?.uri_templates().map_err(InvalidSettings::new)?;
    Ok(Box::new(Sfm { uris, limits }))
}

struct Sfm {
    uris: UriTemplates,
    limits: Limits,
}

/// Kind of message, with the type from the routing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind<'k> {
    HarvestStart(Option<&'k str>),
    HarvestStop,
    HarvestStatus(Option<&'k str>),
    WarcCreated,
    ExportStart(Option<&'k str>),
    ExportStatus(Option<&'k str>),
}

impl<'k> Kind<'k> {
    /// Parses `harvest.start.<platform>.<type>`, optionally followed by `.priority`, and similar keys.
    fn read(key: &'k str) -> Option<Self> {
        // SFM's command for consumers that come late sends to `NAME.warc_created`.
        if key == WARC_CREATED || key.strip_suffix(WARC_CREATED).is_some_and(|name| name.ends_with('.')) {
            return Some(Self::WarcCreated);
        }
        let mut parts = key.split('.');
        let (subject, deed) = (parts.next()?, parts.next());
        let activity_type = parts.nth(1).filter(|name| !name.is_empty());
        Some(match (subject, deed) {
            ("harvest", Some("start")) => Self::HarvestStart(activity_type),
            ("harvest", Some("stop")) => Self::HarvestStop,
            ("harvest", Some("status")) => Self::HarvestStatus(activity_type),
            ("export", Some("start")) => Self::ExportStart(activity_type),
            ("export", Some("status")) => Self::ExportStatus(activity_type),
            _ => return None,
        })
    }
}

impl Dialect for Sfm {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let key = routing_key(message.headers, EXPECTED)?;
        let body = message.body;
        let draft = match Kind::read(key).ok_or_else(|| unknown_key(key, KEYS))? {
            Kind::HarvestStart(activity_type) => self.harvest_start(&*read::<Start>(body)?, activity_type),
            Kind::HarvestStop => self.harvest_stop(&*read::<Stop>(body)?),
            Kind::HarvestStatus(activity_type) => self.harvest_status(&*read::<Status>(body)?, activity_type),
            Kind::WarcCreated => self.warc_created(&*read::<WarcCreated>(body)?),
            Kind::ExportStart(activity_type) => self.export_start(&*read::<Export>(body)?, activity_type),
            Kind::ExportStatus(activity_type) => self.export_status(&*read::<Status>(body)?, activity_type),
        };
        draft.map(ParsedMessage::one)
    }
}

impl Sfm {
    fn harvest_start(&self, start: &Start, activity_type: Option<&str>) -> Result<Draft, Rejection> {
        let harvest = self.uris.harvest.of(start.id.as_str(), "/id")?;
        let collection = start.collection.as_ref().and_then(|collection| collection.id.as_ref());
        let collection = collection.map(|id| self.uris.collection.of(id.as_str(), "/collection/id"));
        let activity_type = start.harvest_type.as_deref().or(activity_type);
        Ok(Draft {
            event_id: EventId::parse(&format!("harvest.start:{}", start.id.as_str())),
            parent: collection.transpose()?,
            types: self.harvest_types(activity_type, "/type")?,
            description: description::start(start, activity_type),
            ..draft(harvest, requested())
        })
    }

    fn harvest_stop(&self, stop: &Stop) -> Result<Draft, Rejection> {
        let harvest = self.uris.harvest.of(stop.id.as_str(), "/id")?;
        let change = DraftChange::Activity { after: State::STOPPING, over: &FINAL_STATES };
        Ok(Draft { description: Text::new("Harvest: stop requested"), ..draft(harvest, change) })
    }

    fn harvest_status(&self, status: &Status, activity_type: Option<&str>) -> Result<Draft, Rejection> {
        let harvest = self.uris.harvest.of(status.id.as_str(), "/id")?;
        let harvest_item = DraftItem::new(harvest.clone(), status.change());
        let seeds = status.seeds(&self.uris.seed, self.limits)?;
        Ok(Draft {
            types: self.harvest_types(activity_type, "")?,
            items: DraftItems::Listed(NonEmpty::one_and(harvest_item, seeds)),
            ..status.draft(harvest, "Harvest")
        })
    }

    fn warc_created(&self, message: &WarcCreated) -> Result<Draft, Rejection> {
        let warc = &message.warc;
        let collection = message.collection.as_ref().and_then(|collection| collection.id.as_ref());
        let collection = match (collection.map(Id::as_str), warc.collection_in_path()) {
            (Some(id), _) => Some(self.uris.collection.of(id, "/collection/id")?),
            (None, Some(id)) => Some(self.uris.collection.of(id, "/warc/path")?),
            (None, None) => None,
        };
        let set = message.collection_set.as_ref().and_then(|set| set.id.as_ref());
        let set = set.map(|id| self.uris.collection_set.of(id.as_str(), "/collection_set/id"));
        let harvest = message.harvest.as_ref().and_then(|harvest| harvest.id.as_ref());
        let harvest = harvest.map(|id| self.uris.harvest.of(id.as_str(), "/harvest/id")).transpose()?;
        let object = collection.or_else(|| harvest.clone()).ok_or_else(|| {
            rejection("/collection", "it is missing, and so are a collection in the path of the WARC, and a harvest")
        })?;
        let activity_type = message.harvest.as_ref().and_then(|harvest| harvest.harvest_type.as_deref());
        let item = self.uris.warc.of(warc.id.as_str(), "/warc/id")?;
        let content = warc.content(&self.uris.files, harvest)?;
        let mut reading = Reading::default();
        Ok(Draft {
            event_id: EventId::parse(&format!("warc_created:{}", warc.id.as_str())),
            time: warc.date_created.read(&mut reading).into(),
            parent: set.transpose()?,
            types: self.harvest_types(activity_type, "/harvest/type")?,
            description: description::warc(message),
            reading,
            ..draft_of(object, DraftItem::new(item, DraftChange::Present { content: Some(content), state: None }))
        })
    }

    fn export_start(&self, export: &Export, activity_type: Option<&str>) -> Result<Draft, Rejection> {
        let uri = self.uris.export.of(export.id.as_str(), "/id")?;
        let collection = export.collection.as_ref().and_then(|collection| collection.id.as_ref());
        let collection = collection.map(|id| self.uris.collection.of(id.as_str(), "/collection/id"));
        let activity_type = export.export_type.as_deref().or(activity_type);
        Ok(Draft {
            event_id: EventId::parse(&format!("export.start:{}", export.id.as_str())),
            parent: collection.transpose()?,
            types: self.export_types(activity_type, "/type")?,
            description: description::export(export, activity_type),
            ..draft(uri, requested())
        })
    }

    fn export_status(&self, status: &Status, activity_type: Option<&str>) -> Result<Draft, Rejection> {
        let export = self.uris.export.of(status.id.as_str(), "/id")?;
        Ok(Draft { types: self.export_types(activity_type, "")?, ..status.draft(export, "Export") })
    }

    fn harvest_types(&self, name: Option<&str>, pointer: &str) -> Result<Vec<Uri>, Rejection> {
        name.map(|name| self.uris.harvest_type.of(name, pointer)).into_iter().collect()
    }

    fn export_types(&self, name: Option<&str>, pointer: &str) -> Result<Vec<Uri>, Rejection> {
        name.map(|name| self.uris.export_type.of(name, pointer)).into_iter().collect()
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<JsonObject<T>, Rejection> {
    json::read(body)
}

/// Returns the initial state of an activity, for an unknown activity.
fn requested() -> DraftChange {
    DraftChange::AddOrUpdate { content: None, initial_state: Some(State::REQUESTED) }
}

/// Creates a draft of an activity that is its own item, without further data.
fn draft(activity: Uri, change: DraftChange) -> Draft {
    draft_of(activity.clone(), DraftItem::new(activity, change))
}

/// Creates a draft with an object and one item, without further data.
fn draft_of(object: Uri, item: DraftItem) -> Draft {
    Draft {
        id: None,
        event_id: None,
        software_version: None,
        user: User::unknown(),
        time: DraftTime::Arrival,
        object,
        parent: None,
        types: Vec::new(),
        description: Text::default(),
        items: DraftItems::Listed(NonEmpty::one(item)),
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    }
}

/// Creates a rejection of the value at a JSON pointer.
fn rejection(pointer: &str, reason: impl Into<String>) -> Rejection {
    Rejection::unprocessable(Location::Pointer(pointer.to_owned()), reason)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DIALECT, Draft, Kind};
    use crate::format::{Headers, Limits, Message, ParsedMessage};

    fn read_items(key: &str, body: &Value, items: usize) -> String {
        let limits = Limits { items, ..Limits::default() };
        let dialect = (DIALECT.build)(json!({"base_url": "http://h"}), limits).unwrap();
        let headers: Headers = [("routing-key", key)].into_iter().collect();
        match dialect.read(&Message { content_type: None, headers: &headers, body: body.to_string().as_bytes() }) {
            Ok(ParsedMessage::Drafts(drafts)) => format!("{:?}", drafts[0].items),
            Ok(ParsedMessage::NoChange(reason)) => reason.to_owned(),
            Err(rejection) => rejection.to_string(),
        }
    }

    #[test]
    fn routing_key_gives_kind_and_type() {
        for (key, kind) in [
            ("harvest.start.flickr.flickr_user", Some(Kind::HarvestStart(Some("flickr_user")))),
            ("harvest.status.twitter.twitter_filter.priority", Some(Kind::HarvestStatus(Some("twitter_filter")))),
            ("harvest.stop.twitter", Some(Kind::HarvestStop)),
            ("export.start.flickr.", Some(Kind::ExportStart(None))),
            ("export.status", Some(Kind::ExportStatus(None))),
            ("warc_created", Some(Kind::WarcCreated)),
            ("elk_loader_1.warc_created", Some(Kind::WarcCreated)),
            ("xwarc_created", None),
            ("warc_created.x", None),
            ("harvest", None),
            ("harvest.started.a.b", None),
            ("export.stop.a.b", None),
        ] {
            assert_eq!(Kind::read(key), kind, "{key}");
        }
    }

    #[test]
    fn seeds_are_unique_items_and_bounded() {
        let seeds = |count: usize| (0..count).map(|n| (format!("s{n}/"), json!("x"))).collect::<Value>();
        let status = |tokens: usize, uids: usize| json!({"id": "1", "status": "x", "token_updates": seeds(tokens), "uids": seeds(uids)});
        assert_eq!(read_items("harvest.status.a.b", &status(2, 2), 3).matches("api/v1/seeds/").count(), 2);
        let refused = read_items("harvest.status.a.b", &status(2, 3), 3);
        assert_eq!(refused, "/uids/s2~1: a change has at most 3 items here");
    }

    fn read_draft(key: &str, body: &Value) -> Result<Draft, String> {
        let dialect = (DIALECT.build)(json!({"base_url": "http://h"}), Limits::default()).unwrap();
        let headers: Headers = [("routing-key", key)].into_iter().collect();
        match dialect.read(&Message { content_type: None, headers: &headers, body: body.to_string().as_bytes() }) {
            Ok(ParsedMessage::Drafts(drafts)) => Ok(drafts[0].clone()),
            Ok(ParsedMessage::NoChange(reason)) => Err(reason.to_owned()),
            Err(rejection) => Err(rejection.to_string()),
        }
    }

    #[test]
    fn warc_is_read_whatever_sends_it() {
        let warc =
            |root: &str| json!({"path": format!("{root}/collection_set/news/strike/2024/c5.warc.gz"), "id": "c5"});
        for root in ["/sfm-data", "/sfm-collection-set-data"] {
            for (key, collection) in [
                ("warc_created", json!({"id": "strike"})),
                ("wayback_indexer.warc_created", json!(null)),
                ("warc_created", json!({"id": null})),
            ] {
                let draft = read_draft(key, &json!({"warc": warc(root), "collection": collection})).unwrap();
                assert_eq!(draft.object.as_str(), "http://h/api/v1/collections/strike/");
                let content = draft.items.listed()[0].change.content().unwrap();
                assert_eq!(content.url.as_str(), "http://h/sfm-data/collection_set/news/strike/2024/c5.warc.gz");
            }
        }
    }

    #[test]
    fn warc_without_collection_belongs_to_its_harvest() {
        let warc = json!({"path": "/sfm-data/c5.warc.gz", "id": "c5"});
        let draft = read_draft("warc_created", &json!({"warc": warc, "harvest": {"id": "7"}})).unwrap();
        assert_eq!(draft.object.as_str(), "http://h/api/v1/harvests/7/");
        let refusal = read_draft("warc_created", &json!({ "warc": warc })).unwrap_err();
        assert!(refusal.starts_with("/collection: it is missing"), "{refusal}");
    }

    #[test]
    fn time_that_cannot_be_read_costs_only_itself() {
        for (date, time, dropped) in [
            (json!(["2016-03-01T10:05:00.5"]), Some("2016-03-01T10:05:00.500Z"), 0),
            (json!("2016-03-01 10:05:00"), Some("2016-03-01T10:05:00.000Z"), 0),
            (json!(null), None, 0),
            (json!("soon"), None, 1),
            (json!(["2016-03-01T10:05:00", "x"]), None, 1),
        ] {
            let status = json!({"id": "1", "status": "completed success", "date_ended": date});
            let draft = read_draft("harvest.status.a.b", &status).unwrap();
            let read = draft.time.reported().map(|time| time.to_string());
            assert_eq!((read.as_deref(), draft.reading.dropped.len()), (time, dropped), "{date}");
        }
    }
}
