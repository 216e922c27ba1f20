//! `/feed` with a filter is a paged feed: its `next` links lead to every matching change once, whatever arrives
//! meanwhile, and an invalid query is refused with a reason.

use reqwest::Method;
use serde_json::{Value, json};
use tidings::model::Timestamp;

use crate::support::feed_reader::{Element, Gateway, PUBLIC, append, changes, draft, varied};

/// Returns the changes along the `next` links from the first document on, and the number of entries of each
/// document.
async fn chain(gateway: &Gateway, query: &str, mut pace: impl AsyncFnMut()) -> (Vec<Value>, Vec<usize>) {
    let (mut all, mut sizes) = (Vec::new(), Vec::new());
    let first = Element::parse(&gateway.document(&format!("/feed?{query}")).await).link("first").unwrap().to_owned();
    let mut next = Some(first.clone());
    while let Some(link) = next {
        let feed = Element::parse(&gateway.document(&link).await);
        assert_eq!(feed.link("self"), Some(link.as_str()));
        assert_eq!(feed.link("first"), Some(first.as_str()));
        assert!(feed.one("fh:archive").is_none());
        let details = changes(&feed);
        sizes.push(details.len());
        all.extend(details);
        next = feed.link("next").map(str::to_owned);
        assert!(sizes.len() < 1000, "the chain has no end");
        pace().await;
    }
    (all, sizes)
}

type ItemPredicate = fn(&Value) -> bool;

fn any_item(change: &Value, predicate: ItemPredicate) -> bool {
    change["items"].as_array().unwrap().iter().any(predicate)
}

#[tokio::test]
async fn filtered_feed_shows_every_match_once() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    append(&gateway.journal, "fedora3", (0..200).map(varied).collect()).await;
    append(&gateway.journal, "sfm", (200..330).map(varied).collect()).await;
    append(&gateway.journal, "islandora", (330..400).map(varied).collect()).await;
    let head = gateway.journal.head();
    let journaled = gateway.journaled(head).await;

    let parent_type = "type=info:fedora/demo:M?a%26b";
    let cases: [(&str, ItemPredicate); 12] = [
        ("limit=7", |_| true),
        ("source=sfm", |change| change["source"] == "sfm"),
        ("source=islandora&source=sfm&limit=50", |change| change["source"] != "fedora3"),
        ("object=http://h/fedora/objects/demo:1", |change| {
            change["object"].as_str().unwrap().starts_with("http://h/fedora/objects/demo:1")
        }),
        (parent_type, |change| {
            change["types"].as_array().is_some_and(|types| types.contains(&json!("info:fedora/demo:M?a&b")))
        }),
        ("change=DELETE&limit=3", |change| any_item(change, |item| item["change"] == "DELETE")),
        ("change=STATE", |change| any_item(change, |item| item["change"].is_null())),
        ("change=ADD&change=UPDATE", |change| {
            any_item(change, |item| item["change"] == "ADD" || item["change"] == "UPDATE")
        }),
        ("state=INACTIVE", |change| any_item(change, |item| item["stateAfter"] == "INACTIVE")),
        ("state=INACTIVE&change=STATE&source=sfm", |change| {
            let item = |item: &Value| item["stateAfter"] == "INACTIVE" && item["change"].is_null();
            change["source"] == "sfm" && change["items"].as_array().unwrap().iter().any(item)
        }),
        ("source=nobody", |_| false),
        ("since=2999-01-01T00:00:00Z", |_| false),
    ];
    for (query, predicate) in cases {
        let (details, sizes) = chain(&gateway, query, async || {}).await;
        let expected: Vec<_> = journaled.values().rev().filter(|change| predicate(change)).cloned().collect();
        assert_eq!(details, expected, "{query}");
        assert!(expected.len() != journaled.len() || query == "limit=7", "{query} filters nothing");
        if query == "limit=7" {
            assert!(sizes.iter().rev().skip(1).all(|size| *size == 7), "{sizes:?}");
        }
    }

    let (details, _) = chain(&gateway, "limit=20&source=fedora3&source=sfm", async || {
        append(&gateway.journal, "sfm", (0..9).map(varied).collect()).await;
    })
    .await;
    let before: Vec<_> = details.into_iter().filter(|change| change["seq"].as_u64() <= Some(head.0)).collect();
    let expected: Vec<_> = journaled.values().rev().filter(|change| change["source"] != "islandora").cloned().collect();
    assert_eq!(before, expected, "while changes come in");
}

