//! Nodes that share a journal.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;

use super::ObservedGateway;
use crate::support::{
    breakable_proxy::{BreakableProxy, Link},
    http_receiver::{Receiver, Reply},
    nodes_fixture::{SharedJournal, holder_and_other, until_acquainted},
    postgres::Server,
    subscription_fixture::post,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duty_of_a_node_that_lacks_a_variable_is_a_problem_until_the_node_has_it() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let journal = SharedJournal::new("[delivery]\nallow = [\"127.0.0.1\"]\n");
    let nodes = ["a", "b"].map(|name| (name, journal.node(name)));
    until_acquainted(&[&nodes[0].1, &nodes[1].1]).await;
    let definition = json!({
        "delivery": "webhook", "format": "json", "url": receiver.url(), "start": "beginning",
        "secrets": [{ "env": "TIDINGS_SECRET_KEY" }]
    });
    assert_eq!(nodes[0].1.ask("PUT", "/subscriptions/index", Some(definition)).await.0, 201);
    let ((owner, gateway), (other, its_gateway)) = holder_and_other(nodes, &journal, "subscription/index").await;
    let observed = ObservedGateway::of_node(its_gateway, &journal, other);
    assert!(gateway.stop().success());
    post(&observed.gateway, 1).await;
    receiver.until(1).await;

    // The owner comes back without the variable, and the other node hands the duty over to it.
    let lacking = ObservedGateway::of_node(journal.node_without_secret(owner), &journal, owner);
    let (duty, subscription) = ("duty/subscription/index", "subscription/index");
    observed.shows("duty-without-node", duty, &format!("it is the turn of the node {owner}")).await;
    lacking.shows("subscription-fails", subscription, "TIDINGS_SECRET_KEY is not set").await;
    post(&observed.gateway, 2).await;
    assert!(lacking.gateway.stop().success());
    let mended = ObservedGateway::of_node(journal.node(owner), &journal, owner);
    observed.ends("duty-without-node", duty).await;
    receiver.until(2).await;
    assert_eq!(mended.problem("subscription-fails", subscription).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_a_narrow_connection_is_late_until_it_has_caught_up() {
    let journal = SharedJournal::with_lease("", Duration::from_secs(10));
    let proxy = BreakableProxy::start(Server::shared().port);
    let [node, late] = [("a", journal.node("a")), ("b", journal.node_through("b", proxy.port))]
        .map(|(name, gateway)| ObservedGateway::of_node(gateway, &journal, name));
    until_acquainted(&[&node.gateway, &late.gateway]).await;
    proxy.set_link(Link::Narrow);
    let mut posted = 0;
    while node.problem("node-late", "node/b").await.is_none() {
        assert!(posted < 50_000, "the node keeps up");
        let numbers = futures_util::stream::iter(posted..posted + 1000);
        numbers.for_each_concurrent(32, |number| post(&node.gateway, number)).await;
        posted += 1000;
    }
    // It says so itself, too.
    for observed in [&node, &late] {
        observed.shows("node-late", "node/b", " changes are missing").await;
    }
    proxy.set_link(Link::Open);
    for observed in [&node, &late] {
        observed.ends("node-late", "node/b").await;
    }
    assert_eq!(late.gateway.head().await, posted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_node_is_a_problem_until_a_node_of_its_name_joins() {
    let journal = SharedJournal::new("");
    let [node, mut lost] = ["a", "b"].map(|name| journal.node(name));
    until_acquainted(&[&node, &lost]).await;
    let observed = ObservedGateway::of_node(node, &journal, "a");
    lost.kill();
    observed.shows("node-lost", "node/b", "it renewed its lease last at").await;
    let _back = journal.node("b");
    observed.ends("node-lost", "node/b").await;
}
