//! Parses the message 0.1.
//!
//! The whole feed is read before it is validated. Atom allows its elements in any order, and a feed of another
//! format should be rejected for its format, not for a missing element. If an element may occur once, the first
//! one is used. Unknown elements are skipped, and so are the elements of an entry that repeat the feed (author,
//! title, updated).

use std::{borrow::Cow, fmt};

use super::{
    super::{
        Limits, MessageLimit, Rejection,
        xml::{Document, Element},
    },
    AFTER_SCHEME, BEFORE_SCHEME, CHANGE_TYPE_SCHEME, FORMAT_SCHEME, FORMAT_TERM, GENERATED_BY, OBJECT_TYPE_SCHEME,
    ORIGINAL, TIDINGS, VERSION_SCHEME,
};
use crate::model::{
    ChangeId, ChangeType, ContentLocation, Digest, DigestAlgorithm, Draft, DraftChange, DraftItem, DraftItems,
    DraftLookup, DroppedPart, EventId, ItemChange, ItemId, LookupMark, MediaType, NonEmpty, OriginalContent, Reading,
    State, Text, Timestamp, Uri, User,
};

/// An element and its text.
pub(super) type TextElement<'a> = (Element<'a>, Cow<'a, str>);

/// Parses one message.
///
/// # Errors
/// Rejects a message that is malformed, not a 0.1 message, or not a valid change.
pub(super) fn draft(body: &[u8], limits: Limits) -> Result<Draft, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if root.atom() != Some("feed") {
        let name = root.name();
        return Err(root.unprocessable(format!("this is <{name}>; a content-change message 0.1 is an Atom <feed>")));
    }
    let feed = Feed::read(&mut document, root, limits)?;
    document.finish()?;
    feed.with_source()?.into_draft()
}

/// Parses a message that is an element of another document, which has read its start.
pub(in crate::format) fn embedded<'a>(
    document: &mut Document<'a>,
    root: Element<'a>,
    limits: Limits,
) -> Result<Draft, Rejection> {
    Feed::read(document, root, limits)?.with_source()?.into_draft()
}

/// Content of a feed.
pub(super) struct Feed<'a> {
    pub(super) root: Element<'a>,
    pub(super) id: Option<TextElement<'a>>,
    title: Option<TextElement<'a>>,
    updated: Option<TextElement<'a>>,
    author_name: Option<TextElement<'a>>,
    author_uri: Option<TextElement<'a>>,
    categories: Vec<Element<'a>>,
    links: Vec<Element<'a>>,
    /// The element `tidings:change`.
    pub(super) change: Option<Element<'a>>,
    pub(super) entries: Vec<Entry<'a>>,
    /// Whether the entries were copied from a change that a gateway has settled.
    pub(super) is_settled: bool,
}

/// Content of an entry.
pub(super) struct Entry<'a> {
    pub(super) start: Element<'a>,
    id: Option<TextElement<'a>>,
    content: Option<Element<'a>>,
    via: Option<Element<'a>>,
    generated_by: Option<Element<'a>>,
    original: Option<Element<'a>>,
    change_type: Option<Element<'a>>,
    before: Option<Element<'a>>,
    after: Option<Element<'a>>,
    digest: Option<TextElement<'a>>,
    /// Metadata of the message from which the entry was copied into this feed (RFC 4287 section 4.2.11).
    pub(super) source: Option<Box<Feed<'a>>>,
    /// The element `tidings:change` of a copied entry.
    pub(super) change: Option<Element<'a>>,
    /// The element `tidings:item`.
    pub(super) notes: Option<Element<'a>>,
    /// The element `tidings:late`.
    pub(super) late: Option<TextElement<'a>>,
}

