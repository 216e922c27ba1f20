//! Kills and lost connections: every message is in the journal exactly once, in order of its partition. Errors that an
//! administrator must fix are shown without secrets.

use std::fs;

use crate::support::{
    amqp_source::{events, numbers, until_head, until_state},
    breakable_proxy::Link,
    gateway::Gateway,
    journal_fixture::{journal_file, verify_ok},
    kafka::{Broker, CODECS, assert_no_repeats, source, start},
};

const TOPIC: &str = "tests.events";

/// Number of messages in each of the two partitions.
const MESSAGES: u64 = 4000;

async fn publish(broker: &Broker) {
    broker.create_topic(TOPIC, 2).await;
    broker.publish(TOPIC, 0, events(0..MESSAGES), CODECS[2]).await;
    broker.publish(TOPIC, 1, events(MESSAGES..2 * MESSAGES), CODECS[0]).await;
}

/// Panics unless the journal has each message once, in order of its partition.
async fn assert_complete(gateway: &Gateway) {
    let journaled = numbers(gateway).await;
    let (first, second): (Vec<u64>, Vec<u64>) = journaled.into_iter().partition(|number| *number < MESSAGES);
    assert!(first.into_iter().eq(0..MESSAGES), "partition 0 is complete and in order");
    assert!(second.into_iter().eq(MESSAGES..2 * MESSAGES), "partition 1 is complete and in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateway_reads_every_message_exactly_once() {
    crate::support::needs_sqlite();
    let broker = Broker::start().await;
    publish(&broker).await;
    let folder = tempfile::tempdir().unwrap();
    let config = source(folder.path(), &broker.address, TOPIC, "prefetch = 100\nfetch_bytes = 65536");
    let data = folder.path().join("data");
    let mut gateway = Gateway::start_with(&data, &["--config", &config]);
    for kill in 1..=6 {
        until_head(&gateway, kill * 2 * MESSAGES / 8).await;
        assert_no_repeats(&gateway).await;
        gateway.kill();
        gateway = Gateway::start_with(&data, &["--config", &config]);
    }
    until_head(&gateway, 2 * MESSAGES).await;
    assert_complete(&gateway).await;
    assert_no_repeats(&gateway).await;
    assert!(gateway.stop_when_connected().await);
    assert_eq!(verify_ok(&journal_file(&data)).changes, 2 * MESSAGES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_lose_and_repeat_nothing() {
    let broker = Broker::behind_proxy().await;
    publish(&broker).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "prefetch = 50\nfetch_bytes = 65536");
    for cut in 1..=8 {
        until_head(&gateway, cut * 2 * MESSAGES / 10).await;
        if cut == 4 {
            broker.proxy().set_link(Link::Refusing);
            until_state(&gateway, "waiting").await;
            broker.proxy().set_link(Link::Open);
        } else {
            broker.proxy().reset();
        }
    }
    until_head(&gateway, 2 * MESSAGES).await;
    assert_complete(&gateway).await;
    assert_no_repeats(&gateway).await;
    assert!(gateway.stop_when_connected().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_shown_without_the_password() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 1).await;
    let sasl = "sasl = \"plain\"\nuser = \"me\"\npassword = \"hush-hush\"";
    let closed = crate::support::gateway::free_address();
    let lines = |lines: &str| lines.to_owned();
    for (brokers, topic, lines, reason) in [
        (&broker.address, "tests.nothing", lines(""), "the cluster shows no topic \"tests.nothing\"; create it"),
        (&closed, TOPIC, lines(""), "no broker can be reached: "),
        // Tansu does not speak SASL to clients that are not configured for it.
        (&broker.address, TOPIC, lines(sasl), "the broker refused the gateway ("),
        (&broker.address, TOPIC, lines("tls = true"), "the broker did not respond within 15 seconds"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let gateway = start(folder.path(), brokers, topic, &lines);
        let connection = until_state(&gateway, "waiting").await;
        let shown = connection["lastError"]["reason"].as_str().unwrap();
        assert!(shown.starts_with(reason), "{shown}");
        assert!(gateway.stop().success());
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        assert!(log.contains("cannot read the source; retrying"), "{log}");
        assert!(!log.contains("hush-hush") && !shown.contains("hush-hush"));
    }
}
