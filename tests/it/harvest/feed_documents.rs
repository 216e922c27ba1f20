//! Feeds of several documents (RFC 5005): archives, pages, missed entries, and complete feeds.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use tidings::model::Seq;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    harvest_fixture::run_to_end,
    journal_fixture::{configuration, journal_file, verify_ok},
    scripted_feed::{FeedFixture, item},
    subscription_fixture::{gateway, post},
};

/// Returns an RSS feed with these elements and items of the channel.
fn feed(elements: &str, items: &[u32]) -> String {
    let items: String = items.iter().map(|number| item(*number, &format!("Title {number}"))).collect();
    format!(
        "<rss version='2.0' xmlns:fh='http://purl.org/syndication/history/1.0' xmlns:a='http://www.w3.org/2005/Atom'>\
         <channel><title>News</title>{elements}{items}</channel></rss>"
    )
}

fn link(relation: &str, target: &str) -> String {
    format!("<a:link rel='{relation}' href='{target}'/>")
}

fn archive(older: Option<&str>, items: &[u32]) -> String {
    let older = older.map(|older| link("prev-archive", older)).unwrap_or_default();
    feed(&format!("<fh:archive/>{older}{}", link("current", "/feed.xml")), items)
}

/// Returns the number of each entry in order of the changes, negative for a deletion.
async fn entries(fixture: &FeedFixture, after: u64) -> Vec<i64> {
    let changes = fixture.changes_after(Seq(after)).await;
    let number = |uri: &str| uri.rsplit(':').next().unwrap().parse::<i64>().unwrap();
    changes.iter().map(|(kind, uri)| if kind == "Delete" { -number(uri) } else { number(uri) }).collect()
}

#[tokio::test]
async fn first_run_reads_archives_oldest_first_and_later_runs_the_feed_alone() {
    let fixture = FeedFixture::start(&feed(&link("prev-archive", "/archive/2"), &[6, 5])).await;
    fixture.put_at("/archive/2", &archive(Some("1?x=1"), &[4, 3]));
    // An older version of the fourth entry.
    let old = archive(None, &[4, 2, 1]).replace("Title 4", "Draft");
    fixture.put_at("/archive/1?x=1", &old);
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (7, 7));
    assert_eq!(entries(&fixture, 0).await, [1, 2, 4, 3, 4, 5, 6]);
    let paths = fixture.take_paths();
    assert_eq!(paths, ["/feed.xml", "/archive/2", "/archive/1?x=1", "/archive/1?x=1", "/archive/2", "/feed.xml"]);
    fixture.put(&feed(&link("prev-archive", "/archive/2"), &[7, 6]), None);
    assert_eq!(fixture.complete().await.counts.changes, 1);
    assert_eq!(fixture.take_paths(), ["/feed.xml"]);
}

#[tokio::test]
async fn missed_entries_are_read_from_the_archives_since_the_last_run() {
    let fixture = FeedFixture::start(&feed("", &[2, 1])).await;
    fixture.complete().await;
    fixture.put_at("/archive/1", &archive(None, &[0]));
    fixture.put_at("/archive/2", &archive(Some("/archive/1"), &[3, 2]));
    fixture.put_at("/archive/3", &archive(Some("/archive/2"), &[5, 4]));
    fixture.put(&feed(&link("prev-archive", "/archive/3"), &[7, 6]), None);
    fixture.take_paths();
    fixture.complete().await;
    assert_eq!(entries(&fixture, 2).await, [3, 4, 5, 6, 7]);
    assert!(!fixture.take_paths().contains(&"/archive/1".to_owned()));
    // Without archives, the run can only say so.
    fixture.put(&feed("", &[10, 9]), None);
    let run = fixture.complete().await;
    assert!(run.reason.unwrap().contains("entries may have been missed"));
    fixture.put(&feed("", &[11, 10]), None);
    assert_eq!(fixture.complete().await.counts.changes, 1);
}

