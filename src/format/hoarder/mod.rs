//! Events of librairy's event bus (the Hoarder of Dr Inventor): a source, a document or an item was created,
//! changed or deleted. This module is the dialect, `write` the format.
//!
//! The routing key `<resource>.<state>` gives the event, and the body is the URI of the resource as text,
//! relative to the system's base URL. There are two vocabularies of states: `new`, `opened`, `closed` and
//! `deleted` of the Hoarder, and `created`, `updated` and `deleted` of later modules. Sources: the page of the
//! Hoarder, and `librairy/boot`.
//!
//! * The resource is the object and its only item, because `item.new` does not name the item's document. Its
//!   content is at its own URI.
//! * A second `new` for an existing resource is no change. `opened` means a modification. A closed source gets
//!   the state CLOSED, and OPENED when it is opened again; its documents are unaffected.
//! * Messages have neither an identifier nor a time, so two modifications of one document have equal bodies.
//!   They are not treated as duplicates: a superfluous UPDATE costs a consumer one request.
//! * Later modules send serialized Java objects, which only Java can read. They are rejected with that reason.
//!   The other resources of the bus (domains, parts, topics, …) are rejected too, because librairy derives them
//!   from the content.

mod names;
mod write;

use serde::Deserialize;

use super::{
    Dialect, DialectKind, DuplicateDetection, Location, Message, ParsedMessage, Rejection, parse_settings,
    routing::{ROUTING_KEY, SystemUrl, routing_key, unknown_key},
    utf8::utf8,
};
use crate::model::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, ItemChange, NonEmpty, Reading,
    State, Text, Uri, User,
};

pub(super) use self::write::FORMAT;

/// The dialect `hoarder`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "hoarder",
    about: "events of librairy's event bus: sources, documents and items of the Hoarder",
    accepts: &["text/plain", "application/json"],
    headers: &[ROUTING_KEY],
    duplicates: DuplicateDetection::Impossible,
    redact: None,
    repository: None,
    sample_settings: &[r#"{"base_url": "http://h.example/rest"}"#],
    build: |value, _| Ok(Box::new(parse_settings::<Hoarder>(value)?)),
};

const EXPECTED: &str = "as in document.new";
const KEYS: &str = "source, document and item, each with new, opened, closed, deleted, created or updated, as in \
                    document.new; the bus's other resources are no content, so bind none of their keys";

/// Header of a serialized Java object (Java Object Serialization Specification, section 6.4.2).
const JAVA: [u8; 4] = [0xAC, 0xED, 0x00, 0x05];

/// The configured dialect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hoarder {
    /// Base URL of the system's resources, as in `http://librairy.example.org/api`.
    base_url: SystemUrl,
}

/// Event on a resource.
#[derive(Clone, Copy)]
enum Event {
    New,
    Opened,
    /// `Opened` for a source, which may have been closed.
    SourceOpened,
    Closed,
    Deleted,
}

impl Dialect for Hoarder {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let key = routing_key(message.headers, EXPECTED)?;
        let event = Event::read(key).ok_or_else(|| unknown_key(key, KEYS))?;
        let resource = self.resource(message.body)?;
        Ok(ParsedMessage::one(Draft {
            id: None,
            event_id: None,
            software_version: None,
            user: User::unknown(),
            time: DraftTime::Arrival,
            object: resource.clone(),
            parent: None,
            types: Vec::new(),
            description: Text::new(key),
            items: DraftItems::Listed(NonEmpty::one(DraftItem::new(resource.clone(), event.change(resource)))),
            report: None,
            lookup: DraftLookup::default(),
            reading: Reading::default(),
        }))
    }
}

impl Hoarder {
    fn resource(&self, body: &[u8]) -> Result<Uri, Rejection> {
        let malformed = |reason: &str| Err(Rejection::malformed(Location::Message, reason));
        if body.starts_with(&JAVA) {
            return malformed(
                "the body is a serialised Java object (it begins with AC ED 00 05), which only Java can read; the URI \
                 of the resource was expected, as text",
            );
        }
        let text = utf8(body)?.trim();
        // JSON clients send text in quotation marks.
        let unquoted = text.starts_with('"').then(|| serde_json::from_str::<String>(text).ok()).flatten();
        let text = unquoted.as_deref().map_or(text, str::trim);
        if text.is_empty() {
            return malformed("the body is empty; the URI of the resource was expected, as in documents/oa-upm-17");
        }
        let uri = Uri::parse(text).or_else(|_| self.base_url.join(text));
        uri.map_err(|error| {
            Rejection::unprocessable(Location::Message, format!("the body is not the URI of a resource: {error}"))
        })
    }
}

