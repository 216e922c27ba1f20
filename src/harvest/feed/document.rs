//! Division of a feed into its entries. Each becomes a document of its own, so that an entry with errors spoils no other
//! one, and the entries before the end of a truncated feed are kept.

use std::time::Duration;

use quick_xml::{
    NsReader,
    events::{BytesStart, Event},
    name::{Namespace, ResolveResult},
};

use crate::{
    format::feed::{DELETED_ENTRY, TOMBSTONES, date},
    model::Timestamp,
};

/// Number of characters of a foreign response that an error shows.
const SHOWN_CHARS: usize = 200;

/// Number of bytes of a document among which the version of a JSON Feed is looked for.
const JSON_FEED_BYTES: usize = 4096;

/// Maximum depth of nested elements.
const MAX_DEPTH: usize = 512;

/// Maximum length of the attributes around the entries, in bytes, because each entry is written with them.
const MAX_ENVELOPE_BYTES: usize = 8 * 1024;

/// Maximum number of entries and deletions of a document. A document of the default size has so many entries of 840 bytes,
/// which is less than the usual size. Each takes about 500 bytes until the page is written.
const MAX_PARTS: usize = 20_000;

/// Maximum length of a link to another document, in bytes.
const MAX_LINK_BYTES: usize = 4096;

/// Namespace of complete feeds and archives (RFC 5005).
const HISTORY: &str = "http://purl.org/syndication/history/1.0";

/// Namespace of RSS 0.90.
const RSS_0_90: &str = "http://my.netscape.com/rdf/simple/0.9/";

/// Namespace of RSS 1.0.
const RSS_1_0: &str = "http://purl.org/rss/1.0/";

/// A feed as the pieces of its text.
#[derive(Debug)]
pub(super) struct FeedDocument<'t> {
    text: &'t str,
    pub(super) envelope: Envelope,
    /// Interval at which the publisher updates the feed, if it says so: `ttl`, or `sy:updatePeriod` divided by
    /// `sy:updateFrequency`.
    pub(super) interval: Option<Duration>,
    /// Links to other documents of the feed.
    pub(super) links: FeedLinks,
    /// Whether the document has all entries of the feed (RFC 5005 section 2).
    pub(super) is_complete: bool,
    /// Whether the document is an archive, whose entries do not change (RFC 5005 section 4).
    pub(super) is_archive: bool,
    /// Entries and deletions, in order.
    pub(super) parts: Vec<FeedPart>,
    /// Reason why the end of the feed cannot be read.
    pub(super) broken: Option<String>,
}

/// The elements around an entry.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    kind: FeedKind,
    /// Attributes around the entries: namespaces, language and base.
    attributes: String,
}

/// Links of a feed to its other documents (RFC 5005), as the document has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FeedLinks {
    /// The archive with the next older entries.
    pub(super) previous_archive: Option<String>,
    /// The next page of a feed that is divided into pages.
    pub(super) next: Option<String>,
    /// The document with the newest entries.
    pub(super) current: Option<String>,
    /// The WebSub hub, and the URL of the feed there (WebSub section 4).
    pub(super) hub: Option<String>,
    pub(super) own: Option<String>,
}

impl FeedLinks {
    /// Notes a link, the first one of each relation.
    fn note(&mut self, start: &BytesStart<'_>) {
        let (Some(relation), Some(target)) = (attribute(start, "rel"), attribute(start, "href")) else { return };
        if target.len() > MAX_LINK_BYTES {
            return;
        }
        let place = match relation.as_str() {
            "prev-archive" => &mut self.previous_archive,
            "next" => &mut self.next,
            "current" => &mut self.current,
            "hub" => &mut self.hub,
            "self" => &mut self.own,
            _ => return,
        };
        place.get_or_insert(target);
    }
}

/// An entry or a deletion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FeedPart {
    /// Place of the element in the text.
    pub(super) from: usize,
    pub(super) to: usize,
    /// The deletion, if it is one.
    pub(super) deletion: Option<Box<Deletion>>,
}

/// Attributes of a deletion (RFC 6721 section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deletion {
    pub(super) id: String,
    pub(super) when: Option<Timestamp>,
}