#[tokio::test]
async fn since_filters_by_time_of_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    append(&gateway.journal, "fedora3", (0..50).map(varied).collect()).await;
    let old = gateway.journal.head();
    let begun = Timestamp::now();
    while Timestamp::now() == begun {
        tokio::task::yield_now().await;
    }
    append(&gateway.journal, "fedora3", (0..50).map(varied).collect()).await;
    let journaled = gateway.journaled(gateway.journal.head()).await;
    let newest = journaled.values().next_back().unwrap()["received"].as_str().unwrap();
    let (details, _) = chain(&gateway, &format!("since={newest}&limit=7"), async || {}).await;
    let expected: Vec<_> = journaled.range(old.0 + 1..).rev().map(|(_, change)| change.clone()).collect();
    assert_eq!(details, expected);
}

#[tokio::test]
async fn filtered_document_examines_a_bounded_number_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    let add = |number: u64| {
        draft(json!({"object": format!("http://h/{number}"), "items": [{"uri": "http://h/i", "change": "ADD"}]}))
    };
    append(&gateway.journal, "rare", vec![add(0)]).await;
    append(&gateway.journal, "frequent", (1..=10_100).map(add).collect()).await;
    let (details, sizes) = chain(&gateway, "source=rare", async || {}).await;
    assert_eq!((details.len(), sizes), (1, vec![0, 0, 1]));
    assert_eq!(details[0]["object"], "http://h/0");
    let (_, sizes) = chain(&gateway, "since=2999-01-01T00:00:00Z", async || {}).await;
    assert_eq!(sizes, [0], "a document examined changes older than `since`");
}

#[tokio::test]
async fn filtered_feeds_have_distinct_ids() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    append(&gateway.journal, "fedora3", (0..30).map(varied).collect()).await;
    let feed = async |query: &str| Element::parse(&gateway.document(&format!("/feed{query}")).await);
    let whole = feed("").await;
    assert_eq!(feed("?limit=3").await.text_of("id"), whole.text_of("id"));
    assert_eq!(feed("?").await.link("current"), Some("https://example.org/tidings/feed"));
    let adds = feed("?change=ADD&change=STATE").await;
    assert_ne!(adds.text_of("id"), whole.text_of("id"));
    let same = feed("?change=STATE&change=ADD&change=ADD&limit=2").await;
    assert_eq!(same.text_of("id"), adds.text_of("id"));
    let address = format!("{PUBLIC}/feed?change=ADD&change=STATE&limit=2");
    assert_eq!(same.link("self"), Some(address.as_str()));
}

#[tokio::test]
async fn invalid_query_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    for (query, parameter, told) in [
        ("sourc=a", "sourc", "did you mean \"source\"?"),
        ("change=GONE", "change", "ADD, UPDATE, DELETE or STATE"),
        ("limit=1001", "limit", "from 1 to 1000"),
        ("since=2026", "since", "2011-08-03T08:14:25.943Z"),
        ("before=x", "before", "whole number"),
    ] {
        let answer = gateway.ask(Method::GET, &format!("/feed?{query}"), &[]).await;
        assert_eq!(answer.status(), 400, "{query}");
        let problem: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(problem["type"], "urn:tidings:problem:invalid-query");
        assert_eq!(problem["parameter"], parameter);
        assert!(problem["detail"].as_str().unwrap().contains(told), "{problem}");
    }
}
