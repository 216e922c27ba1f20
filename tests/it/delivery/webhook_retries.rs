//! Faulty webhook receivers, and the retries, pauses and dead letters of their subscriptions.

use std::time::{Duration, Instant};

use chrono::SubsecRound;
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    http_receiver::{Receiver, Reply},
    subscription_fixture::{gateway, post},
    webhook_fixture::{are_in_order, webhook},
};

/// Skips the pauses between attempts until the subscription satisfies `holds`.
async fn hurry_until(gateway: &Gateway, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let (_, status_json) = gateway.ask("GET", &format!("/subscriptions/{name}"), None).await;
        if holds(&status_json) {
            return status_json;
        }
        if status_json["state"] == "retrying" {
            gateway.ask("POST", &format!("/subscriptions/{name}/resume"), None).await;
        }
        assert!(began.elapsed() < PATIENCE, "timeout while waiting until {what}: {status_json:#}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn webhook_retries_every_failure_until_410() {
    let receiver = Receiver::start(|nth, _| match nth {
        0 => Reply::of(500),
        1 => Reply::Hang,
        2 => Reply::Close,
        3 => Reply::Flood(500),
        4 => Reply::Flood(200),
        5 => Reply::of(200),
        _ => Reply::of(410),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let lines = webhook("index", &receiver.url(), "answer_seconds = 1");
    let mut gateway = gateway(folder.path(), &lines);
    for number in 1..=4 {
        post(&gateway, number).await;
    }
    let ended = hurry_until(&gateway, "index", "it has ended", |status_json| status_json["state"] == "ended").await;
    assert_eq!((&ended["cursor"], &ended["delivered"]), (&json!(2), &json!(2)), "{ended:#}");
    assert_eq!(ended["lastError"]["reason"], "it responded with 410 Gone");

    let requests = receiver.requests().clone();
    are_in_order(&requests, 3);
    let seqs: Vec<_> = requests.iter().map(crate::support::http_receiver::ReceivedRequest::seq).collect();
    assert_eq!(seqs, [1, 1, 1, 1, 1, 2, 3]);
    // Each attempt has a new signature and the same identifier.
    assert!(requests[..5].iter().all(|one| one.header("webhook-id") == requests[0].header("webhook-id")));
    // A resumed subscription opens a new connection; so does the attempt after an oversized response.
    let connections: Vec<_> = requests.iter().map(|one| one.connection).collect();
    assert_eq!(connections, [1, 2, 3, 4, 5, 6, 6]);
    assert!(receiver.flooded() < 100_000_000, "{}", receiver.flooded());

    let (_, status_json) = gateway.ask("GET", "/subscriptions/index/attempts", None).await;
    let attempts = status_json["attempts"].as_array().unwrap();
    let reasons: Vec<_> = attempts
        .iter()
        .rev()
        .map(|one| (one["seq"].as_u64().unwrap(), one["status"].as_u64(), one["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        (1, Some(500), "retried"),
        (1, None, "retried"),
        (1, None, "retried"),
        (1, Some(500), "retried"),
        (1, Some(200), "delivered"),
        (2, Some(200), "delivered"),
        (3, Some(410), "gone"),
    ];
    assert_eq!(reasons, expected, "{status_json:#}");
    assert_eq!(attempts[6]["answer"], "the answer is 500");
    assert_eq!(attempts[6]["reason"], "it responded with 500 Internal Server Error");
    assert_eq!(attempts[5]["reason"], "no response within 1 seconds");
    assert!(attempts[5]["millis"].as_u64().unwrap() >= 1000 && attempts[0]["millis"].as_u64().unwrap() < 1000);
    let excerpt = attempts[3]["answer"].as_str().unwrap();
    assert!(excerpt.chars().count() == 256 + 1 && excerpt.ends_with('…'), "{excerpt}");
    assert_eq!(attempts[0]["id"], requests[6].header("webhook-id"));

    // A 410 ends the subscription, also across a restart, until an administrator resumes it.
    gateway.kill();
    let gateway = crate::support::subscription_fixture::gateway(folder.path(), &lines);
    assert_eq!(gateway.json("/subscriptions/index").await["state"], "ended");
    assert_eq!(gateway.ask("POST", "/subscriptions/index/resume", None).await.0, 200);
    receiver.until(8).await;
}

#[tokio::test]
async fn webhook_failure_degrades_readiness() {
    let receiver = Receiver::start(|nth, _| Reply::of(if nth < 2 { 500 } else { 200 })).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), ""));
    assert_eq!(gateway.json("/readyz").await["status"], "ready");
    post(&gateway, 1).await;
    gateway.until("index", "it has failed", |status_json| status_json["state"] == "retrying").await;
    let mut ready = gateway.json("/readyz").await;
    let problems = ready.as_object_mut().unwrap().remove("problems").unwrap();
    assert_eq!(problems[0]["thing"], "subscription/index");
    let expected = json!({
        "status": "degraded", "head": 1, "subscriptions": [{ "name": "index", "state": "retrying" }]
    });
    assert_eq!(ready, expected);
    hurry_until(&gateway, "index", "it is delivered", |status_json| status_json["delivered"] == 1).await;
    assert_eq!(gateway.json("/readyz").await, json!({ "status": "ready", "head": 1 }));
    // A paused subscription does not degrade readiness, because its operator wants the pause.
    assert_eq!(gateway.ask("POST", "/subscriptions/index/pause", None).await.0, 200);
    assert_eq!(gateway.json("/readyz").await["status"], "ready");
}

#[tokio::test]
async fn webhook_retry_honours_retry_after() {
    // The date in Retry-After has whole seconds. The gateway may need a while to start, so it is not compared with the
    // first request.
    let (began, now) = (Instant::now(), chrono::Utc::now());
    let date = (now + chrono::TimeDelta::seconds(4)).trunc_subsecs(0);
    let due = began + (date - now).to_std().unwrap();
    let date = date.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let receiver = Receiver::start(move |nth, _| match nth {
        0 => Reply::Answer(429, vec![("retry-after", "2".to_owned())], String::new()),
        1 => Reply::Answer(503, vec![("retry-after", date.clone())], String::new()),
        _ => Reply::of(200),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), ""));
    post(&gateway, 1).await;
    let requests = receiver.until(2).await;
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(2), "{:?}", requests[1].at - requests[0].at);
    let status_json = gateway.until("index", "it waits again", |status_json| status_json["failures"] == 2).await;
    let (at, next) = (&status_json["lastError"]["at"], &status_json["nextAttempt"]);
    let time = |text: &Value| chrono::DateTime::parse_from_rfc3339(text.as_str().unwrap()).unwrap();
    assert!(time(next) - time(at) <= chrono::TimeDelta::seconds(4), "{status_json:#}");
    let status_json = gateway.until_at("index", 1).await;
    let requests = receiver.requests().clone();
    assert!(requests[2].at >= due, "{:?} too early", due - requests[2].at);
    assert_eq!((requests.len(), &status_json["failures"]), (3, &json!(0)));
    // An error response does not close the connection.
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn webhook_redirect_is_reported_and_not_followed() {
    let elsewhere = Receiver::start(|_, _| Reply::of(200)).await;
    let to = elsewhere.url();
    let moved = move |_, _: &_| Reply::Answer(308, vec![("location", to.clone())], String::new());
    let receiver = Receiver::start(moved).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &webhook("index", &receiver.url(), ""));
    post(&gateway, 1).await;
    let status_json = gateway.until("index", "it waits", |status_json| status_json["state"] == "retrying").await;
    let reason = status_json["lastError"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("it responded with 308") && reason.contains("redirects are not followed"), "{reason}");
    receiver.until(2).await;
    assert_eq!(
        (elsewhere.connections(), status_json["cursor"].as_u64(), status_json["deadLetters"].as_u64()),
        (0, Some(0), Some(0))
    );
}

