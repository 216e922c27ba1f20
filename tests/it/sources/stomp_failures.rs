//! STOMP peers that violate the protocol or do not speak it: the error is reported without the password, the
//! source reconnects for as long as necessary, and every correct message is journaled once.

use std::fs;

use serde_json::Value;

use crate::support::{
    amqp_source::{connection, numbers, until, until_head, until_state},
    fake_stomp_broker::{FakeStompBroker, Scene, V1_2, scene},
    gateway::Gateway,
    journal_fixture::event,
    stomp_client::frame,
    stomp_source::{start, start_with},
};

/// Returns a scene that accepts the gateway, sends the events with these numbers, and reads until the gateway
/// disconnects.
pub(crate) fn sends(numbers: impl IntoIterator<Item = u64> + Clone + Send + 'static) -> Scene {
    scene(move |peer| {
        peer.accept(&V1_2);
        for number in numbers.clone() {
            peer.send(&format!("m{number}"), &[], event(number).to_string().as_bytes());
        }
        peer.read_to_end();
    })
}

pub(crate) fn reason(connection: &Value) -> &str {
    connection["lastError"]["reason"].as_str().unwrap_or_default()
}

/// Starts a gateway against a fake broker with these scenes. The caller stops the gateway.
pub(crate) fn play(scenes: Vec<Scene>) -> (tempfile::TempDir, FakeStompBroker, Gateway) {
    let (folder, peer) = (tempfile::tempdir().unwrap(), FakeStompBroker::start(scenes));
    let gateway = start(folder.path(), &peer.url(), "/queue/q", "");
    (folder, peer, gateway)
}

/// Waits until the source has reported an error with that text.
pub(crate) async fn until_reported(gateway: &Gateway, message: &str) {
    until(gateway, message, async || reason(&connection(gateway).await).contains(message).then_some(())).await;
}

#[tokio::test]
async fn non_stomp_bytes_are_reported_and_the_next_connection_works() {
    let broken: [(&[u8], &str); 6] = [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "the response is not STOMP: a frame begins with \"HTTP/1.1 400 Bad Request\"",
        ),
        (b"\x15\x03\x01\0\x02\x02\x28\n\n", "the response is not STOMP"),
        (b"CONNECTED\nno colon here\n\n\0", "a header has no colon"),
        (b"CONNECTED\nversion:1.2\ncontent-length:x\n\n\0", "the content-length of a frame is no number"),
        (b"CONNECTED\nversion:1.2\ncontent-length:2\n\nabc\0", "a frame does not end where its content-length says"),
        (b"CONNECTED\nsession:1\n\n\0", "the broker speaks STOMP 1.0 and neither 1.1 nor 1.2"),
    ];
    for (octets, message) in broken {
        let first = scene(move |peer| {
            peer.next_frame();
            peer.send_bytes(octets);
            peer.read_to_end();
        });
        let (_folder, _peer, gateway) = play(vec![first]);
        let waiting = until_state(&gateway, "waiting").await;
        assert!(reason(&waiting).contains(message), "{waiting:#}");
    }
    let long = scene(|peer| {
        peer.next_frame();
        peer.send_bytes(b"CONNECTED\n");
        (0..10_000).for_each(|number| peer.send_bytes(format!("h{number}:{number}\n").as_bytes()));
        peer.read_to_end();
    });
    let (_folder, _peer, gateway) = play(vec![long]);
    until_reported(&gateway, "the headers of a frame have more than 65536 bytes").await;
}

#[tokio::test]
async fn long_headers_quarantine_the_message_and_the_next_one_is_read() {
    let long = scene(|peer| {
        peer.accept(&V1_2);
        let headers: String = (0..8).map(|number| format!("h{number}:{}\n", "x".repeat(9000))).collect();
        peer.send_bytes(format!("MESSAGE\n{headers}destination:/queue/q\nack:long\n\n{}\0", event(7)).as_bytes());
        peer.send("m1", &[], event(1).to_string().as_bytes());
        peer.read_to_end();
    });
    let (_folder, peer, gateway) = play(vec![long]);
    until_head(&gateway, 1).await;
    let quarantined = until(&gateway, "the message is quarantined", async || {
        let quarantined = gateway.json("/quarantine").await["messages"][0].clone();
        quarantined["reason"].as_str().map(str::to_owned)
    })
    .await;
    assert!(quarantined.starts_with("its headers have 72"), "{quarantined}");
    until(&gateway, "both are acknowledged", async || {
        peer.received_frames("ACK", "id").last().is_some_and(|id| id == "m1").then_some(())
    })
    .await;
    assert_eq!(connection(&gateway).await["lastError"], Value::Null);
}

