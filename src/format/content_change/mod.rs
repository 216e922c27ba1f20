//! The content-change message 0.1: the Atom feed of the Fedora Content Change Messaging page
//! (Lyrasis wiki, page 27003136), written and read, and the dialect `content-change`, which reads
//! [our JSON](super::json) too.
//!
//! What that page planned and never sent is sent here: the parent, as a link, and the types of the
//! object, as categories. What it did not plan is foreign markup in a namespace of our own
//! ([`TIDINGS`]) or a registered attribute (`length` on a link, RFC 4287 section 4.2.7.6), so that
//! a reader of 0.1 is not disturbed.

mod read;
mod write;

use serde::Deserialize;
use serde_json::Value;

use super::{Dialect, DialectKind, FormatKind, InvalidSettings, Message, Place, Reading, Rejection, Repeats, json};
use crate::model::{Draft, DraftItems};

/// The namespace that the page declares on every message.
const CHANGES: &str = "http://www.acuityunlimited.net/fedora/messaging#";
/// Declared by the page on every message, and not used in any.
const XSD: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of what we add.
const TIDINGS: &str = "urn:tidings:change:1";

/// Scheme of the feed's category for the version of the source's software.
const VERSION_SCHEME: &str = "info:fedora/fedora-system:def/view#version";
/// Scheme of the feed's category for the format of the message.
const FORMAT_SCHEME: &str = "http://www.fedora.info/definitions/1/0/types/formatURI";
/// Term of that category.
const FORMAT_TERM: &str = "http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1";
/// Scheme of the feed's categories for the types of the object: the page plans them and gives no
/// scheme, so this one is made after those that it gives.
const OBJECT_TYPE_SCHEME: &str = "changes:CONTENT:OBJECT:TYPE";
/// Scheme of an entry's category for the change type.
const CHANGE_TYPE_SCHEME: &str = "changes:ITEM:CHANGE:TYPE";
/// Scheme of an entry's category for the state before.
const BEFORE_SCHEME: &str = "changes:CONTENT:ITEM:STATEBEFORE";
/// Scheme of an entry's category for the state after.
const AFTER_SCHEME: &str = "changes:CONTENT:ITEM:STATEAFTER";

/// The 0.1 message as a format.
pub(super) static ATOM: FormatKind = FormatKind {
    name: "atom",
    media_type: "application/atom+xml;type=feed",
    about: "the content-change message 0.1, an Atom feed",
    write: write::change,
    write_modification: write::modification,
};

/// The 0.1 message and our JSON as a dialect.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "content-change",
    about: "content-change messages 0.1 (Atom), and the same as our JSON: a repository plug-in, another gateway",
    accepts: &["application/atom+xml;type=feed", "application/atom+xml", "application/json"],
    headers: &[],
    repeats: Repeats::SameBody,
    build,
};

/// How many items a message may have.
const MAX_ITEMS: usize = 10_000;

/// The dialect has nothing to set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

struct ContentChange;

fn build(settings: Value) -> Result<Box<dyn Dialect>, InvalidSettings> {
    let Settings {} = super::settings(settings)?;
    Ok(Box::new(ContentChange))
}

impl Dialect for ContentChange {
    /// Atom or JSON is told from the first byte: senders get the content type wrong.
    fn read(&self, message: &Message<'_>) -> Result<Reading, Rejection> {
        let draft = match first_byte(message.body) {
            Some(b'{') => read_json(message.body)?,
            Some(b'[') => {
                let reason = "the body is a JSON array; send one change a message, as an object";
                return Err(Rejection::unprocessable(Place::Pointer(String::new()), reason));
            }
            Some(b'<') => read::draft(message.body)?,
            Some(_) if is_json(message.content_type) => read_json(message.body)?,
            _ => read::draft(message.body)?,
        };
        Ok(Reading::one(draft))
    }
}

fn read_json(body: &[u8]) -> Result<Draft, Rejection> {
    let draft: Draft = json::read(body)?;
    match &draft.items {
        DraftItems::Listed(items) if items.len() > MAX_ITEMS => Err(Rejection::unprocessable(
            Place::Pointer("/items".into()),
            format!("a message has at most {MAX_ITEMS} items; send several"),
        )),
        _ => Ok(draft),
    }
}

fn first_byte(body: &[u8]) -> Option<u8> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().first().copied()
}

fn is_json(content_type: Option<&str>) -> bool {
    content_type.is_some_and(|told| told.to_ascii_lowercase().contains("json"))
}
