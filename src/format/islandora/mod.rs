//! Events of Islandora 2: a node, a media or a file of its Drupal was created, changed or deleted.
//!
//! Events are ActivityStreams 2, sent over STOMP to the queues of Alpaca, without identifier and time. The
//! object is the Drupal entity (`urn:uuid:…`). Its items are its representations from the `alternate` links, or
//! else its page or file (`canonical`). The URLs of an entity differ between events (scheme, host, language prefix, alias),
//! so a Delete concerns all items that the registry has of the entity. The file that a media describes is not an item, because it has its own
//! event. A new revision (`isNewVersion`) is an ordinary update. Sources: `EventGenerator.php` of the Drupal
//! module `islandora`, and the test messages of Alpaca 2.

mod write;

use std::collections::HashSet;

use serde::Deserialize;

use super::{
    Dialect, DialectKind, DuplicateDetection, Limits, Message, MessageLimit, ParsedMessage, Rejection, RepositoryApi,
    RepositoryKind,
    json_ld::{self, Context, Node, activity_streams_term, describe_types},
    parse_settings,
    uri_path::{Delimiters, encode_uri},
};
use crate::model::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DroppedPart, EventId, FormerSpelling,
    ItemChange, MediaType, MissingFacts, NonEmpty, Reading, Text, Uri, User,
};

pub(super) use self::write::FORMAT;

/// The dialect `islandora`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "islandora",
    about: "events of Islandora 2 (ActivityStreams 2)",
    accepts: &["application/ld+json", "application/json", "application/activity+json"],
    headers: &[],
    duplicates: DuplicateDetection::Impossible,
    redact: None,
    repository: Some(RepositoryKind {
        api: RepositoryApi::Ldp,
        not_crawlable: Some(
            "messages of Islandora are about the entities of its Drupal, which its Fedora does not know; add a source with \
             the dialect fedora-events for the Fedora itself",
        ),
    }),
    sample_settings: &["{}"],
    build: |value, limits| {
        let Settings {} = parse_settings(value)?;
        Ok(Box::new(Islandora { limits }))
    },
};

/// The dialect has no settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

struct Islandora {
    limits: Limits,
}

/// Event on an entity.
#[derive(Clone, Copy)]
enum EventKind {
    Create,
    Update,
    Delete,
}

/// A link of an object (ActivityStreams 2 Vocabulary, `Link`).
struct Link<'a> {
    href: Uri,
    rels: Vec<&'a str>,
    media_type: Option<MediaType>,
}

impl Dialect for Islandora {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let document = json_ld::parse(message.body)?;
        let root = Node::root(&document);
        let object = root.required("object")?.only()?;
        let uri = object.id_uri()?;
        let Some(kind) = EventKind::read(&root)? else {
            return Ok(ParsedMessage::NoChange("it requests a derivative of an object; nothing has changed yet"));
        };
        let mut reading = Reading::default();
        let target = root.member("target").and_then(|target| {
            let uri = target.only().and_then(|target| target.id_uri());
            reading.keep(DroppedPart::Uri, uri)
        });
        // An object without contents is its own item.
        let contents = contents(&root, &object, &mut reading);
        if contents.len() > self.limits.items {
            let reason = format!("an object has at most {} contents here", self.limits.items);
            return Err(Rejection::over_limit(MessageLimit::Items, object.location(), reason));
        }
        let items = match NonEmpty::try_from(contents) {
            Ok(contents) => contents.map(|content| DraftItem::new(content.url.clone(), kind.change(Some(content)))),
            Err(_) => NonEmpty::one(DraftItem::new(uri.clone(), kind.change(None))),
        };
        Ok(ParsedMessage::one(Draft {
            id: None,
            event_id: root.id().and_then(|id| EventId::parse(id.text()?)),
            software_version: None,
            user: root.member("actor").map_or_else(User::unknown, |actor| user(&actor)),
            time: root.member("published").and_then(|time| reading.keep(DroppedPart::Time, time.time())).into(),
            parent: target.filter(|target| *target != uri),
            object: uri,
            types: Context::of(&root).types(object.types()),
            description: root.text_member("summary").unwrap_or_else(|| Text::new(kind.word())),
            items: match kind {
                EventKind::Create | EventKind::Update => DraftItems::Listed(items),
                EventKind::Delete => DraftItems::Complete(items.into_vec()),
            },
            report: None,
            lookup: DraftLookup::of(kind.missing()),
            reading,
        }))
    }
}

