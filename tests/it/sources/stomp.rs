//! STOMP source with ActiveMQ: messages of a queue, a durable topic subscription or a virtual topic enter the
//! journal once and in order, and an unreadable message is quarantined without delaying others.

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;

use crate::support::{
    activemq::{Broker, COMPOSED, COPIED},
    amqp_source::{SOURCE, connection, events, numbers, until, until_head, until_state},
    gateway::Gateway,
    journal_fixture::event,
    small_disk::SmallDisk,
    stomp_client::Client,
    stomp_source::{source, start, start_with},
};

/// Panics unless every message of the queue is acknowledged: the queue is empty after the gateway has stopped.
fn assert_nothing_is_left(gateway: Gateway, client: &mut Client, queue: &str) {
    assert!(gateway.stop().success());
    assert_eq!(client.browse(queue).len(), 0);
}

#[tokio::test]
async fn messages_become_changes_in_order_and_duplicates_none() {
    let broker = Broker::shared();
    for acknowledge in ["cumulative", "individual"] {
        let queue = format!("/queue/{}", broker.name());
        let folder = tempfile::tempdir().unwrap();
        let lines = format!("acknowledge = \"{acknowledge}\"\nprefetch = 300");
        let gateway = start(folder.path(), &broker.url(), &queue, &lines);
        until_state(&gateway, "connected").await;
        let mut client = Client::connect(broker.port);
        client.send_all(&queue, &[], events(1..=2000));
        until_head(&gateway, 2000).await;
        assert_eq!(numbers(&gateway).await, (1..=2000).collect::<Vec<_>>());
        let ready = gateway.json("/readyz").await;
        let expected = json!({
            "status": "ready", "head": 2000, "sources": [{ "name": SOURCE, "state": "connected" }],
        });
        assert_eq!(ready, expected);
        assert_nothing_is_left(gateway, &mut client, &queue);
    }
}

#[tokio::test]
async fn acknowledgement_reaches_the_last_message_with_prefetch_one() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.url(), &queue, "prefetch = 1");
    let mut client = Client::connect(broker.port);
    client.send_all(&queue, &[], events(1..=50));
    until_head(&gateway, 50).await;
    assert_eq!(numbers(&gateway).await, (1..=50).collect::<Vec<_>>());
    assert_nothing_is_left(gateway, &mut client, &queue);
}

#[tokio::test]
async fn durable_and_virtual_topics_retain_messages_during_a_stop() {
    let broker = Broker::shared();
    let mut client = Client::connect(broker.port);
    let (topic, name) = (format!("/topic/{}", broker.name()), broker.name());
    let virtual_topic = broker.name();
    let consumed = format!("/queue/Consumer.tidings.VirtualTopic.{virtual_topic}");
    let durable = format!("durable = \"{name}\"");
    for (sent_to, read, lines) in
        [(topic.clone(), topic, durable.as_str()), (format!("/topic/VirtualTopic.{virtual_topic}"), consumed, "")]
    {
        let folder = tempfile::tempdir().unwrap();
        let begin = || start(folder.path(), &broker.url(), &read, lines);
        let gateway = begin();
        until_state(&gateway, "connected").await;
        client.send_all(&sent_to, &[], events(1..=20));
        until_head(&gateway, 20).await;
        assert!(gateway.stop().success());
        client.send_all(&sent_to, &[], events(21..=500));
        let mut gateway = begin();
        until_head(&gateway, 500).await;
        client.send_all(&sent_to, &[], events(501..=520));
        until_head(&gateway, 520).await;
        gateway.kill();
        client.send_all(&sent_to, &[], events(521..=540));
        let gateway = begin();
        until_head(&gateway, 540).await;
        assert_eq!(numbers(&gateway).await, (1..=540).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn queue_copy_leaves_the_original_to_its_reader() {
    let broker = Broker::shared();
    let mut client = Client::connect(broker.port);
    let (composed, copied) = (format!("/queue/{COMPOSED}"), format!("/queue/{COPIED}"));
    // The copy has no other reader.
    client.send_all(&composed, &[], events(1..=50));
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.url(), &copied, "");
    until_head(&gateway, 50).await;
    assert_eq!(client.browse(&composed).len(), 50);
    assert_nothing_is_left(gateway, &mut client, &copied);
}

#[tokio::test]
async fn topic_without_durable_subscription_logs_a_warning() {
    let broker = Broker::shared();
    let topic = format!("/topic/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.url(), &topic, "");
    until_state(&gateway, "connected").await;
    Client::connect(broker.port).send_all(&topic, &[], events(1..=3));
    until_head(&gateway, 3).await;
    assert!(gateway.stop().success());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("the subscription is not durable"), "{log}");
}

#[tokio::test]
async fn unreadable_messages_are_quarantined_with_their_destination() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.url(), &queue, "");
    until_state(&gateway, "connected").await;
    let mut client = Client::connect(broker.port);
    let gzip = |body: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    };
    let good = event(1).to_string();
    let (large, huge) = (vec![b'x'; 10 << 20], vec![b'x'; (16 << 20) + 1]);
    let gzipped = [("content-encoding", "gzip")];
    for (headers, body, size, told) in [
        (&[][..], &b"{ \"object\": "[..], None, "line 1"),
        (&[], b"\0{\0}\0", None, "neither an Atom feed nor a JSON object"),
        (&[], &large, None, "it has 10485760 bytes, and limits.body_bytes is 4194304"),
        (&[], &huge, Some(0), "its body of 16777217 bytes was dropped"),
        (&gzipped, &gzip(&large), None, "inflate to more, and limits.body_bytes is 4194304"),
        (&gzipped, good.as_bytes(), None, "the body does not match its content encoding \"gzip\""),
    ] {
        let before = gateway.json("/quarantine").await["messages"].as_array().unwrap().len();
        client.send_all(&queue, headers, [body]);
        let quarantined = until(&gateway, "the message is quarantined", async || {
            let all = gateway.json("/quarantine").await["messages"].as_array().unwrap().clone();
            (all.len() > before).then(|| all[0].clone())
        })
        .await;
        let reason = format!("{}: {}", quarantined["place"].as_str().unwrap(), quarantined["reason"].as_str().unwrap());
        assert!(reason.contains(told), "{reason}");
        assert_eq!(quarantined["size"], size.unwrap_or(body.len()), "the quarantine preserves the body");
        let details = gateway.json(&format!("/quarantine/{}", quarantined["id"])).await;
        assert!(details["headers"].to_string().contains(&queue), "{details:#}");
    }
    client.send_all(&queue, &gzipped, [gzip(good.as_bytes())]);
    client.send_all(&queue, &[("content-encoding", "utf-8")], [event(2).to_string()]);
    until_head(&gateway, 2).await;
    assert_eq!(numbers(&gateway).await, [1, 2]);
    assert_nothing_is_left(gateway, &mut client, &queue);
}

