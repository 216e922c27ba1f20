//! Changes as entries of Atom documents (RFC 4287), written by `atom_syndication`.
//!
//! Each item of a change is an entry, and its `atom:source` describes the change as a whole, so that a reader can
//! reassemble the change; `docs/feed.md` explains how. Workarounds for limits of `atom_syndication`:
//! - It supports no extensions in `atom:source`. Data of the journal about the change is in an element of the entry,
//!   `tidings:change`.
//! - It does not escape the attributes of extensions; they are [`escaped`] here.
//! - It does not escape white space. An XML parser converts a carriage return in text to a line feed, and CR, LF and
//!   TAB in an attribute to spaces (XML 1.0 sections 2.11 and 3.3.3). Texts with such characters are repeated as
//!   [`verbatim`].
//! - When it indents, it inserts white space into an `atom:content` with a `src`, which must be empty (RFC 4287
//!   section 4.1.3.2). Therefore nothing is indented.
//!
//! `atom_syndication` is used only to write and never to parse external input, because nested elements overflow the
//! stack of its parser.

use atom_syndication::{
    Category, Content, Entry, Link, Person, Source, Text,
    extension::{Extension, ExtensionMap},
};
use axum::http::{HeaderMap, HeaderValue};
use uuid::Uuid;

use super::summary;
use crate::{
    format::content_change::{
        AFTER_LABEL, AFTER_SCHEME, BEFORE_LABEL, BEFORE_SCHEME, CHANGE_TYPE_LABEL, CHANGE_TYPE_SCHEME, FORMAT_SCHEME,
        FORMAT_TERM, GENERATED_BY, OBJECT_TYPE_LABEL, OBJECT_TYPE_SCHEME, ORIGINAL, VERSION_SCHEME,
    },
    model::{
        Change, ContentItemModification, ContentLocation, ContentObjectModification, ItemChange, ItemNotes,
        OriginalContent, State, Timestamp, User,
    },
    web::{Problem, Representation, negotiated_media_type},
};

/// Media type of the Atom documents (RFC 5023 section 12.1).
pub(super) const MEDIA_TYPE: &str = "application/atom+xml;type=feed;charset=utf-8";

/// Media types of the Atom documents: their own, and those of XML in general, because browsers show no other XML.
const OFFERED: [&str; 3] = [MEDIA_TYPE, "application/xml;charset=utf-8", "text/xml;charset=utf-8"];

/// Returns the document under the media type that the client prefers.
///
/// # Errors
/// `not-acceptable`.
pub(super) fn negotiated(mut document: Representation, headers: &HeaderMap) -> Result<Representation, Problem> {
    document.media_type = negotiated_media_type(headers, &OFFERED)?;
    Ok(document.varying_by_accept())
}

/// Title of a change without a description, because Atom requires a non-empty title.
const NO_TITLE: &str = "Content change";

/// Title and author of the feed.
#[derive(Clone, Debug)]
pub struct FeedLabels {
    /// The title.
    pub title: String,
    /// Name of the author: the person or institution that publishes the feed.
    pub author: Option<String>,
}

impl Default for FeedLabels {
    fn default() -> Self {
        Self { title: "Content changes".to_owned(), author: None }
    }
}

/// URLs and identity of the feed.
#[derive(Debug)]
pub(super) struct Site {
    /// Public URL of the gateway without a trailing slash.
    pub(super) base: String,
    /// Identity of the journal.
    pub(super) journal: Uuid,
    /// URL of the WebSub hub, if there is one.
    pub(super) hub: Option<String>,
    /// Title and author of the feed.
    pub(super) labels: FeedLabels,
    /// URLs of the documents in a published copy; `None` at the gateway.
    pub(super) copy: Option<CopyUrls>,
}

/// URLs of the documents of the feed in a published copy.
#[derive(Debug)]
pub(super) struct CopyUrls {
    /// URL of the copy without a trailing slash.
    pub(super) base: String,
    /// Folder of the archive pages.
    pub(super) archive: String,
}

impl Site {
    /// Returns the URL of the subscription document.
    pub(super) fn feed(&self) -> String {
        match &self.copy {
            Some(copy) => format!("{}/feed.atom", copy.base),
            None => format!("{}/feed", self.base),
        }
    }

