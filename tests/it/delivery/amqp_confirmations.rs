//! A broker that refuses, stays silent or disconnects gets every message again from the first unconfirmed one
//! on, over a new channel, because the old channel may stay defective for its whole life.

use serde_json::{Value, json};

use crate::support::{
    fake_amqp_broker::{ChannelBehaviour, FakeAmqpBroker},
    gateway::Gateway,
    subscription_fixture::{gateway, index, post, post_event},
};

const MESSAGES: u64 = 5;

async fn published_to(broker: &FakeAmqpBroker, more: &str) -> (tempfile::TempDir, Gateway) {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &index(&broker.url(), &format!("format = \"json\"\n{more}")));
    for number in 1..=MESSAGES {
        post(&gateway, number).await;
    }
    (folder, gateway)
}

async fn tries_again(gateway: &Gateway) -> String {
    let status_json =
        gateway.until("index", "the subscription retries", |status_json| status_json["state"] == "retrying").await;
    status_json["lastError"]["reason"].as_str().unwrap().to_owned()
}

/// Makes new channels confirm, and waits until every message has arrived on them in order.
async fn arrives(broker: &FakeAmqpBroker, gateway: &Gateway) {
    let before = gateway.ask("GET", "/subscriptions/index", None).await.1["cursor"].as_u64().unwrap();
    assert_eq!(before, 0);
    broker.set_behaviour(ChannelBehaviour::Acks);
    gateway.until_at("index", MESSAGES).await;
    let seq = |body: &Value| body["seq"].as_u64().unwrap();
    assert_eq!(
        broker.published(ChannelBehaviour::Acks).iter().map(seq).collect::<Vec<_>>(),
        (1..=MESSAGES).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn channel_opened_without_a_queue_leader_is_replaced() {
    let broker = FakeAmqpBroker::start(ChannelBehaviour::Nacks);
    let (_folder, gateway) = published_to(&broker, "").await;
    let reason = tries_again(&gateway).await;
    assert!(reason.contains("could not accept it (nack)"), "{reason}");
    arrives(&broker, &gateway).await;
    assert!(!broker.published(ChannelBehaviour::Nacks).is_empty());
}

#[tokio::test]
async fn missing_confirmation_times_out() {
    let broker = FakeAmqpBroker::start(ChannelBehaviour::Silent);
    let (_folder, gateway) = published_to(&broker, "confirm_seconds = 1").await;
    let reason = tries_again(&gateway).await;
    assert!(reason.contains("confirmed nothing within 1 seconds"), "{reason}");
    arrives(&broker, &gateway).await;
    assert!(!broker.published(ChannelBehaviour::Silent).is_empty());
}

#[tokio::test]
async fn broken_connection_ends_the_wait_for_confirmations() {
    let broker = FakeAmqpBroker::start(ChannelBehaviour::Silent);
    // Automatic recovery of the connection would leave these confirmations pending for an hour.
    let (_folder, gateway) = published_to(&broker, "confirm_seconds = 3600").await;
    gateway
        .until("index", "all are on their way", |_| broker.published(ChannelBehaviour::Silent).len() as u64 == MESSAGES)
        .await;
    broker.cut();
    let reason = tries_again(&gateway).await;
    assert!(reason.contains("the connection to the broker"), "{reason}");
    arrives(&broker, &gateway).await;
}

#[tokio::test]
async fn large_message_may_take_as_long_as_a_confirmation() {
    let broker = FakeAmqpBroker::start(ChannelBehaviour::PausesReading);
    let folder = tempfile::tempdir().unwrap();
    let subscription = index(&broker.url(), "format = \"json\"\nconfirm_seconds = 600");
    let gateway = gateway(folder.path(), &format!("[limits]\nbody_bytes = 16777216\n{subscription}"));
    // More bytes than the sockets buffer while the broker does not read.
    let uri = |number| format!("http://h.example/{number}/{}", "x".repeat(1400));
    let items = (0..8000).map(|number| json!({ "uri": uri(number), "change": "ADD" })).collect::<Vec<_>>();
    post_event(&gateway, &json!({ "object": "http://h.example/large", "items": items })).await;
    let status_json = gateway.until_at("index", 1).await;
    assert_eq!(status_json["lastError"], Value::Null, "{status_json:#}");
    assert_eq!(broker.published(ChannelBehaviour::PausesReading).len(), 1);
}