#[tokio::test]
async fn jms_text_is_decoded_from_modified_utf8() {
    // ActiveMQ encodes U+1F600 in a TextMessage as two surrogates of three bytes each.
    let (before, after) =
        ("{\"object\":\"http://h/1\",\"items\":[{\"uri\":\"http://h/1/", "\",\"change\":\"ADD\"}],\"description\":\"");
    let body = [before.as_bytes(), b"1", after.as_bytes(), b"\xED\xA0\xBD\xED\xB8\x80\"}"].concat();
    let jms = scene(move |peer| {
        peer.accept(&V1_2);
        peer.send("m1", &[], &body);
        peer.read_to_end();
    });
    let (_folder, _peer, gateway) = play(vec![jms]);
    until_head(&gateway, 1).await;
    assert_eq!(gateway.changes().await[0]["description"], "\u{1F600}");
}

#[tokio::test]
async fn prefetch_drops_to_one_after_an_unreadable_frame() {
    let bad = || {
        scene(|peer| {
            peer.accept(&V1_2);
            peer.send_bytes(b"MESSAGE\nno colon\n\n\0");
            peer.read_to_end();
        })
    };
    let good = scene(|peer| {
        peer.accept(&V1_2);
        for number in 1..=4 {
            peer.send(&format!("m{number}"), &[], event(number).to_string().as_bytes());
            assert_eq!(peer.next_frame().as_deref(), Some("ACK"));
        }
        peer.read_to_end();
    });
    let (folder, peer) =
        (tempfile::tempdir().unwrap(), FakeStompBroker::start(vec![bad(), bad(), bad(), bad(), good, sends(5..=5)]));
    let gateway = start(folder.path(), &peer.url(), "/queue/q", "prefetch = 3");
    let expected = "a frame of the broker cannot be read: a header has no colon; messages are read one at a time now, and the \
                    first one of /queue/q may be the cause: the journal ended with change 0";
    until_reported(&gateway, expected).await;
    until_head(&gateway, 5).await;
    assert_eq!(numbers(&gateway).await, [1, 2, 3, 4, 5]);
    assert!(gateway.stop().success());
    assert_eq!(peer.received_frames("SUBSCRIBE", "prefetch-count"), ["3", "1", "1", "1", "1", "3"]);
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let warned = log.lines().filter(|line| line.contains("WARN") && line.contains("cannot read the source; retrying"));
    assert_eq!(warned.count(), 2, "one line for each trouble, and one message at a time is another: {log}");
    assert!(log.contains("reading the source again"), "{log}");
}

#[tokio::test]
async fn connection_cut_within_a_frame_is_restored_and_the_message_counts_once() {
    let cut = |at: usize| {
        scene(move |peer| {
            peer.accept(&V1_2);
            peer.send("m1", &[], event(1).to_string().as_bytes());
            let mut message = frame("MESSAGE", &[("ack", "m2")], event(2).to_string().as_bytes());
            message.truncate(at.min(message.len() - 1));
            peer.send_bytes(&message);
            // Complete messages are acknowledged before the connection ends.
            assert_eq!(peer.next_frame().as_deref(), Some("ACK"));
        })
    };
    let (_folder, peer, gateway) = play(vec![cut(3), cut(12), cut(100), cut(usize::MAX), sends(1..=3)]);
    until_reported(&gateway, "the broker closed it within a frame").await;
    until_head(&gateway, 3).await;
    assert_eq!(numbers(&gateway).await, [1, 2, 3]);
    assert!(gateway.stop().success());
    let acknowledged = peer.received_frames("ACK", "id");
    assert_eq!(acknowledged[..4], ["m1"; 4]);
    assert_eq!(acknowledged.last().map(String::as_str), Some("m3"));
    // The gateway waits for the receipt of its DISCONNECT and does not unsubscribe.
    assert_eq!(peer.received_frames("DISCONNECT", "receipt"), ["goodbye"]);
    assert_eq!(peer.received_frames("UNSUBSCRIBE", "id"), [""; 0]);
}

