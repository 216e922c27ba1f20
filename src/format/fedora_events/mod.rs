//! Events of Fedora 4.0–6 and of Trellis: a resource was created, changed or deleted.
//!
//! There are three generations. Fedora 5, 6 and Trellis send ActivityStreams 2; Fedora 4.6 and 4.7 send PROV;
//! both are JSON-LD. Earlier versions send only headers. Later versions send the same headers with a body; the
//! headers supply what the body lacks.
//!
//! The resource is the object of the change and its only item, because a resource of the Linked Data Platform
//! is its own content. Events do not contain the media type. Sources: the serializers of
//! `fcrepo-event-serialization` and `fcrepo-jms` (fcrepo 4.5–6.x), and of Trellis's
//! `trellis-notification-jackson`.

mod agent;
mod body;
mod event_kind;
mod jms;
mod resource_uri;
mod write;

use serde::Deserialize;
use serde_json::Value;

pub use resource_uri::join;
pub(super) use write::ACTIVITY_STREAMS;
pub use write::fedora_event_headers;

use self::{
    agent::Agents,
    event_kind::{EventKinds, ResourceChange},
    jms::Jms,
    resource_uri::ResourceUris,
};
use super::{
    Dialect, DialectKind, DuplicateDetection, InvalidSettings, Location, Message, ParsedMessage, Rejection,
    RepositoryApi, RepositoryKind,
    json_ld::{self, Context, Node, describe_types},
    parse_settings,
};
use crate::model::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, EventId, ItemChange, MissingFacts,
    NonEmpty, Reading, Text, Timestamp, Uri,
};

/// The dialect `fedora-events`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "fedora-events",
    about: "events of Fedora 4 to 6 and of Trellis (ActivityStreams 2, PROV, or headers alone)",
    accepts: &["application/activity+json", "application/ld+json", "application/json"],
    headers: &[jms::PREFIX],
    // An event with an empty body always gets an identifier, so empty bodies are never compared.
    duplicates: DuplicateDetection::ByBody,
    redact: None,
    repository: Some(RepositoryKind { api: RepositoryApi::Ldp, not_crawlable: None }),
    sample_settings: &[
        "{}",
        r#"{"base_url": "http://h.example/rest"}"#,
        r#"{"base_url": "https://h.example/rest", "other_base_urls": ["http://localhost:8080/rest"]}"#,
    ],
    // No limits are needed: an event has one resource, and serde_json limits the depth.
    build: |value, _| Ok(Box::new(FedoraEvents::parse(value)?)),
};

/// Settings of a source, which are the whole state of the dialect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FedoraEvents {
    /// REST URL of the repository, for events without it: those without `org.fcrepo.jms.baseURL`, and those
    /// that name a resource `info:fedora/…` or `null/…`.
    #[serde(default)]
    base_url: Option<Uri>,
    /// Other REST URLs of the same repository, such as those of a proxy and of localhost. Fedora writes the URL of the
    /// request that made a change. `base_url` takes their place.
    #[serde(default)]
    other_base_urls: Vec<Uri>,
}

impl FedoraEvents {
    fn parse(value: Value) -> Result<Self, InvalidSettings> {
        let settings: Self = parse_settings(value)?;
        if !settings.other_base_urls.is_empty() && settings.base_url.is_none() {
            return Err(InvalidSettings::new("other_base_urls needs base_url, which takes their place".to_owned()));
        }
        Ok(settings)
    }

    fn uris(&self) -> ResourceUris<'_> {
        ResourceUris { base: self.base_url.as_ref(), others: &self.other_base_urls }
    }
}

/// Content of an event of any form.
struct Event<'a> {
    resource: Uri,
    parent: Option<Uri>,
    types: Vec<Uri>,
    /// Type names of the event, as written.
    kinds: Vec<&'a str>,
    /// Location of the type names, present or missing.
    kinds_at: Location,
    time: Option<Timestamp>,
    event_id: Option<EventId>,
    agents: Agents,
    description: Option<Text>,
    reading: Reading,
}

