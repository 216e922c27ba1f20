//! AMQP source: the messages of a queue enter the journal once and in order, across kills and stops, and an
//! unreadable message is quarantined without delaying others.

use std::{
    fs,
    io::Write,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use lapin::BasicProperties;
use serde_json::{Value, json};

use crate::support::{
    amqp_source::{
        EXCHANGE, QUEUE, SOURCE, connection, events, numbers, source, start, until, until_head, until_state,
    },
    gateway::{Gateway, PATIENCE},
    journal_fixture::{event, journal_file, verify_ok},
    rabbitmq::{Broker, Client},
    small_disk::SmallDisk,
};

fn persistent() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

async fn counts(gateway: &Gateway) -> Value {
    let sources = gateway.json("/sources").await;
    let all = sources["sources"].as_array().unwrap();
    all.iter().find(|source| source["name"] == SOURCE).unwrap()["messages"].clone()
}

/// Panics unless every message of the queue is acknowledged: no message is ready after the gateway has stopped.
async fn assert_nothing_is_left(gateway: Gateway, client: &Client) {
    assert!(gateway.stop().success());
    assert_eq!(client.waiting(QUEUE).await, 0);
}

#[tokio::test]
async fn messages_become_changes_in_order_and_duplicates_none() {
    for kind in ["quorum", "classic"] {
        let vhost = Broker::shared().vhost();
        let folder = tempfile::tempdir().unwrap();
        let lines = format!("queue_type = \"{kind}\"\nbindings = [\"events.*\"]\nprefetch = 300");
        let gateway = start(folder.path(), &vhost.url(), &lines);
        until_state(&gateway, "connected").await;
        let client = vhost.client().await;
        client.publish_all(EXCHANGE, "events.new", events(1..=2000), &persistent()).await;
        until_head(&gateway, 2000).await;
        assert_eq!(numbers(&gateway).await, (1..=2000).collect::<Vec<_>>());
        client.publish_all(EXCHANGE, "events.new", events(1..=100), &persistent()).await;
        until(&gateway, "duplicates were accepted", async || {
            (counts(&gateway).await["duplicate"] == 100).then_some(())
        })
        .await;
        assert_eq!(
            counts(&gateway).await,
            json!({ "accepted": 2000, "duplicate": 100, "unchanged": 0, "quarantined": 0 })
        );
        let ready = gateway.json("/readyz").await;
        assert_eq!(
            ready,
            json!({
                "status": "ready", "head": 2000, "sources": [{ "name": SOURCE, "state": "connected" }],
            })
        );
        assert_nothing_is_left(gateway, &client).await;
        client.close().await;
    }
}

#[tokio::test]
async fn acknowledgement_reaches_the_last_message_with_prefetch_one() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url(), "prefetch = 1");
    until_state(&gateway, "connected").await;
    let client = vhost.client().await;
    client.publish_all(EXCHANGE, "a", events(1..=50), &persistent()).await;
    until_head(&gateway, 50).await;
    assert_eq!(numbers(&gateway).await, (1..=50).collect::<Vec<_>>());
    assert_nothing_is_left(gateway, &client).await;
}

