//! Changes that come due are appended by one node, once, and by another one after its death, by the clock of the database.

use serde_json::json;

use super::{added, change, due_changes, in_millis, moved, send};
use crate::support::nodes_fixture::{SharedJournal, holder_and_other, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_come_once_on_one_node_and_on_another_after_its_death() {
    let journal = SharedJournal::new("");
    let nodes = ["a", "b"].map(|name| journal.node(name));
    let (mut holder, other) = holder_and_other(nodes, &journal, "due").await;
    // Half of them come before the death, half after it.
    for number in 0..10 {
        let date = in_millis(if number % 2 == 0 { 3000 } else { 8000 });
        send(&other, &change(&number.to_string(), added(json!({ "visibleFrom": date })))).await;
    }
    until("half of the dates have come", async || due_changes(&other).await.len() >= 5).await;
    holder.kill();
    until("all dates have come", async || due_changes(&other).await.len() >= 10).await;
    let mut come = due_changes(&other).await;
    come.sort();
    let expected: Vec<_> = (0..10).map(|number| moved(&number.to_string(), "EMBARGOED", "ACTIVE")).collect();
    assert_eq!(come, expected);
    assert_eq!(other.json("/due").await["due"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_come_by_the_clock_of_the_database() {
    let journal = SharedJournal::new("");
    for (name, seconds) in [("ahead", 3600), ("behind", -3600)] {
        let node = journal.node_with_clock(name, seconds);
        send(&node, &change(&format!("{name}-far"), added(json!({ "visibleFrom": in_millis(600_000) })))).await;
        send(&node, &change(&format!("{name}-near"), added(json!({ "visibleFrom": in_millis(3000) })))).await;
        let near = moved(&format!("{name}-near"), "EMBARGOED", "ACTIVE");
        until("the near date has come", async || due_changes(&node).await.contains(&near)).await;
        let far = format!("http://h/{name}-far/file");
        assert!(due_changes(&node).await.iter().all(|(item, _, _)| *item != far));
        assert!(node.stop().success());
    }
}