#[tokio::test]
async fn headers_reach_the_dialect_unescaped() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start_with(folder.path(), &broker.url(), &queue, "fedora-events", "");
    // Fedora 4.5 sends messages without a body.
    let headers = [
        ("org.fcrepo.jms.baseURL", "http://localhost:8080/rest"),
        ("org.fcrepo.jms.eventType", "http://fedora.info/definitions/v4/repository#NODE_ADDED"),
        ("org.fcrepo.jms.identifier", "/a/b:c"),
        ("org.fcrepo.jms.timestamp", "1428360320168"),
        ("org.fcrepo.jms.user", "back\\slash:\n"),
    ];
    Client::connect(broker.port).send_all(&queue, &headers, [""]);
    until_head(&gateway, 1).await;
    let change = &gateway.changes().await[0];
    assert_eq!(change["object"], "http://localhost:8080/rest/a/b:c", "{change:#}");
    assert_eq!(change["items"][0]["change"], "ADD");
    assert_eq!(change["user"]["name"], "back\\slash:");
    assert_eq!(change["time"], "2015-04-06T22:45:20.168Z");
}

#[tokio::test]
async fn identical_messages_make_two_changes() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start_with(folder.path(), &broker.url(), &queue, "islandora", "");
    // Messages of Islandora have neither an identifier nor a time.
    let body = fs::read_to_string(crate::support::fixtures::folder("islandora").join("node-update.json")).unwrap();
    let mut client = Client::connect(broker.port);
    client.send_all(&queue, &[], [&body; 3]);
    until_head(&gateway, 3).await;
    assert_nothing_is_left(gateway, &mut client, &queue);
}

#[tokio::test]
async fn full_disk_pauses_the_stomp_source_until_there_is_room() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let (folder, disk) = (tempfile::tempdir().unwrap(), SmallDisk::of(24));
    let config = source(folder.path(), &broker.url(), &queue, "content-change", "prefetch = 40");
    let gateway = Gateway::start_with(&disk.path().join("data"), &["--config", &config]);
    until_state(&gateway, "connected").await;
    let mut client = Client::connect(broker.port);
    let filling = disk.fill();
    let mut sent = 0;
    // Events are still accepted while the existing files have free space.
    let paused = loop {
        client.send_all(&queue, &[], events(sent + 1..=sent + 100));
        sent += 100;
        let taken_or_paused = until(&gateway, "they are taken or the source is paused", async || {
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
    let readiness = gateway.http.get(format!("{}/readyz", gateway.url)).send().await.unwrap();
    assert_eq!(readiness.status(), 503);
    // Acknowledged messages are in the journal, and all others are with the broker.
    let head = gateway.head().await;
    assert!(client.browse(&queue).len() as u64 >= sent - head);
    fs::remove_file(filling).unwrap();
    until_state(&gateway, "connected").await;
    until_head(&gateway, sent).await;
    assert_eq!(numbers(&gateway).await, (1..=sent).collect::<Vec<_>>());
    assert_nothing_is_left(gateway, &mut client, &queue);
}
