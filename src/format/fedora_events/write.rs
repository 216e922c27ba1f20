//! Writing a change as Fedora 5 and 6 write an event (ActivityStreams 2), for consumers that are there:
//! fcrepo-camel takes `id`, `type`, `published`, `actor`, `object.id` and `object.type` from the body;
//! selectors, filters of routes and consumers of older generations read the `org.fcrepo.jms.*` headers.
//!
//! An event is of one resource, and a change is of an object and its items. The resource is
//!
//! * the object, where it is an item itself, as in all that comes from Fedora 4 to 6, or is purged;
//! * else the one item that changed, which is then part of the object: a datastream that is deleted must
//!   not read as its object deleted;
//! * else the object, for the items all together: an Update. Where the object is a name that is no address, as
//!   in Islandora, and the items are not parts of it by their own names, they are its representations: if all
//!   of them are new it is new, and if all are gone it is gone.
//!
//! Where the content is not at the resource's own address, `url` links to it, as Islandora does. A change
//! of state alone is an Update: these consumers know no states. One that is to see what the public sees has
//! a subscription with `visibility`.

use std::borrow::Cow;

use serde::Serialize;

use super::{agent, jms};
use crate::{
    format::{Beside, Carrier, FormatKind, Header, json_ld},
    model::{
        Change, ChangeId, ChangeType, ContentItemModification, ContentObjectModification, MediaType, Timestamp, Uri,
        User,
    },
};

/// ActivityStreams 2 in the shape of Fedora 5 and 6.
pub(in crate::format) static ACTIVITY_STREAMS: FormatKind = FormatKind {
    name: "activitystreams",
    media_type: "application/activity+json",
    about: "ActivityStreams 2.0 as Fedora 5 and 6 send it, for fcrepo-camel and its like",
    write: |change| write(&Told::of(change)),
    write_modification: |modification| write(&Told::alone(modification)),
    beside: Beside::Copies(headers),
    batch: None,
};

/// The longest value of a header over HTTP; servers refuse heads of more than some kilobytes.
const LONGEST_HEADER: usize = 2048;

/// A change as an event of one resource.
struct Told<'a> {
    told: &'a ContentObjectModification,
    kind: Kind,
    resource: &'a Uri,
    types: &'a [Uri],
    parent: Option<&'a Uri>,
}

/// What became of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Update,
    Delete,
}

impl Kind {
    fn of(item: &ContentItemModification) -> Self {
        match item.change.change_type() {
            Some(ChangeType::Add) => Self::Create,
            Some(ChangeType::Delete) => Self::Delete,
            Some(ChangeType::Update) | None => Self::Update,
        }
    }

    /// What became of all of them; an Update where that differs.
    fn of_all(items: &[ContentItemModification]) -> Self {
        let mut kinds = items.iter().map(Self::of);
        let first = kinds.next().unwrap_or(Self::Update);
        if kinds.all(|kind| kind == first) { first } else { Self::Update }
    }

    fn term(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Delete => "Delete",
        }
    }

    /// Fedora's own words.
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create resource",
            Self::Update => "update resource",
            Self::Delete => "delete resource",
        }
    }
}

impl<'a> Told<'a> {
    fn of(change: &'a Change) -> Self {
        Self::new(&change.modification, change.settlement.purge)
    }

    fn alone(modification: &'a ContentObjectModification) -> Self {
        Self::new(modification, false)
    }

    fn new(told: &'a ContentObjectModification, purge: bool) -> Self {
        let object =
            |kind| Self { told, kind, resource: &told.object, types: &told.types, parent: told.parent.as_ref() };
        let itself = told.items.iter().find(|item| item.uri == told.object);
        match (itself, &told.items[..]) {
            _ if purge => object(Kind::Delete),
            (Some(itself), _) => object(Kind::of(itself)),
            (None, items) if are_representations(items, &told.object) => object(Kind::of_all(items)),
            (None, [item]) => {
                Self { told, kind: Kind::of(item), resource: &item.uri, types: &[], parent: Some(&told.object) }
            }
            (None, _) => object(Kind::Update),
        }
    }

    /// The contents that are elsewhere than at the resource.
    fn links(&self) -> Vec<Link<'a>> {
        let link = |item: &'a ContentItemModification| {
            let content = item.change.content();
            let href = content.map_or(&item.uri, |content| &content.url);
            let media_type = content.and_then(|content| content.media_type.as_ref());
            (href != self.resource).then_some(Link { kind: "Link", rel: "alternate", href, media_type })
        };
        self.told.items.iter().filter_map(link).collect()
    }
}

fn are_representations(items: &[ContentItemModification], object: &Uri) -> bool {
    let is_address = ["http://", "https://"].iter().any(|scheme| object.as_str().starts_with(scheme));
    !is_address && !items.iter().any(|item| item.uri.as_str().starts_with(object.as_str()))
}

