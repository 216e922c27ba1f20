//! `fedora-apim`: the messages that Fedora 3.0 to 3.8 sends by JMS, an Atom entry for each call of
//! its management API (format `info:fedora/fedora-system:ATOM-APIM-1.0`).
//!
//! The title is the method, the categories are its parameters, the content is what it returned and
//! the author's URI is the repository's base URL; Fedora's `AtomAPIMMessage` writes it so.
//! [`entry`] reads the XML, [`method`] has the table of what each method did, [`call`] answers its
//! questions, and [`rest`] knows the URIs that Fedora's REST API has for objects and datastreams.
//!
//! What a message cannot tell is left to the registry: which datastreams an ingest brought or a
//! purge took, the state before, whether RELS-EXT was there already.

mod call;
mod entry;
mod method;
mod rest;

pub use rest::{InvalidName, RestNames};

use serde::Deserialize;
use serde_json::Value;

use self::{
    call::Call,
    entry::{Entry, Field},
    method::{Effect, Method},
    rest::BaseUrl,
};
use super::{
    Dialect, DialectKind, Headers, InvalidSettings, Limits, Message, Place, Reading, Rejection, Repeats, RepositoryApi,
    RepositoryKind, settings,
};
use crate::model::{Draft, DraftLookup, EventId, Text, User};

/// The format that Fedora 3.3 and later name in each message.
const FORMAT: &str = "info:fedora/fedora-system:ATOM-APIM-1.0";

/// The properties of Fedora's JMS messages; they stand in for what a message itself lacks.
const METHOD_HEADER: &str = "methodname";
const PID_HEADER: &str = "pid";

/// The dialect, as it is offered to the configuration.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "fedora-apim",
    about: "Fedora 3.0 to 3.8: its JMS messages, an Atom entry (ATOM-APIM-1.0) for each API-M call",
    accepts: &["application/atom+xml;type=entry", "application/atom+xml", "application/xml", "text/xml"],
    headers: &[METHOD_HEADER, PID_HEADER],
    repeats: Repeats::SameBody,
    redact: None,
    repository: Some(RepositoryKind { api: RepositoryApi::Fedora3, not_walkable: None }),
    sample_settings: &["{}", r#"{"base_url": "http://h.example/rest"}"#],
    build,
};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Fedora's base URL, as in `http://localhost:8080/fedora`; without it the one in each message
    /// counts, which is what Fedora takes for its own name and may not be the public one.
    base_url: Option<BaseUrl>,
}

struct FedoraApim {
    base_url: Option<BaseUrl>,
    limits: Limits,
}

fn build(value: Value, limits: Limits) -> Result<Box<dyn Dialect>, InvalidSettings> {
    let Settings { base_url } = settings(value)?;
    Ok(Box::new(FedoraApim { base_url, limits }))
}

impl Dialect for FedoraApim {
    fn read(&self, message: &Message<'_>) -> Result<Reading, Rejection> {
        let entry = Entry::read(message.body, self.limits)?;
        let (method, name) = identify(&entry, message.headers)?;
        let call = Call { method, entry: &entry, headers: message.headers, base_url: self.base_url.as_ref() };
        let (items, untold) = match method.effect(&call)? {
            Effect::Items(items, untold) => (items, untold),
            Effect::Nothing(reason) => return Ok(Reading::Nothing(reason)),
        };
        Ok(Reading::one(Draft {
            id: None,
            event_id: event_id(&entry),
            software_version: entry.version.as_ref().map(|version| Text::new(version.value())),
            user: User::new(entry.author.as_ref().map_or("", |name| name.value()), None),
            time: entry.updated.as_ref().map(Field::date).transpose()?.into(),
            object: call.object()?,
            parent: None,
            types: Vec::new(),
            description: Text::new(name),
            items,
            lookup: DraftLookup::of(untold),
        }))
    }
}

/// Which method was called, and its name. The broker may carry other Atom messages, which must not
/// be taken for Fedora's.
fn identify<'a>(entry: &'a Entry<'_>, headers: &'a Headers) -> Result<(Method, &'a str), Rejection> {
    if let Some(format) = entry.format.as_ref().filter(|format| format.value() != FORMAT) {
        let found = shown(format.value());
        return Err(format.refused(format!("this is not Fedora 3's: its format is {found}, not {FORMAT}")));
    }
    let (name, place) = match (&entry.title, header(headers, METHOD_HEADER)) {
        (Some(title), _) => (title.value(), title.place()),
        (None, Some(name)) => (name, Place::Header(METHOD_HEADER.to_owned())),
        (None, None) => {
            return Err(entry.refused("this is not Fedora 3's: it has no title, where Fedora names the method called"));
        }
    };
    let Some(method) = Method::parse(name) else {
        let found = shown(name);
        return Err(Rejection::unprocessable(place, format!("this is not Fedora 3's: {found} is no method of API-M")));
    };
    // Fedora 3.0 names no format, nor do the scripts of some sites that ask for a re-index in
    // Fedora's name: then at least nothing may speak against it.
    match (&entry.format, &entry.foreign) {
        (None, Some(foreign)) => Err(foreign.refusal()),
        _ => Ok((method, name)),
    }
}

/// The entry's id, unless it claims to be a UUID and is not: a re-index script of the University of
/// Manitoba sends `urn:uuid:fake` with every message, and taking that for an identifier would lose
/// all but the first.
fn event_id(entry: &Entry<'_>) -> Option<EventId> {
    let id = entry.id.as_ref()?.value();
    let is_fake = id.starts_with("urn:uuid:") && uuid::Uuid::try_parse(id).is_err();
    if is_fake { None } else { EventId::parse(id) }
}

fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.get(name).map(str::trim).filter(|value| entry::is_value(value))
}

/// A stranger's text in quotation marks, cut so that a complaint stays readable.
fn shown(raw: &str) -> String {
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