    /// Returns the URL of an archive page.
    pub(super) fn archive(&self, page: u64) -> String {
        match &self.copy {
            Some(copy) => format!("{}/{}/{page}.atom", copy.base, copy.archive),
            None => format!("{}/feed/archive/{page}", self.base),
        }
    }

    /// Returns the link to the WebSub hub, which subscribers look for in the topic (WebSub section 4).
    pub(super) fn hub_link(&self) -> Option<Link> {
        self.hub.clone().map(|hub| link("hub", hub))
    }

    /// Returns the links to the hub and the topic as a value of the header `Link` (RFC 8288).
    pub(super) fn discovery(&self, topic: &str) -> Option<HeaderValue> {
        let hub = self.hub.as_ref()?;
        HeaderValue::try_from(format!("<{hub}>; rel=\"hub\", <{topic}>; rel=\"self\"")).ok()
    }

    /// Returns the link to the AtomPub service document, which a copy does not have.
    pub(super) fn service_link(&self) -> Option<Link> {
        let url = self.copy.is_none().then(|| format!("{}/service", self.base))?;
        Some(typed(link("service", url), "application/atomsvc+xml"))
    }

    fn change(&self, change: &ContentObjectModification) -> String {
        format!("{}/changes/{}", self.base, change.id.uuid())
    }
}

/// Metadata of a feed document: everything except its entries.
#[derive(Debug)]
pub(super) struct FeedMetadata {
    /// Identifier of the feed.
    pub(super) id: Uuid,
    /// Subtitle of the feed, for people.
    pub(super) subtitle: String,
    /// Time of the last change of the feed.
    pub(super) updated: Timestamp,
    /// Links of the feed.
    pub(super) links: Vec<Link>,
    /// `true` for an archive document (RFC 5005 section 4). An archive document never changes, so it does not contain
    /// the version of the gateway.
    pub(super) archive: bool,
}

/// Returns a link to another document of a feed.
pub(super) fn page_link(rel: &str, href: String) -> Link {
    typed(link(rel, href), "application/atom+xml")
}

/// Returns the entry of an item of a change.
pub(super) fn entry(site: &Site, change: &Change, item: &ContentItemModification, notes: &ItemNotes) -> Entry {
    let modification = &change.modification;
    let content = item.change.content();
    let via = Link {
        length: content.and_then(|content| content.size).map(|size| size.to_string()),
        ..link("via", item.uri.to_string())
    };
    // Feed readers open the first `alternate`.
    let mut links = vec![
        typed(link("alternate", site.change(modification)), "text/html"),
        typed(link("alternate", site.change(modification)), "application/atom+xml"),
        via,
    ];
    let activity = content.and_then(|content| content.generated_by.as_ref());
    links.extend(activity.map(|activity| link(GENERATED_BY, activity.to_string())));
    links.extend(content.and_then(|content| content.original.as_deref()).map(original_link));
    Entry {
        title: summary::title(modification, item).into(),
        id: item.id.to_string(),
        updated: modification.time.datetime().fixed_offset(),
        authors: vec![author(&modification.user)],
        categories: item_categories(&item.change),
        links,
        source: Some(source(modification)),
        summary: Some(summary::summary(item).into()),
        content: content.map(content_at),
        extensions: extensions(change, content, notes),
        ..Entry::default()
    }
}

/// Returns `atom:source`, which describes the change as a whole.
fn source(modification: &ContentObjectModification) -> Source {
    let mut links = vec![link("via", modification.object.to_string())];
    links.extend(modification.parent.as_ref().map(|parent| link("related", parent.to_string())));
    let version = modification.origin.software_version.as_ref();
    let mut categories: Vec<_> =
        version.map(|version| category(VERSION_SCHEME, version.as_str(), None)).into_iter().collect();
    categories.push(category(FORMAT_SCHEME, FORMAT_TERM, None));
    let types = modification.types.iter();
    categories.extend(types.map(|uri| category(OBJECT_TYPE_SCHEME, uri.as_str(), Some(OBJECT_TYPE_LABEL))));
    Source {
        title: description(modification),
        id: modification.id.to_string(),
        updated: modification.time.datetime().fixed_offset(),
        authors: vec![author(&modification.user)],
        categories,
        links,
        ..Source::default()
    }
}