impl EventKind {
    /// Returns the kind of event; `None` if it only requests something (`Activity`, as in `Generate
    /// Derivative`).
    fn read(root: &Node<'_>) -> Result<Option<Self>, Rejection> {
        let names = root.types();
        let has = |term: &str| names.iter().any(|name| activity_streams_term(name) == Some(term));
        let kinds = [("Delete", Self::Delete), ("Create", Self::Create), ("Update", Self::Update)];
        match kinds.into_iter().find(|(term, _)| has(term)) {
            Some((_, kind)) => Ok(Some(kind)),
            None if has("Activity") => Ok(None),
            None => Err(root.unprocessable(format!(
                "this is not an event of Islandora: it has {}; Create, Update, Delete or Activity was expected",
                describe_types(&names)
            ))),
        }
    }

    fn change(self, content: Option<ContentLocation>) -> DraftChange {
        match self {
            Self::Create => DraftChange::Reported(ItemChange::Add { content, after: None }),
            Self::Update => DraftChange::AddOrUpdate { content, initial_state: None },
            Self::Delete => DraftChange::Reported(ItemChange::Delete { before: None, after: None }),
        }
    }

    /// Returns the data to look up. A deleted entity cannot be looked up.
    fn missing(self) -> MissingFacts {
        match self {
            Self::Create | Self::Update => MissingFacts::Content,
            Self::Delete => MissingFacts::Nothing,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Delete => "Delete",
        }
    }
}

/// Returns the locations of the object's contents without duplicates. A link that cannot be read is dropped.
fn contents(root: &Node<'_>, object: &Node<'_>, reading: &mut Reading) -> Vec<ContentLocation> {
    let (canonical, mut links): (Vec<_>, Vec<_>) =
        Link::all(object, reading).into_iter().partition(|link| link.has("canonical"));
    let canonical = canonical.into_iter().next();
    let is_page = |link: &Link<'_>| canonical.as_ref().is_some_and(|canonical| canonical.href == link.href);
    links.retain(|link| link.has("alternate") || (link.rels.is_empty() && !is_page(link)));

    let media_type = canonical.as_ref().and_then(|link| link.media_type.clone());
    if links.is_empty() {
        links.extend(canonical);
    }
    let mut contents: Vec<_> = links.into_iter().map(Link::into_content).collect();
    // A file stored in Fedora changes there too.
    for url in copies_in_fedora(root, reading) {
        contents.push(ContentLocation { media_type: media_type.clone(), ..ContentLocation::at(url) });
    }
    let mut urls = HashSet::new();
    contents.retain(|content| urls.insert(content.url.clone()));
    contents
}

/// Returns the URLs of files in Fedora. Islandora makes them of a base URL and a file name, which it does not encode, so
/// `?` and `#` belong to the name.
fn copies_in_fedora(root: &Node<'_>, reading: &mut Reading) -> Vec<Uri> {
    let attachments = root.member("attachment").map(|attachment| attachment.each()).unwrap_or_default();
    let copies = attachments.iter().filter_map(|attachment| attachment.member("content")?.member("fedora_uri"));
    copies.filter_map(|copy| url(&copy, Delimiters::Encoded, reading)).collect()
}

