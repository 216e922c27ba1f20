//! Harvests of feeds with odd dates, validators and enclosures, and of entries that change at each request.

use flate2::{Compression, write::ZlibEncoder};
use std::io::Write;
use tidings::model::Seq;

use crate::support::scripted_feed::{FeedFixture, ScriptedDocument, item, rss};

fn with(item: &str, more: &str) -> String {
    item.replace("</item>", &format!("{more}</item>"))
}

#[tokio::test]
async fn unreadable_date_costs_the_date_and_is_counted() {
    let dated = |number: u32, date: &str| with(&item(number, "T"), &format!("<pubDate>{date}</pubDate>"));
    let fixture = FeedFixture::start(&rss(&[
        dated(1, "Tuesday, 05-Mar-24 10:00:00 GMT"),
        dated(2, "some day"),
        dated(3, "neulich"),
        dated(4, ""),
    ]))
    .await;
    let run = fixture.complete().await;
    assert_eq!((run.counts.changes, run.counts.quarantined), (4, 0));
    assert_eq!(fixture.remarks(), "the dates of 2 entries are not readable, such as \"some day\"");
}

#[tokio::test]
async fn validator_of_the_future_is_not_used() {
    let fixture = FeedFixture::start("").await;
    let put = |title: &str, modified: &str| {
        let document = ScriptedDocument {
            body: rss(&[item(1, title)]).into_bytes(),
            headers: vec![("last-modified", modified.to_owned())],
            ..ScriptedDocument::default()
        };
        fixture.script().documents.insert("/feed.xml".to_owned(), document);
    };
    let future = "Sat, 16 Nov 2041 19:11:00 GMT";
    put("One", future);
    fixture.complete().await;
    put("Two", future);
    assert_eq!(fixture.complete().await.counts.changes, 1);
    // A date of the past is used.
    let past = "Sat, 16 Nov 2019 19:11:00 GMT";
    put("Three", past);
    fixture.complete().await;
    put("Four", past);
    assert_eq!(fixture.complete().await.counts.changes, 0);
    let conditions: Vec<_> =
        fixture.script().requests.iter().map(|request| request.if_modified_since.clone()).collect();
    assert_eq!(conditions, [None, None, None, Some(past.to_owned())]);
}

#[tokio::test]
async fn file_at_another_signed_url_is_the_same_file() {
    let feed = |token: u32| {
        let url = format!("http://h.example/a.mp3?Expires={token}&amp;Signature=s{token}&amp;id=7");
        rss(&[with(&item(1, "T"), &format!("<enclosure url='{url}' type='audio/mpeg' length='5'/>"))])
    };
    let fixture = FeedFixture::start(&feed(1)).await;
    fixture.complete().await;
    let pair = |uri: &str| ("Add".to_owned(), uri.to_owned());
    let expected = [pair("urn:entry:1"), pair("http://h.example/a.mp3?id=7")];
    assert_eq!(fixture.changes_after(Seq::ZERO).await, expected);
    assert!(fixture.remarks().contains("1 entries have files at signed URLs"), "{}", fixture.remarks());
    for token in 2..5 {
        fixture.put(&feed(token), None);
        assert_eq!(fixture.complete().await.counts.changes, 0, "{token}");
    }
}

#[tokio::test]
async fn entry_that_changes_at_each_look_is_bounded_and_said() {
    let feed = |nonce: u32| rss(&[item(2, &format!("nonce {nonce}")), item(1, "One")]);
    let fixture = FeedFixture::start(&feed(0)).await;
    assert_eq!(fixture.complete().await.counts.changes, 2);
    let mut changes = Vec::new();
    for nonce in 1..8 {
        fixture.put(&feed(nonce), Some("\"always\"").filter(|_| nonce == 7));
        changes.push(fixture.complete().await.counts.changes);
    }
    assert_eq!(changes, [1, 1, 1, 0, 0, 0, 0]);
    let remark = "1 entries change at each look without a new date, such as \"urn:entry:2\"";
    assert!(fixture.remarks().contains(remark), "{}", fixture.remarks());
    // The entry stays as it is, and the server knows its validator: the last change arrives all the same.
    assert_eq!(fixture.complete().await.counts.changes, 1);
    assert_eq!(fixture.remarks(), "");
    assert_eq!(fixture.complete().await.counts.changes, 0);
}