impl Event {
    fn read(key: &str) -> Option<Self> {
        let (resource, state) = key.split_once('.')?;
        let is_source = match resource {
            "source" => true,
            "document" | "item" => false,
            _ => return None,
        };
        Some(match state {
            "new" | "created" => Self::New,
            "opened" | "open" | "updated" if is_source => Self::SourceOpened,
            "opened" | "open" | "updated" => Self::Opened,
            "closed" => Self::Closed,
            "deleted" => Self::Deleted,
            _ => return None,
        })
    }

    fn change(self, resource: Uri) -> DraftChange {
        let content = Some(ContentLocation::at(resource));
        match self {
            Self::New => DraftChange::Present { content, state: None },
            Self::Opened => DraftChange::AddOrUpdate { content, initial_state: None },
            Self::SourceOpened => {
                DraftChange::Reported(ItemChange::Update { content, before: None, after: Some(State::OPENED) })
            }
            Self::Closed => DraftChange::Reported(ItemChange::State { before: None, after: State::CLOSED }),
            Self::Deleted => DraftChange::Reported(ItemChange::Delete { before: None, after: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DIALECT, Event};
    use crate::format::{Headers, Limits, Message, ParsedMessage};

    fn object(key: &str, body: &[u8]) -> String {
        let dialect = (DIALECT.build)(json!({"base_url": "http://h/api/"}), Limits::default()).unwrap();
        let headers: Headers = [("Routing-Key", key)].into_iter().collect();
        match dialect.read(&Message { content_type: None, headers: &headers, body }) {
            Ok(ParsedMessage::Drafts(drafts)) => drafts[0].object.to_string(),
            Ok(ParsedMessage::NoChange(reason)) => reason.to_owned(),
            Err(rejection) => rejection.to_string(),
        }
    }

    #[test]
    fn body_is_a_uri() {
        for (body, uri) in [
            (&b"documents/oa-upm-17"[..], "http://h/api/documents/oa-upm-17"),
            (b" /items/17-eciencia\n", "http://h/api/items/17-eciencia"),
            (b"\"items/17-eciencia\"", "http://h/api/items/17-eciencia"),
            (b"http://other/items/1", "http://other/items/1"),
            (b"urn:x:1", "urn:x:1"),
        ] {
            assert_eq!(object("item.new", body), uri);
        }
    }

    #[test]
    fn invalid_uri_is_rejected_with_the_reason() {
        for (body, complaint) in [
            (&b"\xAC\xED\x00\x05sr\x00\x10java.lang.Object"[..], "a serialised Java object"),
            (b"", "the body is empty"),
            (b"\" \"", "the body is empty"),
            (b"\"items/1", "the body is not the URI of a resource"),
            (b"{\"uri\":\"items/1\"}", "the body is not the URI of a resource"),
            (b"items/\xff", "not UTF-8"),
            (b"two words", "a URI cannot contain ' '"),
        ] {
            let output = object("item.new", body);
            assert!(output.contains(complaint), "{output}");
        }
    }

    #[test]
    fn both_vocabularies_are_parsed_and_other_resources_rejected() {
        for resource in ["source", "document", "item"] {
            for state in ["new", "opened", "closed", "deleted", "created", "updated"] {
                assert!(Event::read(&format!("{resource}.{state}")).is_some());
            }
        }
        for key in ["document", "document.lost", "document.new.x", "domain.created", ""] {
            assert!(Event::read(key).is_none(), "{key}");
        }
    }

    #[test]
    fn base_url_is_required() {
        for (settings, complaint) in [
            (json!(null), "base_url is missing"),
            (json!({"base_url": "librairy"}), "base_url: it is not an absolute URI"),
            (json!({"base_url": "http://h", "x": 1}), "there is no setting \"x\""),
        ] {
            let error = (DIALECT.build)(settings, Limits::default()).err().unwrap().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
