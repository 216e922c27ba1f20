//! Messages in JSON of any sender, by a map in the configuration (`docs/mapped.md`).
//!
//! * Each value of the map is a JSON pointer, a template or a constant. A pointer begins at the element: the message, or
//!   each element of an array of it. Templates name the parts of both.
//! * A message of several elements is read as a whole: if one element cannot be read, all are refused. Otherwise a corrected
//!   map would repeat the changes of the others.
//! * A member that the message lacks, or that is null or blank, is missing in the draft. Only object, item, kind and the
//!   state of a change of state are required.
//! * A time or an optional URI that cannot be read costs itself, as in every dialect; so do a media type, a size and a
//!   digest. A state or a date of visibility that cannot be read refuses the message, because it decides who sees the item.
//! * A template that fails refuses the message: it is a mistake in the map, and the quarantine keeps the message until that is
//!   corrected.

mod cloud_events;
mod draft;
mod kinds;
mod map;
mod value;

use std::cell::{Cell, RefCell};

use self::{draft::Reader, map::Settings, value::Element};
use super::{
    Dialect, DialectKind, DuplicateDetection, ExplainedElement, Limits, Location, Message, MessageLimit, ParsedMessage,
    Rejection, json, routing::ROUTING_KEY,
};
use crate::{
    model::{Draft, NonEmpty},
    template::{Facts, JsonPointer},
};

/// The dialect `mapped`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "mapped",
    about: "JSON or CloudEvents of any sender, by a map in the settings; presets: s3, alfresco, alma",
    accepts: &["application/json", "application/cloudevents+json"],
    headers: HEADERS,
    duplicates: DuplicateDetection::ByBody,
    redact: None,
    repository: None,
    sample_settings: &[
        r#"{"object": "/object"}"#,
        r#"{"preset": "s3"}"#,
        r#"{"preset": "alfresco", "base_url": "https://alfresco.example.org"}"#,
        r#"{"preset": "alma", "base_url": "https://api-eu.hosted.exlibrisgroup.com"}"#,
        r#"{"each": "", "object": "/uri", "item": "{{ element.uri }}/{{ element.name }}", "types": ["/types"],
            "time": "/time", "id": "/id", "parent": "/parent", "user": "/user", "user_uri": "/userUri",
            "description": "{{ message|length }} {{ headers }}", "kind": "/kind", "skip_if": "element.skip",
            "content": {"url": "/url", "media_type": "/type", "size": "/size", "digest": "sha-256:{{ element.digest }}"},
            "state": "/state", "visible_from": "/from", "visible_until": "/until"}"#,
    ],
    build: |value, limits| Ok(Box::new(Mapped { settings: Settings::read(value)?, limits })),
};

/// Prefixes of the headers that the dialect reads: those of CloudEvents, and the routing key.
const HEADERS: &[&str] = &[
    cloud_events::PREFIXES[0],
    cloud_events::PREFIXES[1],
    cloud_events::PREFIXES[2],
    cloud_events::PREFIXES[3],
    ROUTING_KEY,
];

const NOTHING: &str = "no part of the message concerns content, by kinds and skip_if of the source";

/// The configured dialect.
struct Mapped {
    settings: Settings,
    limits: Limits,
}

impl Dialect for Mapped {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let drafts = self.drafts(message, None)?;
        Ok(NonEmpty::try_from(drafts).map_or(ParsedMessage::NoChange(NOTHING), ParsedMessage::Drafts))
    }

    fn explain(&self, message: &Message<'_>) -> Option<Vec<ExplainedElement>> {
        let explained = RefCell::default();
        // The caller reads the message as well, and so learns the reason why the explanation ends.
        let _ = self.drafts(message, Some(&explained));
        Some(explained.into_inner())
    }
}

impl Mapped {
    fn drafts(
        &self,
        message: &Message<'_>,
        explained: Option<&RefCell<Vec<ExplainedElement>>>,
    ) -> Result<Vec<Draft>, Rejection> {
        let map = &self.settings.map;
        let document: Facts = if map.cloudevents { cloud_events::read(message)? } else { json::read(message.body)? };
        let document = match &map.unwrap {
            Some(pointer) => unwrapped(&document, &pointer.0)?,
            None => document,
        };
        let names = self.names(message, &document);
        let bytes_left = Cell::new(self.limits.change_bytes);
        let read = |facts: &Facts, pointer: &str| {
            let names = names.with(&Facts::named([("element", facts.clone())]));
            if self.is_skipped(&names, pointer)? {
                return Ok(None);
            }
            let element = Element { facts, names: &names, pointer, bytes_left: &bytes_left };
            Reader { settings: &self.settings, element, explained }.draft()
        };
        let Some(each) = &map.each else { return Ok(read(&document, "")?.into_iter().collect()) };
        let Some(elements) = document.at(&each.0).and_then(|list| list.elements()) else {
            if self.is_skipped(&names, "")? {
                return Ok(Vec::new());
            }
            let location = Location::Pointer(each.0.to_string());
            return Err(Rejection::unprocessable(
                location,
                "there is no array of events, which `each` of the source names",
            ));
        };
        if elements.len() > self.limits.items {
            let (found, max) = (elements.len(), self.limits.items);
            let reason = format!("the array has {found} elements; at most {max} are allowed: raise limits.items");
            return Err(Rejection::over_limit(MessageLimit::Items, Location::Pointer(each.0.to_string()), reason));
        }
        let mut drafts = Vec::new();
        for (index, facts) in elements.enumerate() {
            drafts.extend(read(&facts, &format!("{}/{index}", each.0))?);
        }
        Ok(drafts)
    }

    /// Returns the names that templates have besides `element`.
    fn names(&self, message: &Message<'_>, document: &Facts) -> Facts {
        let headers = message.headers.with_prefixes(HEADERS);
        let headers = Facts::named(headers.iter().map(|(name, value)| (name, Facts::of_text(value))));
        let base_url =
            self.settings.map.base_url.as_ref().map(|url| ("base_url", Facts::of_trusted_text(url.as_str())));
        let names = [("message", document.clone()), ("headers", headers)];
        Facts::named(names.into_iter().chain(base_url))
    }

    fn is_skipped(&self, names: &Facts, pointer: &str) -> Result<bool, Rejection> {
        let Some(condition) = &self.settings.map.skip_if else { return Ok(false) };
        condition.0.holds(names).map_err(|error| {
            Rejection::unprocessable(Location::Pointer(pointer.to_owned()), format!("the condition skip_if: {error}"))
        })
    }
}

/// Parses the message that an envelope has as a text.
fn unwrapped(envelope: &Facts, pointer: &JsonPointer) -> Result<Facts, Rejection> {
    let refused = |reason: String| Rejection::unprocessable(Location::Pointer(pointer.to_string()), reason);
    let text = envelope.at(pointer).and_then(|text| text.text());
    let text = text.ok_or_else(|| refused("there is no text, which `unwrap` of the source names".to_owned()))?;
    json::read(text.as_bytes()).map_err(|error| refused(format!("the text that `unwrap` names: {error}")))
}
