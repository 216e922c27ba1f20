//! The content-change message 0.1: the Atom feed of the page “Fedora Content Change Messaging” (Lyrasis wiki,
//! page 27003136). This module writes and reads it. Its dialect `content-change` also reads [the model's
//! JSON](super::json).
//!
//! The page plans two elements that were never implemented; they are written here: the parent as a link, and
//! the types of the object as categories. All other additions are in a separate namespace ([`TIDINGS`]) or use
//! a registered attribute (`length` of a link, RFC 4287 section 4.2.7.6), so readers of 0.1 can ignore them.

mod copied;
mod read;
mod write;

pub(in crate::format) use read::embedded;
pub(crate) use write::embed;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Dialect, DialectKind, DuplicateDetection, ExtraHeaders, FormatKind, InvalidSettings, Limits, Location, Message,
    MessageLimit, ParsedMessage, Rejection, json, utf8::utf8,
};
use crate::{
    model::{Change, Draft, DraftItems},
    suggestion::nearest_name,
};

/// Maximum number of unknown members of a message that are compared with the known ones.
const MAX_COMPARED: usize = 100;

/// Namespace that the page declares in every message.
const CHANGES: &str = "http://www.acuityunlimited.net/fedora/messaging#";
/// Namespace of the message.
pub(crate) const ATOM_NAMESPACE: &str = super::xml::ATOM;
/// Namespace that the page declares in every message but never uses.
const XSD: &str = "http://www.w3.org/2001/XMLSchema";
/// Namespace of the additions.
pub(crate) const TIDINGS: &str = "urn:tidings:change:1";

/// Relation of the link from an entry to the activity that generated the content, a property of PROV-O.
pub(crate) const GENERATED_BY: &str = "http://www.w3.org/ns/prov#wasGeneratedBy";

/// Relation of the link from an entry to the original of its content, if that is a copy; a property of PROV-O.
pub(crate) const ORIGINAL: &str = "http://www.w3.org/ns/prov#hadPrimarySource";

/// Scheme of the feed's category for the version of the source's software.
pub(crate) const VERSION_SCHEME: &str = "info:fedora/fedora-system:def/view#version";
/// Scheme of the feed's category for the format of the message.
pub(crate) const FORMAT_SCHEME: &str = "http://www.fedora.info/definitions/1/0/types/formatURI";
/// Term of the category for the message format.
pub(crate) const FORMAT_TERM: &str = "http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1";
/// Scheme of the feed's categories for the types of the object. The page plans them without a scheme, so this
/// one follows the pattern of the others.
pub(crate) const OBJECT_TYPE_SCHEME: &str = "changes:CONTENT:OBJECT:TYPE";
/// Label of the categories for object types.
pub(crate) const OBJECT_TYPE_LABEL: &str = "Fedora object type";
/// Scheme of an entry's category for the change type.
pub(crate) const CHANGE_TYPE_SCHEME: &str = "changes:ITEM:CHANGE:TYPE";
/// Label of the category for the change type.
pub(crate) const CHANGE_TYPE_LABEL: &str = "Fedora datastream modification type";
/// Scheme of an entry's category for the state before.
pub(crate) const BEFORE_SCHEME: &str = "changes:CONTENT:ITEM:STATEBEFORE";
/// Label of the category for the state before.
pub(crate) const BEFORE_LABEL: &str = "Fedora datastream state before modification";
/// Scheme of an entry's category for the state after.
pub(crate) const AFTER_SCHEME: &str = "changes:CONTENT:ITEM:STATEAFTER";
/// Label of the category for the state after.
pub(crate) const AFTER_LABEL: &str = "Fedora datastream state after modification";

/// The message 0.1 as a format.
pub(crate) static ATOM: FormatKind = FormatKind {
    name: "atom",
    media_type: "application/atom+xml;type=feed",
    about: "the content-change message 0.1, an Atom feed",
    write: write::change,
    write_modification: write::modification,
    covers: None,
    extra_headers: ExtraHeaders::None,
    routed: None,
    batch: None,
};

/// The message 0.1 and the model's JSON as a dialect.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "content-change",
    about: "content-change messages 0.1 (Atom), and the same as our JSON: a repository plug-in, another gateway",
    accepts: &["application/atom+xml;type=feed", "application/atom+xml", "application/json"],
    headers: &[],
    duplicates: DuplicateDetection::ByBody,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build,
};

/// The dialect has no settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

struct ContentChange {
    limits: Limits,
}

fn build(settings: Value, limits: Limits) -> Result<Box<dyn Dialect>, InvalidSettings> {
    let Settings {} = super::parse_settings(settings)?;
    Ok(Box::new(ContentChange { limits }))
}

