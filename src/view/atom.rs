//! Changes as entries of Atom documents (RFC 4287), written by `atom_syndication`.
//!
//! Every item of a change is an entry, and its `atom:source` has what the change says as a whole,
//! so that a reader can put the change together again; `docs/feed.md` tells how. Where
//! `atom_syndication` cannot do what is needed, this is done instead:
//! - It has no extensions in `atom:source`: what the journal knows of the change is an element of
//!   the entry, `tidings:change`.
//! - It writes the attributes of extensions as they are: they are [`escaped`] here.
//! - It writes white space as it is, and a reader gets a carriage return in text back as a line feed
//!   and each of CR, LF and TAB in an attribute as a space (XML 1.0 sections 2.11 and 3.3.3). A text
//!   that has such is there once more as [`verbatim`].
//! - Indenting, it puts white space into `atom:content` that has a `src`, which must be empty
//!   (RFC 4287 section 4.1.3.2): nothing is indented.
//!
//! It only writes here. It reads nothing from outside: nested elements make its reader overflow the
//! stack.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use atom_syndication::{
    Category, Content, Entry, Feed, Generator, Link, Person, Source, Text, WriteConfig,
    extension::{Extension, ExtensionMap},
};
use axum::http::HeaderValue;
use uuid::Uuid;

use super::LARGE;
use crate::{
    format::content_change::{
        AFTER_LABEL, AFTER_SCHEME, BEFORE_LABEL, BEFORE_SCHEME, CHANGE_TYPE_LABEL, CHANGE_TYPE_SCHEME, FORMAT_SCHEME,
        FORMAT_TERM, GENERATED_BY, OBJECT_TYPE_LABEL, OBJECT_TYPE_SCHEME, TIDINGS, VERSION_SCHEME,
    },
    journal::{Recorded, store::StoreError},
    model::{
        Change, ContentItemModification, ContentLocation, ContentObjectModification, ItemChange, ItemNotes, State,
        Timestamp, User,
    },
};

/// The media type of every document made here (RFC 5023 section 12.1).
pub(super) const MEDIA_TYPE: &str = "application/atom+xml;type=feed;charset=utf-8";

/// The namespace of RFC 5005.
const HISTORY: &str = "http://purl.org/syndication/history/1.0";

/// The title of an entry whose change has no description: Atom wants one that is not empty.
const NO_TITLE: &str = "Content change";

/// What the documents say of where they are: the addresses, and whose feed it is.
#[derive(Debug)]
pub(super) struct Site {
    /// The public address of the gateway, without a slash at its end.
    pub(super) base: String,
    /// The journal's identity.
    pub(super) journal: Uuid,
    /// The address of the WebSub hub, where there is one.
    pub(super) hub: Option<String>,
}

impl Site {
    /// The address of the subscription document.
    pub(super) fn feed(&self) -> String {
        format!("{}/feed", self.base)
    }

    /// The address of an archive page.
    pub(super) fn archive(&self, page: u64) -> String {
        format!("{}/feed/archive/{page}", self.base)
    }

    /// The link to the WebSub hub, which subscribers look for in the topic (WebSub section 4).
    pub(super) fn hub_link(&self) -> Option<Link> {
        self.hub.clone().map(|hub| link("hub", hub))
    }

    /// The same, with the topic's own address, as a field of HTTP (RFC 8288).
    pub(super) fn discovery(&self, topic: &str) -> Option<HeaderValue> {
        let hub = self.hub.as_ref()?;
        HeaderValue::try_from(format!("<{hub}>; rel=\"hub\", <{topic}>; rel=\"self\"")).ok()
    }

    /// The link to the AtomPub service document.
    pub(super) fn service_link(&self) -> Link {
        typed(link("service", format!("{}/service", self.base)), "application/atomsvc+xml")
    }

    fn change(&self, change: &ContentObjectModification) -> String {
        format!("{}/changes/{}", self.base, change.id.uuid())
    }
}

