//! Brokers that accept, refuse or confirm messages as a script says: the window, refusals of single messages, lost
//! receipts and heart-beats.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;

use super::stomp::subscription;
use crate::support::{
    fake_stomp_broker::{FakeStompBroker, Peer, Scene, V1_2, scene},
    gateway::Gateway,
    stomp_client::frame,
    subscription_fixture::{gateway, post},
};

/// Starts a gateway that publishes to a fake broker with these scenes.
fn play(scenes: Vec<Scene>, more: &str) -> (tempfile::TempDir, FakeStompBroker, Gateway) {
    let (folder, peer) = (tempfile::tempdir().unwrap(), FakeStompBroker::start(scenes));
    let gateway = gateway(folder.path(), &subscription("index", &peer.url(), "/queue/q", more));
    (folder, peer, gateway)
}

fn connected(peer: &mut Peer, headers: &[(&str, &str)]) {
    peer.next_frame();
    peer.send_bytes(&frame("CONNECTED", headers, b""));
}

fn confirm(peer: &mut Peer, receipt: u64) {
    peer.send_bytes(&frame("RECEIPT", &[("receipt-id", &receipt.to_string())], b""));
}

/// Confirms three messages in this order after all of them have arrived.
fn confirms(receipts: [u64; 3]) -> Scene {
    scene(move |peer| {
        connected(peer, &V1_2);
        for _ in receipts {
            peer.next_frame();
        }
        receipts.iter().for_each(|receipt| confirm(peer, *receipt));
        peer.read_to_end();
    })
}

/// Confirms each message when it arrives.
fn confirms_all() -> Scene {
    scene(|peer| {
        connected(peer, &V1_2);
        let mut receipt = 0;
        while peer.next_frame().is_some_and(|command| command == "SEND") {
            receipt += 1;
            confirm(peer, receipt);
        }
    })
}

fn reason(shown: &Value) -> &str {
    shown["lastError"]["reason"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn window_bounds_messages_without_a_receipt() {
    for (more, window) in [("window = 3", 3), ("window_bytes = 1024\nformat = \"json\"", 2)] {
        let folder = tempfile::tempdir().unwrap();
        // All changes are in the journal when the subscription begins.
        let recording = gateway(folder.path(), "");
        for number in 1..=9 {
            post(&recording, number).await;
        }
        assert!(recording.stop().success());
        let received = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&received);
        // It confirms nothing. The gateway gives up after a second.
        let silent = scene(move |peer| {
            connected(peer, &V1_2);
            while peer.next_frame().is_some_and(|command| command == "SEND") {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let peer = FakeStompBroker::start(vec![silent, confirms_all()]);
        let more = format!("confirm_seconds = 1\n{more}");
        let gateway = gateway(folder.path(), &subscription("index", &peer.url(), "/queue/q", &more));
        gateway.until_at("index", 9).await;
        let received = received.load(Ordering::SeqCst);
        assert!((1..=window).contains(&received), "{received}");
        assert_eq!(peer.received_frames("SEND", "seq").len(), received + 9);
    }
}

#[tokio::test]
async fn receipts_in_any_order_confirm_their_messages() {
    let (_folder, peer, gateway) = play(vec![confirms([2, 3, 1])], "");
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let shown = gateway.until_at("index", 3).await;
    assert!(shown["lastError"].is_null(), "{shown:#}");
    assert!(gateway.stop().success());
    assert_eq!(peer.received_frames("SEND", "seq"), ["1", "2", "3"]);
    for (header, value) in [("persistent", "true"), ("destination", "/queue/q"), ("amq-msg-type", "text")] {
        assert_eq!(peer.received_frames("SEND", header), [value; 3], "{header}");
    }
    assert_eq!(peer.received_frames("DISCONNECT", "receipt"), ["goodbye"]);
}

#[tokio::test]
async fn error_that_names_a_message_is_about_this_message() {
    let full = scene(|peer| {
        connected(peer, &V1_2);
        for _ in 1..=3 {
            peer.next_frame();
        }
        // ActiveMQ keeps the connection after such an error.
        confirm(peer, 1);
        let full = [("message", "Usage Manager Store is Full: me hush-hush"), ("receipt-id", "2")];
        peer.send_bytes(&frame("ERROR", &full, b"javax.jms.ResourceAllocationException\n\tat org.apache"));
        confirm(peer, 3);
        peer.read_to_end();
    });
    let large = scene(|peer| {
        connected(peer, &V1_2);
        peer.next_frame();
        let large = [("message", "The maximum frame size was exceeded"), ("receipt-id", "1")];
        peer.send_bytes(&frame("ERROR", &large, b""));
        peer.next_frame();
        confirm(peer, 2);
        peer.read_to_end();
    });
    let (_folder, peer, gateway) = play(vec![full, large], "");
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let shown = gateway.until_at("index", 3).await;
    assert_eq!(reason(&shown), "the broker did not accept the message: Usage Manager Store is Full: me …");
    assert_eq!(shown["deadLetters"], 1, "{shown:#}");
    let (sent, ids) = (peer.received_frames("SEND", "seq"), peer.received_frames("SEND", "change-id"));
    assert_eq!(sent, ["1", "2", "3", "2", "3"], "all messages from the refused one on are sent again, in order");
    assert_eq!(ids[1..3], ids[3..], "a repeat has the same identifier");
}

#[tokio::test]
async fn refusal_that_names_no_message_is_about_the_only_one() {
    let too_long = |peer: &mut Peer| {
        peer.send_bytes(&frame("ERROR", &[("message", "The maximum data length was exceeded")], b""));
    };
    let of_several = scene(move |peer| {
        connected(peer, &V1_2);
        for _ in 1..=3 {
            peer.next_frame();
        }
        too_long(peer);
    });
    let of_one = scene(move |peer| {
        connected(peer, &V1_2);
        peer.next_frame();
        too_long(peer);
    });
    let (_folder, _peer, gateway) = play(vec![of_several, of_one, confirms_all()], "");
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    gateway.until_at("index", 3).await;
    let (_, letters) = gateway.ask("GET", "/subscriptions/index/dead-letters", None).await;
    let letters: Vec<_> = letters["deadLetters"].as_array().unwrap().iter().map(|letter| &letter["seq"]).collect();
    assert_eq!(letters, [1], "the others may be innocent");
}

#[tokio::test]
async fn heart_beats_go_both_ways() {
    let quiet = scene(|peer| {
        connected(peer, &[("version", "1.2"), ("heart-beat", "1000,1000")]);
        assert_eq!((peer.next_byte(), peer.next_byte()), (Some(b'\n'), Some(b'\n')));
        peer.read_to_end();
    });
    let (_folder, _peer, gateway) = play(vec![quiet, confirms_all()], "");
    let silence = "the broker sent nothing for 10 seconds, not even a heart-beat";
    gateway.until("index", silence, |shown| reason(shown).contains(silence)).await;
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
}