/// Vocabulary of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedKind {
    /// Atom (RFC 4287): `feed` with `entry`.
    Atom,
    /// RSS 0.91 to 2.0: `rss` with `channel` with `item`.
    Rss,
    /// RSS 0.90 and 1.0: `rdf:RDF` with `item`.
    Rdf,
}

/// The text is not a feed that can be harvested.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAFeed {
    /// The text is a JSON Feed.
    #[error(
        "the response is a JSON Feed, which Tidings does not read; change the url to an RSS or Atom feed of the publisher"
    )]
    Json,
    /// The text begins so.
    #[error("the response is not a feed; it begins with {0:?}")]
    Other(String),
}

impl NotAFeed {
    fn of(text: &str) -> Self {
        let text = text.trim_start();
        // The version is a URL at this host (JSON Feed 1.1).
        let start = text.get(..JSON_FEED_BYTES).unwrap_or(text);
        if text.starts_with('{') && start.contains("jsonfeed.org/version/") {
            return Self::Json;
        }
        Self::Other(text.chars().take(SHOWN_CHARS).collect())
    }
}

impl<'t> FeedDocument<'t> {
    /// Divides a text. All entries together, each with the attributes around it, have at most `all_bytes`; the document is
    /// broken after that, and after [`MAX_PARTS`].
    ///
    /// # Errors
    /// Fails if the root is not that of a feed.
    pub(super) fn parse(text: &'t str, all_bytes: usize) -> Result<Self, NotAFeed> {
        let mut parser = Parser::new(text, all_bytes);
        let (kind, attributes) = parser.root().ok_or_else(|| NotAFeed::of(text))?;
        let mut document = Self {
            text,
            envelope: Envelope { kind, attributes },
            interval: None,
            links: FeedLinks::default(),
            is_complete: false,
            is_archive: false,
            parts: Vec::new(),
            broken: None,
        };
        document.broken = parser.read_parts(&mut document).err();
        document.interval = parser.interval.duration();
        Ok(document)
    }

    /// Returns the element of an entry or a deletion.
    pub(super) fn xml(&self, part: &FeedPart) -> &'t str {
        self.text.get(part.from..part.to).unwrap_or_default()
    }

    /// Returns a document with this part of the feed alone.
    pub(super) fn alone(&self, part: &FeedPart) -> String {
        self.envelope.around(&[self.xml(part)])
    }
}

impl Envelope {
    /// Returns a document with these elements of the feed.
    pub(super) fn around(&self, elements: &[&str]) -> String {
        let attributes = &self.attributes;
        let (start, end) = match self.kind {
            FeedKind::Atom => (format!("<feed{attributes}>"), "</feed>"),
            // One version for all: an item of an older version is an item of 2.0, and the attribute may be missing.
            FeedKind::Rss => (format!("<rss version=\"2.0\"{attributes}><channel>"), "</channel></rss>"),
            FeedKind::Rdf => (format!("<rdf:RDF{attributes}>"), "</rdf:RDF>"),
        };
        [&[start.as_str()], elements, &[end]].concat().concat()
    }

    /// Returns the size of the envelope, in bytes.
    pub(super) fn size(&self) -> usize {
        self.attributes.len() + "<rss version=\"2.0\"><channel></channel></rss>".len()
    }
}

struct Parser<'t> {
    text: &'t str,
    /// Length of the white space before `text`.
    offset: usize,
    /// Size that all entries can still have, in bytes.
    left: usize,
    reader: NsReader<&'t [u8]>,
    /// Number of open elements.
    depth: usize,
    interval: UpdateInterval,
}

/// Elements of a feed about the interval of its updates.
#[derive(Debug, Default)]
struct UpdateInterval {
    /// `ttl` of RSS, in minutes.
    ttl: Option<u64>,
    /// `sy:updatePeriod`, in seconds.
    period: Option<u64>,
    /// `sy:updateFrequency`: number of updates in a period.
    frequency: Option<u64>,
}