/// Returns a URL, and notes the spelling that earlier versions kept; `None` if it cannot be read.
fn url(node: &Node<'_>, delimiters: Delimiters, reading: &mut Reading) -> Option<Uri> {
    let raw = node.text().ok_or(());
    let uri = raw.and_then(|raw| encode_uri(raw, delimiters).map_err(drop));
    let uri = reading.keep(DroppedPart::Uri, uri)?;
    let former = raw.ok().and_then(|raw| Uri::parse(raw).ok()).filter(|former| *former != uri);
    reading.former.extend(former.map(|former| FormerSpelling { uri: uri.clone(), former }));
    Some(uri)
}

impl<'a> Link<'a> {
    fn all(of: &Node<'a>, reading: &mut Reading) -> Vec<Self> {
        of.member("url").iter().flat_map(Node::each).filter_map(|link| Self::read(&link, reading)).collect()
    }

    /// Parses a link object, or a plain URL, which is a link without a relation; `None` if it has no URL.
    fn read(link: &Node<'a>, reading: &mut Reading) -> Option<Self> {
        let href = if link.text().is_some() { Some(link.clone()) } else { link.member("href") };
        let rels = link.member("rel").map(|rel| rel.each()).unwrap_or_default();
        let media_type = link.member("mediaType");
        Some(Self {
            href: url(&href?, Delimiters::Meant, reading)?,
            rels: rels.iter().filter_map(Node::text).collect(),
            // An invalid media type is ignored, because the event must not be lost.
            media_type: media_type.and_then(|name| MediaType::parse(name.text()?).ok()),
        })
    }

    fn has(&self, rel: &str) -> bool {
        self.rels.contains(&rel)
    }

    fn into_content(self) -> ContentLocation {
        ContentLocation { media_type: self.media_type, ..ContentLocation::at(self.href) }
    }
}

