//! Webhook batches to receivers with a limit on the body size.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::sync::watch;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    http_receiver::{ReceivedRequest, Receiver, Reply},
    subscription_fixture::{event, gateway, post_event},
    webhook_fixture::webhook,
};

/// Posts changes of about five kilobytes.
async fn post_changes(gateway: &Gateway, count: u64) {
    for number in 1..=count {
        let mut event = event(number);
        event["description"] = json!("x".repeat(5000));
        post_event(gateway, &event).await;
    }
}

/// Starts a receiver that answers with `status` if the body has more than `bytes` bytes.
async fn accepting(bytes: usize, status: u16) -> Receiver {
    Receiver::start(move |_, request| Reply::of(if request.body.len() > bytes { status } else { 200 })).await
}

/// Returns the numbers of the changes that a receiver accepted.
fn accepted(receiver: &Receiver, bytes: usize) -> Vec<u64> {
    let requests = receiver.requests();
    let fitting = requests.iter().filter(|request| request.body.len() <= bytes);
    let seqs = |request: &ReceivedRequest| {
        let changes = request.json()["changes"].as_array().unwrap().clone();
        changes.iter().map(|change| change["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    fitting.flat_map(seqs).collect()
}

#[tokio::test]
async fn webhook_batches_adapt_to_the_body_limit_of_the_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post_changes(&gateway, 250).await;
    assert!(gateway.stop().success());
    // The default limit of nginx is one megabyte.
    let (usual, small, odd) = (1_048_576, 100_000, 50_000);
    let receivers = [accepting(usual, 413).await, accepting(small, 413).await, accepting(odd, 400).await];
    let lines: String = ["usual", "small", "odd"]
        .iter()
        .zip(&receivers)
        .map(|(name, receiver)| webhook(name, &receiver.url(), "max_batch = 1000"))
        .collect();
    let gateway = crate::support::subscription_fixture::gateway(folder.path(), &lines);
    for (name, receiver, bytes) in [("usual", &receivers[0], usual), ("small", &receivers[1], small)] {
        let status_json = gateway.until_at(name, 250).await;
        assert_eq!(
            (&status_json["failures"], &status_json["deadLetters"], &status_json["lastError"]),
            (&json!(0), &json!(0), &json!(null))
        );
        assert_eq!(accepted(receiver, bytes), (1..=250).collect::<Vec<_>>(), "{name}: in order and once");
    }
    let sizes: Vec<_> = receivers[0].requests().iter().map(|request| request.body.len()).collect();
    assert!(sizes.iter().all(|size| *size <= 900_000) && sizes.iter().any(|size| *size > 800_000), "{sizes:?}");
    let too_large = receivers[1].requests().iter().filter(|request| request.body.len() > small).count();
    assert!((1..=4).contains(&too_large), "{too_large}");
    // Status 400 does not name the size as the cause, so every change of that message is sent alone.
    gateway.until_at("odd", 250).await;
    let odd_one = receivers[2].requests().clone();
    assert!(odd_one[0].body.len() > odd && odd_one[1].body.len() < 10_000);
}

#[tokio::test]
async fn webhook_batch_split_does_not_repeat_accepted_changes() {
    let (others_have_arrived, have_arrived) = watch::channel(false);
    let has_failed = AtomicBool::new(false);
    let receiver = Receiver::start(move |_, request| match request.seq() {
        8 if !has_failed.swap(true, Ordering::SeqCst) => Reply::When(have_arrived.clone(), Box::new(Reply::of(500))),
        _ => Reply::of(200),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), "ordered = false\nwindow = 4"));
    for number in 1..=11 {
        post_event(&gateway, &event(number)).await;
    }
    let began = Instant::now();
    let delivered = async || {
        let status_json = gateway.json("/subscriptions/index/attempts").await;
        status_json["attempts"].as_array().unwrap().iter().filter(|attempt| attempt["outcome"] == "delivered").count()
    };
    while delivered().await < 10 {
        assert!(began.elapsed() < PATIENCE, "seven before it and three behind it arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    others_have_arrived.send_replace(true);
    gateway.until_at("index", 11).await;
    let requests = receiver.requests().clone();
    let counts: Vec<_> = (1..=11).map(|seq| requests.iter().filter(|request| request.seq() == seq).count()).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]);
}