impl UpdateInterval {
    fn note(&mut self, name: &[u8], text: &str) {
        let number = text.trim().parse().ok().filter(|number| *number > 0);
        match name {
            b"ttl" => self.ttl = number,
            b"updateFrequency" => self.frequency = number,
            _ => {
                self.period = match text.trim() {
                    "hourly" => Some(60 * 60),
                    "daily" => Some(24 * 60 * 60),
                    "weekly" => Some(7 * 24 * 60 * 60),
                    "monthly" => Some(30 * 24 * 60 * 60),
                    "yearly" => Some(365 * 24 * 60 * 60),
                    _ => None,
                }
            }
        }
    }

    fn duration(&self) -> Option<Duration> {
        let ttl = self.ttl.map(|minutes| minutes.saturating_mul(60));
        let period = self.period.map(|seconds| seconds / self.frequency.unwrap_or(1));
        ttl.max(period).map(Duration::from_secs)
    }
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, all_bytes: usize) -> Self {
        // White space before the XML declaration is common.
        let (length, text) = (text.len(), text.trim_start());
        let offset = length - text.len();
        let mut reader = NsReader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        Self { text, offset, left: all_bytes, reader, depth: 0, interval: UpdateInterval::default() }
    }

    /// Reads up to the root element; `None` if it is not that of a feed.
    fn root(&mut self) -> Option<(FeedKind, String)> {
        loop {
            match self.reader.read_event().ok()? {
                Event::Start(start) => {
                    let kind = match start.local_name().as_ref() {
                        b"feed" => FeedKind::Atom,
                        b"rss" => FeedKind::Rss,
                        b"RDF" => FeedKind::Rdf,
                        _ => return None,
                    };
                    self.depth = 1;
                    let mut attributes = String::new();
                    copy_attributes(kind, &start, &mut attributes)?;
                    if kind == FeedKind::Rdf && !attributes.contains(" xmlns:rdf=") {
                        attributes.push_str(" xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\"");
                    }
                    return Some((kind, attributes));
                }
                Event::Eof | Event::End(_) => return None,
                _ => {}
            }
        }
    }

    /// Reads entries and deletions up to the end of the root.
    ///
    /// # Errors
    /// Fails with the reason if the text is truncated or not well-formed. The parts before the error are complete.
    fn read_parts(&mut self, document: &mut FeedDocument<'t>) -> Result<(), String> {
        while self.depth > 0 {
            let from = self.position();
            match self.reader.read_resolved_event() {
                Ok((namespace, Event::Start(start))) => {
                    self.depth += 1;
                    let deletion = deletion(&namespace, &start);
                    let is_history = is_history(&namespace);
                    let Envelope { kind, attributes } = &mut document.envelope;
                    if deletion.is_some() || is_entry(*kind, self.depth, &start) {
                        self.skip()?;
                        let to = self.position();
                        self.count(document.parts.len(), to - from + document.envelope.size())?;
                        let (from, to) = (from + self.offset, to + self.offset);
                        document.parts.push(FeedPart { from, to, deletion });
                    } else if *kind == FeedKind::Rss && start.local_name().as_ref() == b"channel" {
                        copy_attributes(*kind, &start, attributes).ok_or("the feed has too many namespaces")?;
                    } else if matches!(start.local_name().as_ref(), b"ttl" | b"updatePeriod" | b"updateFrequency") {
                        let from = self.position();
                        self.skip()?;
                        let text = self.text[from..self.position()].split('<').next().unwrap_or_default();
                        self.interval.note(start.local_name().as_ref(), text);
                    } else if start.local_name().as_ref() == b"link" {
                        document.links.note(&start);
                        self.skip()?;
                    } else if is_history {
                        document.is_complete |= start.local_name().as_ref() == b"complete";
                        document.is_archive |= start.local_name().as_ref() == b"archive";
                        self.skip()?;
                    } else if self.depth > 2 || document.envelope.kind == FeedKind::Atom {
                        self.skip()?;
                    }
                }
                Ok((_, Event::End(_))) => self.depth -= 1,
                Ok((_, Event::Eof)) => return Err("the feed is truncated".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("the feed is not well-formed: {error}")),
            }
        }
        Ok(())
    }

    /// Counts an entry of this size after so many others.
    fn count(&mut self, parts: usize, bytes: usize) -> Result<(), String> {
        if parts == MAX_PARTS {
            return Err(format!(
                "the feed has more than {MAX_PARTS} entries; only these were read: ask for a feed that is divided into pages"
            ));
        }
        self.left = self.left.checked_sub(bytes).ok_or(
            "the entries of the feed are too large with the attributes around them; raise page_bytes if that is expected",
        )?;
        Ok(())
    }

    /// Reads up to the end of the element that has just begun.
    fn skip(&mut self) -> Result<(), String> {
        let outside = self.depth - 1;
        while self.depth > outside {
            match self.reader.read_event() {
                Ok(Event::Start(_)) if self.depth >= MAX_DEPTH => {
                    return Err(format!("the feed has more than {MAX_DEPTH} nested elements"));
                }
                Ok(Event::Start(_)) => self.depth += 1,
                Ok(Event::End(_)) => self.depth -= 1,
                Ok(Event::Eof) => return Err("the feed is truncated".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("the feed is not well-formed: {error}")),
            }
        }
        Ok(())
    }

    fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX).min(self.text.len())
    }
}

