//! Entries that several feeds show: one feed describes each, files of all feeds stay, and what no feed claims is deleted.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    nodes_fixture::until,
};

const ENTRY: &str = "tag:p.example.org,2026:4";
const FILE: &str = "http://p.example.org/4.mp3";

/// Feeds of a publisher, and a gateway that harvests them on request.
struct Publisher {
    documents: Arc<Mutex<BTreeMap<String, String>>>,
    server: Receiver,
    gateway: Gateway,
    folder: tempfile::TempDir,
}

/// Returns a feed that shows the entry with a title, and a file or none; an empty feed without a title.
fn feed(is_complete: bool, title: &str, file: &str) -> String {
    let complete = if is_complete { "<fh:complete/>" } else { "" };
    let file = if file.is_empty() {
        String::new()
    } else {
        format!("<link rel='enclosure' href='{file}' type='audio/mpeg' length='1024'/>")
    };
    let entry =
        format!("<entry><id>{ENTRY}</id><title>{title}</title><updated>2026-11-01T00:00:00Z</updated>{file}</entry>");
    let entry = if title.is_empty() { String::new() } else { entry };
    format!(
        "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:fh='http://purl.org/syndication/history/1.0'><id>urn:f</id>\
         <title>t</title><updated>2026-11-01T00:00:00Z</updated>{complete}{entry}</feed>"
    )
}

/// Starts a gateway with sources of these names.
fn start(folder: &Path, server: &Receiver, names: &[&str]) -> Gateway {
    let source = |name: &&str| {
        format!(
            "[sources.{name}]\ntransport = \"feed\"\ndialect = \"feed\"\nurl = \"http://{}/{name}\"\nmode = \"once\"\n",
            server.address
        )
    };
    let config = configuration(folder, &names.iter().map(source).collect::<String>());
    Gateway::start_with(&folder.join("data"), &["--config", &config])
}

