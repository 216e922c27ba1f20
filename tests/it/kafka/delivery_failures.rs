//! Lost connections and kills between the journal and a topic: every change arrives at least once, in order of its key, and a
//! repeat has the same identifier.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use crate::support::{
    amqp_source::{events, until_head},
    breakable_proxy::{BreakableProxy, Link},
    gateway::Gateway,
    kafka::{Broker, CODECS, source},
};

const TOPIC: &str = "tests.events";
const CHANGES: &str = "tests.changes";

const MESSAGES: u64 = 6000;

/// Panics unless all changes of the journal are in the topic, in order of their keys. Repeats may follow.
async fn assert_delivered(gateway: &Gateway, broker: &Broker) -> usize {
    let received = broker.consume_with_librdkafka(CHANGES);
    let text = |message: &Value, header: &str| message["headers"][header].as_str().unwrap().to_owned();
    // The first deliveries of the changes, by key.
    let (mut ids, mut first) = (BTreeMap::new(), BTreeMap::new());
    for message in &received {
        let seq: u64 = text(message, "seq").parse().unwrap();
        let id = text(message, "message-id");
        match ids.insert(seq, id.clone()) {
            Some(known) => assert_eq!(known, id, "a repeat has the same identifier"),
            None => {
                let of_key: &mut Vec<u64> = first.entry(message["key"].as_str().unwrap().to_owned()).or_default();
                of_key.push(seq);
            }
        }
    }
    assert!(first.values().all(|seqs| seqs.is_sorted()), "first deliveries are in order");
    let journaled = gateway.changes().await;
    let expected = journaled.iter().map(|change| change["id"].as_str().unwrap());
    assert!(ids.values().map(String::as_str).eq(expected), "every change has arrived");
    received.len()
}

/// Waits until the cursor moves no more.
async fn until_still(gateway: &Gateway) {
    let mut last = Value::Null;
    loop {
        let (_, shown) = gateway.ask("GET", "/subscriptions/index", None).await;
        if shown["cursor"] == last {
            return;
        }
        last = shown["cursor"].clone();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_and_kills_lose_no_change_and_keep_the_order() {
    let broker = Broker::behind_proxy().await;
    broker.create_topic(TOPIC, 2).await;
    broker.create_topic(CHANGES, 4).await;
    broker.publish(TOPIC, 0, events(0..MESSAGES / 2), CODECS[3]).await;
    broker.publish(TOPIC, 1, events(MESSAGES / 2..MESSAGES), CODECS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // The journal first, so that messages are in flight at each fault.
    let config = source(folder.path(), &broker.address, TOPIC, "");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    until_head(&gateway, MESSAGES).await;
    assert!(gateway.stop().success());
    let lines = format!(
        "[subscriptions.index]\ndelivery = \"kafka\"\nstart = \"beginning\"\nformat = \"json\"\nbrokers = \"{}\"\n\
         topic = \"{CHANGES}\"\nwindow = 40\ncompression = \"lz4\"\n",
        broker.address
    );
    let config = source(folder.path(), &broker.address, TOPIC, &lines);
    let mut gateway = Gateway::start_with(&data, &["--config", &config]);
    let proxy: &BreakableProxy = broker.proxy();
    for step in 1..=9 {
        let reached = step * MESSAGES / 11;
        let is_there = |shown: &Value| shown["cursor"].as_u64().is_some_and(|cursor| cursor >= reached);
        gateway.until("index", "the cursor moves", is_there).await;
        match step {
            3 | 6 => {
                gateway.kill();
                gateway = Gateway::start_with(&data, &["--config", &config]);
            }
            2 | 5 | 8 => {
                // The requests that are in flight when the connections end do not arrive.
                proxy.set_link(Link::Silent);
                until_still(&gateway).await;
                proxy.set_link(Link::Refusing);
                gateway.until("index", "the loss is noticed", |shown| shown["state"] == "retrying").await;
                proxy.set_link(Link::Open);
            }
            _ => proxy.reset(),
        }
    }
    gateway.until_at("index", MESSAGES).await;
    let received = assert_delivered(&gateway, &broker).await;
    assert!(received as u64 >= MESSAGES);
    assert!(gateway.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_waits_for_the_confirmations() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 1).await;
    broker.create_topic(CHANGES, 2).await;
    broker.publish(TOPIC, 0, events(0..2000), CODECS[4]).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "[subscriptions.index]\ndelivery = \"kafka\"\nstart = \"beginning\"\nformat = \"json\"\nbrokers = \"{}\"\n\
         topic = \"{CHANGES}\"\n",
        broker.address
    );
    let config = source(folder.path(), &broker.address, TOPIC, &lines);
    let data = folder.path().join("data");
    for head in [300, 2000] {
        let gateway = Gateway::start_with(&data, &["--config", &config]);
        until_head(&gateway, head).await;
        if head == 2000 {
            gateway.until_at("index", head).await;
            let received = assert_delivered(&gateway, &broker).await;
            assert_eq!(received, 2000, "nothing was sent twice");
        }
        assert!(gateway.stop().success());
    }
}