#[tokio::test]
async fn webhook_refusal_by_configured_status_becomes_a_dead_letter() {
    let receiver = Receiver::start(|_, request| Reply::of(if request.seq() == 2 { 422 } else { 200 })).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = webhook("picky", &receiver.url(), "refused_statuses = [422]") + &webhook("waits", &receiver.url(), "");
    let gateway = gateway(folder.path(), &lines);
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let picky = gateway.until_at("picky", 3).await;
    assert_eq!((&picky["deadLetters"], &picky["delivered"]), (&json!(1), &json!(2)));
    let (_, letters) = gateway.ask("GET", "/subscriptions/picky/dead-letters", None).await;
    assert_eq!(letters["deadLetters"][0]["reason"], "it responded with 422 Unprocessable Entity");
    let waits = gateway.until("waits", "it waits", |status_json| status_json["state"] == "retrying").await;
    assert_eq!((&waits["cursor"], &waits["deadLetters"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn webhook_is_paused_after_failing_too_long() {
    let receiver = Receiver::start(|nth, _| Reply::of(if nth == 0 { 200 } else { 502 })).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = webhook("index", &receiver.url(), "pause_after_seconds = 1");
    let mut gateway = gateway(folder.path(), &lines);
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    post(&gateway, 2).await;
    let is_paused = |status_json: &Value| status_json["state"] == "paused";
    let paused = gateway.until("index", "it is paused", is_paused).await;
    let reason = "paused after 1 seconds of failures; last error: it responded with 502 Bad Gateway";
    assert_eq!(paused["lastError"]["reason"], reason, "{paused:#}");
    let posts = receiver.requests().len();
    assert!((3..=5).contains(&posts), "{posts}");
    let began = Instant::now();
    loop {
        let answer = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap();
        let text = answer.text().await.unwrap();
        if text.contains("tidings_subscription_paused{subscription=\"index\"} 1") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The subscription stays paused, with its reason, until an administrator resumes it.
    gateway.kill();
    let gateway = crate::support::subscription_fixture::gateway(folder.path(), &lines);
    let status_json = gateway.json("/subscriptions/index").await;
    assert_eq!((&status_json["state"], &status_json["lastError"]["reason"]), (&json!("paused"), &json!(reason)));
    // A rewind does not end the pause.
    let rewind = gateway.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": 1 }))).await;
    assert_eq!((rewind.0, &rewind.1["state"]), (200, &json!("paused")));
    assert_eq!(receiver.requests().len(), posts);
    assert_eq!(gateway.ask("POST", "/subscriptions/index/resume", None).await.0, 200);
    receiver.until(posts + 1).await;
    let status_json = gateway.until("index", "it is paused again", is_paused).await;
    assert_eq!(status_json["cursor"], 0);
}

#[tokio::test]
async fn webhook_that_stalls_delays_no_other() {
    let stalled = Receiver::start(|_, _| Reply::Hang).await;
    let healthy = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = webhook("stalled", &stalled.url(), "answer_seconds = 60") + &webhook("healthy", &healthy.url(), "");
    let gateway = gateway(folder.path(), &lines);
    for number in 1..=50 {
        post(&gateway, number).await;
    }
    gateway.until_at("healthy", 50).await;
    are_in_order(&healthy.requests(), 50);
    assert_eq!(stalled.until(1).await.len(), 1);
    // The stalled subscription delays neither its own pause nor the shutdown.
    let (status, status_json) = gateway.ask("POST", "/subscriptions/stalled/pause", None).await;
    assert_eq!((status, &status_json["state"], &status_json["cursor"]), (200, &json!("paused"), &json!(0)));
    assert!(gateway.stop().success());
}
