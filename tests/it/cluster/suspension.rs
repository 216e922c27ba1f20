//! A node that is suspended for longer than its lease and wakes up writes nothing for its former duties.

use std::time::Duration;

use tokio::sync::watch;

use crate::support::{
    gateway::Gateway,
    http_receiver::{ReceivedRequest, Receiver, Reply},
    nodes_fixture::{OWN_DUTIES, SharedJournal, until, until_spread},
    subscription_fixture::post,
    webhook_fixture::webhook,
};

/// Returns whether a node shows that the node `a` has gone without leaving.
async fn misses_a(node: &Gateway) -> bool {
    let status = node.json("/status").await;
    let problems = status["problems"].as_array().unwrap();
    problems.iter().any(|problem| problem["code"] == "node-lost" && problem["thing"] == "node/a")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_wakes_up_writes_neither_cursor_nor_dead_letter() {
    // The receiver refuses the first message, but only when the node that sent it is awake again.
    let (release, released) = watch::channel(false);
    let receiver = Receiver::start(move |nth, _| match nth {
        0 => Reply::When(released.clone(), Box::new(Reply::of(422))),
        _ => Reply::of(200),
    })
    .await;
    let journal = SharedJournal::new(&webhook("index", &receiver.url(), "refused_statuses = [422]"));
    let a = journal.node("a");
    until_spread(&journal, 1 + OWN_DUTIES, &["a"]).await;
    post(&a, 1).await;
    receiver.until(1).await;
    a.signal("STOP");

    // Another node takes over and delivers.
    let b = journal.node("b");
    until("the other node has the duty", async || {
        journal.query("SELECT count(*) FROM duties JOIN nodes ON instance = holder WHERE nodes.name = 'b'")
            == (1 + OWN_DUTIES).to_string()
    })
    .await;
    until("the other node misses the first one", async || misses_a(&b).await).await;
    post(&b, 2).await;
    until("both are delivered", async || journal.query("SELECT cursor FROM subscriptions") == "2").await;

    // The answer arrives at the first node before it knows that it has lost the duty.
    release.send_replace(true);
    a.signal("CONT");
    until("the first node is back", async || journal.query("SELECT count(*) FROM nodes") == "2").await;
    tokio::time::timeout(Duration::from_secs(20), async {
        while a.json("/nodes").await["nodes"].as_array().is_none_or(|nodes| nodes.len() < 2) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    until("nobody misses it", async || !misses_a(&b).await).await;
    assert_eq!(journal.query("SELECT cursor FROM subscriptions"), "2");
    assert_eq!(journal.query("SELECT count(*) FROM dead_letters"), "0");
    let seqs: Vec<_> = receiver.requests().iter().map(ReceivedRequest::seq).collect();
    assert_eq!(seqs, [1, 1, 2], "the first node sends nothing after it has lost the duty");

    // The subscription goes on, on whichever node has it now.
    post(&a, 3).await;
    until("the next change is delivered", async || journal.query("SELECT cursor FROM subscriptions") == "3").await;
    assert!(a.stop().success() && b.stop().success());
}