#[tokio::test]
async fn unreadable_messages_are_quarantined_with_their_routing_key() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url(), "");
    until_state(&gateway, "connected").await;
    let client = vhost.client().await;
    let gzip = |body: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    };
    let json = || persistent().with_content_type("application/json".into());
    let gzipped = || json().with_content_encoding("gzip".into());
    let good = event(1).to_string();
    let huge = vec![b'x'; 10 << 20];
    for (properties, body, told) in [
        (json(), &b"{ \"object\": "[..], "line 1"),
        (json(), b"{ \"object\": 7, \"items\": [] }", "/object"),
        (json(), b"", ""),
        (json(), b"\xff\xfe", "UTF-16"),
        (json(), &huge, "it has 10485760 bytes, and limits.body_bytes is 4194304"),
        (gzipped(), &gzip(&huge), "inflate to more, and limits.body_bytes is 4194304"),
        (gzipped(), good.as_bytes(), "the body does not match its content encoding \"gzip\""),
        (json().with_content_encoding("br".into()), good.as_bytes(), "the content encoding \"br\" is not supported"),
    ] {
        let before = gateway.json("/quarantine").await["messages"].as_array().unwrap().len();
        client.publish_with(EXCHANGE, "odd.one", body, properties).await;
        let quarantined = until(&gateway, "the message is quarantined", async || {
            let all = gateway.json("/quarantine").await["messages"].as_array().unwrap().clone();
            (all.len() > before).then(|| all[0].clone())
        })
        .await;
        let reason = format!("{}: {}", quarantined["place"].as_str().unwrap(), quarantined["reason"].as_str().unwrap());
        assert!(reason.contains(told), "{reason}");
        assert_eq!(quarantined["source"], SOURCE);
        assert_eq!(quarantined["size"], body.len(), "the quarantine preserves the body");
        let details = gateway.json(&format!("/quarantine/{}", quarantined["id"])).await;
        let headers = details["headers"].to_string();
        assert!(headers.contains("odd.one") && headers.contains(EXCHANGE), "{details:#}");
    }
    client.publish_with(EXCHANGE, "a", gzip(good.as_bytes()), gzipped()).await;
    client.publish_with(EXCHANGE, "a", event(2).to_string(), json().with_content_encoding("utf-8".into())).await;
    until_head(&gateway, 2).await;
    assert_eq!(numbers(&gateway).await, [1, 2]);
    assert_nothing_is_left(gateway, &client).await;
}

#[tokio::test]
async fn message_id_identifies_duplicates() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url(), "");
    until_state(&gateway, "connected").await;
    let client = vhost.client().await;
    for (id, number) in [("a", 1), ("b", 2), ("a", 3)] {
        let properties = persistent().with_message_id(id.into());
        let mut event = event(number);
        event["object"] = "http://localhost/objects/1".into();
        event["sourceEventId"] = Value::Null;
        client.publish_with(EXCHANGE, "a", event.to_string(), properties).await;
    }
    until(&gateway, "the duplicate was accepted", async || (counts(&gateway).await["duplicate"] == 1).then_some(()))
        .await;
    assert_eq!(numbers(&gateway).await, [1, 2]);
    assert_nothing_is_left(gateway, &client).await;
}

#[tokio::test]
async fn full_disk_pauses_the_source_until_there_is_room() {
    crate::support::needs_sqlite();
    let vhost = Broker::shared().vhost();
    let (folder, disk) = (tempfile::tempdir().unwrap(), SmallDisk::of(24));
    let config = source(folder.path(), &vhost.url(), "prefetch = 40");
    let gateway = Gateway::start_with(&disk.path().join("data"), &["--config", &config]);
    until_state(&gateway, "connected").await;
    let client = vhost.client().await;
    let mut sent = 0;
    for _ in 0..2 {
        client.publish_all(EXCHANGE, "a", events(sent + 1..=sent + 100), &persistent()).await;
        sent += 100;
        until_head(&gateway, sent).await;
        let filling = disk.fill();
        client.publish(EXCHANGE, "a", "no JSON").await;
        // Events are still accepted while the existing files have free space.
        let paused = loop {
            client.publish_all(EXCHANGE, "a", events(sent + 1..=sent + 100), &persistent()).await;
            sent += 100;
            let taken_or_paused = until(&gateway, "they are taken or the queue is paused", async || {
                let connection = connection(&gateway).await;
                let head = gateway.head().await;
                (connection["state"] == "stalled" || head == sent).then_some(connection)
            });
            let connection = taken_or_paused.await;
            if connection["state"] == "stalled" {
                break connection;
            }
        };
        let reason = paused["lastError"]["reason"].as_str().unwrap();
        assert!(reason.contains("the disk is full; free some space on the disk of the journal"), "{reason}");
        assert!(paused["nextAttempt"].is_string());
        client.publish_all(EXCHANGE, "a", events(sent + 1..=sent + 100), &persistent()).await;
        sent += 100;
        // The gateway has taken no more messages than the prefetch; the rest is ready in the queue.
        // Acknowledged messages are in the journal.
        let waiting = u64::from(client.waiting(QUEUE).await);
        let head = gateway.head().await;
        assert!(waiting + 40 >= sent - head, "{waiting} wait, {head} of {sent} are in the journal");
        fs::remove_file(filling).unwrap();
        until_state(&gateway, "connected").await;
        until_head(&gateway, sent).await;
        assert_eq!(numbers(&gateway).await, (1..=sent).collect::<Vec<_>>());
        until(&gateway, "the queue is empty", async || (client.waiting(QUEUE).await == 0).then_some(())).await;
    }
    until(&gateway, "what is no event is kept", async || (counts(&gateway).await["quarantined"] == 2).then_some(()))
        .await;
    assert_nothing_is_left(gateway, &client).await;
    assert_eq!(verify_ok(&journal_file(&disk.path().join("data"))).changes, sent);
}