/// A document but for its entries.
#[derive(Debug)]
pub(super) struct Frame {
    /// The feed's identifier.
    pub(super) id: Uuid,
    /// What is in the feed, for people.
    pub(super) subtitle: String,
    /// When the feed last changed.
    pub(super) updated: Timestamp,
    /// The feed's links.
    pub(super) links: Vec<Link>,
    /// Whether it is an archive document (RFC 5005 section 4): one that never changes, and so does
    /// not tell which version of the gateway wrote it.
    pub(super) archive: bool,
}

/// A link to another document of a feed.
pub(super) fn page_link(rel: &str, href: String) -> Link {
    typed(link(rel, href), "application/atom+xml")
}

/// Why a document is not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// What is stored is not a change.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document's writer failed.
    #[error("the document cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// A document that is being written entry by entry: no more than one entry of it is in memory.
pub(super) struct FeedWriter<'a, W> {
    site: &'a Site,
    out: W,
    /// What stands behind the entries.
    end: Vec<u8>,
    /// How much of a document with one entry stands before that entry.
    entry_begins: usize,
}

impl<'a, W: Write> FeedWriter<'a, W> {
    /// Writes what stands before the entries.
    pub(super) fn begin(site: &'a Site, frame: Frame, mut out: W) -> Result<Self, WriteError> {
        let mut feed = empty_feed(frame);
        // Extensions stand behind the entries, all else before them.
        let extensions = std::mem::take(&mut feed.extensions);
        let beginning = without_end(written(&feed, true));
        feed.extensions = extensions;
        let end = written(&feed, true).split_off(beginning.len());
        out.write_all(&beginning)?;
        let entry_begins = without_end(written(&Feed::default(), false)).len();
        Ok(Self { site, out, end, entry_begins })
    }

    /// Writes an entry for every item of the change.
    pub(super) fn change(&mut self, recorded: &Recorded) -> Result<(), WriteError> {
        if recorded.json().len() >= LARGE {
            return self.entries(recorded.unread().change()?);
        }
        self.entries(recorded.change()?)
    }

    fn entries(&mut self, change: &Change) -> Result<(), WriteError> {
        for (index, item) in change.modification.items.iter().enumerate() {
            let entry = entry(self.site, change, item, &change.settlement.item(index));
            let alone = written(&Feed { entries: vec![entry], ..Feed::default() }, false);
            self.out.write_all(&alone[self.entry_begins..alone.len() - END.len()])?;
        }
        Ok(())
    }

    /// Writes what stands behind the entries.
    pub(super) fn finish(mut self) -> Result<W, WriteError> {
        self.out.write_all(&self.end)?;
        Ok(self.out)
    }
}

/// The end of every document.
const END: &str = "</feed>";

fn empty_feed(frame: Frame) -> Feed {
    let mut namespaces = BTreeMap::from([("tidings".to_owned(), TIDINGS.to_owned())]);
    let mut extensions = ExtensionMap::new();
    if frame.archive {
        namespaces.insert("fh".to_owned(), HISTORY.to_owned());
        extend(&mut extensions, extension("fh:archive", []));
    }
    Feed {
        title: "Content changes".into(),
        id: frame.id.urn().to_string(),
        updated: frame.updated.datetime().fixed_offset(),
        generator: Some(Generator {
            value: "Tidings".to_owned(),
            uri: None,
            version: (!frame.archive).then(|| env!("CARGO_PKG_VERSION").to_owned()),
        }),
        links: frame.links,
        subtitle: Some(frame.subtitle.into()),
        extensions,
        namespaces,
        ..Feed::default()
    }
}

#[expect(clippy::expect_used, reason = "a Vec<u8> takes whatever is written to it")]
fn written(feed: &Feed, write_document_declaration: bool) -> Vec<u8> {
    let layout = WriteConfig { write_document_declaration, indent_size: None };
    feed.write_with_config(Vec::with_capacity(USUAL_ENTRY), layout).expect("a Vec<u8> takes whatever is written to it")
}

fn without_end(mut document: Vec<u8>) -> Vec<u8> {
    document.truncate(document.len().saturating_sub(END.len()));
    document
}

/// Room for most entries, in bytes.
const USUAL_ENTRY: usize = 4096;