impl Dialect for FedoraEvents {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let jms = Jms::new(message.headers);
        if message.body.trim_ascii().is_empty() {
            return jms.event(self.uris())?.into_reading(jms);
        }
        let document = json_ld::parse(message.body)?;
        body::event(&Node::root(&document), self.uris(), jms)?.into_reading(jms)
    }
}

impl Event<'_> {
    fn into_reading(mut self, jms: Jms<'_>) -> Result<ParsedMessage, Rejection> {
        let kinds = EventKinds::parse(self.kinds.iter().copied()).or_else(|| EventKinds::parse(jms.kinds()));
        let kinds = kinds.ok_or_else(|| no_kind(self.kinds_at, &self.kinds))?;
        let content = || Some(ContentLocation::at(self.resource.clone()));
        let change = match kinds.resource_change() {
            ResourceChange::Added => DraftChange::Reported(ItemChange::Add { content: content(), after: None }),
            ResourceChange::Changed => DraftChange::AddOrUpdate { content: content(), initial_state: None },
            ResourceChange::Gone => DraftChange::Reported(ItemChange::Delete { before: None, after: None }),
            ResourceChange::Unchanged(reason) => return Ok(ParsedMessage::NoChange(reason)),
        };
        let types = if self.types.is_empty() { Context::none().types(jms.resource_types()) } else { self.types };
        Ok(ParsedMessage::one(Draft {
            id: None,
            event_id: self.event_id.or_else(|| jms.event_id()),
            software_version: None,
            user: self.agents.or_header(jms.user()),
            time: self.time.or_else(|| jms.time(&mut self.reading)).into(),
            parent: self.parent.filter(|parent| !resource_uri::is_same(parent, &self.resource)),
            types: if has_only_generic_types(&types) { Vec::new() } else { types },
            description: self.description.unwrap_or_else(|| Text::new(&kinds.description())),
            report: None,
            lookup: DraftLookup::of(missing(&change)),
            reading: self.reading,
            items: DraftItems::Listed(NonEmpty::one(DraftItem::new(self.resource.clone(), change))),
            object: self.resource,
        }))
    }
}

/// Returns the data to look up. A deleted resource cannot be looked up.
fn missing(change: &DraftChange) -> MissingFacts {
    match change {
        DraftChange::Reported(ItemChange::Delete { .. }) => MissingFacts::Nothing,
        _ => MissingFacts::Content,
    }
}

/// Returns whether the types are too general to be useful. Fedora 6 loads the types of a deleted resource after
/// the deletion; then the registry's types remain valid.
fn has_only_generic_types(types: &[Uri]) -> bool {
    types.iter().all(|kind| kind.as_str() == "http://www.w3.org/ns/prov#Entity")
}

