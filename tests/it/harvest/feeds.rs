//! Harvests of RSS and Atom feeds.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidings::model::Seq;

use crate::support::scripted_feed::{FeedFixture, item, rss};

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, uri)| ((*kind).to_owned(), (*uri).to_owned())).collect()
}

#[tokio::test]
async fn first_run_adds_entries_oldest_first_and_later_runs_find_changes() {
    let fixture = FeedFixture::start(&rss(&[item(2, "Two"), item(1, "One")])).await;
    let run = fixture.complete().await;
    assert_eq!((run.counts.pages, run.counts.records, run.counts.changes), (1, 2, 2));
    assert_eq!(fixture.changes_after(Seq::ZERO).await, pairs(&[("Add", "urn:entry:1"), ("Add", "urn:entry:2")]));
    // The first entry has left the feed, the second one has changed, and the third one is new.
    fixture.put(&rss(&[item(3, "Three"), item(2, "Two, corrected")]), None);
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (2, 2));
    assert_eq!(fixture.changes_after(Seq(2)).await, pairs(&[("Update", "urn:entry:2"), ("Add", "urn:entry:3")]));
    // The first entry is there again, as it was.
    fixture.put(&rss(&[item(3, "Three"), item(1, "One")]), None);
    assert_eq!(fixture.complete().await.counts.changes, 0);
}

#[tokio::test]
async fn unchanged_feed_makes_no_change() {
    let fixture = FeedFixture::start(&rss(&[item(1, "One")])).await;
    fixture.put(&rss(&[item(1, "One")]), Some("W/\"1\""));
    fixture.complete().await;
    // 304.
    let run = fixture.complete().await;
    assert_eq!((run.counts.pages, run.counts.records, run.counts.changes), (1, 0, 0));
    assert_eq!(fixture.validators(), [None, Some("W/\"1\"".to_owned())]);
    assert!(fixture.script().requests.iter().all(|request| request.is_delta_accepted));
    assert_eq!(fixture.position().await["unchanged"], 1);
    // The same bytes with another validator, and then the same entries with other dates.
    fixture.put(&rss(&[item(1, "One")]), Some("\"2\""));
    assert_eq!(fixture.complete().await.counts.records, 0);
    let dated = item(1, "One").replace("</item>", "<pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate></item>");
    fixture.put(&rss(&[dated]), Some("\"3\""));
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (1, 0));
    assert_eq!(fixture.validators()[2..], [Some("W/\"1\"".to_owned()), Some("\"2\"".to_owned())]);
}

#[tokio::test]
async fn truncated_feed_keeps_its_complete_entries_and_no_validators() {
    let whole = rss(&[item(2, "Two"), item(1, "One")]);
    let fixture = FeedFixture::start("").await;
    let end = whole.rfind("</title>").unwrap();
    fixture.put(&whole[..end], Some("\"1\""));
    let (reason, run) = fixture.fail().await;
    assert_eq!((reason.as_str(), run.counts.changes), ("the feed is truncated", 1));
    assert_eq!(fixture.position().await["validators"]["etag"], Value::Null);
    fixture.put(&whole, Some("\"1\""));
    assert_eq!(fixture.complete().await.counts.changes, 1);
    assert_eq!(fixture.validators(), [None, None]);
    assert_eq!(fixture.position().await["validators"]["etag"], "\"1\"");
    // A later document that is truncated keeps the validators of the last good one.
    fixture.put(&whole[..end], Some("\"2\""));
    fixture.fail().await;
    assert_eq!(fixture.position().await["validators"]["etag"], "\"1\"");
}

