//! Deliveries that an administrator asks for, and what a subscription shows about its receiver.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use serde_json::{Value, json};

use crate::support::{
    command_line::{command, ended},
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    subscription_fixture::{gateway, post},
    webhook_fixture::webhook,
};

/// Receiver whose replies to the object with the number 2 have another status than the others.
async fn receiver(replies: &Arc<AtomicU16>) -> Receiver {
    let replies = Arc::clone(replies);
    Receiver::start(move |_, request| {
        let is_second = String::from_utf8_lossy(&request.body).contains("/objects/2\"");
        Reply::of(if is_second { replies.load(Ordering::Relaxed) } else { 200 })
    })
    .await
}

fn cli(gateway: &Gateway, arguments: &[&str]) -> (i32, String, String) {
    let all = [&["subscriptions"], arguments, &["--gateway", &gateway.url]].concat();
    ended(command(&all).spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_the_receiver_never_accepts_is_shown_and_skipped() {
    let replies = Arc::new(AtomicU16::new(503));
    let receiver = receiver(&replies).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = webhook("index", &receiver.url(), "");
    let running = gateway(folder.path(), &lines);
    for number in 1..=4 {
        post(&running, number).await;
    }
    let stuck = running.until("index", "it is stuck", |status| status["stuckAt"] == 2).await;
    assert!(stuck["failingSince"].is_string() && stuck["lastDelivered"].is_string(), "{stuck:#}");
    let delivered = stuck["lastDelivered"].clone();
    // The time of the last delivery is in the journal.
    assert!(running.stop().success());
    let running = gateway(folder.path(), &lines);
    let status = running.json("/subscriptions/index").await;
    let seconds = |time: &Value| time.as_str().unwrap()[..19].to_owned();
    assert_eq!(seconds(&status["lastDelivered"]), seconds(&delivered), "{status:#}");

    let stuck = running.until("index", "it is stuck again", |status| status["stuckAt"] == 2).await;
    assert_eq!((&stuck["cursor"], &stuck["lag"]["changes"]), (&json!(1), &json!(3)));
    let (code, _, error) = cli(&running, &["skip", "index", "3"]);
    assert!(code == 1 && error.contains("Change 3 is not the next one"), "{error}");
    let (code, out, error) = cli(&running, &["skip", "index", "2"]);
    assert!(code == 0 && error.contains("skips change 2"), "{out}{error}");
    let running_on = running.until_at("index", 4).await;
    assert_eq!(
        (&running_on["deadLetters"], &running_on["failingSince"], &running_on["stuckAt"]),
        (&json!(1), &json!(null), &json!(null))
    );
    let letters = running.json("/subscriptions/index/dead-letters").await;
    let letter = &letters["deadLetters"][0];
    assert_eq!((&letter["seq"], &letter["reason"]), (&json!(2), &json!("skipped by this machine")));
    // It can be sent again, as any dead letter.
    replies.store(200, Ordering::Relaxed);
    let letters = |arguments: &[&str]| {
        let all = [&["dead-letters"], arguments, &["--gateway", &running.url]].concat();
        ended(command(&all).spawn().unwrap())
    };
    let (code, out, _) = letters(&["list", "index", "--reason", "skipped"]);
    assert!(code == 0 && out.lines().count() == 2, "{out}");
    let (code, _, error) = letters(&["retry", "index"]);
    assert!(code == 2 && error.contains("--all"), "{error}");
    let (code, out, error) = letters(&["retry", "index", "--reason", "skipped"]);
    assert_eq!((code, out.as_str()), (0, "1 sent again, 0 left\n"), "{error}");
    running.until("index", "the dead letter is delivered", |status| status["deadLetters"] == 0).await;
    let (code, out, _) = letters(&["drop", "index", "--all"]);
    assert_eq!((code, out.as_str()), (0, "0 dropped\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_the_journal_is_sent_again_beside_the_cursor() {
    let receiver = receiver(&Arc::new(AtomicU16::new(200))).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), "dead_letters = 3"));
    for number in 1..=6 {
        post(&gateway, number).await;
    }
    gateway.until_at("index", 6).await;
    let (code, _, error) = cli(&gateway, &["replay", "index", "--from", "beginning"]);
    assert!(code == 1 && error.contains("can keep 3 more dead letters"), "{error}");
    let (code, out, error) = cli(&gateway, &["replay", "index", "--from", "2", "--to", "4"]);
    assert_eq!((code, out.as_str()), (0, "3 changes to send again\n"), "{error}");
    let requests = receiver.until(9).await;
    let sent: Vec<_> = requests.iter().map(|request| (request.seq(), request.header("tidings-repeat"))).collect();
    let live = (1..=6).map(|seq| (seq, ""));
    assert_eq!(sent, live.chain((2..=4).map(|seq| (seq, "true"))).collect::<Vec<_>>());
    let object = "filter=objects.0=http://h.example/objects/5";
    let (code, out, error) = cli(&gateway, &["replay", "index", "--from", "1", &format!("--{object}")]);
    assert_eq!((code, out.as_str()), (0, "1 change to send again\n"), "{error}");
    assert_eq!(receiver.until(10).await[9].seq(), 5);
    let is_over = |status: &Value| status["deadLetters"] == 0 && status["cursor"] == 6;
    gateway.until("index", "nothing is left", is_over).await;
    let letters = || async { gateway.json("/subscriptions/index/dead-letters").await["deadLetters"].clone() };
    while letters().await != json!([]) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_change_is_sent_beside_a_paused_delivery() {
    let replies = Arc::new(AtomicU16::new(422));
    let receiver = receiver(&replies).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), "filter = { changes = [\"ADD\"] }"));
    let (status, answer) = gateway.ask("POST", "/subscriptions/index/send", Some(json!({}))).await;
    assert_eq!(status, 409, "{answer}");
    let (status, answer) = gateway.ask("POST", "/subscriptions/index/pause", None).await;
    assert_eq!((status, &answer["pausedBy"]), (200, &json!("this machine")));
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let (code, out, error) = cli(&gateway, &["test", "index"]);
    assert_eq!((code, out.as_str()), (0, "change 3: delivered\n"), "{error}");
    let (code, out, error) = cli(&gateway, &["send", "index", "2"]);
    assert_eq!((code, out.as_str()), (1, "change 2: retry\n"), "{error}");
    assert!(error.contains("the receiver did not accept it: it responded with 422"), "{error}");
    let (code, _, error) = cli(&gateway, &["send", "index", "9"]);
    assert!(code == 1 && error.contains("There is no change 9 in the journal"), "{error}");
    let ids: Vec<_> = receiver.requests().iter().map(|request| request.header("webhook-id").to_owned()).collect();
    let changes = gateway.changes().await;
    assert_eq!(ids, [&changes[2], &changes[1]].map(|change| change["id"].as_str().unwrap().to_owned()));
    let status = gateway.json("/subscriptions/index").await;
    assert_eq!((&status["cursor"], &status["deadLetters"], &status["state"]), (&json!(0), &json!(0), &json!("paused")));
    let (status, answer) = gateway.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": "now" }))).await;
    assert_eq!((status, &answer["repeated"], &answer["skipped"]), (200, &json!(0), &json!(3)));
    let (_, answer) = gateway.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": 2 }))).await;
    assert_eq!((&answer["repeated"], &answer["skipped"], &answer["cursor"]), (&json!(2), &json!(0), &json!(1)));
}
