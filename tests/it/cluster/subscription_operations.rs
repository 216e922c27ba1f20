//! Operations on subscriptions work on every node, whichever node delivers.

use serde_json::json;

use crate::support::{
    gateway::Gateway,
    http_receiver::{ReceivedRequest, Receiver, Reply},
    nodes_fixture::{SharedJournal, holder_and_other, until},
    subscription_fixture::post,
};

async fn state(node: &Gateway) -> String {
    node.json("/subscriptions/index").await["state"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_is_created_paused_rewound_and_deleted_on_any_node() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let journal = SharedJournal::new("[delivery]\nallow = [\"127.0.0.1\"]\n");
    let (a, b) = (journal.node("a"), journal.node("b"));
    let definition = json!({
        "delivery": "webhook", "format": "json", "url": receiver.url(), "start": "beginning",
        "secrets": [{ "env": "TIDINGS_SECRET_KEY" }]
    });
    for number in 1..=5 {
        post(&a, number).await;
    }
    assert_eq!(a.ask("PUT", "/subscriptions/index", Some(definition.clone())).await.0, 201);
    let (holder, other) = holder_and_other([&a, &b], &journal, "subscription/index").await;
    receiver.until(5).await;
    until("the holder delivers", async || state(holder).await == "running").await;
    until("the other node knows the cursor", async || {
        let view = other.json("/subscriptions/index").await;
        view["state"] == "elsewhere" && view["cursor"] == 5
    })
    .await;

    // Paused on the other node.
    assert_eq!(other.ask("POST", "/subscriptions/index/pause", None).await.0, 200);
    until("the holder has paused", async || state(holder).await == "paused").await;
    post(other, 6).await;
    assert_eq!(other.ask("POST", "/subscriptions/index/resume", None).await.0, 200);
    receiver.until(6).await;

    // Rewound on the other node: the old engine does not move the cursor any more.
    let (holder, other) = holder_and_other([&a, &b], &journal, "subscription/index").await;
    until("the cursor is there", async || journal.query("SELECT cursor FROM subscriptions") == "6").await;
    assert_eq!(other.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": "beginning" }))).await.0, 200);
    receiver.until(12).await;
    until("the cursor is there again", async || journal.query("SELECT cursor FROM subscriptions") == "6").await;
    let seqs: Vec<_> = receiver.requests().iter().map(ReceivedRequest::seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]);

    // Changed and deleted on the other node.
    let mut changed = definition;
    changed["filter"] = json!({ "sources": ["nobody"] });
    assert_eq!(other.ask("PUT", "/subscriptions/index", Some(changed)).await.0, 200);
    until("the holder knows the new definition", async || {
        holder.json("/subscriptions/index").await["definition"]["filter"]["sources"][0] == "nobody"
    })
    .await;
    assert_eq!(other.ask("DELETE", "/subscriptions/index", None).await.0, 204);
    until("the holder has forgotten it", async || {
        holder.json("/subscriptions").await["subscriptions"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    until("nobody has the duty", async || {
        journal.query("SELECT count(*) FROM duties WHERE name LIKE 'subscription/%'") == "0"
    })
    .await;
    assert!(a.stop().success() && b.stop().success());
}