impl<'a> Feed<'a> {
    fn read(document: &mut Document<'a>, root: Element<'a>, limits: Limits) -> Result<Self, Rejection> {
        let mut feed = Self {
            root,
            id: None,
            title: None,
            updated: None,
            author_name: None,
            author_uri: None,
            categories: Vec::new(),
            links: Vec::new(),
            change: None,
            entries: Vec::new(),
            is_settled: false,
        };
        while let Some(child) = document.child()? {
            match child.atom() {
                Some("id") => text_of(document, child, &mut feed.id)?,
                Some("title") => text_of(document, child, &mut feed.title)?,
                Some("updated") => text_of(document, child, &mut feed.updated)?,
                Some("author") => feed.read_author(document)?,
                Some("category") => all_of(document, child, &mut feed.categories)?,
                Some("link") => all_of(document, child, &mut feed.links)?,
                Some("entry") if feed.entries.len() == limits.items => {
                    let reason = format!("a message has at most {} entries; send several", limits.items);
                    return Err(Rejection::over_limit(MessageLimit::Items, child.location(), reason));
                }
                // A source has no entries.
                Some("entry") if feed.root.atom() == Some("source") => document.skip()?,
                Some("entry") => feed.entries.push(Entry::read(document, child, limits)?),
                _ if child.is(TIDINGS, "change") => take_within(document, child, &mut feed.change)?,
                _ => document.skip()?,
            }
        }
        Ok(feed)
    }

    fn read_author(&mut self, document: &mut Document<'a>) -> Result<(), Rejection> {
        while let Some(child) = document.child()? {
            match child.atom() {
                Some("name") => text_of(document, child, &mut self.author_name)?,
                Some("uri") => text_of(document, child, &mut self.author_uri)?,
                _ => document.skip()?,
            }
        }
        Ok(())
    }

    fn into_draft(self) -> Result<Draft, Rejection> {
        self.check_format()?;
        let id = self.id.as_ref().map(|(_, id)| id.as_ref());
        let change_id = id.and_then(|id| ChangeId::parse(id).ok());
        let foreign_id = if change_id.is_none() { id.and_then(EventId::parse) } else { None };
        let event_id = self.change.as_ref().and_then(|change| EventId::parse(&change.attribute("event")?));
        let mut reading = Reading::default();
        Ok(Draft {
            id: change_id,
            event_id: event_id.or(foreign_id),
            software_version: with_scheme(&self.categories, VERSION_SCHEME)
                .find_map(|category| category.attribute("term"))
                .map(|version| Text::new(&version)),
            user: self.user()?,
            time: self.time(&mut reading).into(),
            object: match link(&self.links, "via") {
                Some(via) => uri(via, "href")?,
                None => {
                    return Err(self.root.unprocessable("the feed has no link rel=\"via\", which names the object"));
                }
            },
            parent: link(&self.links, "related").map(|related| uri(related, "href")).transpose()?,
            types: with_scheme(&self.categories, OBJECT_TYPE_SCHEME)
                .map(|category| uri(category, "term"))
                .collect::<Result<_, _>>()?,
            description: self.title.as_ref().map(|(_, title)| Text::new(title)).unwrap_or_default(),
            items: self.items()?,
            report: None,
            lookup: DraftLookup { mark: self.mark(), ..DraftLookup::default() },
            reading,
        })
    }

    fn check_format(&self) -> Result<(), Rejection> {
        let Some(category) = with_scheme(&self.categories, FORMAT_SCHEME).next() else {
            return Err(self.root.unprocessable(format!(
                "the feed does not declare its format: it has no category of the scheme {FORMAT_SCHEME}"
            )));
        };
        match category.attribute("term") {
            Some(term) if term == FORMAT_TERM => Ok(()),
            term => Err(category.unprocessable(format!(
                "the message has the format {:?}; {FORMAT_TERM} was expected",
                excerpt(&term.unwrap_or_default())
            ))),
        }
    }

    fn user(&self) -> Result<User, Rejection> {
        let uri = self.author_uri.as_ref().map(|(element, uri)| located(Uri::parse(uri), element, "the author's uri"));
        let name = self.author_name.as_ref().map_or("", |(_, name)| name.as_ref());
        Ok(User::new(name, uri.transpose()?))
    }

    fn time(&self, reading: &mut Reading) -> Option<Timestamp> {
        self.updated.as_ref().and_then(|(_, time)| reading.keep(DroppedPart::Time, Timestamp::parse(time)))
    }

    fn items(&self) -> Result<DraftItems, Rejection> {
        let items = self.entries.iter().map(Entry::item).collect::<Result<Vec<_>, _>>()?;
        match NonEmpty::try_from(items) {
            Ok(items) if self.is_settled => Ok(DraftItems::Relayed { items, settlement: Box::new(self.settlement()?) }),
            Ok(items) => Ok(DraftItems::Listed(items)),
            Err(_) if self.is_purge() => Ok(DraftItems::Purge),
            Err(no_items) => Err(self.root.unprocessable(format!("the feed has no entry; {no_items}"))),
        }
    }