#[tokio::test]
async fn deleted_entry_makes_a_deletion_once() {
    let entry = "<entry><id>urn:entry:1</id><title>One</title><updated>2024-01-01T00:00:00Z</updated></entry>";
    let feed = |content: &str| {
        format!(
            "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:at='http://purl.org/atompub/tombstones/1.0'>{content}</feed>"
        )
    };
    let fixture = FeedFixture::start(&feed(entry)).await;
    fixture.complete().await;
    let deleted = |id: &str| format!("<at:deleted-entry ref='{id}' when='2024-01-02T00:00:00Z'/>");
    fixture.put(&feed(&format!("{}{}", deleted("urn:entry:1"), deleted("urn:entry:unknown"))), None);
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes, run.counts.quarantined), (2, 1, 0));
    assert_eq!(fixture.changes_after(Seq(1)).await, pairs(&[("Delete", "urn:entry:1")]));
    fixture.put(&feed(&deleted("urn:entry:1")), None);
    assert_eq!(fixture.complete().await.counts.changes, 0);
}

#[tokio::test]
async fn entries_with_the_same_id_are_different_objects() {
    let twin = |number: u32| item(number, "Twin").replace(&format!("urn:entry:{number}<"), "urn:entry:x<");
    let fixture = FeedFixture::start(&rss(&[twin(2), twin(1), item(3, "Three")])).await;
    let run = fixture.complete().await;
    assert!(run.reason.unwrap().contains("several entries of the feed have the same id or link"));
    let expected = pairs(&[("Add", "urn:entry:3"), ("Add", "http://h.example/1"), ("Add", "http://h.example/2")]);
    assert_eq!(fixture.changes_after(Seq::ZERO).await, expected);
    // One of them is left, and is still the same object.
    fixture.put(&rss(&[twin(2)]), None);
    assert_eq!(fixture.complete().await.counts.changes, 0);
}

#[tokio::test]
async fn unreadable_and_large_entries_go_to_the_quarantine_once() {
    let mut fixture = FeedFixture::start("").await;
    fixture.max_record_bytes = 2000;
    let entry = |id: &str, content: &str| format!("<entry><id>urn:entry:{id}</id><title>T</title>{content}</entry>");
    let feed = |more: &str| {
        let (bad, large) =
            (entry("bad", "<content type='x y'>a</content>"), entry("large", &"<a>long</a>".repeat(300)));
        format!("<feed xmlns='http://www.w3.org/2005/Atom'>{}{bad}{large}{more}</feed>", entry("good", ""))
    };
    fixture.put(&feed(""), None);
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes, run.counts.quarantined), (3, 1, 2));
    fixture.put(&feed(&entry("new", "")), None);
    let run = fixture.complete().await;
    assert_eq!((run.counts.changes, run.counts.quarantined), (1, 0), "{run:?}");
}

#[tokio::test]
async fn busy_server_is_asked_again_after_its_wait() {
    let fixture = FeedFixture::start(&rss(&[item(1, "One")])).await;
    fixture.script().statuses.extend([
        (429, vec![("retry-after", "1".to_owned())]),
        (503, Vec::new()),
        (500, Vec::new()),
    ]);
    let began = Instant::now();
    assert_eq!(fixture.complete().await.counts.changes, 1);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(fixture.script().requests.len(), 4);
}

#[tokio::test]
async fn lasting_refusals_fail_the_run_and_keep_the_position() {
    let fixture = FeedFixture::start("").await;
    fixture.put(&rss(&[item(1, "One")]), Some("\"1\""));
    fixture.complete().await;
    for (status, headers, complaint) in [
        (404, Vec::new(), "the server does not return the feed (404"),
        (401, Vec::new(), "the server refuses access to the feed (401"),
        (403, vec![("cf-mitigated", "challenge".to_owned())], "a protection against robots refuses access"),
        (410, Vec::new(), "the server says that the feed is gone (410"),
        (410, Vec::new(), "the server says that the feed is gone (410"),
        (410, Vec::new(), "3 times in a row); remove the source or change its url"),
        (410, Vec::new(), "4 times in a row"),
    ] {
        fixture.script().statuses.push_back((status, headers));
        let (reason, _) = fixture.fail().await;
        assert!(reason.contains(complaint), "{reason}");
    }
    assert_eq!(fixture.position().await["validators"]["etag"], "\"1\"");
    fixture.complete().await;
    assert_eq!(fixture.position().await["gone"], 0);
    fixture.put("<!DOCTYPE html><html></html>", Some("\"2\""));
    assert!(fixture.fail().await.0.contains("is not a feed; it begins with \"<!DOCTYPE html>"));
    fixture.put(" ", Some("\"2\""));
    assert_eq!(fixture.fail().await.0, "the response is empty");
    fixture.put(&" ".repeat(2 << 20), None);
    assert!(fixture.fail().await.0.contains("raise page_bytes"));
}