#[tokio::test]
async fn archive_that_is_made_during_the_run_is_read_by_the_next_one() {
    let fixture = FeedFixture::start(&feed(&link("prev-archive", "/archive/1"), &[3])).await;
    fixture.put_at("/archive/1", &archive(None, &[2, 1]));
    // The run is interrupted at the archive, and continues after the feed has moved on.
    fixture.hold("/archive/1");
    fixture.stop_at("search").await;
    assert_eq!(fixture.changes_after(Seq::ZERO).await, []);
    fixture.put_at("/archive/1", &archive(None, &[2, 1]));
    fixture.put_at("/archive/2", &archive(Some("/archive/1"), &[4, 3]));
    fixture.put(&feed(&link("prev-archive", "/archive/2"), &[5]), None);
    fixture.complete().await;
    fixture.complete().await;
    let mut found = entries(&fixture, 0).await;
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3, 4, 5]);
    fixture.take_paths();
    fixture.complete().await;
    assert_eq!(fixture.take_paths(), ["/feed.xml"]);
}

#[tokio::test]
async fn pages_are_read_until_they_are_known() {
    let page =
        |next: Option<&str>, items: &[u32]| feed(&next.map(|next| link("next", next)).unwrap_or_default(), items);
    let fixture = FeedFixture::start(&page(Some("/feed.xml?page=2"), &[6, 5])).await;
    fixture.put_at("/feed.xml?page=2", &page(Some("/feed.xml?page=3"), &[4, 3]));
    fixture.put_at("/feed.xml?page=3", &page(None, &[2, 1]));
    let run = fixture.complete().await;
    assert_eq!((run.counts.pages, run.counts.changes), (3, 6));
    assert_eq!(entries(&fixture, 0).await, [5, 6, 3, 4, 1, 2]);
    fixture.put(&page(Some("/feed.xml?page=2"), &[10, 9]), None);
    fixture.put_at("/feed.xml?page=2", &page(Some("/feed.xml?page=3"), &[8, 7]));
    fixture.put_at("/feed.xml?page=3", &page(Some("/feed.xml?page=4"), &[6, 5]));
    fixture.take_paths();
    assert_eq!(fixture.complete().await.counts.changes, 4);
    assert_eq!(fixture.take_paths(), ["/feed.xml", "/feed.xml?page=2", "/feed.xml?page=3"]);
}

#[tokio::test]
async fn endless_broken_and_forbidden_documents_end_the_walk_with_a_remark() {
    for (target, document, remark) in [
        ("/archive/1", archive(Some("/archive/1"), &[1]), "the archives of the feed do not end"),
        (
            "/archive/1",
            archive(Some("/archive/2"), &[1]),
            "/archive/2 of the feed is not read: the server does not return it (404",
        ),
        ("http://192.0.2.1/archive?token=hush", String::new(), "http://192.0.2.1/archive of the feed is not read"),
        ("/archive/1", archive(None, &[1])[..200].to_owned(), "the feed is not well-formed"),
        (
            "/archive/1",
            "<!DOCTYPE html><html/>".to_owned(),
            "/archive/1 of the feed is not read: the response is not a feed",
        ),
        ("/archive/1", String::new(), "/archive/1 of the feed is not read: the response is empty"),
        (
            "/archive/1",
            " ".repeat((1 << 20) + 1),
            "/archive/1 of the feed is not read: a page has more than 1048576 bytes",
        ),
    ] {
        let fixture = FeedFixture::start(&feed(&link("prev-archive", target), &[2])).await;
        fixture.put_at("/archive/1", &document);
        let run = fixture.complete().await;
        let reason = run.reason.unwrap_or_default();
        assert!(reason.contains(remark) && !reason.contains("hush"), "{reason}");
        assert!(entries(&fixture, 0).await.contains(&2));
        fixture.take_paths();
        fixture.complete().await;
        assert_eq!(fixture.take_paths(), ["/feed.xml"], "{target}");
    }
    // A redirection to an address that is not allowed.
    let fixture = FeedFixture::start(&feed(&link("prev-archive", "/archive/1"), &[2])).await;
    fixture.put_status("/archive/1", 302, "");
    let target = ("location", "http://192.0.2.1/".to_owned());
    fixture.script().documents.get_mut("/archive/1").unwrap().headers.push(target);
    let reason = fixture.complete().await.reason.unwrap_or_default();
    assert!(reason.contains("redirects to a URL that is not allowed"), "{reason}");
    assert_eq!(entries(&fixture, 0).await, [2]);
    let fixture = FeedFixture::start(&feed(&link("next", "/page/2"), &[2])).await;
    fixture.put_at("/page/2", &feed(&link("next", "/page/3"), &[1]));
    fixture.put_at("/page/3", &feed(&link("next", "/page/2"), &[0]));
    let run = fixture.complete().await;
    assert!(run.reason.unwrap().contains("the pages of the feed do not end"));
    assert_eq!(run.counts.changes, 3);
}

