//! Writes a change of a Drupal entity as an event of Islandora 2, for the triplestore and Fedora indexers of its Alpaca.
//!
//! Both read the representation of the entity in JSON-LD. The first one replaces what the triplestore says about the page of
//! the entity; the second one saves it under its UUID in the Fedora that is the target. A Delete removes that. They refuse
//! members that they do not know, so an event has neither an identifier nor a time, and one type. The page is the address of
//! the representation without `_format`, as Drupal makes it.
//!
//! Media and files have no messages: the indexers need the link to what they describe and the field that has the file, which
//! events about them do not leave in the registry. Sources: `TriplestoreIndexer.java`, `FcrepoIndexer.java`, `AS2Event.java`
//! and `AS2Object.java` of Alpaca 2.2, and `EventGenerator.php` of the Drupal module `islandora`.

use serde::Serialize;

use crate::{
    format::{ExtraHeaders, FormatKind},
    model::{Change, ContentItemModification, ContentObjectModification, ObjectChange, Uri, User},
};

/// The format `islandora`.
pub(in crate::format) static FORMAT: FormatKind = FormatKind {
    name: "islandora",
    media_type: "application/ld+json",
    about: "events of Islandora 2 for the indexers of Alpaca; only nodes and terms have messages",
    write: |change| write(&change.modification, change.items_on_time()),
    write_modification: |modification| write(modification, modification.items.iter()),
    covers: Some(|change: &Change| {
        change.items_on_time().any(|item| Representation::of(item).is_some_and(|it| it.is_entity()))
    }),
    extra_headers: ExtraHeaders::None,
    routed: None,
    batch: None,
};

/// Name of JSON-LD in addresses of Drupal.
const JSON_LD: &str = "jsonld";

/// Representation of an entity, such as `http://h/node/1?_format=jsonld`.
struct Representation<'a> {
    item: &'a ContentItemModification,
    /// Name of its format.
    format: &'a str,
}

impl<'a> Representation<'a> {
    /// Returns the representation that an item is; `None` if its address names no format.
    fn of(item: &'a ContentItemModification) -> Option<Self> {
        let (_, query) = item.uri.as_str().split_once('?')?;
        let format = query.split('&').find_map(|pair| pair.strip_prefix("_format="))?;
        Some(Self { item, format })
    }

    /// Returns whether it is the JSON-LD of an entity that is neither a media nor a file.
    fn is_entity(&self) -> bool {
        let path = self.item.uri.as_str().split('?').next().unwrap_or_default();
        let path = path.strip_suffix("/edit").unwrap_or(path);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (folder, number) = path.rsplit_once('/').unwrap_or_default();
        let is_other = is_number(number) && ["/media", "/file"].iter().any(|kind| folder.ends_with(kind));
        self.format == JSON_LD && !is_other
    }

    /// Returns the address of the entity's page.
    fn page(&self) -> String {
        let uri = self.item.uri.as_str();
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let rest: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("_format=")).collect();
        if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) }
    }

    fn link(&self) -> Link<'a> {
        let reported = self.item.change.content().and_then(|content| content.media_type.as_ref());
        let media_type = match (self.format, reported) {
            (JSON_LD, _) => Some("application/ld+json"),
            (_, Some(media_type)) => Some(media_type.as_str()),
            ("json", None) => Some("application/json"),
            (_, None) => None,
        };
        Link { kind: "Link", href: self.item.uri.to_string(), media_type, rel: None }
    }
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "@context")]
    context: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<Actor<'a>>,
    object: Object<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a Uri>,
}

#[derive(Serialize)]
struct Actor<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Uri>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    url: Vec<Link<'a>>,
}

#[derive(Serialize)]
struct Object<'a> {
    id: &'a Uri,
    url: Vec<Link<'a>>,
}

/// A link (ActivityStreams 2 Vocabulary, `Link`).
#[derive(Serialize)]
struct Link<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    href: String,
    #[serde(rename = "mediaType", skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rel: Option<&'static str>,
}

impl Link<'_> {
    fn page(href: String) -> Self {
        Self { kind: "Link", href, media_type: Some("text/html"), rel: Some("canonical") }
    }
}

impl<'a> Actor<'a> {
    /// Returns the user; `None` if it is unknown. Islandora names its users by their pages.
    fn of(user: &'a User) -> Option<Self> {
        let page = Uri::parse(user.name()).ok().map(|page| Link::page(page.to_string()));
        (user.uri().is_some() || page.is_some()).then(|| Self {
            kind: "Person",
            id: user.uri(),
            url: page.into_iter().collect(),
        })
    }
}

