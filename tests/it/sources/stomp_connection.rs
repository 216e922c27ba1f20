//! Connections of the STOMP source: settings, versions, heart-beats, TLS, and errors that need an administrator.

use crate::sources::stomp_failures::{play, reason, sends, until_reported};
use std::{
    fs,
    time::{Duration, Instant},
};

use crate::support::{
    activemq::{Broker, PASSWORD, USER},
    amqp_source::{connection, events, until_head, until_state},
    fake_stomp_broker::{FakeStompBroker, Peer, scene},
    journal_fixture::event,
    stomp_client::{Client, frame},
    stomp_source::start,
};

#[tokio::test]
async fn heart_beats_detect_silence_and_go_both_ways() {
    let silent = scene(Peer::read_to_end);
    let quiet = scene(|peer| {
        peer.accept(&[("version", "1.2"), ("heart-beat", "1000,1000")]);
        // Two heart-beats of the gateway arrive before it gives up.
        assert_eq!((peer.next_byte(), peer.next_byte()), (Some(b'\n'), Some(b'\n')));
        peer.read_to_end();
    });
    let (_folder, _peer, gateway) = play(vec![silent, quiet, sends(1..=1)]);
    until_reported(&gateway, "the broker did not respond within 10 seconds when asked to open the connection").await;
    until_state(&gateway, "connected").await;
    until_reported(&gateway, "the broker sent nothing for 10 seconds, not even a heart-beat").await;
    until_head(&gateway, 1).await;
    let began = Instant::now();
    assert!(gateway.stop().success());
    assert!(began.elapsed() < Duration::from_secs(8), "stopping took {:?}", began.elapsed());
}

#[tokio::test]
async fn heart_beats_alone_keep_a_connection() {
    let beats = scene(|peer| {
        peer.accept(&[("version", "1.2"), ("heart-beat", "5000,0")]);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(12) {
            peer.send_bytes(b"\r\n");
            std::thread::sleep(Duration::from_millis(500));
        }
        peer.send("m1", &[], event(1).to_string().as_bytes());
        peer.read_to_end();
    });
    let (_folder, peer, gateway) = play(vec![beats]);
    until_head(&gateway, 1).await;
    assert!(connection(&gateway).await.get("lastError").is_none());
    assert_eq!(peer.received_frames("CONNECT", "heart-beat"), ["5000,5000"]);
}

#[tokio::test]
async fn settings_are_sent_to_the_broker() {
    let peer = FakeStompBroker::start(vec![sends(1..=50)]);
    let folder = tempfile::tempdir().unwrap();
    let lines = "durable = \"kept\"\nclient_id = \"me\"\nprefetch = 70\nacknowledge = \"individual\"";
    let gateway = start(folder.path(), &peer.url(), "/topic/t", lines);
    until_head(&gateway, 50).await;
    assert!(gateway.stop().success());
    assert_eq!(peer.received_frames("CONNECT", "client-id"), ["me"]);
    for (header, value) in [
        ("destination", "/topic/t"),
        ("ack", "client-individual"),
        ("activemq.prefetchSize", "70"),
        ("prefetch-count", "70"),
        ("activemq.subscriptionName", "kept"),
        ("durable-subscription-name", "kept"),
        ("id", "kept"),
    ] {
        assert_eq!(peer.received_frames("SUBSCRIBE", header), [value], "{header}");
    }
    let marks: Vec<_> = (1..=50).map(|number| format!("m{number}")).collect();
    assert_eq!(peer.received_frames("ACK", "id"), marks, "each message is acknowledged alone");
}

#[tokio::test]
async fn stomp_1_1_is_supported() {
    let older = scene(|peer| {
        peer.accept(&[("version", "1.1")]);
        let own = [("message-id", "ID:h:1"), ("subscription", "tidings"), ("destination", "/queue/q")];
        peer.send_bytes(&frame("MESSAGE", &own, event(1).to_string().as_bytes()));
        peer.read_to_end();
    });
    let (_folder, peer, gateway) = play(vec![older]);
    until_head(&gateway, 1).await;
    assert!(gateway.stop().success());
    assert_eq!(
        (peer.received_frames("ACK", "message-id"), peer.received_frames("ACK", "subscription")),
        (vec!["ID\\ch\\c1".into()], vec!["tidings".into()])
    );
    assert_eq!(peer.received_frames("CONNECT", "accept-version"), ["1.1,1.2"]);
}

#[tokio::test]
async fn activemq_errors_that_need_an_administrator_are_reported() {
    let broker = Broker::shared();
    let private = format!("/queue/private.{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let mut client = Client::connect(broker.port);
    client.send_all(&private, &[], events(1..=5));
    let url = |user: &str, password: &str| format!("stomp://{user}:{password}@127.0.0.1:{}", broker.port);
    for (url, message) in [
        (
            broker.url(),
            "the broker does not send the messages of the destination (User anonymous is not authorized to read",
        ),
        (url(USER, "wrong-word"), "the broker refused the gateway (User name [tidings] or password is invalid.)"),
    ] {
        let gateway = start(folder.path(), &url, &private, "");
        let waiting = until_state(&gateway, "waiting").await;
        assert!(reason(&waiting).contains(message), "{waiting:#}");
        assert_eq!(gateway.json("/readyz").await["status"], "degraded");
        assert!(gateway.stop().success());
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        assert!(log.contains("cannot read the source; retrying") && !log.contains("wrong-word"), "{log}");
    }
    let gateway = start(folder.path(), &url(USER, PASSWORD), &private, "");
    until_head(&gateway, 5).await;
}

#[tokio::test]
async fn client_id_in_use_is_reported_and_retried() {
    let broker = Broker::shared();
    let topic = format!("/topic/{}", broker.name());
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let durable = format!("durable = \"{}\"", broker.name());
    let first = start(one.path(), &broker.url(), &topic, &durable);
    until_state(&first, "connected").await;
    let second = start(other.path(), &broker.url(), &topic, &durable);
    let waiting = until_state(&second, "waiting").await;
    assert!(
        reason(&waiting).contains("another connection uses the client id or the durable subscription"),
        "{waiting:#}"
    );
    assert!(first.stop().success());
    until_state(&second, "connected").await;
}

#[tokio::test]
async fn tls_connects_only_with_a_trusted_certificate() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    Client::connect(broker.port).send_all(&queue, &[], events(1..=5));
    let folder = tempfile::tempdir().unwrap();
    let url = |scheme: &str| format!("{scheme}://localhost:{}", broker.tls_port);
    let gateway = start(folder.path(), &url("stomps"), &queue, "");
    let waiting = until_state(&gateway, "waiting").await;
    assert!(reason(&waiting).contains("no encrypted connection can be made"), "{waiting:#}");
    drop(gateway);
    let trusted = format!("ca = \"{}\"", broker.certificate().display());
    let gateway = start(folder.path(), &url("stomp+ssl"), &queue, &trusted);
    until_head(&gateway, 5).await;
}