fn is_entry(kind: FeedKind, depth: usize, start: &BytesStart<'_>) -> bool {
    match kind {
        FeedKind::Atom => depth == 2 && start.local_name().as_ref() == b"entry",
        // RSS 0.90 and some generators of later versions have the items after the channel.
        FeedKind::Rss => depth <= 3 && start.local_name().as_ref() == b"item",
        FeedKind::Rdf => depth == 2 && start.local_name().as_ref() == b"item",
    }
}

fn deletion(namespace: &ResolveResult<'_>, start: &BytesStart<'_>) -> Option<Box<Deletion>> {
    let is_tombstone = matches!(namespace, ResolveResult::Bound(Namespace(name)) if *name == TOMBSTONES.as_bytes());
    if !is_tombstone || start.local_name().as_ref() != DELETED_ENTRY.as_bytes() {
        return None;
    }
    let attribute = |name: &str| attribute(start, name).unwrap_or_default();
    Some(Box::new(Deletion { id: attribute("ref"), when: date::parse(&attribute("when")) }))
}

/// Returns the value of an attribute, without white space at its ends.
fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut attributes = start.attributes();
    let attribute =
        attributes.with_checks(false).flatten().find(|attribute| attribute.key.as_ref() == name.as_bytes())?;
    let value = std::str::from_utf8(&attribute.value).ok()?;
    Some(quick_xml::escape::unescape(value).map_or_else(|_| value.trim().to_owned(), |value| value.trim().to_owned()))
}

fn is_history(namespace: &ResolveResult<'_>) -> bool {
    matches!(namespace, ResolveResult::Bound(Namespace(name)) if *name == HISTORY.as_bytes())
}

/// Appends the attributes that entries depend on: namespaces, language and base. The first one of a name counts. `None`
/// if they are too long.
fn copy_attributes(kind: FeedKind, start: &BytesStart<'_>, attributes: &mut String) -> Option<()> {
    for attribute in start.attributes().with_checks(false).flatten() {
        let Ok(name) = std::str::from_utf8(attribute.key.as_ref()) else { continue };
        let is_context = name == "xmlns" || name.starts_with("xmlns:") || matches!(name, "xml:lang" | "xml:base");
        let Ok(value) = std::str::from_utf8(&attribute.value) else { continue };
        // Elements of RSS have no namespace, and some generators add one. Those of RSS 0.90 are a part of RSS 1.0.
        let value = if (kind, value) == (FeedKind::Rdf, RSS_0_90) { RSS_1_0 } else { value };
        let is_context = is_context && (kind, name) != (FeedKind::Rss, "xmlns");
        if is_context && !attributes.contains(&format!(" {name}=")) {
            attributes.push_str(&format!(" {name}=\"{}\"", value.replace('"', "&quot;").replace('<', "&lt;")));
        }
        if attributes.len() > MAX_ENVELOPE_BYTES {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