#[tokio::test]
async fn entry_that_changes_at_each_look_counts_when_it_returns_after_its_deletion() {
    let feed = |noisy: Option<u32>| {
        let noisy = noisy.map(|nonce| item(2, &format!("nonce {nonce}")));
        let items: Vec<_> = noisy.into_iter().chain([item(1, "One")]).collect();
        let complete = "<channel><fh:complete xmlns:fh=\"http://purl.org/syndication/history/1.0\"/>";
        rss(&items).replacen("<channel>", complete, 1)
    };
    let fixture = FeedFixture::start(&feed(Some(0))).await;
    fixture.complete().await;
    let mut changes = Vec::new();
    for nonce in [Some(1), Some(2), Some(3), Some(4), None, Some(5), Some(6)] {
        fixture.put(&feed(nonce), None);
        changes.push(fixture.complete().await.counts.changes);
    }
    assert_eq!(changes, [1, 1, 1, 0, 1, 1, 1]);
    let own = fixture.changes_after(Seq::ZERO).await.into_iter().filter(|(_, uri)| uri == "urn:entry:2");
    let kinds: Vec<_> = own.map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["Add", "Update", "Update", "Update", "Delete", "Add", "Update"]);
}

#[tokio::test]
async fn new_ids_with_known_links_are_no_gap() {
    let feed = |id: &str| rss(&[item(2, "Two"), item(1, "One")]).replace("urn:entry:", id);
    let fixture = FeedFixture::start(&feed("urn:a:")).await;
    fixture.complete().await;
    fixture.put(&feed("urn:b:").replace("http://h.example/", "https://h.example/"), None);
    fixture.complete().await;
    let remarks = fixture.remarks();
    assert!(remarks.contains("most entries of the feed have new ids and the links of known ones"), "{remarks}");
    assert!(!remarks.contains("shorten every"), "{remarks}");
}

#[tokio::test]
async fn new_ids_in_a_complete_feed_are_said() {
    let feed = |id: &str| {
        let feed = rss(&[item(2, "Two"), item(1, "One")]).replace("urn:entry:", id);
        let complete = "<channel><fh:complete xmlns:fh=\"http://purl.org/syndication/history/1.0\"/>";
        feed.replacen("<channel>", complete, 1)
    };
    let fixture = FeedFixture::start(&feed("urn:a:")).await;
    fixture.complete().await;
    assert_eq!(fixture.remarks(), "");
    fixture.put(&feed("urn:b:"), None);
    fixture.complete().await;
    let remarks = fixture.remarks();
    assert!(remarks.contains("most entries of the feed have new ids and the links of known ones"), "{remarks}");
}

#[tokio::test]
async fn file_of_an_entry_that_changes_at_each_look_arrives() {
    let feed = |nonce: u32, file: &str| rss(&[with(&item(1, &format!("nonce {nonce}")), file), item(2, "Two")]);
    let fixture = FeedFixture::start(&feed(0, "")).await;
    for nonce in 1..6 {
        fixture.put(&feed(nonce, ""), None);
        fixture.complete().await;
    }
    let file = "<enclosure url=\"http://h.example/a.mp3\" type=\"audio/mpeg\" length=\"7\"/>";
    fixture.put(&feed(6, file), None);
    fixture.complete().await;
    let file = ("Add".to_owned(), "http://h.example/a.mp3".to_owned());
    assert!(fixture.changes_after(Seq::ZERO).await.contains(&file));
    // The entry itself still changes at each look.
    fixture.put(&feed(7, "<enclosure url=\"http://h.example/a.mp3\" type=\"audio/mpeg\" length=\"7\"/>"), None);
    assert_eq!(fixture.complete().await.counts.changes, 0);
}

#[tokio::test]
async fn entries_with_dates_are_in_their_order() {
    let dated =
        |number: u32| with(&item(number, "T"), &format!("<pubDate>Mon, 0{number} Jan 2024 00:00:00 GMT</pubDate>"));
    let fixture = FeedFixture::start(&rss(&[dated(1), dated(2), dated(3)])).await;
    fixture.complete().await;
    let uris: Vec<_> = fixture.changes_after(Seq::ZERO).await.into_iter().map(|(_, uri)| uri).collect();
    assert_eq!(uris, ["urn:entry:1", "urn:entry:2", "urn:entry:3"]);
}

#[tokio::test]
async fn json_feed_is_named() {
    let fixture =
        FeedFixture::start("{ \"version\": \"https://jsonfeed.org/version/1.1\", \"title\": \"T\", \"items\": [] }")
            .await;
    let (reason, _) = fixture.fail().await;
    assert!(reason.contains("the response is a JSON Feed, which Tidings does not read"), "{reason}");
}

#[tokio::test]
async fn deflate_that_nobody_asked_for_is_read() {
    let fixture = FeedFixture::start("").await;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(rss(&[item(1, "One")]).as_bytes()).unwrap();
    let document = ScriptedDocument {
        body: encoder.finish().unwrap(),
        headers: vec![("content-encoding", "deflate".to_owned())],
        ..ScriptedDocument::default()
    };
    fixture.script().documents.insert("/feed.xml".to_owned(), document);
    assert_eq!(fixture.complete().await.counts.changes, 1);
}