#[tokio::test]
async fn error_frame_is_reported_without_the_password() {
    let refuses = scene(|peer| {
        peer.next_frame();
        let message = [("message", "User me with hush-hush is not known")];
        peer.send_bytes(&frame("ERROR", &message, b"java.lang.SecurityException: hush-hush\n\tat org.example\n"));
        peer.read_to_end();
    });
    let (folder, peer, gateway) = play(vec![refuses]);
    let waiting = until_state(&gateway, "waiting").await;
    let message = "the broker refused the gateway (User me with … is not known); fix user, password or virtual host in `url`, or in the broker";
    assert_eq!(reason(&waiting), message);
    assert_eq!(peer.received_frames("CONNECT", "passcode"), ["hush-hush"]);
    assert!(gateway.stop().success());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("cannot read the source; retrying") && !log.contains("hush"), "{log}");

    let ends = scene(|peer| {
        peer.accept(&V1_2);
        peer.send("m1", &[], event(1).to_string().as_bytes());
        peer.next_frame();
        peer.send_bytes(&frame("ERROR", &[("message", "out\nof memory")], b""));
        peer.read_to_end();
    });
    let (_folder, _peer, gateway) = play(vec![ends, sends(1..=2)]);
    until_reported(&gateway, "the broker closed the connection: out").await;
    until_head(&gateway, 2).await;
}

#[tokio::test]
async fn endless_body_uses_bounded_memory_and_the_next_message_is_read() {
    let endless = scene(|peer| {
        peer.accept(&V1_2);
        let bytes = 300 << 20;
        let head = format!("MESSAGE\nack:large\ndestination:/queue/q\ncontent-length:{bytes}\n\n");
        peer.send_bytes(head.as_bytes());
        let part = vec![b'x'; 1 << 20];
        (0..bytes >> 20).for_each(|_| peer.send_bytes(&part));
        peer.send_bytes(b"\0");
        peer.send("m1", &[], event(1).to_string().as_bytes());
        peer.read_to_end();
    });
    let (_folder, peer, gateway) = play(vec![endless]);
    until_head(&gateway, 1).await;
    // The error is reported before the message is quarantined.
    let quarantined = async || gateway.json("/quarantine").await["messages"].get(0).cloned();
    let quarantined = until(&gateway, "the large message is quarantined", quarantined).await;
    assert!(
        quarantined["reason"].as_str().unwrap().contains("its body of 314572800 bytes was dropped"),
        "{quarantined:#}"
    );
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 150_000, "it took {kilobytes} kB");
    until(&gateway, "both are acknowledged", async || {
        peer.received_frames("ACK", "id").contains(&"m1".into()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn redelivery_makes_no_second_change() {
    // Messages of Islandora have neither an identifier nor a time, so only the broker's message id
    // distinguishes them.
    let body = fs::read(crate::support::fixtures::folder("islandora").join("node-update.json")).unwrap();
    let message = |again: &'static str, more: bool| {
        let body = body.clone();
        scene(move |peer| {
            peer.accept(&V1_2);
            for id in ["ID:h-1:1", "ID:h-1:2"].into_iter().chain(more.then_some("ID:h-1:3")) {
                peer.send(id, &[("redelivered", again)], &body);
            }
            if more {
                peer.read_to_end();
            } else {
                // The broker disconnects before it has processed the acknowledgement.
                peer.next_frame();
            }
        })
    };
    let (folder, peer) =
        (tempfile::tempdir().unwrap(), FakeStompBroker::start(vec![message("false", false), message("true", true)]));
    let gateway = start_with(folder.path(), &peer.url(), "/queue/q", "islandora", "");
    until_head(&gateway, 3).await;
    until(&gateway, "all are acknowledged", async || {
        peer.received_frames("ACK", "id").last().is_some_and(|id| id.ends_with('3')).then_some(())
    })
    .await;
    assert_eq!(gateway.json("/readyz").await["head"], 3);
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tidings_redelivered_messages_total{source=\"harvests\"} 3"), "{metrics}");
}