impl Dialect for ContentChange {
    /// Distinguishes Atom and JSON by the first byte, because senders often give a wrong content type.
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let draft = match first_byte(message.body) {
            Some(b'{') => read_json(message.body, self.limits)?,
            Some(b'<') => read::draft(message.body, self.limits)?,
            None => {
                let reason = "the body is empty; an Atom feed or a JSON object was expected";
                return Err(Rejection::malformed(Location::Message, reason));
            }
            Some(_) => return Err(neither(message.body)),
        };
        Ok(ParsedMessage::one(draft))
    }
}

fn first_byte(body: &[u8]) -> Option<u8> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().first().copied()
}

fn neither(body: &[u8]) -> Rejection {
    match utf8(body) {
        Err(rejection) => rejection,
        Ok(text) if text.trim_start().starts_with('[') => {
            let reason = "the body is a JSON array; send one change a message, as an object";
            Rejection::unprocessable(Location::Pointer(String::new()), reason)
        }
        Ok(_) => Rejection::malformed(Location::Message, "the body is neither an Atom feed nor a JSON object"),
    }
}

fn read_json(body: &[u8], limits: Limits) -> Result<Draft, Rejection> {
    let draft: Draft = json::read(body).map_err(|rejection| name_misspelt_member(rejection, body))?;
    match &draft.items {
        DraftItems::Listed(items) if items.len() > limits.items => Err(Rejection::over_limit(
            MessageLimit::Items,
            Location::Pointer("/items".into()),
            format!("a message has at most {} items; send several", limits.items),
        )),
        _ => Ok(draft),
    }
}

