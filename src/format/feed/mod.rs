//! Entries of RSS and Atom feeds, each in a feed document of its own, and deletions of entries (`at:deleted-entry`,
//! RFC 6721).
//!
//! * The object is the entry. Its URI is the id of the entry (`atom:id`, `guid`) if that is a URI, and otherwise a URI
//!   with the URL of the feed. An entry without an id has its link instead, and one without both a digest of its title
//!   and content.
//! * The entry itself is an item with the same URI. Its digest is that of the canonical entry, so an entry with another
//!   date alone is unchanged.
//! * Each enclosure, and content at another URL (`src`), is an item with its own URL, its media type and its size.
//! * A deleted entry is absent. An entry that a feed no longer has is no message, and so never deleted.
//!
//! Headers give the facts that an entry does not contain: the URL of the feed, the date of the response, and the
//! property that identifies the entry, because ids of a feed may not be unique.

pub(crate) mod date;
mod enclosure_url;
mod entry;

use std::collections::BTreeSet;

use percent_encoding::utf8_percent_encode;
use serde::{Deserialize, Serialize};
use url::Url;

use self::entry::{Attachment, ParsedEntry};
pub use self::entry::{EntryIdentity, identify};
use super::{
    Dialect, DialectKind, DuplicateDetection, Limits, Location, Message, MessageLimit, NOT_UNRESERVED, ParsedMessage,
    Rejection, parse_settings, xml::Document,
};
use crate::model::{
    ContentLocation, Digest, DigestAlgorithm, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime,
    InvalidUri, MediaType, NonEmpty, Reading, Text, Timestamp, Uri, User,
};

/// Header with the URL of the feed, without credentials and query.
pub const FEED_URL: &str = "feed-url";

/// Header with the property that identifies the entry, an [`EntryKey`].
pub const ENTRY_KEY: &str = "feed-entry-key";

/// Header of entries whose ids are URIs if they look so, as in earlier versions.
pub const ANY_SCHEME: &str = "feed-any-scheme";

/// Schemes whose URIs are the same thing everywhere. An id with another one, such as `story:1`, is that of its feed.
const GLOBAL_SCHEMES: [&str; 12] =
    ["http", "https", "urn", "tag", "doi", "info", "hdl", "ark", "ftp", "file", "magnet", "at"];

/// Header with the date of the response that contained the entry.
pub const RESPONSE_DATE: &str = "feed-response-date";

/// Header of an entry that several feeds show, an [`EntryShare`].
pub const ENTRY_SHARE: &str = "feed-entry-share";

/// Namespace of deletions (RFC 6721 section 2).
pub const TOMBSTONES: &str = "http://purl.org/atompub/tombstones/1.0";

/// Local name of the element for a deletion.
pub const DELETED_ENTRY: &str = "deleted-entry";

/// Time after the response from which the date of an entry counts as wrong, in milliseconds.
const MAX_FUTURE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// The dialect `feed`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "feed",
    about: "entries of RSS and Atom feeds",
    accepts: &["application/atom+xml", "application/rss+xml", "application/xml", "text/xml"],
    headers: &["feed-"],
    duplicates: DuplicateDetection::Impossible,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build: |value, limits| {
        let Settings {} = parse_settings(value)?;
        Ok(Box::new(Feed { limits }))
    },
};

named_values! {
    /// Property that identifies an entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EntryKey {
        /// The id; without one the link, and without both the content.
        Id = "id",
        /// The link, because the id is not unique; without one the content.
        Link = "link",
        /// A digest of title and content, because id and link are not unique.
        Content = "content",
    }
}

/// Share of a feed in an entry that other feeds show too. Files that only they have stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryShare {
    /// Whether another feed describes the entry, so that only the files count.
    pub is_described: bool,
    /// URLs of the files that another feed describes.
    pub described: BTreeSet<String>,
    /// URLs of the files that no feed has any more.
    pub gone: Vec<String>,
}

