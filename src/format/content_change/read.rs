//! Reading the 0.1 message.
//!
//! The whole feed is gathered before any of it is judged, since Atom lets its elements come in any
//! order and a feed of another format should be refused for that and not for what it lacks. Of what
//! may be there once, the first counts. What 0.1 does not know is passed over, and so is what an
//! entry only repeats of its feed (author, title, updated).

use std::{borrow::Cow, fmt};

use super::{
    super::{
        Bound, Limits, Rejection,
        xml::{Document, Element},
    },
    AFTER_SCHEME, BEFORE_SCHEME, CHANGE_TYPE_SCHEME, FORMAT_SCHEME, FORMAT_TERM, GENERATED_BY, OBJECT_TYPE_SCHEME,
    TIDINGS, VERSION_SCHEME,
};
use crate::model::{
    ChangeId, ChangeType, ContentLocation, Digest, DigestAlgorithm, Draft, DraftChange, DraftItem, DraftItems,
    DraftLookup, EventId, ItemChange, ItemId, LookupMark, MediaType, NonEmpty, State, Text, Timestamp, Uri, User,
};

/// An element and the text in it.
type Told<'a> = (Element<'a>, Cow<'a, str>);

/// Reads one message.
///
/// # Errors
/// When it is not well-formed, not a 0.1 message, or says what no change can be.
pub(super) fn draft(body: &[u8], limits: Limits) -> Result<Draft, Rejection> {
    let mut document = Document::open(body, limits)?;
    let root = document.root()?;
    if root.atom() != Some("feed") {
        let name = root.name();
        return Err(root.unprocessable(format!("this is <{name}>; a content-change message 0.1 is an Atom <feed>")));
    }
    let feed = Feed::gather(&mut document, root, limits)?;
    document.finish()?;
    feed.into_draft()
}

/// What stands in a feed.
struct Feed<'a> {
    root: Element<'a>,
    id: Option<Told<'a>>,
    title: Option<Told<'a>>,
    updated: Option<Told<'a>>,
    author_name: Option<Told<'a>>,
    author_uri: Option<Told<'a>>,
    categories: Vec<Element<'a>>,
    links: Vec<Element<'a>>,
    /// Our own `tidings:change`.
    change: Option<Element<'a>>,
    entries: Vec<Entry<'a>>,
}

/// What stands in an entry.
struct Entry<'a> {
    start: Element<'a>,
    id: Option<Told<'a>>,
    content: Option<Element<'a>>,
    via: Option<Element<'a>>,
    generated_by: Option<Element<'a>>,
    change_type: Option<Element<'a>>,
    before: Option<Element<'a>>,
    after: Option<Element<'a>>,
    digest: Option<Told<'a>>,
}