#[derive(Serialize)]
struct Event<'a> {
    id: ChangeId,
    #[serde(rename = "type")]
    kind: [&'static str; 1],
    name: &'a str,
    published: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<[Actor<'a>; 1]>,
    object: Object<'a>,
    #[serde(rename = "@context")]
    context: (&'static str, Terms),
}

#[derive(Serialize)]
struct Actor<'a> {
    #[serde(rename = "type")]
    kind: [&'static str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Uri>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    types: &'a [Uri],
    id: &'a Uri,
    #[serde(rename = "isPartOf", skip_serializing_if = "Option::is_none")]
    parent: Option<&'a Uri>,
    #[serde(rename = "url", skip_serializing_if = "Vec::is_empty")]
    links: Vec<Link<'a>>,
}

/// A link to content (ActivityStreams 2 Vocabulary, `Link`).
#[derive(Serialize)]
struct Link<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    rel: &'static str,
    href: &'a Uri,
    #[serde(rename = "mediaType", skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a MediaType>,
}

/// What Fedora declares beside the context of ActivityStreams 2.
#[derive(Serialize)]
struct Terms {
    prov: &'static str,
    dcterms: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'static str,
    #[serde(rename = "isPartOf")]
    parent: Term,
}

#[derive(Serialize)]
struct Term {
    #[serde(rename = "@id")]
    id: &'static str,
    #[serde(rename = "@type")]
    kind: &'static str,
}

const CONTEXT: (&str, Terms) = (
    "https://www.w3.org/ns/activitystreams",
    Terms {
        prov: "http://www.w3.org/ns/prov#",
        dcterms: "http://purl.org/dc/terms/",
        kind: "@type",
        id: "@id",
        parent: Term { id: "dcterms:isPartOf", kind: "@id" },
    },
);

#[expect(clippy::expect_used, reason = "there is no map whose keys are not strings, and a Vec takes all")]
fn write(event: &Told<'_>) -> Vec<u8> {
    let description = event.told.description.as_str();
    let written = Event {
        id: event.told.id,
        kind: [event.kind.term()],
        name: if description.is_empty() { event.kind.name() } else { description },
        published: event.told.time,
        actor: actor(&event.told.user).map(|actor| [actor]),
        object: Object { types: event.types, id: event.resource, parent: event.parent, links: event.links() },
        context: CONTEXT,
    };
    serde_json::to_vec(&written).expect("an event has a JSON shape")
}

/// The user as Fedora has it: by an identifier, and a name only where that says something else. Nobody
/// is written for one who is not known.
fn actor(user: &User) -> Option<Actor<'_>> {
    let read = agent::user(user.uri().map(Uri::as_str), None);
    let is_told = read.is_some_and(|read| read.name() == user.name());
    let is_known = user.uri().is_some() || user.name() != User::UNKNOWN;
    is_known.then(|| Actor { kind: ["Person"], id: user.uri(), name: (!is_told).then(|| user.name()) })
}

fn headers(change: &Change, carrier: Carrier) -> Vec<Header> {
    let event = Told::of(change);
    let told = event.told;
    let types: Vec<_> = event.types.iter().map(Uri::as_str).collect();
    let fits = |value: &str| match carrier {
        Carrier::Amqp => true,
        // What HTTP cannot carry as it is stands in the body all the same.
        Carrier::Http => value.len() <= LONGEST_HEADER && value.bytes().all(|byte| matches!(byte, b' '..=b'~')),
    };
    let is_place = fits(event.resource.as_str());
    let (base, path) = if is_place { place(event.resource, event.parent) } else { Default::default() };
    let user = told.user.name();
    let values = [
        (jms::EVENT_TYPE, format!("{}{}", json_ld::ACTIVITY_STREAMS[0], event.kind.term())),
        (jms::EVENT_ID, told.id.to_string()),
        (jms::TIMESTAMP, told.time.millis().to_string()),
        (jms::BASE_URL, base.to_owned()),
        (jms::IDENTIFIER, path.to_owned()),
        (jms::RESOURCE_TYPE, types.join(",")),
        (jms::USER, if user == User::UNKNOWN { String::new() } else { user.to_owned() }),
    ];
    let told = values.into_iter().filter(|(_, value)| !value.is_empty() && fits(value));
    told.map(|(name, value)| Header { name: Cow::Borrowed(name), value }).collect()
}

/// A resource as Fedora's headers have it: what is joined to it, and its path. An event of Fedora tells the
/// repository's URL as what the resource is part of; where that is not its beginning, the path begins at
/// the root of the host. A name that is no address has no path.
fn place<'a>(resource: &'a Uri, parent: Option<&'a Uri>) -> (&'a str, &'a str) {
    let resource = resource.as_str();
    let below = parent.and_then(|parent| {
        let base = parent.as_str().trim_end_matches('/');
        resource.strip_prefix(base).filter(|path| path.starts_with('/')).map(|path| (base, path))
    });
    let from_root = || {
        let (scheme, rest) = resource.split_once("://")?;
        let host = rest.find('/').unwrap_or(rest.len());
        let (base, path) = resource.split_at(scheme.len() + "://".len() + host);
        Some((base, if path.is_empty() { "/" } else { path }))
    };
    below.or_else(from_root).unwrap_or_default()
}