    /// Returns the lookup mark. An unknown mark is from a later version and is ignored.
    pub(super) fn mark(&self) -> Option<LookupMark> {
        LookupMark::parse(self.change.as_ref()?.attribute("lookup")?.trim())
    }

    pub(super) fn is_purge(&self) -> bool {
        let purge = self.change.as_ref().and_then(|change| change.attribute("purge"));
        purge.is_some_and(|said| is_true(&said))
    }
}

impl<'a> Entry<'a> {
    fn read(document: &mut Document<'a>, start: Element<'a>, limits: Limits) -> Result<Self, Rejection> {
        let mut entry = Self {
            start,
            id: None,
            content: None,
            via: None,
            generated_by: None,
            original: None,
            change_type: None,
            before: None,
            after: None,
            digest: None,
            source: None,
            change: None,
            notes: None,
            late: None,
        };
        while let Some(child) = document.child()? {
            match child.atom() {
                Some("id") => text_of(document, child, &mut entry.id)?,
                Some("content") => take_within(document, child, &mut entry.content)?,
                Some("link") if is_of_relation(&child, "via") => take_within(document, child, &mut entry.via)?,
                Some("link") if is_of_relation(&child, GENERATED_BY) => {
                    take_within(document, child, &mut entry.generated_by)?;
                }
                Some("link") if is_of_relation(&child, ORIGINAL) => {
                    take_within(document, child, &mut entry.original)?;
                }
                Some("category") => match entry.category_slot(&child) {
                    Some(slot) => take_within(document, child, slot)?,
                    None => document.skip()?,
                },
                Some("source") => {
                    let source = Feed::read(document, child, limits)?;
                    entry.source.get_or_insert_with(|| Box::new(source));
                }
                _ if child.is(TIDINGS, "digest") => text_of(document, child, &mut entry.digest)?,
                _ if child.is(TIDINGS, "change") => take_within(document, child, &mut entry.change)?,
                _ if child.is(TIDINGS, "item") => take_within(document, child, &mut entry.notes)?,
                _ if child.is(TIDINGS, "late") => text_of(document, child, &mut entry.late)?,
                _ => document.skip()?,
            }
        }
        Ok(entry)
    }

