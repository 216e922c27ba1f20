//! Nodes that share a database seal in a place that all of them see, one node at a time.

use serde_json::json;

use super::{content, fill, segments};
use crate::support::nodes_fixture::{SharedJournal, holder_and_other};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_seals_after_the_death_of_the_first() {
    let place = tempfile::tempdir().unwrap();
    let lines = format!("[segments]\nfolder = \"{}\"\n", place.path().join("segments").display());
    let journal = SharedJournal::new(&lines);
    let filled = tempfile::tempdir().unwrap();
    fill(filled.path(), 31_000).await;
    journal.migrate(filled.path());
    let nodes = ["a", "b"].map(|name| journal.node(name));
    let (mut holder, other) = holder_and_other(nodes, &journal, "segments").await;
    segments_at_least(&holder, 1).await;
    holder.kill();
    let sealed = segments(&other, 3).await;
    let numbers: Vec<_> = sealed.iter().map(|segment| [&segment["first"], &segment["changes"]]).collect();
    assert_eq!(json!(numbers), json!([[1, 10_000], [10_001, 10_000], [20_001, 10_000]]));
    let changes = other.changes().await;
    let mut read = Vec::new();
    for segment in &sealed {
        read.extend(content(&other, segment).await);
    }
    assert_eq!(read, changes[..30_000]);
}

/// Without a place that all nodes see there are no segments, and the order times of closed spans are noted nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_shared_place_there_are_none() {
    let journal = SharedJournal::new("");
    let filled = tempfile::tempdir().unwrap();
    fill(filled.path(), 11_000).await;
    journal.migrate(filled.path());
    let node = journal.node("a");
    let none = node.http.get(format!("{}/segments", node.url)).send().await.unwrap();
    assert_eq!(none.status(), 404);
    super::until("the order time is noted", async || {
        (journal.query("SELECT count(*) FROM order_times WHERE seq = 10000") == "1").then_some(())
    })
    .await;
}

async fn segments_at_least(gateway: &crate::support::gateway::Gateway, count: usize) {
    super::until("a span is sealed", async || {
        (gateway.json("/segments").await["segments"].as_array().unwrap().len() >= count).then_some(())
    })
    .await;
}