/// Returns the first actor. Islandora sends no names, so the URL of the user's page is used.
fn user(actor: &Node<'_>) -> User {
    let Some(actor) = actor.each().into_iter().next() else { return User::unknown() };
    let id = actor.id();
    let id = id.as_ref().and_then(Node::text);
    // Invalid links are ignored, because they only name the user.
    let links = actor.member("url").map(|url| url.each()).unwrap_or_default();
    let mut links = links.iter().filter_map(|link| Link::read(link, &mut Reading::default()));
    let page = links.find(|link| link.has("canonical")).map(|link| link.href.to_string());
    let name = actor.text_member("name").map(|name| name.as_str().to_owned()).or(page);
    User::new(name.as_deref().or(id).unwrap_or(""), id.and_then(|id| Uri::parse(id).ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Dialect, Draft, Islandora, Limits, Message, Node, ParsedMessage, user};
    use crate::format::Headers;

    fn draft(event: &Value) -> Result<Draft, String> {
        let (headers, body) = (Headers::default(), event.to_string());
        let message = Message { content_type: None, headers: &headers, body: body.as_bytes() };
        let islandora = Islandora { limits: Limits { items: 2, ..Limits::default() } };
        let drafts = match islandora.read(&message) {
            Ok(ParsedMessage::Drafts(drafts)) => drafts,
            Ok(ParsedMessage::NoChange(reason)) => return Err(reason.to_owned()),
            Err(rejection) => return Err(rejection.to_string()),
        };
        Ok(drafts[0].clone())
    }

    fn items(event: &Value) -> Vec<String> {
        match draft(event) {
            Ok(draft) => draft.items.listed().iter().map(|item| item.uri.to_string()).collect(),
            Err(reason) => vec![reason],
        }
    }

    fn object(url: &Value) -> Value {
        json!({"type": "Update", "object": {"id": "urn:uuid:1", "url": url}})
    }

    #[test]
    fn items_are_the_representations() {
        let page = json!({"href": "http://h/1", "rel": "canonical"});
        let json = json!({"href": "http://h/1?_format=json", "rel": ["alternate"]});
        let file = json!({"href": "http://h/f.jpg", "rel": "describes"});
        for (url, expected) in [
            (json!([page, json, json, file]), &["http://h/1?_format=json"][..]),
            (json!([page, {"href": "http://h/1"}, "http://h/1.xml"]), &["http://h/1.xml"]),
            (json!([file, page]), &["http://h/1"]),
            (json!(page), &["http://h/1"]),
            (json!("http://h/1"), &["http://h/1"]),
            (json!([file]), &["urn:uuid:1"]),
            (json!([]), &["urn:uuid:1"]),
            (json!(["http://h/1", "http://h/2"]), &["http://h/1", "http://h/2"]),
            (json!(["http://h/1", "http://h/2", "http://h/3"]), &["/object: an object has at most 2 contents here"]),
        ] {
            assert_eq!(items(&object(&url)), expected, "{url}");
        }
    }

    #[test]
    fn user_without_valid_page_is_named_by_identifier() {
        let actor = json!({"id": "urn:uuid:2", "url": [{"href": "/user/1", "rel": "canonical"}]});
        assert_eq!(user(&Node::root(&actor)).name(), "urn:uuid:2");
    }

    #[test]
    fn copy_in_fedora_is_an_item() {
        let mut event = object(&json!({"href": "http://h/f", "rel": "canonical"}));
        event["attachment"] = json!([{"content": {"fedora_uri": "http://f/1"}}, {"content": []}]);
        assert_eq!(items(&event), ["http://h/f", "http://f/1"]);
    }

    #[test]
    fn url_in_fedora_is_a_base_and_a_file_name() {
        for (name, encoded) in [
            ("plan{1}.tif", "plan%7B1%7D.tif"),
            ("q?#1.mp3", "q%3F%231.mp3"),
            ("50% of [1].mp3", "50%25%20of%20%5B1%5D.mp3"),
            ("Skøyen.tif", "Sk%C3%B8yen.tif"),
            ("a,b.tif", "a,b.tif"),
        ] {
            let mut event = object(&json!({"href": "http://h/f", "rel": "canonical"}));
            event["attachment"] = json!({"content": {"fedora_uri": format!("http://f/rest/{name}")}});
            assert_eq!(items(&event), ["http://h/f".to_owned(), format!("http://f/rest/{encoded}")]);
        }
        let mut event = object(&json!("http://h/Skøyen"));
        event["attachment"] = json!({"content": {"fedora_uri": "http://f/a[1]"}});
        let former: Vec<_> = draft(&event).unwrap().reading.former.iter().map(|it| it.former.to_string()).collect();
        assert_eq!(former, ["http://h/Skøyen", "http://f/a[1]"]);
    }

    #[test]
    fn optional_part_that_cannot_be_read_is_dropped() {
        let url =
            json!([{"href": "http://h/1", "rel": "canonical"}, {"href": null, "rel": "describes"}, {"href": "x"}]);
        let mut event = object(&url);
        event["attachment"] = json!({"content": {"fedora_uri": "plan.tif"}});
        event["target"] = json!({"id": "collection"});
        event["published"] = json!("yesterday");
        let draft = draft(&event).unwrap();
        let dropped: Vec<_> = draft.reading.dropped.iter().map(|part| part.name()).collect();
        assert_eq!(dropped, ["uri", "uri", "uri", "time"]);
        assert_eq!(items(&event), ["http://h/1"]);
    }

    #[test]
    fn delete_concerns_all_items_of_the_entity() {
        let mut event = object(&json!("http://h/1"));
        assert!(!draft(&event).unwrap().items.concerns_all());
        event["type"] = json!("Delete");
        assert!(draft(&event).unwrap().items.concerns_all());
        for url in [json!(null), json!([])] {
            event["object"]["url"] = url;
            assert!(draft(&event).unwrap().items.concerns_all() && items(&event) == ["urn:uuid:1"]);
        }
    }
}