/// The document in this frame with an entry for every item of the changes, which stand in the order
/// in which they are shown. It is in memory as a whole: the caller bounds the changes.
///
/// # Errors
/// When what is stored is not a change: the journal is damaged.
pub(super) fn document(site: &Site, frame: Frame, changes: &[Arc<Recorded>]) -> Result<Vec<u8>, WriteError> {
    let mut writer = FeedWriter::begin(site, frame, Vec::new())?;
    changes.iter().try_for_each(|recorded| writer.change(recorded))?;
    writer.finish()
}

fn entry(site: &Site, change: &Change, item: &ContentItemModification, notes: &ItemNotes) -> Entry {
    let told = &change.modification;
    let content = item.change.content();
    let via = Link {
        length: content.and_then(|content| content.size).map(|size| size.to_string()),
        ..link("via", item.uri.to_string())
    };
    let mut links = vec![typed(link("alternate", site.change(told)), "application/atom+xml"), via];
    let activity = content.and_then(|content| content.generated_by.as_ref());
    links.extend(activity.map(|activity| link(GENERATED_BY, activity.to_string())));
    Entry {
        title: title(told),
        id: item.id.to_string(),
        updated: told.time.datetime().fixed_offset(),
        authors: vec![author(&told.user)],
        categories: item_categories(&item.change),
        links,
        source: Some(source(told)),
        summary: Some(summary(item).into()),
        content: content.map(content_at),
        extensions: extensions(change, content, notes),
        ..Entry::default()
    }
}

/// What the change says as a whole.
fn source(told: &ContentObjectModification) -> Source {
    let mut links = vec![link("via", told.object.to_string())];
    links.extend(told.parent.as_ref().map(|parent| link("related", parent.to_string())));
    let version = told.origin.software_version.as_ref();
    let mut categories: Vec<_> =
        version.map(|version| category(VERSION_SCHEME, version.as_str(), None)).into_iter().collect();
    categories.push(category(FORMAT_SCHEME, FORMAT_TERM, None));
    let types = told.types.iter();
    categories.extend(types.map(|uri| category(OBJECT_TYPE_SCHEME, uri.as_str(), Some(OBJECT_TYPE_LABEL))));
    Source {
        title: title(told),
        id: told.id.to_string(),
        updated: told.time.datetime().fixed_offset(),
        authors: vec![author(&told.user)],
        categories,
        links,
        ..Source::default()
    }
}

fn title(told: &ContentObjectModification) -> Text {
    if told.description.is_empty() { NO_TITLE.into() } else { told.description.as_str().into() }
}

fn author(user: &User) -> Person {
    Person { name: user.name().to_owned(), uri: user.uri().map(ToString::to_string), ..Person::default() }
}

fn item_categories(change: &ItemChange) -> Vec<Category> {
    let state = |scheme, state: &State, label| category(scheme, state.as_str(), Some(label));
    let before = change.before().map(|before| state(BEFORE_SCHEME, before, BEFORE_LABEL));
    let after = change.after().map(|after| state(AFTER_SCHEME, after, AFTER_LABEL));
    let change_type = change.change_type();
    let change_type = change_type.map(|kind| category(CHANGE_TYPE_SCHEME, kind.as_str(), Some(CHANGE_TYPE_LABEL)));
    [before, after, change_type].into_iter().flatten().collect()
}

/// What happened to the item, for people.
fn summary(item: &ContentItemModification) -> String {
    let deed = match &item.change {
        ItemChange::Add { .. } => "Added",
        ItemChange::Update { content: Some(_), .. } => "New content",
        ItemChange::Update { content: None, .. } => "New properties",
        ItemChange::Delete { .. } => "Deleted",
        ItemChange::State { .. } => "New state",
    };
    let state = match (item.change.before(), item.change.after()) {
        (Some(before), Some(after)) => format!(" ({before} → {after})"),
        (Some(before), None) => format!(" ({before} before)"),
        (None, Some(after)) => format!(" ({after} after)"),
        (None, None) => String::new(),
    };
    format!("{deed}: {}{state}", item.uri)
}