/// Settings of a source: none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

/// The configured dialect.
struct Feed {
    limits: Limits,
}

/// A deletion.
struct Tombstone {
    id: String,
    when: Option<Timestamp>,
}

impl Dialect for Feed {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let feed_url = message.headers.get(FEED_URL).ok_or_else(|| {
            let reason = format!("the header {FEED_URL} is missing; a harvest adds it to each entry");
            Rejection::unprocessable(Location::Message, reason)
        })?;
        let any_scheme = message.headers.get(ANY_SCHEME).is_some();
        let response_date = message.headers.get(RESPONSE_DATE).and_then(|date| Timestamp::parse(date).ok());
        let share = message.headers.get(ENTRY_SHARE).map(read_share).transpose()?;
        if let Some(Tombstone { id, when }) = self.tombstone(message.body) {
            let object = object_uri(feed_url, &id, any_scheme)?;
            let description = Text::new(&format!("entry {id}"));
            let time = draft_time(when, response_date);
            let Some(items) = draft_items(None, Vec::new(), share) else { return Ok(NOTHING_LEFT) };
            return Ok(ParsedMessage::one(draft(object, description, time, items)));
        }
        let key = match message.headers.get(ENTRY_KEY) {
            None => EntryKey::Id,
            Some(name) => EntryKey::ALL.into_iter().find(|key| key.name() == name).ok_or_else(|| {
                let reason = format!("there is no key {name:?}; there are id, link and content");
                Rejection::unprocessable(Location::Header(ENTRY_KEY.to_owned()), reason)
            })?,
        };
        let entry = ParsedEntry::parse(message.body, feed_url)
            .map_err(|reason| Rejection::unprocessable(Location::Message, reason))?;
        let key = entry.identity().key(key);
        let object = object_uri(feed_url, &key, any_scheme)?;
        let attachments = entry.attachments(feed_url);
        let (items, max) = (attachments.len() + 1, self.limits.items);
        if items > max {
            let reason = format!("the entry has {items} items, and limits.items is {max}");
            return Err(Rejection::over_limit(MessageLimit::Items, Location::Message, reason));
        }
        let files = attachments.into_iter().filter(|attachment| attachment.url != object);
        let items = draft_items(Some(entry_item(&object, &entry)), files.collect(), share);
        let Some(items) = items else { return Ok(NOTHING_LEFT) };
        let title = entry.title();
        let description = if title.is_empty() { format!("entry {key}") } else { format!("entry {key}: {title}") };
        let time = draft_time(entry.identity().date, response_date);
        Ok(ParsedMessage::one(draft(object, Text::new(&description), time, items)))
    }
}

impl Feed {
    /// Returns the deletion that a message consists of; `None` for an entry.
    fn tombstone(&self, body: &[u8]) -> Option<Tombstone> {
        // Nearly all messages are entries, and feeds with errors are more tolerantly read by their own parser.
        memchr::memmem::find(body, DELETED_ENTRY.as_bytes())?;
        let mut document = Document::open(body, self.limits).ok()?;
        document.root().ok()?;
        let child = document.child().ok()??;
        let id = child.is(TOMBSTONES, DELETED_ENTRY).then(|| child.attribute("ref"))??.trim().to_owned();
        let when = child.attribute("when").and_then(|when| date::parse(&when));
        (!id.is_empty()).then_some(Tombstone { id, when })
    }
}

const NOTHING_LEFT: ParsedMessage = ParsedMessage::NoChange("other feeds describe the entry and its files");

fn read_share(text: &str) -> Result<EntryShare, Rejection> {
    serde_json::from_str(text)
        .map_err(|error| Rejection::unprocessable(Location::Header(ENTRY_SHARE.to_owned()), error.to_string()))
}