#[tokio::test]
async fn url_of_an_archive_is_refused_with_advice() {
    let fixture = FeedFixture::start(&archive(None, &[1])).await;
    let (reason, run) = fixture.fail().await;
    assert!(reason.contains("the document is an archive, which never changes"), "{reason}");
    assert_eq!(run.counts.changes, 0);
}

#[tokio::test]
async fn credentials_of_the_feed_are_sent_to_its_archives_and_not_stored() {
    let mut fixture = FeedFixture::start("").await;
    let url = format!("{}/feed.xml?token=hush&view=a", fixture.url());
    let policy = tidings::http_client::OutboundPolicy::unrestricted();
    fixture.settings.url = tidings::http_client::OutboundUrl::parse(&url, &policy).unwrap();
    let newest = feed(&link("next", "/feed.xml?token=hush&amp;view=a&amp;page=2"), &[2]);
    fixture.put_at("/feed.xml?token=hush&view=a", &newest);
    let second = feed(&link("next", "/feed.xml?page=3"), &[1]);
    fixture.put_at("/feed.xml?token=hush&view=a&page=2", &second);
    // The run is interrupted before the last page, so the position has its URL.
    fixture.hold("/feed.xml?token=hush&view=a&page=3");
    fixture.stop_at("page=3").await;
    let stored = fixture.positions().await;
    assert!(!stored.contains("hush"), "{stored}");
    fixture.take_paths();
    fixture.put_at("/feed.xml?token=hush&view=a&page=3", &feed("", &[0]));
    fixture.complete().await;
    assert_eq!(entries(&fixture, 0).await, [2, 1, 0]);
    assert_eq!(fixture.take_paths(), ["/feed.xml?token=hush&view=a&page=3"]);
}

#[tokio::test]
async fn entries_that_a_complete_feed_loses_are_deleted() {
    let complete = |items: &[u32]| feed("<fh:complete/>", items);
    let fixture = FeedFixture::start(&complete(&[3, 2, 1])).await;
    fixture.complete().await;
    fixture.put(&complete(&[4, 3, 1]), Some("\"2\""));
    assert_eq!(fixture.complete().await.counts.changes, 2);
    assert_eq!(entries(&fixture, 3).await, [4, -2]);
    // 304, and then an entry that comes back.
    assert_eq!(fixture.complete().await.counts.changes, 0);
    fixture.put(&complete(&[4, 3, 2, 1]), None);
    assert_eq!(fixture.complete().await.counts.changes, 1);
    // Neither a window nor a part of a feed says anything about the entries that it lacks.
    fixture.put(&feed("", &[4]), None);
    assert_eq!(fixture.complete().await.counts.changes, 0);
    fixture.put(&complete(&[4])[..complete(&[4]).len() - 20], None);
    assert_eq!(fixture.fail().await.1.counts.changes, 0);
}