fn content_at(content: &ContentLocation) -> Content {
    Content {
        src: Some(content.url.to_string()),
        content_type: content.media_type.as_ref().map(ToString::to_string),
        ..Content::default()
    }
}

/// What Atom has no place for.
fn extensions(change: &Change, content: Option<&ContentLocation>, notes: &ItemNotes) -> ExtensionMap {
    let (told, settlement) = (&change.modification, &change.settlement);
    let mut all = ExtensionMap::new();
    let said = [
        ("seq", Some(change.seq.to_string())),
        ("source", Some(told.origin.source.to_string())),
        ("event", told.origin.event_id.as_ref().map(ToString::to_string)),
        ("received", Some(change.received.to_string())),
        ("purge", settlement.purge.then(|| "true".to_owned())),
        ("filled", (!settlement.filled.is_empty()).then(|| settlement.filled.to_string())),
        ("late", (!settlement.late.is_empty()).then(|| settlement.late.to_string())),
        ("as-of", settlement.as_of.map(|time| time.to_string())),
        ("lookup", settlement.lookup.map(|mark| mark.to_string())),
    ];
    extend(&mut all, extension("tidings:change", said));
    if let Some(digest) = content.and_then(|content| content.digest.as_ref()) {
        let algorithm = ("algorithm", Some(digest.algorithm().name().to_owned()));
        extend(
            &mut all,
            Extension { value: Some(digest.hex().to_owned()), ..extension("tidings:digest", [algorithm]) },
        );
    }
    if notes.inferred || notes.begins_in.is_some() {
        let inferred = ("inferred", notes.inferred.then(|| "true".to_owned()));
        let begins_in = ("begins-in", notes.begins_in.as_ref().map(ToString::to_string));
        extend(&mut all, extension("tidings:item", [inferred, begins_in]));
    }
    if !notes.late.is_empty() {
        extend(&mut all, Extension { value: Some(notes.late.to_string()), ..extension("tidings:late", []) });
    }
    verbatim(told).for_each(|text| extend(&mut all, text));
    all
}

/// The texts of a change that Atom, as it is written here, does not give back as they are.
fn verbatim(told: &ContentObjectModification) -> impl Iterator<Item = Extension> {
    let title = told.description.as_str();
    let title = (title.is_empty() || title.contains('\r')).then_some(("title", title));
    let author = Some(("author", told.user.name())).filter(|(_, name)| name.contains('\r'));
    let version = told.origin.software_version.as_ref().map(|version| ("version", version.as_str()));
    let version = version.filter(|(_, version)| version.contains(['\r', '\n', '\t']));
    [title, author, version]
        .into_iter()
        .flatten()
        .map(|(of, text)| extension("tidings:verbatim", [("of", Some(of.to_owned())), ("text", Some(text.to_owned()))]))
}

fn extension<const N: usize>(name: &str, attributes: [(&str, Option<String>); N]) -> Extension {
    let said = attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), escaped(&value?))));
    Extension { name: name.to_owned(), attrs: said.collect(), ..Extension::default() }
}

/// An attribute's value as it stands in a document.
fn escaped(value: &str) -> String {
    let marks = quick_xml::escape::escape(value);
    marks.replace('\r', "&#13;").replace('\n', "&#10;").replace('\t', "&#9;")
}

fn extend(all: &mut ExtensionMap, extension: Extension) {
    let (prefix, name) = extension.name.split_once(':').unwrap_or(("", &extension.name));
    let (prefix, name) = (prefix.to_owned(), name.to_owned());
    all.entry(prefix).or_default().entry(name).or_default().push(extension);
}

fn category(scheme: &str, term: &str, label: Option<&str>) -> Category {
    Category { term: term.to_owned(), scheme: Some(scheme.to_owned()), label: label.map(str::to_owned) }
}

fn link(rel: &str, href: String) -> Link {
    Link { href, rel: rel.to_owned(), hreflang: None, mime_type: None, title: None, length: None }
}