fn no_kind(location: Location, types: &[&str]) -> Rejection {
    let types = describe_types(types);
    let reason =
        format!("this reports no event on a resource: it has {types}; Create, Update, Delete or the like was expected");
    Rejection::unprocessable(location, reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{Headers, Limits},
        ContentLocation, DIALECT, Draft, DraftChange, ItemChange, Message, ParsedMessage, Uri, Value,
    };
    use crate::model::DraftTime;

    #[test]
    fn settings_are_a_base_url_or_nothing() {
        let complaint = |settings| {
            (DIALECT.build)(settings, Limits::default()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(complaint(Value::Null), "");
        assert_eq!(complaint(json!({"base_url": "http://h/rest"})), "");
        assert!(complaint(json!({"base_url": "/rest"})).starts_with("base_url: it is not an absolute URI"));
        assert!(complaint(json!({"baseUrl": "http://h/rest"})).contains("there is no setting \"baseUrl\""));
        assert!(complaint(json!({"other_base_urls": ["http://h/rest"]})).contains("needs base_url"));
    }

    fn read(headers: &[(&str, &str)], body: &Value) -> Result<Draft, String> {
        let dialect = (DIALECT.build)(Value::Null, Limits::default()).unwrap();
        let headers: Headers = headers.iter().copied().collect();
        match dialect.read(&Message { content_type: None, headers: &headers, body: body.to_string().as_bytes() }) {
            Ok(ParsedMessage::Drafts(drafts)) => Ok(drafts[0].clone()),
            Ok(ParsedMessage::NoChange(reason)) => Err(reason.to_owned()),
            Err(rejection) => Err(rejection.to_string()),
        }
    }

    const HEADERS: [(&str, &str); 5] = [
        ("org.fcrepo.jms.baseURL", "http://h/rest"),
        ("org.fcrepo.jms.eventID", "urn:uuid:1"),
        ("org.fcrepo.jms.eventType", "https://www.w3.org/ns/activitystreams#Create"),
        ("org.fcrepo.jms.identifier", "/fw"),
        ("org.fcrepo.jms.timestamp", "1428360320168"),
    ];

    #[test]
    fn body_of_the_http_forwarder_is_an_event() {
        let body = json!({"id": "http://h/rest/fw", "type": "https://www.w3.org/ns/activitystreams#Create"});
        let with_headers = read(&HEADERS, &body).unwrap();
        let created = DraftChange::Reported(ItemChange::Add {
            content: Some(ContentLocation::at(Uri::parse("http://h/rest/fw").unwrap())),
            after: None,
        });
        assert_eq!(
            (with_headers.object.as_str(), &with_headers.items.listed()[0].change),
            ("http://h/rest/fw", &created)
        );
        assert_eq!(with_headers.event_id.unwrap().as_str(), "urn:uuid:1");
        assert!(with_headers.time.reported().is_some());
        let alone = read(&[], &body).unwrap();
        assert_eq!((alone.event_id, alone.time, &alone.items.listed()[0].change), (None, DraftTime::Arrival, &created));
        assert_eq!(read(&HEADERS, &json!({})).unwrap().object.as_str(), "http://h/rest/fw");
        for body in [json!({}), json!({"id": "http://h/rest/fw"}), json!({"id": "http://h/rest/fw", "type": "Like"})] {
            assert!(read(&[], &body).unwrap_err().contains("it has neither"), "{body}");
        }
    }

    #[test]
    fn optional_part_that_cannot_be_read_costs_only_itself() {
        let event = |more: Value| {
            let mut event =
                json!({"type": "Update", "object": {"id": "http://h/rest/a", "isPartOf": null}, "actor": null});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(&[], &event).unwrap()
        };
        for (published, time, dropped) in [
            (json!(1_458_750_952), Some("2016-03-23T16:35:52.000Z"), 0),
            (json!("2016-03-23T16:35:52.5Z[UTC]"), Some("2016-03-23T16:35:52.500Z"), 0),
            (json!("yesterday"), None, 1),
            (json!(null), None, 0),
        ] {
            let draft = event(json!({ "published": published }));
            let read = draft.time.reported().map(|time| time.to_string());
            assert_eq!((read.as_deref(), draft.reading.dropped.len()), (time, dropped), "{published}");
        }
        let draft = event(json!({"object": {"id": "http://h/rest/a", "isPartOf": "null"}}));
        assert_eq!((draft.parent, draft.reading.dropped.len()), (None, 1));
        let provenance = json!({"id": "http://h/rest/a", "wasGeneratedBy": {"type": ["ResourceModification"], "atTime": 1_458_750_952}});
        assert!(read(&[], &provenance).unwrap().time.reported().is_some());
    }

    #[test]
    fn time_of_lakesuperior_is_in_the_object() {
        let event = json!({"id": "urn:uuid:1", "type": "Update", "actor": null,
            "object": {"id": "info:fcres/a/b", "updated": "2018-05-06T07:08:09.123456+00:00"}});
        let time = read(&[], &event).unwrap().time.reported().unwrap();
        assert_eq!(time.to_string(), "2018-05-06T07:08:09.123Z");
    }

    #[test]
    fn resource_without_repository_is_refused_with_advice() {
        let refusal = read(&[], &json!({"type": "Update", "object": {"id": "null/a"}})).unwrap_err();
        assert!(refusal.contains("set base_url"), "{refusal}");
    }
}