/// Adds a suggestion to a rejection of a whole change, because the member that it lacks may be misspelt.
fn name_misspelt_member(mut rejection: Rejection, body: &[u8]) -> Rejection {
    let is_about_change = matches!(&rejection.location, Location::Pointer(pointer) if pointer.is_empty());
    let change = utf8(body).ok().filter(|_| is_about_change).and_then(|text| serde_json::from_str(text).ok());
    let change: Map<String, Value> = change.unwrap_or_default();
    let members = Change::member_names();
    let unknown = change.keys().filter(|name| !members.contains(name)).take(MAX_COMPARED);
    let free = || members.iter().map(String::as_str).filter(|member| !change.contains_key(*member));
    let misspelt = unknown.filter_map(|name| Some((name, nearest_name(name, free())?)));
    for (name, member) in misspelt.take(1) {
        rejection.reason.push_str(&format!("; it has {name:?}, perhaps instead of {member:?}"));
    }
    rejection
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Headers, Message, ParsedMessage},
        DIALECT, FORMAT_SCHEME, FORMAT_TERM, Limits, Value,
    };
    use crate::model::{Draft, DraftChange, DraftItems, ItemChange, State};

    /// Parses a message and returns its draft or the error.
    fn read(body: &str) -> Result<Draft, String> {
        let dialect = (DIALECT.build)(Value::Null, Limits::default()).unwrap();
        let message = Message { content_type: None, headers: &Headers::default(), body: body.as_bytes() };
        match dialect.read(&message) {
            Ok(ParsedMessage::Drafts(drafts)) => Ok(drafts[0].clone()),
            Ok(ParsedMessage::NoChange(reason)) => Err(reason.into()),
            Err(rejection) => Err(rejection.to_string()),
        }
    }

    fn feed(inside: &str) -> Result<Draft, String> {
        read(&format!(
            "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:t='urn:tidings:change:1'>\
             <category scheme='{FORMAT_SCHEME}' term='{FORMAT_TERM}'/><link rel='via' href='urn:x:1'/>\n{inside}</feed>"
        ))
    }

    fn entry(inside: &str) -> Result<ItemChange, String> {
        let draft = feed(&format!("<entry><link rel='via' href='urn:x:1' length='7'/>\n{inside}</entry>"))?;
        match &draft.items {
            DraftItems::Listed(items) => match &items[0].change {
                DraftChange::Reported(change) => Ok(change.clone()),
                other => Err(format!("{other:?}")),
            },
            DraftItems::Complete(_) | DraftItems::Purge | DraftItems::Relayed { .. } => Err("no list".into()),
        }
    }

    const ADD: &str = "<category scheme='changes:ITEM:CHANGE:TYPE' term='ADD'/>";

    #[test]
    fn unknown_elements_are_skipped() {
        let change = entry(&format!(
            "<category scheme='urn:x:other' term='?'/><category term='DELETE'/><rights>r</rights><link href='/x'/>\
             <x xmlns='urn:y'><category scheme='changes:ITEM:CHANGE:TYPE' term='?'/></x>\
             <category scheme='changes:CONTENT:ITEM:STATEAFTER' term=' ACTIVE '/>{ADD}<t:late>?</t:late>"
        ));
        assert_eq!(change, Ok(ItemChange::Add { content: None, after: Some(State::ACTIVE) }));
    }

    #[test]
    fn first_of_repeated_elements_is_used() {
        let draft = feed(
            "<title>a</title><title>b</title><link rel='via' href='urn:x:2'/>\
             <id>urn:uuid:11111111-2222-4333-8444-555555555555</id><id>i</id><t:change purge='1'/>",
        )
        .unwrap();
        assert_eq!((draft.description.as_str(), draft.object.as_str()), ("a", "urn:x:1"));
        assert!(draft.id.is_some() && draft.event_id.is_none());
        assert_eq!(draft.items, DraftItems::Purge);
    }

    #[test]
    fn event_attribute_takes_precedence_over_foreign_id() {
        let draft = feed("<id>tag:x</id><t:change purge='true' event='e'/>").unwrap();
        assert_eq!((draft.id, draft.event_id.unwrap().as_str()), (None, "e"));
    }

    #[test]
    fn misspelt_member_is_named() {
        for (body, complaint) in [
            (r#"{"object":"urn:x:1","itmes":[]}"#, "at least one item; it has \"itmes\", perhaps instead of \"items\""),
            (r#"{"objekt":"urn:x:1","purge":true}"#, "`object`; it has \"objekt\", perhaps instead of \"object\""),
        ] {
            let refusal = read(body).unwrap_err();
            assert!(refusal.ends_with(complaint), "{refusal}");
        }
        let refusal = read(r#"{"object":"urn:x:1","x-note":"a"}"#).unwrap_err();
        assert!(refusal.ends_with("at least one item"), "{refusal}");
    }

    #[test]
    fn errors_have_locations() {
        let content = "<content src='urn:x:c'/>";
        for (inside, complaint) in [
            ("<content type='text'>inline</content>".to_owned(), "line 3, column 1: <content> has no src"),
            (format!("{content}<t:digest algorithm='crc32'>0</t:digest>"), "crc32"),
            (
                format!("\n {content}\n<category scheme='changes:ITEM:CHANGE:TYPE'/>"),
                "line 5, column 1: \"\" is not a change type",
            ),
        ] {
            let refusal = entry(&format!("{inside}{ADD}")).unwrap_err();
            assert!(refusal.contains(complaint), "{refusal}");
        }
        for (inside, complaint) in [
            ("<author><uri>me</uri></author>", "the author's uri: it is not an absolute URI"),
            ("<link rel='related' href='../p'/>", "href: it is not an absolute URI"),
            ("<link rel='related'/>", "line 2, column 1: <link> has no href"),
            ("<category scheme='changes:CONTENT:OBJECT:TYPE' term='book'/>", "term: it is not an absolute URI"),
            ("<entry/>", "line 2, column 1: the entry has no link"),
            ("<entry><link rel='via' href='urn:x:1' length='x'/><content src='urn:x:c'/></entry>", "the length"),
            ("<t:change purge='false'/>", "the feed has no entry"),
        ] {
            let refusal = feed(inside).unwrap_err();
            assert!(refusal.contains(complaint), "{refusal}");
        }
    }

    #[test]
    fn feed_of_another_format_is_rejected() {
        let refusal = read("<feed xmlns='http://www.w3.org/2005/Atom'><entry><id>x</id></entry></feed>").unwrap_err();
        assert!(refusal.contains("does not declare its format"), "{refusal}");
    }

    #[test]
    fn items_are_bounded() {
        let limit = Limits::default().items;
        let entry = format!("<entry><link rel='via' href='urn:x:1'/>{ADD}</entry>");
        assert!(feed(&entry.repeat(limit)).is_ok());
        assert!(feed(&entry.repeat(limit + 1)).unwrap_err().contains("at most 10000 entries"));
        let json = |items| {
            let items = vec![r#"{"uri":"urn:x:1","change":"ADD"}"#; items].join(",");
            read(&format!(r#"{{"object":"urn:x:1","items":[{items}]}}"#))
        };
        assert!(json(limit).is_ok());
        assert_eq!(json(limit + 1).unwrap_err(), "/items: a message has at most 10000 items; send several");
    }

    #[test]
    fn first_byte_distinguishes_atom_and_json() {
        assert!(read("\u{FEFF}\n {\"object\":\"urn:x:1\",\"purge\":true}").is_ok());
        assert!(read("").unwrap_err().contains("the body is empty"));
        assert!(read("ingest").unwrap_err().contains("neither an Atom feed nor a JSON object"));
    }

    #[test]
    fn dialect_has_no_settings() {
        let Err(refusal) = (DIALECT.build)(serde_json::json!({ "base": "x" }), Limits::default()) else {
            panic!("taken")
        };
        assert!(refusal.to_string().contains("base"), "{refusal}");
    }
}
