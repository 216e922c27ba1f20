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

pub use resource_uri::join;
pub(super) use write::ACTIVITY_STREAMS;

use self::{
    agent::Agents,
    event_kind::{EventKinds, ResourceChange},
    jms::Jms,
};
use super::{
    Dialect, DialectKind, DuplicateDetection, Location, Message, ParsedMessage, Rejection, RepositoryApi,
    RepositoryKind,
    json_ld::{self, Context, Node, describe_types},
    parse_settings,
};
use crate::model::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, EventId, ItemChange, MissingFacts,
    NonEmpty, Text, Timestamp, Uri,
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
    sample_settings: &["{}", r#"{"base_url": "http://h.example/rest"}"#],
    // No limits are needed: an event has one resource, and serde_json limits the depth.
    build: |value, _| Ok(Box::new(parse_settings::<FedoraEvents>(value)?)),
};

/// Settings of a source, which are the whole state of the dialect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FedoraEvents {
    /// REST URL of the repository, for events without it: those without `org.fcrepo.jms.baseURL`, and those
    /// that name a resource `info:fedora/…` or `null/…`.
    #[serde(default)]
    base_url: Option<Uri>,
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
}

impl Dialect for FedoraEvents {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let jms = Jms::new(message.headers);
        let base_url = self.base_url.as_ref();
        if message.body.trim_ascii().is_empty() {
            return jms.event(base_url)?.into_reading(jms);
        }
        let document = json_ld::parse(message.body)?;
        body::event(&Node::root(&document), base_url)?.into_reading(jms)
    }
}

impl Event<'_> {
    fn into_reading(self, jms: Jms<'_>) -> Result<ParsedMessage, Rejection> {
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
            time: self.time.map_or_else(|| jms.time(), |time| Ok(Some(time)))?.into(),
            parent: self.parent.filter(|parent| !resource_uri::is_same(parent, &self.resource)),
            types: if has_only_generic_types(&types) { Vec::new() } else { types },
            description: self.description.unwrap_or_else(|| Text::new(&kinds.description())),
            report: None,
            lookup: DraftLookup::of(missing(&change)),
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
    use serde_json::{Value, json};

    use super::{super::Limits, DIALECT};

    #[test]
    fn settings_are_a_base_url_or_nothing() {
        let complaint = |settings| {
            (DIALECT.build)(settings, Limits::default()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(complaint(Value::Null), "");
        assert_eq!(complaint(json!({"base_url": "http://h/rest"})), "");
        assert!(complaint(json!({"base_url": "/rest"})).starts_with("base_url: it is not an absolute URI"));
        assert!(complaint(json!({"baseUrl": "http://h/rest"})).contains("there is no setting \"baseUrl\""));
    }
}
