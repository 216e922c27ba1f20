//! One entry as feed-rs parses it, with its identity, its canonical digest and its attachments.

use std::{cell::RefCell, collections::HashSet, rc::Rc};

use feed_rs::{
    model::{Category, Entry, Link},
    parser::Builder,
};
use sha2::{Digest, Sha256};
use url::Url;

use super::{EntryKey, date, enclosure_url::unsigned};
use crate::model::{Timestamp, Uri};

/// Relations of links that belong to the content of an entry. Others, such as `replies`, `self` or `edit`, describe
/// its surroundings.
const CONTENT_RELATIONS: [&str; 4] = ["alternate", "enclosure", "related", "via"];

/// Maximum size of the URLs by which a later document recognises the files of an entry, in bytes.
const MAX_FILE_BYTES: usize = 8 << 10;

/// Maximum length of an unreadable date that is shown, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// A parsed entry.
pub(super) struct ParsedEntry {
    entry: Entry,
    identity: EntryIdentity,
}

/// The properties by which an entry is recognised in a later document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryIdentity {
    /// `atom:id` or `guid`.
    pub id: Option<String>,
    /// First link to the entry itself.
    pub link: Option<String>,
    /// Title, with single spaces.
    pub title: String,
    /// Date of the last modification, or else of the publication.
    pub date: Option<Timestamp>,
    /// First date of the entry that cannot be read.
    pub unreadable_date: Option<String>,
    /// First URL of an enclosure that has a signature, without it.
    pub signed_url: Option<String>,
    /// URLs of the enclosures and of content at another URL, without signatures; the first 8 KiB of them.
    pub files: Vec<String>,
    /// SHA-256 of title, links, summary, content, enclosures and categories, in a canonical form.
    pub digest: String,
    /// SHA-256 of title, summary and content.
    pub content_digest: String,
}

/// Content of an entry at a URL of its own.
pub(super) struct Attachment {
    pub(super) url: Uri,
    pub(super) media_type: Option<String>,
    pub(super) size: Option<u64>,
}

impl EntryIdentity {
    /// Returns the value that identifies the entry.
    #[must_use]
    pub fn key(&self, key: EntryKey) -> String {
        let id = self.id.as_ref().filter(|_| key == EntryKey::Id);
        let link = self.link.as_ref().filter(|_| key != EntryKey::Content);
        id.or(link).cloned().unwrap_or_else(|| format!("sha256-{}", self.content_digest))
    }
}

/// Parses a document with one entry, and returns the properties that identify it. `feed_url` is the base of relative
/// links.
///
/// # Errors
/// Fails with the reason if the document cannot be parsed, or has not exactly one entry.
pub fn identify(document: &[u8], feed_url: &str) -> Result<EntryIdentity, String> {
    ParsedEntry::parse(document, feed_url).map(|entry| entry.identity)
}

impl ParsedEntry {
    pub(super) fn parse(document: &[u8], feed_url: &str) -> Result<Self, String> {
        // An id that the parser invents would be a random one for some entries, and another one in each document.
        let unreadable: Rc<RefCell<Option<String>>> = Rc::default();
        let dates = Rc::clone(&unreadable);
        let parser = Builder::new()
            .base_uri(Some(feed_url))
            .id_generator(|_, _, _| String::new())
            .timestamp_parser(move |text| {
                let date = date::parse_datetime(text);
                if date.is_none() && !text.trim().is_empty() {
                    dates.borrow_mut().get_or_insert_with(|| text.trim().chars().take(MAX_SHOWN_CHARS).collect());
                }
                date
            })
            .build();
        let mut entries = parser.parse(document).map_err(|error| error.to_string())?.entries.into_iter();
        let (Some(entry), None) = (entries.next(), entries.next()) else {
            return Err("the document has not exactly one entry with an id, a link or a title".to_owned());
        };
        let mut bytes = 0;
        let files = attachments(&entry, feed_url).into_iter().map(|file| file.url.to_string());
        let files = files.take_while(|url| {
            bytes += url.len();
            bytes <= MAX_FILE_BYTES
        });
        let files = files.collect();
        let identity = EntryIdentity { unreadable_date: unreadable.take(), files, ..EntryIdentity::of(&entry) };
        if identity.id.is_none() && identity.link.is_none() && content_texts(&entry).all(|text| text.is_empty()) {
            return Err("the entry has neither an id nor a link nor content".to_owned());
        }
        Ok(Self { entry, identity })
    }

    pub(super) fn identity(&self) -> &EntryIdentity {
        &self.identity
    }

    pub(super) fn title(&self) -> &str {
        &self.identity.title
    }

    /// Returns the media type that the entry states for the page at its link.
    pub(super) fn link_type(&self) -> Option<&str> {
        own_link(&self.entry)?.media_type.as_deref()
    }

    /// Returns the enclosures and the content at another URL, each once and without its signature. URLs that are not valid
    /// are left out.
    pub(super) fn attachments(&self, feed_url: &str) -> Vec<Attachment> {
        attachments(&self.entry, feed_url)
    }
}