fn description(modification: &ContentObjectModification) -> Text {
    if modification.description.is_empty() { NO_TITLE.into() } else { modification.description.as_str().into() }
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

fn original_link(original: &OriginalContent) -> Link {
    Link {
        mime_type: original.media_type.as_ref().map(ToString::to_string),
        length: original.size.map(|size| size.to_string()),
        ..link(ORIGINAL, original.url.to_string())
    }
}

fn content_at(content: &ContentLocation) -> Content {
    Content {
        src: Some(content.url.to_string()),
        content_type: content.media_type.as_ref().map(ToString::to_string),
        ..Content::default()
    }
}

/// Returns the extensions, which hold data that Atom has no elements for.
fn extensions(change: &Change, content: Option<&ContentLocation>, notes: &ItemNotes) -> ExtensionMap {
    let (modification, settlement) = (&change.modification, &change.settlement);
    let mut all = ExtensionMap::new();
    let attributes = [
        ("seq", Some(change.seq.to_string())),
        ("source", Some(modification.origin.source.to_string())),
        ("event", modification.origin.event_id.as_ref().map(ToString::to_string)),
        ("received", Some(change.received.to_string())),
        ("purge", settlement.purge.then(|| "true".to_owned())),
        ("filled", (!settlement.filled.is_empty()).then(|| settlement.filled.to_string())),
        ("late", (!settlement.late.is_empty()).then(|| settlement.late.to_string())),
        ("as-of", settlement.as_of.map(|time| time.to_string())),
        ("lookup", settlement.lookup.map(|mark| mark.to_string())),
    ];
    extend(&mut all, extension("tidings:change", attributes));
    if let Some(digest) = content.and_then(|content| content.digest.as_ref()) {
        let algorithm = ("algorithm", Some(digest.algorithm().name().to_owned()));
        extend(
            &mut all,
            Extension { value: Some(digest.hex().to_owned()), ..extension("tidings:digest", [algorithm]) },
        );
    }
    if notes.inferred || notes.initial_state.is_some() {
        let inferred = ("inferred", notes.inferred.then(|| "true".to_owned()));
        let initial_state = ("begins-in", notes.initial_state.as_ref().map(ToString::to_string));
        extend(&mut all, extension("tidings:item", [inferred, initial_state]));
    }
    if !notes.late.is_empty() {
        extend(&mut all, Extension { value: Some(notes.late.to_string()), ..extension("tidings:late", []) });
    }
    verbatim(modification).for_each(|text| extend(&mut all, text));
    all
}

/// Returns the texts of a change that an XML parser would not preserve.
fn verbatim(modification: &ContentObjectModification) -> impl Iterator<Item = Extension> {
    let title = modification.description.as_str();
    let title = (title.is_empty() || title.contains('\r')).then_some(("title", title));
    let author = Some(("author", modification.user.name())).filter(|(_, name)| name.contains('\r'));
    let version = modification.origin.software_version.as_ref().map(|version| ("version", version.as_str()));
    let version = version.filter(|(_, version)| version.contains(['\r', '\n', '\t']));
    [title, author, version]
        .into_iter()
        .flatten()
        .map(|(of, text)| extension("tidings:verbatim", [("of", Some(of.to_owned())), ("text", Some(text.to_owned()))]))
}

pub(super) fn extension<const N: usize>(name: &str, attributes: [(&str, Option<String>); N]) -> Extension {
    let attributes = attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), escaped(&value?))));
    Extension { name: name.to_owned(), attrs: attributes.collect(), ..Extension::default() }
}

/// Escapes the value of an attribute.
fn escaped(value: &str) -> String {
    let escaped = quick_xml::escape::escape(value);
    escaped.replace('\r', "&#13;").replace('\n', "&#10;").replace('\t', "&#9;")
}

pub(super) fn extend(all: &mut ExtensionMap, extension: Extension) {
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