#[tokio::test]
async fn complete_feed_that_loses_most_entries_is_believed_the_second_time() {
    let all: Vec<u32> = (1..=30).collect();
    let complete = |items: &[u32]| feed("<fh:complete/>", items);
    let fixture = FeedFixture::start(&complete(&all)).await;
    fixture.complete().await;
    fixture.put(&complete(&[1]), Some("\"2\""));
    let run = fixture.complete().await;
    assert_eq!(run.counts.changes, 0);
    assert!(run.reason.unwrap().contains("29 of 30 entries are missing in the complete feed"));
    // The mistake is mended, and happens again.
    fixture.put(&complete(&all), None);
    assert_eq!(fixture.complete().await.counts.changes, 0);
    fixture.put(&complete(&[1]), Some("\"3\""));
    assert_eq!(fixture.complete().await.counts.changes, 0);
    // Another mistake with the same numbers.
    fixture.put(&complete(&[2]), Some("\"4\""));
    assert_eq!(fixture.complete().await.counts.changes, 0);
    // It was no mistake.
    assert_eq!(fixture.complete().await.counts.changes, 29);
    assert_eq!(fixture.complete().await.counts.changes, 0);
}

#[tokio::test]
async fn delta_response_deletes_nothing_and_misses_nothing() {
    let fixture = FeedFixture::start(&feed("<fh:complete/>", &[2, 1])).await;
    fixture.complete().await;
    // New entries alone, with the status 226.
    fixture.put_status("/feed.xml", 226, &feed("<fh:complete/>", &[4, 3]));
    let run = fixture.complete().await;
    assert_eq!((run.counts.changes, run.reason), (2, None));
    assert_eq!(entries(&fixture, 2).await, [3, 4]);
    // The whole feed no longer has one of them.
    fixture.put(&feed("<fh:complete/>", &[4, 2, 1]), None);
    fixture.complete().await;
    assert_eq!(entries(&fixture, 4).await, [-3]);
}

