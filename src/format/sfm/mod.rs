//! Messages of Social Feed Manager: harvests are started, stopped and told of, WARCs are made, exports
//! are started and told of.
//!
//! The routing key says which message it is; it comes in the header `routing-key`. The bodies are JSON;
//! members that are not known are passed over. What is done with each message stands in
//! `docs/harvest.md`. Sources: the project's messaging specification, and, where that is not what is
//! sent, the code of `sfm-utils` and `sfm-ui`.
//!
//! * **Credentials** of a start are taken out of the body before anything else ([`credentials`]).
//! * **Time.** A status tells when the harvest began, and when it ended; the other messages of a
//!   harvest tell none, and may have waited in a queue for hours. So these take their place by arrival
//!   ([`DraftTime::Arrival`]): what was asked for makes no status late, however late it is read.
//! * **A start** that comes after a status of its harvest does not set the state back: REQUESTED is
//!   what a harvest begins in. A harvest that is over stays over, whatever comes behind:
//!   SFM asks each stream that has failed to stop. A status of a harvest that was begun anew is newer, and counts.
//! * **Repeats.** A start and a WARC are known by their identifiers. A status is known by its bytes,
//!   unless it is news ([`Repeats::SameBodyUnlessNews`]): RUNNING, PAUSED, RUNNING may be told by
//!   messages of which the first and the last are the same.
//! * **Seeds** are items where a harvest found a new token or uid for one. A start only names those
//!   it will look at, which changes none of them.

mod address;
mod credentials;
mod message;
mod status;
mod template;
mod words;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::{
    address::{Address, Settings},
    message::{Export, Object, Start, Status, Stop, WarcCreated},
};
use super::{
    Dialect, DialectKind, InvalidSettings, Limits, Message, Place, Reading, Rejection, Repeats, json,
    routing::{ROUTING_KEY, routing_key, unknown_key},
    settings,
};
use crate::model::{
    Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, EventId, NonEmpty, State, Text, Uri, User,
};

/// The dialect `sfm`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "sfm",
    about: "messages of Social Feed Manager: harvests, WARCs and exports",
    accepts: &["application/json"],
    headers: &[ROUTING_KEY],
    repeats: Repeats::SameBodyUnlessNews,
    redact: Some(credentials::taken_out),
    repository: None,
    sample_settings: &[r#"{"base_url": "http://h.example/rest"}"#],
    build,
};

const EXPECTED: &str = "as in harvest.status.flickr.flickr_user";
const KEYS: &str = "harvest.start, harvest.stop, harvest.status, export.start and export.status, each followed by \
                    .<platform>.<type>, and warc_created";

/// The states in which a harvest or an export is over.
static OVER: [State; 4] = [State::COMPLETED_SUCCESS, State::COMPLETED_FAILURE, State::VOIDED, State::SKIPPED];

fn build(value: Value, limits: Limits) -> Result<Box<dyn Dialect>, InvalidSettings> {
    let address = settings::<Settings>(value)?.address().map_err(InvalidSettings::new)?;
    Ok(Box::new(Sfm { address, limits }))
}

struct Sfm {
    address: Address,
    limits: Limits,
}

/// Which message it is, with the type that the key tells.
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
    /// `harvest.start.<platform>.<type>`, perhaps with `.priority` behind it, and the like.
    fn read(key: &'k str) -> Option<Self> {
        let mut parts = key.split('.');
        let (subject, deed) = (parts.next()?, parts.next());
        let told_type = parts.nth(1).filter(|name| !name.is_empty());
        Some(match (subject, deed) {
            ("warc_created", None) => Self::WarcCreated,
            ("harvest", Some("start")) => Self::HarvestStart(told_type),
            ("harvest", Some("stop")) => Self::HarvestStop,
            ("harvest", Some("status")) => Self::HarvestStatus(told_type),
            ("export", Some("start")) => Self::ExportStart(told_type),
            ("export", Some("status")) => Self::ExportStatus(told_type),
            _ => return None,
        })
    }
}

