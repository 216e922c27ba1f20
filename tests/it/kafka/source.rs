//! A source reads all partitions of its topics. Every message becomes one change, in order of its partition.

use serde_json::{Value, json};

use crate::support::{
    amqp_source::{connection, events, numbers, until, until_head, until_state},
    gateway::Gateway,
    journal_fixture::{event, journal_file, verify_ok},
    kafka::{Broker, CODECS, record, start},
};

const TOPIC: &str = "tests.events";

/// Panics unless the journal has the events with these numbers, each once.
async fn assert_numbers(gateway: &Gateway, expected: impl Iterator<Item = u64>) {
    let mut found = numbers(gateway).await;
    found.sort_unstable();
    assert_eq!(found, expected.collect::<Vec<_>>());
}

/// Waits until the source has read everything that the broker has.
async fn until_no_lag(gateway: &Gateway) {
    until(gateway, "the source has no lag", async || (connection(gateway).await["lag"] == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_every_codec_arrive_from_all_partitions_in_order() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 3).await;
    for (index, codec) in (0..).zip(CODECS) {
        for partition in 0..3 {
            let first = (index * 3 + u64::try_from(partition).unwrap()) * 200;
            broker.publish(TOPIC, partition, events(first..first + 200), codec).await;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "fetch_bytes = 65536");
    until_head(&gateway, 3000).await;
    assert_numbers(&gateway, 0..3000).await;
    let journaled = numbers(&gateway).await;
    for partition in 0..3 {
        let of_partition = journaled.iter().filter(|number| *number / 200 % 3 == partition);
        assert!(of_partition.is_sorted(), "the messages of partition {partition} are in order");
    }
    until_no_lag(&gateway).await;
    // Messages that arrive later are read without a new connection.
    broker.publish(TOPIC, 1, events(3000..3010), CODECS[4]).await;
    until_head(&gateway, 3010).await;
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tidings_connection_lag_messages{connection=\"sources.harvests\"}"), "{metrics}");
    assert!(gateway.stop_when_connected().await, "it stops cleanly");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_survive_a_restart_and_a_topic_begins_where_the_setting_says() {
    crate::support::needs_sqlite();
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 2).await;
    broker.publish(TOPIC, 0, events(0..300), CODECS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "start = \"latest\"");
    until_state(&gateway, "connected").await;
    // "latest" is recorded at once: messages that arrive while the gateway is away are read.
    assert!(gateway.stop().success());
    broker.publish(TOPIC, 0, events(300..310), CODECS[1]).await;
    broker.publish(TOPIC, 1, events(310..320), CODECS[0]).await;
    let gateway = start(folder.path(), &broker.address, TOPIC, "start = \"latest\"");
    until_head(&gateway, 20).await;
    assert!(gateway.stop_when_connected().await);
    // The setting counts only for topics that were never read.
    broker.publish(TOPIC, 0, events(320..330), CODECS[0]).await;
    let gateway = start(folder.path(), &broker.address, TOPIC, "start = \"earliest\"");
    until_head(&gateway, 30).await;
    until_no_lag(&gateway).await;
    assert_numbers(&gateway, 300..330).await;
    assert!(gateway.stop().success());
    assert_eq!(verify_ok(&journal_file(&folder.path().join("data"))).changes, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_messages_are_quarantined_and_tombstones_are_skipped() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 1).await;
    let partition = broker.partition(TOPIC, 0).await;
    let large = json!({ "object": "http://h/1", "description": "x".repeat(300_000) }).to_string().into_bytes();
    let mut with_headers = record(Some(event(2).to_string().into_bytes()));
    with_headers.key = Some(b"http://h/key".to_vec());
    with_headers.headers = [("content-type".to_owned(), b"application/json".to_vec())].into();
    let mut poison = record(Some(b"no JSON".to_vec()));
    poison.headers = [("Kafka.topic".to_owned(), b"forged".to_vec())].into();
    let records = vec![
        record(Some(event(1).to_string().into_bytes())),
        poison,
        record(None),
        record(Some(large)),
        with_headers,
        record(None),
    ];
    partition.produce(records, CODECS[2]).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config =
        crate::support::kafka::source(folder.path(), &broker.address, TOPIC, "\n[limits]\nbody_bytes = 200000");
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    until_head(&gateway, 2).await;
    until_no_lag(&gateway).await;
    assert_numbers(&gateway, 1..3).await;
    let quarantine = gateway.json("/quarantine").await;
    let messages = quarantine["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2, "{quarantine:#}");
    let reason = messages[0]["reason"].as_str().unwrap();
    assert!(reason.contains("and limits.body_bytes is 200000"), "{quarantine:#}");
    let poison = gateway.json(&format!("/quarantine/{}", messages[1]["id"])).await;
    let headers = poison["headers"].to_string();
    assert!(headers.contains(TOPIC) && headers.contains("kafka.offset") && !headers.contains("forged"), "{poison:#}");
    assert!(gateway.stop_when_connected().await);
    // Nothing of it is read again.
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    until_state(&gateway, "connected").await;
    broker.publish(TOPIC, 0, events(3..4), CODECS[0]).await;
    until_head(&gateway, 3).await;
    assert_eq!(gateway.json("/quarantine").await["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_librdkafka_arrive_in_order_of_their_keys() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 4).await;
    let messages: Vec<Value> = (0..1000)
        .map(|number| {
            let value = event(number).to_string();
            json!({ "topic": TOPIC, "value": value, "key": format!("key {}", number % 7), "headers": { "n": "1" } })
        })
        .collect();
    for (part, codec) in messages.chunks(250).zip(["gzip", "snappy", "lz4", "zstd"]) {
        broker.publish_with_librdkafka(part, codec);
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "");
    until_head(&gateway, 1000).await;
    assert_numbers(&gateway, 0..1000).await;
    let journaled = numbers(&gateway).await;
    for key in 0..7 {
        assert!(journaled.iter().filter(|number| *number % 7 == key).is_sorted(), "key {key} is in order");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_of_transactions_are_no_messages() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 1).await;
    let transaction = |numbers: std::ops::Range<u64>| {
        let values: Vec<_> = numbers.map(|number| event(number).to_string()).collect();
        json!({ "values": values })
    };
    broker.transact_with_librdkafka(TOPIC, &[transaction(0..3), transaction(3..6)]);
    broker.publish(TOPIC, 0, events(6..8), CODECS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "");
    until_head(&gateway, 8).await;
    until_no_lag(&gateway).await;
    assert_numbers(&gateway, 0..8).await;
    assert_eq!(gateway.json("/quarantine").await["messages"].as_array().unwrap().len(), 0);
}
