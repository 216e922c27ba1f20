//! Writing and reading the 0.1 message with four entries, compared with common feed libraries.

use std::hint::black_box;

use super::measure::{Contender, compare};
use atom_syndication::{Category, Content, Entry, Feed, FixedDateTime, Link, Person, Text};
use tidings::{
    format::{Headers, Message, ParsedMessage, dialect, format},
    journal::settle::{SourcePolicy, settle_without_registry},
    model::{ContentObjectModification, SourceName},
};

const MESSAGE: &str = include_str!("../../fixtures/content-change/seed-ingest.xml");

pub(crate) fn measure() {
    let modification = modification();
    let atom = format("atom").unwrap();
    let feed = feed_of(&modification);
    compare(
        "writing",
        "messages",
        9,
        vec![
            Contender::repeated("atom_syndication: from the model", || {
                black_box(feed_of(&modification).write_to(Vec::with_capacity(4096)).unwrap());
            }),
            Contender::repeated("atom_syndication: a feed that is built already", || {
                black_box(feed.write_to(Vec::with_capacity(4096)).unwrap());
            }),
            Contender::repeated("Tidings: from the model", || {
                black_box((atom.write_modification)(&modification));
            }),
        ],
    );

    let ours = (dialect("content-change").unwrap().build)(serde_json::Value::Null, tidings::format::Limits::default())
        .unwrap();
    let headers = Headers::default();
    let message = Message { content_type: None, headers: &headers, body: MESSAGE.as_bytes() };
    compare(
        "reading",
        "messages",
        9,
        vec![
            Contender::repeated("atom_syndication", || {
                black_box(Feed::read_from(MESSAGE.as_bytes()).unwrap());
            }),
            Contender::repeated("feed-rs", || {
                black_box(feed_rs::parser::parse(MESSAGE.as_bytes()).unwrap());
            }),
            Contender::repeated("Tidings: to a draft, with all its checks", || {
                black_box(ours.read(&message).unwrap());
            }),
        ],
    );
}

fn modification() -> ContentObjectModification {
    let ours = (dialect("content-change").unwrap().build)(serde_json::Value::Null, tidings::format::Limits::default())
        .unwrap();
    let headers = Headers::default();
    let read = ours.read(&Message { content_type: None, headers: &headers, body: MESSAGE.as_bytes() });
    let Ok(ParsedMessage::Drafts(drafts)) = read else { panic!("the seed cannot be read") };
    let policy = SourcePolicy { name: SourceName::parse("bench").unwrap(), metadata_changes: false };
    settle_without_registry(drafts[0].clone(), &policy).unwrap()
}

/// Returns the same feed in the types of the library.
fn feed_of(modification: &ContentObjectModification) -> Feed {
    let category =
        |scheme: &str, term: &str| Category { scheme: Some(scheme.to_owned()), term: term.to_owned(), label: None };
    let link = |rel: &str, href: &str| Link { rel: rel.to_owned(), href: href.to_owned(), ..Link::default() };
    let author = || Person { name: modification.user.name().to_owned(), ..Person::default() };
    let updated = || FixedDateTime::from(modification.time.datetime());
    let entry = |item: &tidings::model::ContentItemModification| Entry {
        id: item.id.to_string(),
        title: Text::plain(modification.description.as_str()),
        updated: updated(),
        authors: vec![author()],
        links: vec![link("via", item.uri.as_str())],
        summary: Some(Text::plain("Datastream modification/state change, see content src for new content")),
        content: item.change.content().map(|content| Content {
            src: Some(content.url.to_string()),
            content_type: content.media_type.as_ref().map(ToString::to_string),
            ..Content::default()
        }),
        categories: [
            item.change.after().map(|state| category("changes:CONTENT:ITEM:STATEAFTER", state.as_str())),
            item.change.change_type().map(|kind| category("changes:ITEM:CHANGE:TYPE", kind.as_str())),
        ]
        .into_iter()
        .flatten()
        .collect(),
        ..Entry::default()
    };
    let version = modification.origin.software_version.as_ref().map_or("", |version| version.as_str());
    Feed {
        id: modification.id.to_string(),
        title: Text::plain(modification.description.as_str()),
        updated: updated(),
        authors: vec![author()],
        categories: vec![
            category("info:fedora/fedora-system:def/view#version", version),
            category(
                "http://www.fedora.info/definitions/1/0/types/formatURI",
                "http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1",
            ),
        ],
        links: vec![link("via", modification.object.as_str())],
        entries: modification.items.iter().map(entry).collect(),
        ..Feed::default()
    }
}