impl EntryIdentity {
    fn of(entry: &Entry) -> Self {
        let some = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let date = entry.updated.or(entry.published);
        let mut content = CanonicalDigest::default();
        content_texts(entry).for_each(|text| content.add(&text));
        Self {
            id: some(&entry.id),
            link: own_link(entry).and_then(|link| some(&link.href)),
            title: entry.title.as_ref().map(|title| single_spaced(&title.content)).unwrap_or_default(),
            date: date.map(Timestamp::from_datetime),
            unreadable_date: None,
            signed_url: enclosure_urls(entry).find_map(|url| unsigned(&url)),
            files: Vec::new(),
            digest: canonical_digest(entry),
            content_digest: content.finish(),
        }
    }
}

/// Returns the enclosures and the content at another URL, each once and without its signature.
fn attachments(entry: &Entry, feed_url: &str) -> Vec<Attachment> {
    let (mut attachments, mut known) = (Vec::new(), HashSet::new());
    let mut add = |url: &str, media_type: Option<String>, size: Option<u64>| {
        let Ok(url) = Uri::parse(&without_signature(url)) else { return };
        if known.insert(url.clone()) {
            // Zero stands for an unknown size in many feeds.
            attachments.push(Attachment { url, media_type, size: size.filter(|size| *size > 0) });
        }
    };
    for link in entry.links.iter().filter(|link| is_enclosure(link)) {
        add(&link.href, link.media_type.clone(), link.length);
    }
    for media in entry.media.iter().flat_map(|media| &media.content) {
        if let Some(url) = &media.url {
            add(url.as_str(), media.content_type.as_ref().map(ToString::to_string), media.size);
        }
    }
    if let Some(source) = remote_content(entry)
        && let Ok(url) = Url::parse(feed_url).and_then(|base| base.join(&source.href))
    {
        add(url.as_str(), source.media_type.clone(), source.length);
    }
    attachments
}

/// Returns the URLs of the enclosures, as the entry has them.
fn enclosure_urls(entry: &Entry) -> impl Iterator<Item = String> {
    let links = entry.links.iter().filter(|link| is_enclosure(link)).map(|link| link.href.clone());
    let media = entry.media.iter().flat_map(|media| &media.content).filter_map(|media| media.url.as_ref());
    links.chain(media.map(ToString::to_string)).chain(remote_content(entry).map(|source| source.href.clone()))
}

fn is_enclosure(link: &Link) -> bool {
    link.rel.as_deref() == Some("enclosure")
}

fn without_signature(url: &str) -> String {
    unsigned(url).unwrap_or_else(|| url.to_owned())
}

/// Returns the first link to the entry itself.
fn own_link(entry: &Entry) -> Option<&Link> {
    entry.links.iter().find(|link| link.rel.as_deref().is_none_or(|relation| relation == "alternate"))
}

/// Returns the link to content at another URL (RFC 4287 section 4.1.3.2). The parser gives content in the entry itself an
/// empty link in some vocabularies.
fn remote_content(entry: &Entry) -> Option<&Link> {
    let content = entry.content.as_ref().filter(|content| content.body.is_none())?;
    content.src.as_ref().filter(|source| !source.href.is_empty())
}

/// Returns title, summary and content, with single spaces.
fn content_texts(entry: &Entry) -> impl Iterator<Item = String> {
    let title = entry.title.as_ref().map(|text| text.content.as_str());
    let summary = entry.summary.as_ref().map(|text| text.content.as_str());
    let content = entry.content.as_ref().and_then(|content| content.body.as_deref());
    [title, summary, content].into_iter().map(|text| single_spaced(text.unwrap_or_default()))
}

/// Returns the digest of everything that counts as a change of an entry. Dates, authors and numbers of comments do not,
/// and neither do white space, signatures of enclosures, and the order of links, enclosures and categories.
fn canonical_digest(entry: &Entry) -> String {
    let mut digest = CanonicalDigest::default();
    content_texts(entry).for_each(|text| digest.add(&text));
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let counts = |link: &&Link| link.rel.as_deref().is_none_or(|relation| CONTENT_RELATIONS.contains(&relation));
    let href = |link: &Link| if is_enclosure(link) { without_signature(&link.href) } else { link.href.clone() };
    digest.add_set(
        entry
            .links
            .iter()
            .filter(counts)
            .map(|link| vec![text(&link.rel), href(link), text(&link.media_type), number(link.length)]),
    );
    digest.add_set(entry.media.iter().flat_map(|media| &media.content).map(|media| {
        let url = media.url.as_ref().map(|url| without_signature(url.as_str())).unwrap_or_default();
        let media_type = media.content_type.as_ref().map(ToString::to_string).unwrap_or_default();
        vec![url, media_type, number(media.size)]
    }));
    digest.add_set(
        entry
            .categories
            .iter()
            .map(|category: &Category| vec![category.term.clone(), text(&category.scheme), text(&category.label)]),
    );
    if let Some(content) = &entry.content {
        digest.add(content.content_type.as_ref());
        digest.add(&remote_content(entry).map(|source| without_signature(&source.href)).unwrap_or_default());
    }
    digest.finish()
}

/// Digest of texts, each with its length before it.
#[derive(Default)]
struct CanonicalDigest(Sha256);

impl CanonicalDigest {
    fn add(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text);
    }

    /// Adds values whose order does not count.
    fn add_set(&mut self, values: impl Iterator<Item = Vec<String>>) {
        let mut values: Vec<_> = values.collect();
        values.sort();
        self.0.update((values.len() as u64).to_be_bytes());
        values.iter().flatten().for_each(|text| self.add(text));
    }

    fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }
}

/// Returns a text with single spaces instead of any other white space.
fn single_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