fn write<'a>(
    modification: &'a ContentObjectModification,
    items: impl Iterator<Item = &'a ContentItemModification>,
) -> Vec<u8> {
    let items: Vec<_> = items.collect();
    let representations: Vec<_> = items.iter().filter_map(|item| Representation::of(item)).collect();
    let entity = representations.iter().find(|representation| representation.is_entity());
    let kind = match entity {
        Some(entity) => ObjectChange::of_item(&entity.item.change),
        None => ObjectChange::of(&modification.object, &items, false),
    };
    let page = entity.map(|entity| Link::page(entity.page()));
    let event = Event {
        context: "https://www.w3.org/ns/activitystreams",
        kind: kind.activity_type(),
        actor: Actor::of(&modification.user),
        object: Object {
            id: &modification.object,
            url: page.into_iter().chain(representations.iter().map(Representation::link)).collect(),
        },
        target: modification.parent.as_ref(),
    };
    // Serialization cannot fail: every value has a JSON form.
    serde_json::to_vec(&event).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::FORMAT;
    use crate::{
        format::{Headers, Limits, Message, ParsedMessage, dialect},
        model::{Change, Draft, ItemChangeKind},
    };

    fn change(items: &Value) -> Change {
        let id = "urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3";
        let items: Vec<Value> = items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                let mut item = item.clone();
                item["id"] = json!(id);
                item
            })
            .collect();
        serde_json::from_value(json!({
            "seq": 7, "id": "urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48", "source": "drupal",
            "received": "2026-01-02T03:04:05.006Z", "time": "2026-01-02T03:04:05Z", "description": "",
            "user": { "name": "http://h/user/1", "uri": "urn:uuid:2fcb7300-6d2e-43d5-b07b-4d4784690117" },
            "object": "urn:uuid:9541c0c1-5bee-4973-a9d0-e55c1658bc81", "items": items,
        }))
        .unwrap()
    }

    fn written(change: &Change) -> Value {
        serde_json::from_slice(&(FORMAT.write)(change)).unwrap()
    }

    #[test]
    fn event_has_what_the_indexer_reads_and_nothing_else() {
        let change = change(&json!([
            { "uri": "http://h/node/1?_format=jsonld", "change": "UPDATE",
                "content": { "url": "http://h/node/1?_format=jsonld", "mediaType": "application/ld+json" } },
            { "uri": "http://h/node/1?_format=json", "change": "UPDATE",
                "content": { "url": "http://h/node/1?_format=json", "mediaType": "application/json" } },
        ]));
        assert!(FORMAT.covers(&change));
        let page = |href: &str| json!({ "type": "Link", "href": href, "mediaType": "text/html", "rel": "canonical" });
        let link = |href: &str, media_type: &str| json!({ "type": "Link", "href": href, "mediaType": media_type });
        let expected = json!({
            "@context": "https://www.w3.org/ns/activitystreams", "type": "Update",
            "actor": { "type": "Person", "id": "urn:uuid:2fcb7300-6d2e-43d5-b07b-4d4784690117",
                "url": [page("http://h/user/1")] },
            "object": { "id": "urn:uuid:9541c0c1-5bee-4973-a9d0-e55c1658bc81", "url": [page("http://h/node/1"),
                link("http://h/node/1?_format=jsonld", "application/ld+json"),
                link("http://h/node/1?_format=json", "application/json")] },
        });
        assert_eq!(written(&change), expected);
    }

    #[test]
    fn deletions_and_other_addresses_are_covered_and_media_are_not() {
        let covers = |uri: &str, kind: &str| {
            let change = change(&json!([{ "uri": uri, "change": kind }]));
            FORMAT.covers(&change).then(|| {
                let event = written(&change);
                (
                    event["type"].as_str().unwrap().to_owned(),
                    event["object"]["url"][0]["href"].as_str().unwrap().to_owned(),
                )
            })
        };
        let pair = |kind: &str, page: &str| Some((kind.to_owned(), page.to_owned()));
        assert_eq!(covers("http://h/node/1?_format=jsonld", "DELETE"), pair("Delete", "http://h/node/1"));
        assert_eq!(
            covers("http://h/de/taxonomy/term/3?a=b&_format=jsonld", "ADD"),
            pair("Create", "http://h/de/taxonomy/term/3?a=b")
        );
        assert_eq!(covers("http://h/filed/media?_format=jsonld", "ADD"), pair("Create", "http://h/filed/media"));
        // A site below a path of its own.
        assert_eq!(
            covers("http://h/media/2024/node/1?_format=jsonld", "ADD"),
            pair("Create", "http://h/media/2024/node/1")
        );
        for uri in [
            "http://h/media/4/edit?_format=jsonld",
            "http://h/de/media/4?_format=jsonld",
            "http://h/node/1?_format=json",
            "http://h/node/1",
        ] {
            assert_eq!(covers(uri, "ADD"), None, "{uri}");
        }
    }

    /// What the format writes of a change, the dialect reads as the same change.
    #[test]
    fn events_are_those_of_the_dialect() {
        let islandora = (dialect("islandora").unwrap().build)(json!({}), Limits::default()).unwrap();
        let (headers, uri) = (Headers::default(), "http://h/node/1?_format=jsonld");
        let content = json!({ "url": uri, "mediaType": "application/ld+json" });
        for (kind, expected) in [("ADD", ItemChangeKind::Add), ("DELETE", ItemChangeKind::Delete)] {
            let mut item = json!({ "uri": uri, "change": kind });
            if kind == "ADD" {
                item["content"] = content.clone();
            }
            let change = change(&json!([item]));
            let body = (FORMAT.write)(&change);
            let message = Message { content_type: None, headers: &headers, body: &body };
            let ParsedMessage::Drafts(drafts) = islandora.read(&message).unwrap() else { panic!("{body:?}") };
            let Draft { object, user, items, .. } = &drafts[0];
            assert_eq!((object, user), (&change.modification.object, &change.modification.user));
            let items: Vec<_> = items.listed().iter().map(|item| item.uri.as_str()).collect();
            assert_eq!((items, ItemChangeKind::of(&change.modification.items[0].change)), (vec![uri], expected));
        }
    }
}
