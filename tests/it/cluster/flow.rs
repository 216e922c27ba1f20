//! The flow in a cluster: every node counts all changes, and the deliveries of its own subscriptions.

use serde_json::Value;

use crate::support::{
    http_receiver::{Receiver, Reply},
    nodes_fixture::{SharedJournal, holder_and_other, until, until_acquainted},
    subscription_fixture::post,
    webhook_fixture::webhook,
};

fn numbers(slots: &Value) -> Vec<u64> {
    slots.as_array().unwrap().iter().filter_map(Value::as_u64).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_has_all_changes_and_the_deliveries_of_the_node() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let journal = SharedJournal::new(&webhook("index", &receiver.url(), ""));
    let nodes = [journal.node("a"), journal.node("b")];
    until_acquainted(&[&nodes[0], &nodes[1]]).await;
    let (holder, other) = holder_and_other(nodes, &journal, "subscription/index").await;
    for number in 1..=5 {
        post(if number % 2 == 0 { &holder } else { &other }, number).await;
    }
    for (node, delivered) in [(&holder, 5), (&other, 0)] {
        until("the flow of a node is complete", async || {
            let flow = node.json("/flow").await;
            let subscription = &flow["subscriptions"][0];
            numbers(&flow["changes"]).iter().sum::<u64>() == 5
                && numbers(&flow["sources"][0]["changes"]).iter().sum::<u64>() == 5
                && numbers(&subscription["delivered"]).iter().sum::<u64>() == delivered
                && numbers(&subscription["cursors"]).last() == Some(&5)
        })
        .await;
    }
}
