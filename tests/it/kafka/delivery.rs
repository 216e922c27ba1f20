//! A subscription publishes to a topic, as librdkafka sees it: keys, partitions, headers, order, and messages that are too
//! large.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    journal_fixture::{event, post},
    kafka::{Broker, subscription},
    subscription_fixture::gateway,
};

const TOPIC: &str = "tests.changes";

/// Returns a subscription `index` to the topic.
pub(super) fn index(broker: &Broker, more: &str) -> String {
    subscription("index", broker, TOPIC, more)
}

/// Posts events with these numbers.
async fn post_all(gateway: &Gateway, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        post(gateway, number).await;
    }
}

fn text<'a>(message: &'a Value, header: &str) -> &'a str {
    message["headers"][header].as_str().unwrap_or_else(|| panic!("{header} of {message:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_client_reads_messages_of_every_codec_by_key_and_in_order() {
    let broker = Broker::start().await;
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let mut lines = String::new();
    for codec in codecs {
        broker.create_topic(&format!("{TOPIC}.{codec}"), 3).await;
        let more = format!("compression = \"{codec}\"\nformat = \"json\"");
        lines += &subscription(codec, &broker, &format!("{TOPIC}.{codec}"), &more);
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &lines);
    post_all(&gateway, 0..250).await;
    let changes = gateway.changes().await;
    let mut partitions = BTreeMap::new();
    for codec in codecs {
        gateway.until_at(codec, 250).await;
        let received = broker.consume_with_librdkafka(&format!("{TOPIC}.{codec}"));
        assert_eq!(received.len(), 250, "{codec}");
        let mut last = BTreeMap::new();
        for message in &received {
            let value: Value = serde_json::from_str(message["value"].as_str().unwrap()).unwrap();
            let seq: u64 = text(message, "seq").parse().unwrap();
            let change = &changes[usize::try_from(seq).unwrap() - 1];
            assert_eq!(&value, change);
            assert_eq!(text(message, "message-id"), change["id"].as_str().unwrap());
            assert_eq!(text(message, "content-type"), "application/json");
            assert_eq!((text(message, "type"), text(message, "changes")), ("content-change", "ADD"));
            assert_eq!(message["key"], change["object"]);
            assert_eq!(text(message, "object"), change["object"].as_str().unwrap());
            assert!(
                last.insert(message["partition"].to_string(), seq).is_none_or(|last| last < seq),
                "{codec} is in order"
            );
            let key = message["key"].as_str().unwrap().to_owned();
            let partition = message["partition"].as_u64().unwrap();
            assert_eq!(*partitions.entry(key).or_insert(partition), partition, "an object has one partition");
        }
        assert_eq!(last.len(), 3, "all partitions are used");
    }
    // librdkafka and Java choose the same partitions.
    broker.create_topic("tests.partitioner", 3).await;
    let messages: Vec<_> =
        partitions.keys().map(|key| json!({ "topic": "tests.partitioner", "key": key, "value": "" })).collect();
    broker.publish_with_librdkafka(&messages, "none");
    let chosen = broker.consume_with_librdkafka("tests.partitioner").into_iter();
    let chosen =
        chosen.map(|message| (message["key"].as_str().unwrap().to_owned(), message["partition"].as_u64().unwrap()));
    assert_eq!(chosen.collect::<BTreeMap<_, _>>(), partitions);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn formats_bring_their_headers_and_routed_messages_their_keys() {
    let broker = Broker::start().await;
    for topic in ["a", "b", "c"] {
        broker.create_topic(topic, 1).await;
    }
    let lines = subscription("a", &broker, "a", "format = \"cloudevents-binary\"")
        + &subscription("b", &broker, "b", "format = \"hoarder\"")
        + &subscription("c", &broker, "c", "");
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &lines);
    post(&gateway, 1).await;
    for name in ["a", "b", "c"] {
        gateway.until_at(name, 1).await;
    }
    let change = &gateway.changes().await[0];
    let [cloud_event] = &broker.consume_with_librdkafka("a")[..] else { panic!() };
    assert_eq!(text(cloud_event, "ce_id"), change["id"].as_str().unwrap());
    assert_eq!(text(cloud_event, "ce_specversion"), "1.0");
    assert_eq!(text(cloud_event, "content-type"), "application/json");
    let routed = broker.consume_with_librdkafka("b");
    assert!(!routed.is_empty());
    for (index, message) in routed.iter().enumerate() {
        assert_eq!(text(message, "message-id"), format!("{}#{index}", change["id"].as_str().unwrap()));
        assert!(!text(message, "routing-key").is_empty() && !text(message, "resource").is_empty());
    }
    let [atom] = &broker.consume_with_librdkafka("c")[..] else { panic!() };
    assert!(text(atom, "content-type").starts_with("application/atom+xml"), "{atom:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_is_too_large_becomes_a_dead_letter() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 1).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &index(&broker, "max_message_bytes = 4096\nformat = \"json\""));
    post(&gateway, 1).await;
    let mut large = event(2);
    large["description"] = "x".repeat(5000).into();
    let (status, _) = gateway.post("content-change", "application/json", large.to_string()).await;
    assert_eq!(status, 201);
    post(&gateway, 3).await;
    gateway.until_at("index", 3).await;
    let received = broker.consume_with_librdkafka(TOPIC);
    assert_eq!(received.iter().map(|message| text(message, "seq")).collect::<Vec<_>>(), ["1", "3"]);
    let (_, letters) = gateway.ask("GET", "/subscriptions/index/dead-letters", None).await;
    let letters = letters.to_string();
    assert!(letters.contains("the maximum is 4096 (max_message_bytes"), "{letters}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_topic_is_shown_and_found_when_it_is_created() {
    let broker = Broker::start().await;
    let folder = tempfile::tempdir().unwrap();
    let gateway =
        gateway(folder.path(), &index(&broker, "sasl = \"scram-sha-256\"\nuser = \"me\"\npassword = \"hush-hush\""));
    let refused = "the broker refused the gateway (";
    let shown = gateway.until("index", "the error is shown", |shown| shown.to_string().contains(refused)).await;
    assert!(!shown.to_string().contains("hush-hush"), "{shown:#}");
    assert!(gateway.stop().success());
    let gateway = crate::support::subscription_fixture::gateway(folder.path(), &index(&broker, ""));
    let missing = "the cluster shows no topic";
    gateway.until("index", "the error is shown", |shown| shown.to_string().contains(missing)).await;
    broker.create_topic(TOPIC, 2).await;
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    let definition = json!({ "delivery": "kafka", "brokers": broker.address, "topic": TOPIC });
    let (status, problem) = gateway.ask("PUT", "/subscriptions/other", Some(definition)).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem.to_string().contains("define the subscription in the configuration file"), "{problem}");
}