impl Dialect for Sfm {
    fn read(&self, message: &Message<'_>) -> Result<Reading, Rejection> {
        let key = routing_key(message.headers, EXPECTED)?;
        let body = message.body;
        let draft = match Kind::read(key).ok_or_else(|| unknown_key(key, KEYS))? {
            Kind::HarvestStart(told_type) => self.harvest_start(&*read::<Start>(body)?, told_type),
            Kind::HarvestStop => self.harvest_stop(&*read::<Stop>(body)?),
            Kind::HarvestStatus(told_type) => self.harvest_status(&*read::<Status>(body)?, told_type),
            Kind::WarcCreated => self.warc_created(&*read::<WarcCreated>(body)?),
            Kind::ExportStart(told_type) => self.export_start(&*read::<Export>(body)?, told_type),
            Kind::ExportStatus(told_type) => self.export_status(&*read::<Status>(body)?, told_type),
        };
        draft.map(Reading::one)
    }
}

impl Sfm {
    fn harvest_start(&self, start: &Start, told_type: Option<&str>) -> Result<Draft, Rejection> {
        let harvest = self.address.harvest.of(start.id.as_str(), "/id")?;
        let collection = start.collection.as_ref().and_then(|collection| collection.id.as_ref());
        let collection = collection.map(|id| self.address.collection.of(id.as_str(), "/collection/id"));
        let told_type = start.harvest_type.as_deref().or(told_type);
        Ok(Draft {
            event_id: EventId::parse(&format!("harvest.start:{}", start.id.as_str())),
            parent: collection.transpose()?,
            types: self.harvest_types(told_type, "/type")?,
            description: words::start(start, told_type),
            ..draft(harvest, requested())
        })
    }

    fn harvest_stop(&self, stop: &Stop) -> Result<Draft, Rejection> {
        let harvest = self.address.harvest.of(stop.id.as_str(), "/id")?;
        let asked = DraftChange::Activity { after: State::STOPPING, over: &OVER };
        Ok(Draft { description: Text::new("Harvest: stop requested"), ..draft(harvest, asked) })
    }

    fn harvest_status(&self, status: &Status, told_type: Option<&str>) -> Result<Draft, Rejection> {
        let harvest = self.address.harvest.of(status.id.as_str(), "/id")?;
        let harvest_item = DraftItem::new(harvest.clone(), status.change());
        let seeds = status.seeds(&self.address.seed, self.limits)?;
        Ok(Draft {
            types: self.harvest_types(told_type, "")?,
            items: DraftItems::Listed(NonEmpty::one_and(harvest_item, seeds)),
            ..status.draft(harvest, "Harvest")
        })
    }

    fn warc_created(&self, told: &WarcCreated) -> Result<Draft, Rejection> {
        let warc = &told.warc;
        let collection = self.address.collection.of(told.collection.id.as_str(), "/collection/id")?;
        let set = told.collection_set.as_ref().and_then(|set| set.id.as_ref());
        let set = set.map(|id| self.address.collection_set.of(id.as_str(), "/collection_set/id"));
        let harvest = told.harvest.as_ref().and_then(|harvest| harvest.id.as_ref());
        let harvest = harvest.map(|id| self.address.harvest.of(id.as_str(), "/harvest/id"));
        let told_type = told.harvest.as_ref().and_then(|harvest| harvest.harvest_type.as_deref());
        let item = self.address.warc.of(warc.id.as_str(), "/warc/id")?;
        let content = warc.content(&self.address.files, harvest.transpose()?)?;
        Ok(Draft {
            event_id: EventId::parse(&format!("warc_created:{}", warc.id.as_str())),
            time: warc.date_created.map_or(DraftTime::Arrival, DraftTime::Reported),
            parent: set.transpose()?,
            types: self.harvest_types(told_type, "/harvest/type")?,
            description: words::warc(told),
            ..draft_of(collection, DraftItem::new(item, DraftChange::Present { content: Some(content) }))
        })
    }