impl<'a> Feed<'a> {
    fn gather(document: &mut Document<'a>, root: Element<'a>, limits: Limits) -> Result<Self, Rejection> {
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
        };
        while let Some(child) = document.child()? {
            match child.atom() {
                Some("id") => text_of(document, child, &mut feed.id)?,
                Some("title") => text_of(document, child, &mut feed.title)?,
                Some("updated") => text_of(document, child, &mut feed.updated)?,
                Some("author") => feed.gather_author(document)?,
                Some("category") => all_of(document, child, &mut feed.categories)?,
                Some("link") => all_of(document, child, &mut feed.links)?,
                Some("entry") if feed.entries.len() == limits.items => {
                    let reason = format!("a message has at most {} entries; send several", limits.items);
                    return Err(Rejection::past(Bound::Items, child.place(), reason));
                }
                Some("entry") => feed.entries.push(Entry::gather(document, child)?),
                _ if child.is(TIDINGS, "change") => first_of(document, child, &mut feed.change)?,
                _ => document.skip()?,
            }
        }
        Ok(feed)
    }

    fn gather_author(&mut self, document: &mut Document<'a>) -> Result<(), Rejection> {
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
        Ok(Draft {
            id: change_id,
            event_id: event_id.or(foreign_id),
            software_version: with_scheme(&self.categories, VERSION_SCHEME)
                .find_map(|category| category.attribute("term"))
                .map(|version| Text::new(&version)),
            user: self.user()?,
            time: self.time()?.into(),
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
            lookup: DraftLookup { mark: self.mark(), ..DraftLookup::default() },
        })
    }

    fn check_format(&self) -> Result<(), Rejection> {
        let Some(category) = with_scheme(&self.categories, FORMAT_SCHEME).next() else {
            return Err(self.root.unprocessable(format!(
                "the feed does not say what format it is: it has no category of the scheme {FORMAT_SCHEME}"
            )));
        };
        match category.attribute("term") {
            Some(term) if term == FORMAT_TERM => Ok(()),
            term => Err(category.unprocessable(format!(
                "the message is of the format {:?}; {FORMAT_TERM} is read here",
                short(&term.unwrap_or_default())
            ))),
        }
    }

    fn user(&self) -> Result<User, Rejection> {
        let uri = self.author_uri.as_ref().map(|(element, uri)| refused(Uri::parse(uri), element, "the author's uri"));
        let name = self.author_name.as_ref().map_or("", |(_, name)| name.as_ref());
        Ok(User::new(name, uri.transpose()?))
    }

    fn time(&self) -> Result<Option<Timestamp>, Rejection> {
        let time = self.updated.as_ref().map(|(element, time)| refused(Timestamp::parse(time), element, "updated"));
        time.transpose()
    }

    fn items(&self) -> Result<DraftItems, Rejection> {
        let items = self.entries.iter().map(Entry::item).collect::<Result<Vec<_>, _>>()?;
        match NonEmpty::try_from(items) {
            Ok(items) => Ok(DraftItems::Listed(items)),
            Err(_) if self.is_purge() => Ok(DraftItems::Purge),
            Err(no_items) => Err(self.root.unprocessable(format!("the feed has no entry; {no_items}"))),
        }
    }

    /// One that is not known is from a later version, and passed over.
    fn mark(&self) -> Option<LookupMark> {
        LookupMark::parse(self.change.as_ref()?.attribute("lookup")?.trim())
    }

    fn is_purge(&self) -> bool {
        let purge = self.change.as_ref().and_then(|change| change.attribute("purge"));
        purge.is_some_and(|said| matches!(said.trim(), "true" | "1"))
    }
}

impl<'a> Entry<'a> {
    fn gather(document: &mut Document<'a>, start: Element<'a>) -> Result<Self, Rejection> {
        let mut entry = Self {
            start,
            id: None,
            content: None,
            via: None,
            generated_by: None,
            change_type: None,
            before: None,
            after: None,
            digest: None,
        };
        while let Some(child) = document.child()? {
            match child.atom() {
                Some("id") => text_of(document, child, &mut entry.id)?,
                Some("content") => first_of(document, child, &mut entry.content)?,
                Some("link") if is_of_relation(&child, "via") => first_of(document, child, &mut entry.via)?,
                Some("link") if is_of_relation(&child, GENERATED_BY) => {
                    first_of(document, child, &mut entry.generated_by)?;
                }
                Some("category") => match entry.category_like(&child) {
                    Some(place) => first_of(document, child, place)?,
                    None => document.skip()?,
                },
                _ if child.is(TIDINGS, "digest") => text_of(document, child, &mut entry.digest)?,
                _ => document.skip()?,
            }
        }
        Ok(entry)
    }

