//! Topics that have changed while they were not read: messages that the cluster has removed, and a topic that was made again.

use serde_json::Value;

use crate::support::{
    amqp_source::{connection, events, numbers, until, until_head},
    gateway::Gateway,
    kafka::{Broker, CODECS, start},
    kafka_mock::MockCluster,
};

const TOPIC: &str = "tests.events";

/// Waits until the source shows a warning.
async fn until_warning(gateway: &Gateway) -> String {
    until(gateway, "there is a warning", async || match &connection(gateway).await["warning"] {
        Value::String(warning) => Some(warning.clone()),
        _ => None,
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_messages_are_reported_and_the_source_continues() {
    let mut cluster = MockCluster::start(3);
    cluster.publish(TOPIC, 0, events(0..100));
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &cluster.brokers, TOPIC, "");
    until_head(&gateway, 100).await;
    assert!(gateway.stop_when_connected().await);
    // More than a partition keeps.
    cluster.publish(TOPIC, 0, events(100..12_000));
    let gateway = start(folder.path(), &cluster.brokers, TOPIC, "");
    let warning = until_warning(&gateway).await;
    let lost =
        warning.strip_prefix("the cluster has removed ").and_then(|rest| rest.split_once(" messages of partition 0"));
    let lost: u64 = lost.unwrap_or_else(|| panic!("{warning}")).0.parse().unwrap();
    assert!(warning.contains(&format!("(offsets 100 to {})", 99 + lost)), "{warning}");
    until_head(&gateway, 12_000 - lost).await;
    assert!(numbers(&gateway).await.into_iter().eq((0..100).chain(100 + lost..12_000)), "{warning}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_that_was_made_again_is_read_from_its_beginning() {
    let mut cluster = MockCluster::start(3);
    for partition in 0..4 {
        let first = u64::try_from(partition).unwrap() * 25;
        cluster.publish(TOPIC, partition, events(first..first + 25));
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &cluster.brokers, TOPIC, "");
    until_head(&gateway, 100).await;
    assert!(gateway.stop_when_connected().await);
    // A new cluster has nothing of the old one.
    let mut cluster = MockCluster::start(1);
    cluster.publish(TOPIC, 2, events(100..110));
    // "latest" does not count for a topic that was read before.
    let gateway = start(folder.path(), &cluster.brokers, TOPIC, "start = \"latest\"");
    let warning = until_warning(&gateway).await;
    assert!(warning.contains("of tests.events ends before the offset 25 that was read"), "{warning}");
    until_head(&gateway, 110).await;
    let mut found = numbers(&gateway).await;
    found.sort_unstable();
    assert!(found.into_iter().eq(0..110));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_reading_can_begin_at_a_time() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 1).await;
    broker.publish(TOPIC, 0, events(0..50), CODECS[0]).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let time = chrono::Utc::now().to_rfc3339();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    broker.publish(TOPIC, 0, events(50..60), CODECS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, &format!("start = \"{time}\""));
    until_head(&gateway, 10).await;
    assert!(numbers(&gateway).await.into_iter().eq(50..60));
}