    fn export_start(&self, export: &Export, told_type: Option<&str>) -> Result<Draft, Rejection> {
        let uri = self.address.export.of(export.id.as_str(), "/id")?;
        let collection = export.collection.as_ref().and_then(|collection| collection.id.as_ref());
        let collection = collection.map(|id| self.address.collection.of(id.as_str(), "/collection/id"));
        let told_type = export.export_type.as_deref().or(told_type);
        Ok(Draft {
            event_id: EventId::parse(&format!("export.start:{}", export.id.as_str())),
            parent: collection.transpose()?,
            types: self.export_types(told_type, "/type")?,
            description: words::export(export, told_type),
            ..draft(uri, requested())
        })
    }

    fn export_status(&self, status: &Status, told_type: Option<&str>) -> Result<Draft, Rejection> {
        let export = self.address.export.of(status.id.as_str(), "/id")?;
        Ok(Draft { types: self.export_types(told_type, "")?, ..status.draft(export, "Export") })
    }

    fn harvest_types(&self, name: Option<&str>, pointer: &str) -> Result<Vec<Uri>, Rejection> {
        name.map(|name| self.address.harvest_type.of(name, pointer)).into_iter().collect()
    }

    fn export_types(&self, name: Option<&str>, pointer: &str) -> Result<Vec<Uri>, Rejection> {
        name.map(|name| self.address.export_type.of(name, pointer)).into_iter().collect()
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<Object<T>, Rejection> {
    json::read(body)
}

/// What an activity begins in, if nothing is known of it yet.
fn requested() -> DraftChange {
    DraftChange::AddOrUpdate { content: None, initial_state: Some(State::REQUESTED) }
}

/// A draft of an activity that is its own item, of which nothing else is told.
fn draft(activity: Uri, change: DraftChange) -> Draft {
    draft_of(activity.clone(), DraftItem::new(activity, change))
}

/// A draft of which nothing is told but its object and its one item.
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
        lookup: DraftLookup::default(),
    }
}

/// A refusal of what stands there.
fn refused(pointer: &str, reason: impl Into<String>) -> Rejection {
    Rejection::unprocessable(Place::Pointer(pointer.to_owned()), reason)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DIALECT, Kind};
    use crate::format::{Headers, Limits, Message, Reading};

    fn told(key: &str, body: &Value, items: usize) -> String {
        let limits = Limits { items, ..Limits::default() };
        let dialect = (DIALECT.build)(json!({"base_url": "http://h"}), limits).unwrap();
        let headers: Headers = [("routing-key", key)].into_iter().collect();
        match dialect.read(&Message { content_type: None, headers: &headers, body: body.to_string().as_bytes() }) {
            Ok(Reading::Drafts(drafts)) => format!("{:?}", drafts[0].items),
            Ok(Reading::Nothing(reason)) => reason.to_owned(),
            Err(rejection) => rejection.to_string(),
        }
    }

    #[test]
    fn a_key_tells_the_message_and_its_type() {
        for (key, kind) in [
            ("harvest.start.flickr.flickr_user", Some(Kind::HarvestStart(Some("flickr_user")))),
            ("harvest.status.twitter.twitter_filter.priority", Some(Kind::HarvestStatus(Some("twitter_filter")))),
            ("harvest.stop.twitter", Some(Kind::HarvestStop)),
            ("export.start.flickr.", Some(Kind::ExportStart(None))),
            ("export.status", Some(Kind::ExportStatus(None))),
            ("warc_created", Some(Kind::WarcCreated)),
            ("warc_created.x", None),
            ("harvest", None),
            ("harvest.started.a.b", None),
            ("export.stop.a.b", None),
        ] {
            assert_eq!(Kind::read(key), kind, "{key}");
        }
    }

    #[test]
    fn a_seed_is_one_item_and_there_is_a_bound() {
        let seeds = |count: usize| (0..count).map(|n| (format!("s{n}/"), json!("x"))).collect::<Value>();
        let status = |tokens: usize, uids: usize| json!({"id": "1", "status": "x", "token_updates": seeds(tokens), "uids": seeds(uids)});
        assert_eq!(told("harvest.status.a.b", &status(2, 2), 3).matches("api/v1/seeds/").count(), 2);
        let refused = told("harvest.status.a.b", &status(2, 3), 3);
        assert_eq!(refused, "/uids/s2~1: a change has at most 3 items here");
    }
}
