//! `fedora-apim`: JMS messages of Fedora 3.0 to 3.8, an Atom entry for each call of the management API (format
//! `info:fedora/fedora-system:ATOM-APIM-1.0`).
//!
//! Fedora's `AtomAPIMMessage` writes the method as title, the parameters as categories, the return value as
//! content, and the repository's base URL as author URI. [`entry`] parses the XML, [`method`] contains the
//! table of effects, [`call`] extracts the data for it, and [`rest`] builds the URIs of Fedora's REST API.
//!
//! The registry supplies what a message lacks: the datastreams of an ingest or a purge, the state before, and
//! whether RELS-EXT existed.

mod call;
mod entry;
mod method;
mod rest;

pub use rest::{InvalidRestUri, RestUris};

use serde::Deserialize;
use serde_json::Value;

use self::{
    call::Call,
    entry::Entry,
    method::{Effect, Method},
    rest::BaseUrl,
};
use super::{
    Dialect, DialectKind, DuplicateDetection, Headers, InvalidSettings, Limits, Location, Message, ParsedMessage,
    Rejection, RepositoryApi, RepositoryKind, parse_settings,
};
use crate::model::{Draft, DraftLookup, DroppedPart, EventId, Reading, Text, User};

/// Format that Fedora 3.3 and later declare in each message.
const FORMAT: &str = "info:fedora/fedora-system:ATOM-APIM-1.0";

/// Properties of Fedora's JMS messages, used if the message lacks the element.
const METHOD_HEADER: &str = "methodname";
const PID_HEADER: &str = "pid";

/// The dialect `fedora-apim`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "fedora-apim",
    about: "Fedora 3.0 to 3.8: its JMS messages, an Atom entry (ATOM-APIM-1.0) for each API-M call",
    accepts: &["application/atom+xml;type=entry", "application/atom+xml", "application/xml", "text/xml"],
    headers: &[METHOD_HEADER, PID_HEADER],
    duplicates: DuplicateDetection::ByBody,
    redact: None,
    repository: Some(RepositoryKind { api: RepositoryApi::Fedora3, not_crawlable: None }),
    sample_settings: &["{}", r#"{"base_url": "http://h.example/rest"}"#],
    build,
};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Base URL of Fedora, as in `http://localhost:8080/fedora`. By default it is taken from each message; that
    /// is Fedora's own name for itself, which may not be public.
    base_url: Option<BaseUrl>,
}

struct FedoraApim {
    base_url: Option<BaseUrl>,
    limits: Limits,
}

fn build(value: Value, limits: Limits) -> Result<Box<dyn Dialect>, InvalidSettings> {
    let Settings { base_url } = parse_settings(value)?;
    Ok(Box::new(FedoraApim { base_url, limits }))
}

impl Dialect for FedoraApim {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let entry = Entry::read(message.body, self.limits)?;
        let (method, name) = identify(&entry, message.headers)?;
        let call = Call { method, entry: &entry, headers: message.headers, base_url: self.base_url.as_ref() };
        let (items, missing) = match method.effect(&call)? {
            Effect::Items(items, missing) => (items, missing),
            Effect::Nothing(reason) => return Ok(ParsedMessage::NoChange(reason)),
        };
        let mut reading = Reading::default();
        Ok(ParsedMessage::one(Draft {
            id: None,
            event_id: event_id(&entry),
            software_version: entry.version.as_ref().map(|version| Text::new(version.value())),
            user: User::new(entry.author.as_ref().map_or("", |name| name.value()), None),
            time: entry.updated.as_ref().and_then(|date| reading.keep(DroppedPart::Time, date.date())).into(),
            object: call.object()?,
            parent: None,
            types: Vec::new(),
            description: Text::new(name),
            items,
            report: None,
            lookup: DraftLookup::of(missing),
            reading,
        }))
    }
}

/// Returns the method and its name. The broker may carry other Atom messages, which are rejected.
fn identify<'a>(entry: &'a Entry<'_>, headers: &'a Headers) -> Result<(Method, &'a str), Rejection> {
    if let Some(format) = entry.format.as_ref().filter(|format| format.value() != FORMAT) {
        let actual = quoted(format.value());
        return Err(format.rejection(format!("this is not Fedora 3's: its format is {actual}, not {FORMAT}")));
    }
    let (name, location) = match (&entry.title, header(headers, METHOD_HEADER)) {
        (Some(title), _) => (title.value(), title.location()),
        (None, Some(name)) => (name, Location::Header(METHOD_HEADER.to_owned())),
        (None, None) => {
            return Err(entry.rejection("this is not Fedora 3's: it has no title, in which Fedora writes the method"));
        }
    };
    let Some(method) = Method::parse(name) else {
        let actual = quoted(name);
        return Err(Rejection::unprocessable(
            location,
            format!("this is not Fedora 3's: {actual} is no method of API-M"),
        ));
    };
    // Fedora 3.0 declares no format, nor do re-index scripts of some sites. In this case there must be no
    // evidence of another sender.
    match (&entry.format, &entry.foreign) {
        (None, Some(foreign)) => Err(foreign.refusal()),
        _ => Ok((method, name)),
    }
}

/// Returns the entry's id, unless it claims to be a UUID and is not. A re-index script of the University of
/// Manitoba sends `urn:uuid:fake` in every message; as an identifier it would make all but the first message
/// duplicates.
fn event_id(entry: &Entry<'_>) -> Option<EventId> {
    let id = entry.id.as_ref()?.value();
    let is_fake = id.starts_with("urn:uuid:") && uuid::Uuid::try_parse(id).is_err();
    if is_fake { None } else { EventId::parse(id) }
}

fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.get(name).map(str::trim).filter(|value| entry::is_value(value))
}

/// Quotes and truncates text from a message for an error.
fn quoted(raw: &str) -> String {
    format!("{:?}", raw.chars().take(120).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Limits;

    #[test]
    fn settings_are_checked_when_the_source_is_set_up() {
        assert!(
            super::build(json!({ "base_url": "https://repository.example.org/fedora/" }), Limits::default()).is_ok()
        );
        for (settings, complaint) in [
            (json!({ "base_uri": "http://h/fedora" }), "there is no setting \"base_uri\""),
            (json!({ "base_url": "/fedora" }), "base_url: it is not an absolute URI"),
            (json!({ "base_url": "info:fedora" }), "base_url: a base URL begins with http"),
            (json!({ "base_url": "http://h/fedora?x=1" }), "base_url: a base URL has no query"),
            (json!({ "base_url": "http://user:secret@h/fedora" }), "base_url: a base URL has no user or password"),
        ] {
            let refused = super::build(settings, Limits::default()).err().unwrap().to_string();
            assert!(refused.contains(complaint), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
