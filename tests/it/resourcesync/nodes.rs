//! Nodes that share a journal: a destination can read each document from another node.

use crate::support::{journal_fixture::post, nodes_fixture::SharedJournal, resourcesync_reader::Destination};

/// A node gets the changes of another one a moment later, and waits for them.
#[tokio::test]
async fn node_has_the_parts_that_another_node_has_just_named() {
    let journal = SharedJournal::new("");
    let [one, other] = [journal.node("a"), journal.node("b")];
    let destination = Destination::default();
    for number in 0..60 {
        post(&one, number).await;
        let index = destination.capability(&one, "resourcelist").await;
        let part = index.entries().remove(0).loc;
        let url = format!("{}/resourcesync/{}", other.url, part.rsplit('/').next().unwrap());
        let response = destination.request(&other, &url).await;
        assert_eq!(response.status(), 200, "{number}: {}", response.text().await.unwrap());
    }
}
