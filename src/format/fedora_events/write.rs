//! Writes a change as an event of Fedora 5 and 6 (ActivityStreams 2), for existing consumers. fcrepo-camel
//! reads `id`, `type`, `published`, `actor`, `object.id` and `object.type` from the body. Selectors, route
//! filters and older consumers read the headers `org.fcrepo.jms.*`.
//!
//! An event has one resource, whereas a change has an object and items. The resource is
//!
//! * the only item, if it is a part of the object, so that a deleted datastream is not read as a deleted object;
//! * else the object, as the change affects it ([`ObjectChange`]).
//!
//! If the content is not at the resource's URL, `url` links to it, as in Islandora. A change of state alone is
//! an Update, because these consumers know no states. For consumers that need public visibility, use a
//! subscription with `visibility`.
//!
//! ActivityStreams cannot say that a fact is late, and these consumers delete what a Delete names. So a change of which
//! nothing is on time has no message, and items that are late do not count in the others.

use std::{borrow::Cow, io};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::{agent, jms};
use crate::{
    format::{ExtraHeaders, FormatKind, Header, HeaderProtocol, json_ld},
    model::{
        Change, ChangeId, ContentItemModification, ContentObjectModification, MediaType, ObjectChange, Timestamp, Uri,
        User,
    },
};

/// ActivityStreams 2 in the shape of Fedora 5 and 6, as a format.
pub(in crate::format) static ACTIVITY_STREAMS: FormatKind = FormatKind {
    name: "activitystreams",
    media_type: "application/activity+json",
    about: "ActivityStreams 2.0 as Fedora 5 and 6 send it, for fcrepo-camel and similar consumers",
    write: |change| write(&ResourceEvent::of(change)),
    write_modification: |modification| write(&ResourceEvent::alone(modification)),
    covers: Some(|change| change.items_on_time().next().is_some()),
    extra_headers: ExtraHeaders::Redundant(|change, protocol| headers(change, protocol, None)),
    routed: None,
    batch: None,
};

/// Maximum length of a header value of HTTP and STOMP. Web servers reject headers of more than some kilobytes in total,
/// and ActiveMQ a header of more than 10 240 bytes.
const MAX_HEADER_BYTES: usize = 2048;

/// A change as an event of one resource.
struct ResourceEvent<'a> {
    modification: &'a ContentObjectModification,
    kind: ObjectChange,
    resource: &'a Uri,
    types: &'a [Uri],
    parent: Option<&'a Uri>,
    /// Items that the event is about.
    items: Vec<&'a ContentItemModification>,
}

/// Returns Fedora's own description of an effect on a resource.
fn fedora_name(effect: ObjectChange) -> &'static str {
    match effect {
        ObjectChange::Create => "create resource",
        ObjectChange::Update => "update resource",
        ObjectChange::Delete => "delete resource",
    }
}

impl<'a> ResourceEvent<'a> {
    fn of(change: &'a Change) -> Self {
        Self::new(&change.modification, change.items_on_time().collect(), change.settlement.purge)
    }

    fn alone(modification: &'a ContentObjectModification) -> Self {
        Self::new(modification, modification.items.iter().collect(), false)
    }

    fn new(modification: &'a ContentObjectModification, items: Vec<&'a ContentItemModification>, purge: bool) -> Self {
        let object = &modification.object;
        match &items[..] {
            [item] if !purge && item.is_part_of(object) => Self {
                modification,
                kind: ObjectChange::of_item(&item.change),
                resource: &item.uri,
                types: &[],
                parent: Some(object),
                items,
            },
            _ => Self {
                modification,
                kind: ObjectChange::of(object, &items, purge),
                resource: object,
                types: &modification.types,
                parent: modification.parent.as_ref(),
                items,
            },
        }
    }

    /// Returns links to contents that are not at the resource's URL. An event that deletes nothing has no link to an item
    /// that is deleted.
    fn links(&self) -> Vec<Link<'a>> {
        let is_linked = |item: &&&'a ContentItemModification| {
            self.kind == ObjectChange::Delete || ObjectChange::of_item(&item.change) != ObjectChange::Delete
        };
        let link = |item: &&'a ContentItemModification| {
            let item = *item;
            let content = item.change.content();
            let href = content.map_or(&item.uri, |content| &content.url);
            let media_type = content.and_then(|content| content.media_type.as_ref());
            (href != self.resource).then_some(Link { kind: "Link", rel: "alternate", href, media_type })
        };
        self.items.iter().filter(is_linked).filter_map(link).collect()
    }
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

/// Terms that Fedora declares in addition to the context of ActivityStreams 2.
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

