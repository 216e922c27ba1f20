//! Events of Fedora 4.0–6 and of Trellis: one resource was created, changed or deleted.
//!
//! Three generations are read. Fedora 5, 6 and Trellis send ActivityStreams 2, Fedora 4.6 and 4.7
//! PROV; both are JSON-LD. Before that there was no body, and the headers said all. Later events have
//! the same headers beside the body, and they fill what the body leaves out.
//!
//! The object of a change is the resource, and so is its one item, since a resource of the Linked
//! Data Platform is its own content. The media type is not told. Sources: the serialisers of
//! `fcrepo-event-serialization` and `fcrepo-jms` (fcrepo 4.5–6.x), and Trellis's
//! `trellis-notification-jackson`.

mod address;
mod agent;
mod body;
mod jms;
mod kind;
mod write;

use serde::Deserialize;

pub use address::join;
pub(super) use write::ACTIVITY_STREAMS;

use self::{
    agent::Agents,
    jms::Jms,
    kind::{Kinds, Outcome},
};
use super::{
    Dialect, DialectKind, Message, Place, Reading, Rejection, Repeats, RepositoryApi, RepositoryKind,
    json_ld::{self, Context, Node, in_words},
    settings,
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
    // An event whose body is empty always has an identifier, so that it never comes to the body.
    repeats: Repeats::SameBody,
    redact: None,
    repository: Some(RepositoryKind { api: RepositoryApi::Ldp, not_walkable: None }),
    sample_settings: &["{}", r#"{"base_url": "http://h.example/rest"}"#],
    // An event is of one resource, and JSON has a depth of its own.
    build: |value, _| Ok(Box::new(settings::<FedoraEvents>(value)?)),
};

/// The settings of a source, which are all that the dialect holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FedoraEvents {
    /// The repository's REST URL, for events that do not tell it: those without
    /// `org.fcrepo.jms.baseURL`, and those that name a resource `info:fedora/…` or `null/…`.
    #[serde(default)]
    base_url: Option<Uri>,
}

/// What one event tells, whichever form it has.
struct Event<'a> {
    resource: Uri,
    parent: Option<Uri>,
    types: Vec<Uri>,
    /// The names of what was done, as written.
    kinds: Vec<&'a str>,
    /// Where they stand, or should.
    kinds_at: Place,
    time: Option<Timestamp>,
    event_id: Option<EventId>,
    agents: Agents,
    description: Option<Text>,
}

impl Dialect for FedoraEvents {
    fn read(&self, message: &Message<'_>) -> Result<Reading, Rejection> {
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
    fn into_reading(self, jms: Jms<'_>) -> Result<Reading, Rejection> {
        let kinds = Kinds::parse(self.kinds.iter().copied()).or_else(|| Kinds::parse(jms.kinds()));
        let kinds = kinds.ok_or_else(|| no_kind(self.kinds_at, &self.kinds))?;
        let content = || Some(ContentLocation::at(self.resource.clone()));
        let change = match kinds.outcome() {
            Outcome::Added => DraftChange::Reported(ItemChange::Add { content: content(), after: None }),
            Outcome::Changed => DraftChange::AddOrUpdate { content: content(), initial_state: None },
            Outcome::Gone => DraftChange::Reported(ItemChange::Delete { before: None, after: None }),
            Outcome::Untouched(reason) => return Ok(Reading::Nothing(reason)),
        };
        let types = if self.types.is_empty() { Context::none().types(jms.resource_types()) } else { self.types };
        Ok(Reading::one(Draft {
            id: None,
            event_id: self.event_id.or_else(|| jms.event_id()),
            software_version: None,
            user: self.agents.or_header(jms.user()),
            time: self.time.map_or_else(|| jms.time(), |time| Ok(Some(time)))?.into(),
            parent: self.parent.filter(|parent| !address::is_same(parent, &self.resource)),
            types: if tells_nothing(&types) { Vec::new() } else { types },
            description: self.description.unwrap_or_else(|| Text::new(&kinds.description())),
            lookup: DraftLookup::of(untold(&change)),
            items: DraftItems::Listed(NonEmpty::one(DraftItem::new(self.resource.clone(), change))),
            object: self.resource,
        }))
    }
}

/// What is gone cannot be asked about.
fn untold(change: &DraftChange) -> MissingFacts {
    match change {
        DraftChange::Reported(ItemChange::Delete { .. }) => MissingFacts::Nothing,
        _ => MissingFacts::Content,
    }
}

/// Whether the types say only that the resource is a resource, as in a Fedora 6 Delete, whose types
/// are loaded when they are gone: then what is known of the resource holds.
fn tells_nothing(types: &[Uri]) -> bool {
    types.iter().all(|kind| kind.as_str() == "http://www.w3.org/ns/prov#Entity")
}

fn no_kind(place: Place, types: &[&str]) -> Rejection {
    let seen = in_words(types);
    let reason = format!(
        "this tells of nothing done to a resource: it has {seen}; Create, Update, Delete or the like was expected"
    );
    Rejection::unprocessable(place, reason)
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