    /// Returns the field for a category by its scheme, if 0.1 defines the scheme.
    fn category_slot(&mut self, category: &Element<'a>) -> Option<&mut Option<Element<'a>>> {
        match category.attribute("scheme")?.as_ref() {
            CHANGE_TYPE_SCHEME => Some(&mut self.change_type),
            BEFORE_SCHEME => Some(&mut self.before),
            AFTER_SCHEME => Some(&mut self.after),
            _ => None,
        }
    }

    fn item(&self) -> Result<DraftItem, Rejection> {
        let Some(via) = &self.via else {
            return Err(self.start.unprocessable("the entry has no link rel=\"via\", which names the item"));
        };
        let content = self.content.as_ref().map(|content| self.content_at(content, via)).transpose()?;
        let change = ItemChange::from_parts(self.change_type()?, content, state(&self.before)?, state(&self.after)?);
        Ok(DraftItem {
            id: self.id.as_ref().and_then(|(_, id)| ItemId::parse(id).ok()),
            uri: uri(via, "href")?,
            change: DraftChange::Reported(change.map_err(|error| self.start.unprocessable(error.to_string()))?),
        })
    }

    fn change_type(&self) -> Result<Option<ChangeType>, Rejection> {
        let Some(category) = &self.change_type else {
            return Ok(None);
        };
        let term = category.attribute("term").unwrap_or_default();
        let change_type = ChangeType::parse(term.trim()).ok_or_else(|| {
            category.unprocessable(format!("{:?} is not a change type; give ADD, UPDATE or DELETE", excerpt(&term)))
        });
        change_type.map(Some)
    }

    fn content_at(&self, content: &Element<'a>, via: &Element<'a>) -> Result<ContentLocation, Rejection> {
        Ok(ContentLocation {
            url: uri(content, "src")?,
            // Fedora accepts any text as a MIME type. An invalid type is dropped, because readers cannot use it
            // and the event must not be lost.
            media_type: content.attribute("type").and_then(|raw| MediaType::parse(&raw).ok()),
            size: length(via)?,
            digest: self.digest.as_ref().map(digest).transpose()?,
            generated_by: self.generated_by.as_ref().map(|activity| uri(activity, "href")).transpose()?,
            original: self.original.as_ref().map(|link| original(link).map(Box::new)).transpose()?,
        })
    }
}

fn original(link: &Element<'_>) -> Result<OriginalContent, Rejection> {
    Ok(OriginalContent {
        url: uri(link, "href")?,
        media_type: link.attribute("type").and_then(|raw| MediaType::parse(&raw).ok()),
        size: length(link)?,
        digest: None,
    })
}

fn length(link: &Element<'_>) -> Result<Option<u64>, Rejection> {
    link.attribute("length").map(|raw| located(raw.trim().parse(), link, "the length")).transpose()
}

fn state(category: &Option<Element<'_>>) -> Result<Option<State>, Rejection> {
    let state = category.as_ref().map(|category| {
        let term = category.attribute("term").unwrap_or_default();
        located(State::parse(term.trim()), category, "the category's term")
    });
    state.transpose()
}

fn digest((element, hex): &TextElement<'_>) -> Result<Digest, Rejection> {
    let name = element.attribute("algorithm").unwrap_or_default();
    let algorithm = DigestAlgorithm::parse(name.trim()).ok_or_else(|| {
        let algorithms = DigestAlgorithm::ALL.map(DigestAlgorithm::name).join(", ");
        element
            .unprocessable(format!("{:?} is not a supported digest algorithm; there are {algorithms}", excerpt(&name)))
    })?;
    located(Digest::parse(algorithm, hex), element, "the digest")
}

/// Returns the first link with this relation.
fn link<'e, 'a>(links: &'e [Element<'a>], relation: &str) -> Option<&'e Element<'a>> {
    links.iter().find(|link| is_of_relation(link, relation))
}

/// Compares the relation by its registered name or by the URI of that name (RFC 4287 section 4.2.7.2).
fn is_of_relation(link: &Element<'_>, relation: &str) -> bool {
    const REGISTERED: &str = "http://www.iana.org/assignments/relation/";
    let value = link.attribute("rel").unwrap_or_default();
    value.strip_prefix(REGISTERED).unwrap_or(&value) == relation
}

fn with_scheme<'e, 'a>(categories: &'e [Element<'a>], scheme: &str) -> impl Iterator<Item = &'e Element<'a>> {
    categories.iter().filter(move |category| category.attribute("scheme").is_some_and(|value| value == scheme))
}

fn uri(element: &Element<'_>, attribute: &str) -> Result<Uri, Rejection> {
    let Some(raw) = element.attribute(attribute) else {
        return Err(element.unprocessable(format!("<{}> has no {attribute}", element.name())));
    };
    located(Uri::parse(&raw), element, attribute)
}

/// Reads a boolean of XML Schema.
pub(super) fn is_true(said: &str) -> bool {
    matches!(said.trim(), "true" | "1")
}

/// Converts an error to a rejection at the element.
pub(super) fn located<T, E: fmt::Display>(
    value: Result<T, E>,
    element: &Element<'_>,
    what: &str,
) -> Result<T, Rejection> {
    value.map_err(|error| element.unprocessable(format!("{what}: {error}")))
}

/// Truncates text from a message for an error.
fn excerpt(raw: &str) -> String {
    raw.chars().take(120).collect()
}

fn text_of<'a>(
    document: &mut Document<'a>,
    element: Element<'a>,
    slot: &mut Option<TextElement<'a>>,
) -> Result<(), Rejection> {
    let text = document.text()?;
    slot.get_or_insert((element, text));
    Ok(())
}

fn take_within<'a>(
    document: &mut Document<'a>,
    element: Element<'a>,
    slot: &mut Option<Element<'a>>,
) -> Result<(), Rejection> {
    document.skip()?;
    slot.get_or_insert(element);
    Ok(())
}

fn all_of<'a>(
    document: &mut Document<'a>,
    element: Element<'a>,
    elements: &mut Vec<Element<'a>>,
) -> Result<(), Rejection> {
    document.skip()?;
    elements.push(element);
    Ok(())
}
