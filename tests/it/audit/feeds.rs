//! Audits of feeds judge the entries that a feed shows, and the others only if the feed shows everything.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::{
    audit_at,
    harvests::{found, post, until_harvested},
    report_at,
};
use crate::support::{
    gateway::Gateway,
    harvest_fixture::run_to_end,
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
};

/// Publisher of a feed and its archives, and a gateway that harvests the feed.
struct Publisher {
    documents: Arc<Mutex<BTreeMap<String, String>>>,
    _server: Receiver,
    gateway: Gateway,
    _folder: tempfile::TempDir,
}

impl Publisher {
    /// Starts with these entries of the feed, and harvests it once.
    async fn start(head: &str, entries: &[(u32, &str)]) -> Self {
        let documents = Arc::<Mutex<BTreeMap<_, _>>>::default();
        documents.lock().unwrap().insert("/feed".to_owned(), feed(head, entries));
        let server = Receiver::start({
            let documents = Arc::clone(&documents);
            move |_, request| {
                let headers = vec![("content-type", "application/atom+xml".to_owned())];
                let document = documents.lock().unwrap().get(&request.path).cloned();
                document.map_or_else(|| Reply::of(404), |document| Reply::Answer(200, headers, document))
            }
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let lines = format!(
            "[sources.news]\ntransport = \"feed\"\ndialect = \"feed\"\nurl = \"http://{}/feed\"\nmode = \"once\"\n",
            server.address
        );
        let config = configuration(folder.path(), &lines);
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        until_harvested(&gateway, "news").await;
        post(&gateway, "/harvests/news/pause").await;
        Self { documents, _server: server, gateway, _folder: folder }
    }

    fn publish(&self, path: &str, head: &str, entries: &[(u32, &str)]) {
        self.documents.lock().unwrap().insert(path.to_owned(), feed(head, entries));
    }

    async fn audit(&self, more: &[&str]) -> (i32, Vec<String>, Value) {
        let (code, report) = report_at(&self.gateway.url, "news", more).await;
        (code, found(&report), report)
    }

    /// Checks that after a correction neither an audit nor a run has news.
    async fn is_corrected(&self) {
        assert_eq!(self.audit(&["--repair", "--yes"]).await.0, 0);
        let (code, found, report) = self.audit(&[]).await;
        assert_eq!((code, found), (0, Vec::new()), "{report}");
        let changes = self.gateway.changes().await;
        assert_eq!(changes.last().unwrap()["description"], "corrected by an audit");
        post(&self.gateway, "/harvests/news/resume").await;
        post(&self.gateway, "/harvests/news/run").await;
        run_to_end(&self.gateway, "news").await;
        assert_eq!(self.gateway.changes().await.len(), changes.len());
    }
}

/// Returns a feed with these entries, each with a number and a title.
fn feed(head: &str, entries: &[(u32, &str)]) -> String {
    let entry = |(number, title): &(u32, &str)| {
        format!(
            "<entry><id>http://h/{number}</id><title>{title}</title><updated>2026-11-0{number}T00:00:00Z</updated></entry>"
        )
    };
    format!(
        "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:fh='http://purl.org/syndication/history/1.0'><id>urn:f</id>\
         <title>t</title><updated>2026-11-01T00:00:00Z</updated>{head}{}</feed>",
        entries.iter().map(entry).collect::<String>()
    )
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_with_its_newest_entries_is_judged_for_those() {
    let publisher = Publisher::start("", &[(3, "c"), (2, "b"), (1, "a")]).await;
    let (code, found, report) = publisher.audit(&[]).await;
    assert_eq!((code, found, &report["objects"], &report["unlisted"]), (0, Vec::new(), &json!(3), &json!(0)));

    publisher.publish("/feed", "", &[(4, "d"), (3, "c"), (2, "another title")]);
    let (code, found, report) = publisher.audit(&[]).await;
    assert_eq!((code, found), (1, texts(&["different 2", "missing 4"])), "{report}");
    assert_eq!((&report["registered"], &report["unlisted"]), (&json!(3), &json!(1)), "{report}");
    let (_, stdout, _) = audit_at(&publisher.gateway.url, "news", &[]).await;
    let expected = "compared 3 objects: 1 missing, 1 different, 0 extra; 1 registered object not judged, because the list may \
                    lack objects that exist\n";
    assert!(stdout.ends_with(expected), "{stdout}");
    publisher.is_corrected().await;
    assert_eq!(publisher.gateway.json("/objects?uri=http://h/1").await["items"][0]["live"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn complete_feed_has_extra_entries() {
    let publisher = Publisher::start("<fh:complete/>", &[(3, "c"), (2, "b"), (1, "a")]).await;
    publisher.publish("/feed", "<fh:complete/>", &[(4, "d"), (3, "c"), (2, "b")]);
    let (code, found, report) = publisher.audit(&[]).await;
    assert_eq!((code, found, &report["unlisted"]), (1, texts(&["extra 1", "missing 4"]), &json!(0)), "{report}");
    publisher.is_corrected().await;
}

/// A feed that has become complete has not deleted the entries that it had shown before.
#[tokio::test(flavor = "multi_thread")]
async fn entries_from_before_a_feed_was_complete_are_not_extra() {
    let publisher = Publisher::start("", &[(2, "b"), (1, "a")]).await;
    publisher.publish("/feed", "<fh:complete/>", &[(3, "c"), (2, "b")]);
    post(&publisher.gateway, "/harvests/news/resume").await;
    post(&publisher.gateway, "/harvests/news/run").await;
    run_to_end(&publisher.gateway, "news").await;
    let (code, found, report) = publisher.audit(&[]).await;
    assert_eq!((code, found, &report["unlisted"]), (0, Vec::new(), &json!(1)), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_with_all_its_archives_has_extra_entries() {
    let link = |path: &str| format!("<link rel='prev-archive' href='{path}'/>");
    let publisher = Publisher::start(&link("/a2"), &[]).await;
    // An archive may have an older version of an entry.
    publisher.publish("/feed", &link("/a2"), &[(5, "e"), (2, "another title")]);
    publisher.publish("/a2", &format!("<fh:archive/>{}", link("/a1")), &[(4, "d"), (3, "c")]);
    publisher.publish("/a1", "<fh:archive/>", &[(2, "b"), (1, "a")]);
    let (code, found, report) = publisher.audit(&["--repair", "--yes"]).await;
    let all: Vec<_> = (1..=5).map(|number| format!("missing {number}")).collect();
    assert_eq!((code, found), (0, all), "{report}");
    assert_eq!(publisher.audit(&[]).await.0, 0);

    publisher.publish("/a1", "<fh:archive/>", &[(2, "b")]);
    let (code, found, report) = publisher.audit(&[]).await;
    assert_eq!((code, found, &report["unlisted"]), (1, texts(&["extra 1"]), &json!(0)), "{report}");
    // Without its oldest archive, the feed does not show everything.
    publisher.documents.lock().unwrap().remove("/a1");
    let (code, found, report) = publisher.audit(&[]).await;
    assert_eq!((code, found, &report["unlisted"]), (0, Vec::new(), &json!(1)), "{report}");
}

/// A feed that breaks off says nothing about the entries after its end.
#[tokio::test(flavor = "multi_thread")]
async fn broken_feed_fails_the_audit() {
    let publisher = Publisher::start("<fh:complete/>", &[(2, "b"), (1, "a")]).await;
    let document = feed("<fh:complete/>", &[(2, "b"), (1, "a")]);
    let end = document.rfind("<entry>").unwrap() + 9;
    publisher.documents.lock().unwrap().insert("/feed".to_owned(), document[..end].to_owned());
    let (code, _, stderr) = audit_at(&publisher.gateway.url, "news", &["--repair", "--yes"]).await;
    assert!(code == 2 && stderr.contains("the audit has failed"), "{code} {stderr}");
    assert_eq!(publisher.gateway.changes().await.len(), 2);
}

/// The feed of another gateway has changes, which say nothing about the present, and no entry can be requested alone.
#[tokio::test(flavor = "multi_thread")]
async fn samples_of_feeds_and_feeds_of_changes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = |name: &str, dialect: &str| {
        format!(
            "[sources.{name}]\ntransport = \"feed\"\ndialect = \"{dialect}\"\nurl = \"http://127.0.0.1:9/feed\"\nmode = \"once\"\n"
        )
    };
    let config = configuration(folder.path(), &(source("news", "feed") + &source("upper", "content-change")));
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    for (source, more, expected) in [
        ("upper", &[][..], "the repository of the source upper cannot be asked; only those of news can"),
        ("news", &["--sample", "5"], "a sample needs a repository that can be asked for single objects"),
    ] {
        let (code, _, stderr) = audit_at(&gateway.url, source, more).await;
        assert!(code == 2 && stderr.to_lowercase().contains(expected), "{source}: {code} {stderr}");
    }
}