#[tokio::test]
async fn redirection_is_followed_and_remarked() {
    let fixture = FeedFixture::start(&rss(&[item(1, "One")])).await;
    let target = format!("{}/feed.xml#part", fixture.url());
    fixture.script().statuses.push_back((301, vec![("location", target)]));
    let run = fixture.complete().await;
    assert!(run.reason.unwrap().contains("the feed has moved to http://127.0.0.1"));
}

#[tokio::test]
async fn query_of_the_url_is_sent_and_never_shown() {
    let mut fixture = FeedFixture::start("").await;
    let text = format!("{}/feed.xml?key=hush-hush", fixture.url().replace("http://", "http://user:hush-hush@"));
    fixture.settings.url =
        tidings::http_client::OutboundUrl::parse(&text, &tidings::http_client::OutboundPolicy::unrestricted()).unwrap();
    fixture.put(&rss(&["<item><guid>7</guid><title>Seven</title></item>".to_owned()]), None);
    let document = fixture.script().documents["/feed.xml"].clone();
    fixture.script().documents.insert("/feed.xml?key=hush-hush".to_owned(), document);
    fixture.complete().await;
    let changes = format!("{:?} {}", fixture.changes_after(Seq::ZERO).await, fixture.position().await);
    assert!(changes.contains("/feed.xml#") && changes.contains("/7\")"), "{changes}");
    assert!(!changes.contains("hush-hush"), "{changes}");
}

#[tokio::test]
async fn publisher_decides_about_the_earliest_next_run() {
    let fixture = FeedFixture::start(&rss(&["<ttl>120</ttl>".to_owned(), item(1, "One")])).await;
    let hours = async || {
        let earliest = fixture.position().await["earliest"].as_str().unwrap().to_owned();
        let earliest = chrono::DateTime::parse_from_rfc3339(&earliest).unwrap();
        (earliest.to_utc() - chrono::Utc::now()).num_minutes()
    };
    fixture.complete().await;
    assert!((118..=120).contains(&hours().await));
    let max_age = ("cache-control", "max-age=86400000".to_owned());
    fixture.script().documents.get_mut("/feed.xml").unwrap().headers.push(max_age);
    fixture.complete().await;
    assert!((1438..=1440).contains(&hours().await));
}

#[tokio::test]
async fn next_run_is_not_before_the_time_of_the_publisher() {
    let next_minutes = async |items: &[String]| {
        let next = FeedFixture::start(&rss(items)).await.next_run().await;
        (next.datetime() - chrono::Utc::now()).num_minutes()
    };
    assert!((118..=120).contains(&next_minutes(&["<ttl>120</ttl>".to_owned(), item(1, "One")]).await));
    assert_eq!(next_minutes(&[item(1, "One")]).await, 0);
}

#[tokio::test]
async fn vocabularies_with_other_namespaces_are_read() {
    let rdf = |namespace: &str| {
        format!(
            "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns='{namespace}'><channel/>\
             <item><title>One</title><link>http://h.example/1</link></item></rdf:RDF>"
        )
    };
    for feed in [
        rdf("http://my.netscape.com/rdf/simple/0.9/"),
        rdf("http://purl.org/rss/1.0/"),
        rss(&[item(1, "One")]).replace("<rss ", "<rss xmlns='http://backend.userland.com/rss2' "),
        rss(&[item(1, "One")]).replace("version='2.0'", "version='0.91'"),
        rss(&[item(1, "One")]).replace(" version='2.0'", ""),
    ] {
        let run = FeedFixture::start(&feed).await.complete().await;
        assert_eq!((run.counts.changes, run.counts.quarantined), (1, 0), "{feed}");
    }
}