#[tokio::test]
async fn gateway_stop_or_kill_leaves_unread_messages_in_the_queue() {
    crate::support::needs_sqlite();
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let client = vhost.client().await;
    client.exchange(EXCHANGE).await;
    client.queue(QUEUE, "quorum").await;
    client.bind(QUEUE, EXCHANGE, "#").await;
    client.publish_all(EXCHANGE, "a", events(1..=6000), &persistent()).await;
    let gateway = start(folder.path(), &vhost.url(), "");
    until_head(&gateway, 300).await;
    assert!(gateway.stop().success());
    let stored: u32 = rusqlite::Connection::open(journal_file(&folder.path().join("data")))
        .and_then(|journal| journal.query_row("SELECT max(seq) FROM changes", [], |row| row.get(0)))
        .unwrap();
    // The stopped gateway has acknowledged all messages that it took. The broker may need some time to count
    // the rest again.
    let began = Instant::now();
    while client.waiting(QUEUE).await != 6000 - stored {
        assert!(began.elapsed() < PATIENCE, "{stored} were taken, and {} are left", client.waiting(QUEUE).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for head in [1500, 2500, 3500] {
        let mut gateway = start(folder.path(), &vhost.url(), "");
        until_head(&gateway, head).await;
        gateway.kill();
    }
    let gateway = start(folder.path(), &vhost.url(), "");
    until_head(&gateway, 6000).await;
    let mut all = numbers(&gateway).await;
    let turns = all.windows(2).filter(|pair| pair[0] > pair[1]).count();
    // The broker redelivers unacknowledged messages of a killed gateway, possibly after later ones that the
    // next gateway got first.
    assert!(turns <= 4, "{turns} times an earlier event came after a later one");
    all.sort_unstable();
    assert_eq!(all, (1..=6000).collect::<Vec<_>>());
    assert_nothing_is_left(gateway, &client).await;
}

#[tokio::test]
async fn broker_stop_or_kill_is_followed_by_a_reconnect() {
    let mut broker = Broker::exclusive();
    let url = broker.vhost().url();
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &url, "");
    until_state(&gateway, "connected").await;
    for round in 0..3 {
        let client = Client::connect(&url).await;
        client.publish_all(EXCHANGE, "a", events(round * 1500 + 1..=round * 1500 + 1500), &persistent()).await;
        if round < 2 {
            broker.kill();
        } else {
            broker.stop();
        }
        let waiting = until_state(&gateway, "waiting").await;
        assert!(waiting["lastError"]["reason"].as_str().unwrap().contains("the broker"), "{waiting:#}");
        assert_eq!(gateway.json("/readyz").await["status"], "degraded");
        broker.start_again();
        until_head(&gateway, (round + 1) * 1500).await;
        until_state(&gateway, "connected").await;
        assert!(connection(&gateway).await["lastError"]["at"].is_string());
    }
    assert_eq!(numbers(&gateway).await, (1..=4500).collect::<Vec<_>>());
    let client = Client::connect(&url).await;
    assert_nothing_is_left(gateway, &client).await;
}