/// Writes JSON in which characters beyond U+FFFF are escaped (RFC 8259 section 7). STOMP then delivers a `TextMessage`:
/// fcrepo-camel reads no `BytesMessage`, which such a character would need.
struct BasicPlane;

impl Formatter for BasicPlane {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for part in fragment.split_inclusive(|c| c > '\u{FFFF}') {
            let last = part.chars().next_back().filter(|c| *c > '\u{FFFF}');
            let plain = &part[..part.len() - last.map_or(0, char::len_utf8)];
            writer.write_all(plain.as_bytes())?;
            for unit in last.into_iter().flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec()) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::expect_used, reason = "there is no map whose keys are not strings, and a Vec takes all")]
fn write(event: &ResourceEvent<'_>) -> Vec<u8> {
    let description = event.modification.description.as_str();
    let written = Event {
        id: event.modification.id,
        kind: [event.kind.activity_type()],
        name: if description.is_empty() { fedora_name(event.kind) } else { description },
        published: event.modification.time,
        actor: actor(&event.modification.user).map(|actor| [actor]),
        object: Object { types: event.types, id: event.resource, parent: event.parent, links: event.links() },
        context: CONTEXT,
    };
    let mut json = Vec::new();
    written.serialize(&mut Serializer::with_formatter(&mut json, BasicPlane)).expect("an event has a JSON shape");
    json
}

/// Returns the user as Fedora writes it: the identifier, and the name only if it differs. Returns `None` if the
/// user is unknown.
fn actor(user: &User) -> Option<Actor<'_>> {
    let read = agent::user(user.uri().map(Uri::as_str), None);
    let is_told = read.is_some_and(|read| read.name() == user.name());
    let is_known = user.uri().is_some() || user.name() != User::UNKNOWN;
    is_known.then(|| Actor { kind: ["Person"], id: user.uri(), name: (!is_told).then(|| user.name()) })
}

/// Returns the headers of Fedora's event for the change, whatever the format of the body; none if the change has no event.
/// Resources below `base_url`, the REST URL of the repository, get it as their base URL.
#[must_use]
pub fn fedora_event_headers(change: &Change, base_url: Option<&Uri>) -> Vec<Header> {
    if ACTIVITY_STREAMS.covers(change) { headers(change, HeaderProtocol::Stomp, base_url) } else { Vec::new() }
}

fn headers(change: &Change, protocol: HeaderProtocol, base_url: Option<&Uri>) -> Vec<Header> {
    let event = ResourceEvent::of(change);
    let modification = event.modification;
    let types: Vec<_> = event.types.iter().map(Uri::as_str).collect();
    let fits = |value: &str| match protocol {
        HeaderProtocol::Amqp | HeaderProtocol::Kafka => true,
        HeaderProtocol::Stomp => value.len() <= MAX_HEADER_BYTES,
        // A value that an HTTP header cannot contain is omitted; the body still contains it.
        HeaderProtocol::Http => {
            value.len() <= MAX_HEADER_BYTES && value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        }
    };
    let has_path = fits(event.resource.as_str());
    let (base, path) =
        if has_path { base_and_path(event.resource, base_url, event.parent) } else { Default::default() };
    let user = modification.user.name();
    let values = [
        (jms::EVENT_TYPE, format!("{}{}", json_ld::ACTIVITY_STREAMS[0], event.kind.activity_type())),
        (jms::EVENT_ID, modification.id.to_string()),
        (jms::TIMESTAMP, modification.time.millis().to_string()),
        (jms::BASE_URL, base.to_owned()),
        (jms::IDENTIFIER, path.to_owned()),
        (jms::RESOURCE_TYPE, types.join(",")),
        (jms::USER, if user == User::UNKNOWN { String::new() } else { user.to_owned() }),
    ];
    let modification = values.into_iter().filter(|(_, value)| !value.is_empty() && fits(value));
    modification.map(|(name, value)| Header { name: Cow::Borrowed(name), value }).collect()
}

/// Splits a resource URI into the base URL and the path of Fedora's headers. Without a base URL that fits, it is the URL
/// of the parent, as in events of Fedora. If the resource is not below its parent, the path begins at the root of the
/// host. A URI without a host gives neither.
fn base_and_path<'a>(resource: &'a Uri, base_url: Option<&'a Uri>, parent: Option<&'a Uri>) -> (&'a str, &'a str) {
    let resource = resource.as_str();
    let below = [base_url, parent].into_iter().flatten().find_map(|base| {
        let base = base.as_str().trim_end_matches('/');
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