    /// Where a category of that scheme is kept, if it is one that 0.1 knows.
    fn category_like(&mut self, category: &Element<'a>) -> Option<&mut Option<Element<'a>>> {
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
        let known = ChangeType::parse(term.trim()).ok_or_else(|| {
            category.unprocessable(format!("{:?} is no change type; there are ADD, UPDATE and DELETE", short(&term)))
        });
        known.map(Some)
    }

    fn content_at(&self, content: &Element<'a>, via: &Element<'a>) -> Result<ContentLocation, Rejection> {
        Ok(ContentLocation {
            url: uri(content, "src")?,
            // Fedora takes any text for a MIME type. What is none is dropped: a reader of the change
            // could do nothing with it, and the event must not be lost for it.
            media_type: content.attribute("type").and_then(|raw| MediaType::parse(&raw).ok()),
            size: via.attribute("length").map(|raw| refused(raw.trim().parse(), via, "the length")).transpose()?,
            digest: self.digest.as_ref().map(digest).transpose()?,
            generated_by: self.generated_by.as_ref().map(|activity| uri(activity, "href")).transpose()?,
        })
    }
}

fn state(category: &Option<Element<'_>>) -> Result<Option<State>, Rejection> {
    let state = category.as_ref().map(|category| {
        let term = category.attribute("term").unwrap_or_default();
        refused(State::parse(term.trim()), category, "the category's term")
    });
    state.transpose()
}

fn digest((element, hex): &Told<'_>) -> Result<Digest, Rejection> {
    let name = element.attribute("algorithm").unwrap_or_default();
    let algorithm = DigestAlgorithm::parse(name.trim()).ok_or_else(|| {
        let known = DigestAlgorithm::ALL.map(DigestAlgorithm::name).join(", ");
        element.unprocessable(format!("{:?} is no digest algorithm read here; there are {known}", short(&name)))
    })?;
    refused(Digest::parse(algorithm, hex), element, "the digest")
}

/// The first link of that relation.
fn link<'e, 'a>(links: &'e [Element<'a>], relation: &str) -> Option<&'e Element<'a>> {
    links.iter().find(|link| is_of_relation(link, relation))
}

/// By its registered name or the name's URI (RFC 4287 section 4.2.7.2).
fn is_of_relation(link: &Element<'_>, relation: &str) -> bool {
    const REGISTERED: &str = "http://www.iana.org/assignments/relation/";
    let told = link.attribute("rel").unwrap_or_default();
    told.strip_prefix(REGISTERED).unwrap_or(&told) == relation
}

fn with_scheme<'e, 'a>(categories: &'e [Element<'a>], scheme: &str) -> impl Iterator<Item = &'e Element<'a>> {
    categories.iter().filter(move |category| category.attribute("scheme").is_some_and(|told| told == scheme))
}

fn uri(element: &Element<'_>, attribute: &str) -> Result<Uri, Rejection> {
    let Some(raw) = element.attribute(attribute) else {
        return Err(element.unprocessable(format!("<{}> has no {attribute}", element.name())));
    };
    refused(Uri::parse(&raw), element, attribute)
}

/// What cannot be taken is refused where it stands.
fn refused<T, E: fmt::Display>(value: Result<T, E>, element: &Element<'_>, what: &str) -> Result<T, Rejection> {
    value.map_err(|error| element.unprocessable(format!("{what}: {error}")))
}

/// As much of a stranger's text as a complaint can bear.
fn short(raw: &str) -> String {
    raw.chars().take(120).collect()
}

fn text_of<'a>(
    document: &mut Document<'a>,
    element: Element<'a>,
    place: &mut Option<Told<'a>>,
) -> Result<(), Rejection> {
    let text = document.text()?;
    place.get_or_insert((element, text));
    Ok(())
}

fn first_of<'a>(
    document: &mut Document<'a>,
    element: Element<'a>,
    place: &mut Option<Element<'a>>,
) -> Result<(), Rejection> {
    document.skip()?;
    place.get_or_insert(element);
    Ok(())
}

fn all_of<'a>(
    document: &mut Document<'a>,
    element: Element<'a>,
    places: &mut Vec<Element<'a>>,
) -> Result<(), Rejection> {
    document.skip()?;
    places.push(element);
    Ok(())
}