impl Publisher {
    async fn start(feeds: &[(&str, String)]) -> Self {
        let documents: BTreeMap<_, _> = feeds.iter().map(|(name, text)| (format!("/{name}"), text.clone())).collect();
        let names: Vec<_> = feeds.iter().map(|(name, _)| *name).collect();
        let documents = Arc::new(Mutex::new(documents));
        let served = Arc::clone(&documents);
        let server = Receiver::start(move |_, request| {
            let text = served.lock().unwrap()[&request.path].clone();
            let tag = format!("\"{}\"", hex::encode(text.as_bytes()));
            if request.header("if-none-match") == tag {
                return Reply::of(304);
            }
            let headers = vec![("content-type", "application/atom+xml".to_owned()), ("etag", tag)];
            Reply::Answer(200, headers, text)
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let gateway = start(folder.path(), &server, &names);
        Self { documents, server, gateway, folder }
    }

    fn put(&self, name: &str, text: String) {
        self.documents.lock().unwrap().insert(format!("/{name}"), text);
    }

    /// Harvests these feeds one after the other. Returns the changes of all runs.
    async fn harvest(&self, names: &[&str]) -> Vec<(String, String)> {
        let head = self.gateway.head().await;
        for name in names {
            let path = format!("/harvests/{name}");
            let run = async || self.gateway.json(&path).await["run"].clone();
            let is_ended = |run: &Value| run["state"].as_str().is_some_and(|state| state != "running");
            until("the first run has ended", async || is_ended(&run().await)).await;
            let before = run().await["id"].clone();
            let requested = self.gateway.http.post(format!("{}{path}/run", self.gateway.url)).send().await.unwrap();
            assert_eq!(requested.status(), 202);
            let done = async || {
                let run = run().await;
                is_ended(&run) && run["id"] != before
            };
            tokio::time::timeout(PATIENCE, until("the run has ended", done)).await.unwrap();
            assert_eq!(run().await["state"], "completed");
        }
        let changes = self.gateway.changes().await;
        let new = changes.iter().filter(|change| change["seq"].as_u64() > Some(head));
        let items = new.flat_map(|change| change["items"].as_array().unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        items.map(|item| (text(&item["change"]), text(&item["uri"]))).collect()
    }

    /// Waits until each harvest has had its first run.
    async fn first_runs(&self, names: &[&str]) {
        for name in names {
            let path = format!("/harvests/{name}");
            until("the first run has ended", async || self.gateway.json(&path).await["run"]["state"] == "completed")
                .await;
        }
    }

    async fn is_live(&self, uri: &str) -> bool {
        let changes = self.gateway.changes().await;
        let items: Vec<_> = changes.iter().flat_map(|change| change["items"].as_array().unwrap()).collect();
        items.iter().rfind(|item| item["uri"] == uri).is_some_and(|item| item["change"] != "DELETE")
    }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, uri)| ((*kind).to_owned(), (*uri).to_owned())).collect()
}

#[tokio::test]
async fn shared_entry_keeps_the_file_that_only_one_of_its_feeds_has() {
    let names = ["main", "podcast"];
    let publisher = Publisher::start(&[("main", feed(false, "One", "")), ("podcast", feed(false, "One", FILE))]).await;
    publisher.first_runs(&names).await;
    publisher.harvest(&["main", "podcast", "main", "podcast"]).await;
    assert!(publisher.is_live(FILE).await && publisher.is_live(ENTRY).await);
    // A change of a comment, and one of the title in the feed that does not describe the entry, are no news.
    publisher.put("main", feed(false, "One", "") + "<!-- 2 -->");
    publisher.put("podcast", feed(false, "Other title", FILE));
    assert_eq!(publisher.harvest(&["main", "podcast", "main", "podcast"]).await, []);
    publisher.put("main", feed(false, "New title", ""));
    assert_eq!(publisher.harvest(&["main", "podcast"]).await, pairs(&[("UPDATE", ENTRY)]));
    // The feed with the file withdraws it.
    publisher.put("podcast", feed(false, "Other title", ""));
    assert_eq!(publisher.harvest(&["main", "podcast", "main"]).await, pairs(&[("DELETE", FILE)]));
}

#[tokio::test]
async fn shared_entry_is_described_by_the_next_feed_when_the_first_one_loses_it() {
    let names = ["a", "b"];
    let publisher = Publisher::start(&[("a", feed(true, "As a", FILE)), ("b", feed(false, "As b", ""))]).await;
    publisher.first_runs(&names).await;
    publisher.harvest(&["a", "b", "a", "b"]).await;
    publisher.put("a", feed(true, "", ""));
    // The document of b stays the same, and its server says so.
    let changes = publisher.harvest(&["a", "b"]).await;
    assert_eq!(
        changes,
        pairs(&[("DELETE", FILE), ("UPDATE", ENTRY)]),
        "the file goes and the entry stays, as b has it"
    );
    assert_eq!(publisher.harvest(&["a", "b", "a", "b"]).await, []);
    // Nobody has the entry any more, but b is no complete feed, so it has deleted nothing.
    publisher.put("b", feed(false, "", ""));
    assert_eq!(publisher.harvest(&["a", "b"]).await, []);
    publisher.put("a", feed(true, "As a", ""));
    assert_eq!(publisher.harvest(&["b", "a"]).await, pairs(&[("UPDATE", ENTRY)]));
    publisher.put("a", feed(true, "", ""));
    assert_eq!(publisher.harvest(&["b", "a"]).await, pairs(&[("DELETE", ENTRY)]));
}

/// The first feed describes the entry in another way, while the other one sees nothing of it.
#[tokio::test]
async fn shared_entry_is_described_again_if_another_feed_had_it_between_two_runs() {
    let publisher = Publisher::start(&[("a", feed(true, "", "")), ("b", feed(false, "As b", ""))]).await;
    publisher.first_runs(&["a", "b"]).await;
    for is_complete in [true, true, false, false, true] {
        publisher.put("a", feed(is_complete, "As a", ""));
        assert_eq!(publisher.harvest(&["a"]).await, pairs(&[("UPDATE", ENTRY)]), "{is_complete}");
        publisher.put("a", feed(is_complete, "", ""));
        assert_eq!(publisher.harvest(&["a"]).await, [], "{is_complete}");
        assert_eq!(publisher.harvest(&["b"]).await, pairs(&[("UPDATE", ENTRY)]), "{is_complete}");
        assert_eq!(publisher.harvest(&["a", "b", "a", "b"]).await, [], "{is_complete}");
    }
}

#[tokio::test]
async fn shared_entry_of_a_source_that_was_removed_is_described_by_the_other_one() {
    let names = ["a", "b"];
    let mut publisher = Publisher::start(&[("a", feed(false, "As a", "")), ("b", feed(false, "As b", ""))]).await;
    publisher.first_runs(&names).await;
    publisher.harvest(&["a", "b"]).await;
    publisher.gateway.kill();
    publisher.gateway = start(publisher.folder.path(), &publisher.server, &["b"]);
    assert_eq!(publisher.harvest(&["b"]).await, pairs(&[("UPDATE", ENTRY)]));
    assert_eq!(publisher.harvest(&["b"]).await, []);
}
