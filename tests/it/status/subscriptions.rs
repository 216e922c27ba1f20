//! Subscriptions that somebody must move or delete.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use super::{ObservedGateway, until};
use crate::support::{
    http_receiver::{Receiver, Reply},
    subscription_fixture::post,
    webhook_fixture::webhook,
};

const THING: &str = "subscription/index";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_that_retention_has_passed_is_a_problem_until_it_is_moved() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let observed = ObservedGateway::start(&format!(
        "[journal]\nkeep_changes = 10\n[delivery]\nallow = [\"127.0.0.1\"]\n{}",
        webhook("index", &receiver.url(), "")
    ));
    let ask =
        async |action: &str, body| observed.gateway.ask("POST", &format!("/subscriptions/index/{action}"), body).await;
    post(&observed.gateway, 1).await;
    observed.gateway.until_at("index", 1).await;
    assert_eq!(ask("pause", None).await.0, 200);
    for number in 2..=40 {
        post(&observed.gateway, number).await;
    }
    let is_removed = async || (observed.gateway.ask("GET", "/changes?after=2", None).await.0 == 410).then_some(());
    until("retention has removed changes", is_removed).await;
    assert_eq!(ask("resume", None).await.0, 200);
    observed.shows("subscription-fails", THING, "changes after 1 are no longer available").await;
    assert_eq!(ask("rewind", Some(json!({ "to": "beginning" }))).await.0, 200);
    observed.ends("subscription-fails", THING).await;
    observed.gateway.until_at("index", 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_that_leaves_the_configuration_is_a_problem_until_it_is_deleted() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let data = tempfile::tempdir().unwrap();
    let start = |lines: &str| {
        let lines = format!("[delivery]\nallow = [\"127.0.0.1\"]\n{lines}");
        ObservedGateway::start_in(tempfile::tempdir().unwrap(), data.path(), &lines)
    };
    assert!(start(&webhook("index", &receiver.url(), "")).gateway.stop().success());
    let observed = start("");
    observed.shows("subscription-orphaned", THING, "").await;
    assert_eq!(observed.gateway.ask("DELETE", "/subscriptions/index", None).await.0, 204);
    observed.ends("subscription-orphaned", THING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_whose_receiver_fails_for_too_long_is_a_problem_until_it_is_resumed() {
    let has_recovered = Arc::new(AtomicBool::new(false));
    let recovered = Arc::clone(&has_recovered);
    let receiver =
        Receiver::start(move |_, _| Reply::of(if recovered.load(Ordering::Relaxed) { 200 } else { 502 })).await;
    let observed = ObservedGateway::start(&format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n{}",
        webhook("index", &receiver.url(), "pause_after_seconds = 1")
    ));
    post(&observed.gateway, 1).await;
    observed.shows("subscription-ended", THING, "paused after 1 seconds of failures").await;
    // Otherwise it would be paused again before the page is renewed.
    has_recovered.store(true, Ordering::Relaxed);
    assert_eq!(observed.gateway.ask("POST", "/subscriptions/index/resume", None).await.0, 200);
    observed.ends("subscription-ended", THING).await;
}