#[tokio::test]
async fn feed_of_another_gateway_is_read_with_its_archives() {
    crate::support::needs_sqlite();
    let [data, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let other = gateway(data.path(), "");
    let mut posted = 0;
    let mut post_more = async |count: u64| {
        for number in posted..posted + count {
            post(&other, number).await;
        }
        posted += count;
    };
    post_more(250).await;
    let lines = format!(
        "[sources.other]\ntransport = \"feed\"\ndialect = \"feed\"\nurl = \"{}/feed\"\nmode = \"once\"\n",
        other.url
    );
    let config = configuration(folder.path(), &lines);
    let mut copy = Gateway::start_with(folder.path(), &["--config", &config]);
    let count = async |copy: &Gateway| {
        let changes = copy.changes().await;
        let objects: BTreeSet<_> = changes.iter().map(|change| change["object"].as_str().unwrap()).collect();
        assert_eq!(objects.len(), changes.len(), "an entry is there twice");
        objects.len()
    };
    let began = Instant::now();
    while count(&copy).await < 250 {
        assert!(began.elapsed() < PATIENCE, "{}", copy.json("/harvests/other").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // More changes than the feed has, with a kill in between.
    post_more(350).await;
    copy.http.post(format!("{}/harvests/other/run", copy.url)).send().await.unwrap();
    copy.kill();
    let copy = Gateway::start_with(folder.path(), &["--config", &config]);
    run_to_end(&copy, "other").await;
    run_to_end(&copy, "other").await;
    assert_eq!(count(&copy).await, 600);
    let head = copy.head().await;
    run_to_end(&copy, "other").await;
    assert_eq!(copy.head().await, head);
    assert!(copy.stop().success());
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn unavailable_archive_delays_its_entries_and_not_those_of_the_feed() {
    let fixture = FeedFixture::start(&feed(&link("prev-archive", "/archive/2"), &[4])).await;
    fixture.put_at("/archive/2", &archive(Some("/archive/1"), &[3]));
    fixture.put_status("/archive/1", 503, "");
    let (reason, _) = fixture.fail().await;
    assert!(reason.contains("/archive/1 of the feed is not read: "), "{reason}");
    assert_eq!(entries(&fixture, 0).await, [4]);
    fixture.put(&feed(&link("prev-archive", "/archive/2"), &[5, 4]), None);
    fixture.fail().await;
    assert_eq!(entries(&fixture, 0).await, [4, 5]);
    fixture.put_at("/archive/1", &archive(None, &[2, 1]));
    fixture.complete().await;
    assert_eq!(entries(&fixture, 0).await, [4, 5, 1, 2, 3]);
    // One that stays away counts as missing after some time.
    let fixture = FeedFixture::start(&feed(&link("prev-archive", "/archive/1"), &[4])).await;
    fixture.put_status("/archive/1", 500, "");
    for _ in 0..10 {
        fixture.fail().await;
    }
    let run = fixture.complete().await;
    assert!(run.reason.unwrap().contains("/archive/1 of the feed is not read: the server has failed (500"));
    fixture.take_paths();
    fixture.complete().await;
    assert_eq!(fixture.take_paths(), ["/feed.xml"]);
}

#[tokio::test]
async fn unavailable_page_is_requested_again_by_the_next_run() {
    let fixture = FeedFixture::start(&feed(&link("next", "/page/2"), &[2])).await;
    fixture.put_status("/page/2", 503, "");
    fixture.fail().await;
    assert_eq!(entries(&fixture, 0).await, [2]);
    fixture.put_at("/page/2", &feed("", &[1]));
    fixture.complete().await;
    assert_eq!(entries(&fixture, 0).await, [2, 1]);
}

#[tokio::test]
async fn killed_walk_continues_with_compressed_archives_and_is_counted() {
    crate::support::needs_sqlite();
    let (fixture, folder) =
        (FeedFixture::start(&feed(&link("prev-archive", "/archive/2"), &[3])).await, tempfile::tempdir().unwrap());
    fixture.put_at("/archive/2", &archive(Some("/archive/1"), &[2]));
    fixture.hold("/archive/1");
    let lines = format!(
        "[sources.walked]\ntransport = \"feed\"\ndialect = \"feed\"\nurl = \"{}/feed.xml\"\nmode = \"once\"\n",
        fixture.url()
    );
    let config = configuration(folder.path(), &lines);
    let mut gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let began = Instant::now();
    // The feed and the second archive are on disk, and the first archive is requested.
    while gateway.json("/harvests/walked").await["run"]["pages"] != 2 {
        assert!(began.elapsed() < PATIENCE, "{}", gateway.json("/harvests/walked").await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gateway.kill();
    fixture.take_paths();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, archive(None, &[1]).as_bytes()).unwrap();
    fixture.put_at("/archive/1", "");
    {
        let mut script = fixture.script();
        let document = script.documents.get_mut("/archive/1").unwrap();
        document.body = encoder.finish().unwrap();
        document.headers.push(("content-encoding", "gzip".to_owned()));
    }
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    while gateway.json("/harvests/walked").await["run"]["state"] != "completed" {
        assert!(began.elapsed() < 2 * PATIENCE, "{}", gateway.json("/harvests/walked").await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.take_paths(), ["/archive/1", "/archive/1", "/archive/2", "/feed.xml"]);
    let uris: Vec<_> =
        gateway.changes().await.iter().map(|change| change["object"].as_str().unwrap().to_owned()).collect();
    assert_eq!(uris, ["urn:entry:1", "urn:entry:2", "urn:entry:3"]);
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    for line in [
        "tidings_harvest_runs_total{source=\"walked\",outcome=\"completed\"} 1",
        "tidings_harvest_records_total{source=\"walked\",outcome=\"changed\"} 3",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(gateway.stop().success());
    verify_ok(&journal_file(folder.path()));
}