fn typed(link: Link, media_type: &str) -> Link {
    Link { mime_type: Some(media_type.to_owned()), ..link }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use uuid::Uuid;

    use super::{Feed, Frame, Site, document, empty_feed, entry, page_link, written};
    use crate::{
        journal::{Recorded, store::StoredChange},
        model::{Seq, Timestamp},
    };

    /// All that a change can say, and next to nothing.
    const CHANGES: [&str; 2] = [
        r#"{"seq":2,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"fedora3","sourceEventId":"a&\"b'<c>",
        "sourceVersion":"3\t8","received":"2026-01-02T03:04:05.006Z","time":"2026-01-02T03:04:05.000Z","user":{"name":"A\r<b>","uri":"http://h/u?a&b='c'"},
        "object":"http://h/objects/a:1?a&b='c'","parent":"http://h/objects/a:0","types":["info:fedora/a:M"],"description":"one\r\n<b>two</b> & \"é\"","purge":true,"filled":["parent","types"],"late":["parent"],
        "items":[{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/objects/a:1/DC","change":"UPDATE","content":{"url":"http://h/c?a&b='c'","mediaType":"text/xml;a=\"b&c\"","size":3,"digest":{"algorithm":"md5","value":"d41d8cd98f00b204e9800998ecf8427e"}},"stateBefore":"ACTIVE","stateAfter":"INACTIVE","late":["state","content"],"inferred":true,"beginsIn":"ACTIVE"},
        {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/objects/a:1/IMG","change":"DELETE","stateBefore":"ACTIVE"}]}"#,
        r#"{"seq":1,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a49","source":"sfm","received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z",
        "user":{"name":"unknown"},"object":"urn:x:y","description":"","items":[{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa5","uri":"urn:x:y","stateAfter":"RUNNING"}]}"#,
    ];

    /// A document that `atom_syndication` writes as a whole is the measure.
    #[test]
    fn a_document_written_entry_by_entry_is_the_one_written_as_a_whole() {
        let changes = CHANGES.map(|json| Arc::new(Recorded::from_json(Seq::ZERO, Bytes::from_static(json.as_bytes()))));
        let site = Site { base: "https://example.org/t".to_owned(), journal: Uuid::nil(), hub: None };
        for (archive, count) in [(false, 0), (true, 0), (false, 2), (true, 2)] {
            let frame = || Frame {
                id: site.journal,
                subtitle: "What happened.".to_owned(),
                updated: Timestamp::EPOCH,
                links: vec![page_link("self", site.archive(1)), site.service_link()],
                archive,
            };
            let entries = changes[..count].iter().flat_map(|recorded| {
                let change = recorded.change().unwrap();
                let items = change.modification.items.iter().enumerate();
                items.map(|(index, item)| entry(&site, change, item, &change.settlement.item(index)))
            });
            let whole = Feed { entries: entries.collect(), ..empty_feed(frame()) };
            let expected = String::from_utf8(written(&whole, true)).unwrap();
            let shown = String::from_utf8(document(&site, frame(), &changes[..count]).unwrap()).unwrap();
            assert_eq!(shown, expected, "archive {archive}, {count}");
        }
    }

    /// When this fails and the new snapshot is right, raise `RENDERING` in `feed.rs`: the pages that
    /// are on disk somewhere look like the old one.
    #[test]
    fn an_archive_page_is_rendered_as_it_always_was() {
        let changes = CHANGES.map(|json| {
            let stored = StoredChange { seq: Seq::ZERO, json: Bytes::from_static(json.as_bytes()), sight: None };
            Arc::new(Recorded::from(stored))
        });
        let site = Site { base: "https://example.org/t".to_owned(), journal: Uuid::nil(), hub: None };
        let frame = Frame {
            id: site.journal,
            subtitle: "What happened.".to_owned(),
            updated: Timestamp::EPOCH,
            links: vec![page_link("self", site.archive(1)), site.service_link()],
            archive: true,
        };
        let page = String::from_utf8(document(&site, frame, &changes).unwrap()).unwrap();
        insta::assert_snapshot!(page.replace("><", ">\n<"));
    }
}