/// Returns the items of an entry with these files. Of an entry that other feeds show too, nothing else is absent than the
/// files that its share names. `None` if other feeds describe everything.
fn draft_items(entry: Option<DraftItem>, files: Vec<Attachment>, share: Option<EntryShare>) -> Option<DraftItems> {
    let Some(EntryShare { is_described, described, gone }) = share else {
        return Some(DraftItems::Complete(entry.into_iter().chain(files.into_iter().map(attachment_item)).collect()));
    };
    let entry = entry.filter(|_| !is_described);
    let files = files.into_iter().filter(|file| !described.contains(file.url.as_str())).map(attachment_item);
    let gone = gone.iter().filter_map(|url| Uri::parse(url).ok()).map(|url| DraftItem::new(url, DraftChange::Absent));
    let items: Vec<_> = entry.into_iter().chain(files).chain(gone).collect();
    NonEmpty::try_from(items).map(DraftItems::Listed).ok()
}

fn draft(object: Uri, description: Text, time: DraftTime, items: DraftItems) -> Draft {
    Draft {
        id: None,
        event_id: None,
        software_version: None,
        user: User::unknown(),
        time,
        object,
        parent: None,
        types: Vec::new(),
        description,
        items,
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    }
}

/// Returns the item for the entry itself. Its content is at the link of the entry.
fn entry_item(object: &Uri, entry: &ParsedEntry) -> DraftItem {
    let link = entry.identity().link.as_deref().and_then(|link| Uri::parse(link).ok());
    let content = ContentLocation {
        media_type: entry.link_type().and_then(|media_type| MediaType::parse(media_type).ok()),
        digest: Digest::parse(DigestAlgorithm::Sha256, &entry.identity().digest).ok(),
        ..ContentLocation::at(link.unwrap_or_else(|| object.clone()))
    };
    DraftItem::new(object.clone(), DraftChange::Present { content: Some(content), state: None })
}

fn attachment_item(attachment: Attachment) -> DraftItem {
    let Attachment { url, media_type, size } = attachment;
    let content = ContentLocation {
        media_type: media_type.and_then(|media_type| MediaType::parse(&media_type).ok()),
        size,
        ..ContentLocation::at(url.clone())
    };
    DraftItem::new(url, DraftChange::Present { content: Some(content), state: None })
}

/// Returns the time of an entry: its date, or the date of the response if it has none or one in the future.
fn draft_time(date: Option<Timestamp>, response_date: Option<Timestamp>) -> DraftTime {
    let is_possible = |date: &Timestamp| {
        response_date.is_none_or(|response| date.millis().saturating_sub(response.millis()) <= MAX_FUTURE_MILLIS)
    };
    date.filter(is_possible).or(response_date).map_or(DraftTime::Arrival, DraftTime::Observed)
}

fn object_uri(feed_url: &str, key: &str, any_scheme: bool) -> Result<Uri, Rejection> {
    entry_uri(feed_url, key, any_scheme).map_err(|error| {
        Rejection::unprocessable(Location::Message, format!("the entry {key:?} has no valid URI: {error}"))
    })
}

/// Returns the URI of an entry: its key if that is a URI with a global scheme, or with any scheme if `any_scheme`, and
/// otherwise the URL of the feed with the key as fragment.
///
/// # Errors
/// Fails if the URI is too long.
pub fn entry_uri(feed_url: &str, key: &str, any_scheme: bool) -> Result<Uri, InvalidUri> {
    let is_global = |uri: &Uri| {
        let scheme = uri.as_str().split(':').next().unwrap_or_default().to_ascii_lowercase();
        any_scheme || GLOBAL_SCHEMES.contains(&scheme.as_str())
    };
    if let Some(uri) = Uri::parse(key).ok().filter(is_global) {
        return Ok(uri);
    }
    // The URL of a feed with a query has a fragment already, which stands for the query.
    let separator = if Url::parse(feed_url).is_ok_and(|url| url.fragment().is_some()) { '/' } else { '#' };
    Uri::parse(&format!("{feed_url}{separator}{}", utf8_percent_encode(key, NOT_UNRESERVED)))
}

#[cfg(test)]
mod tests;
