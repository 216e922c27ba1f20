//! Requests to the WebSub hub: validation, verification of intent, renewal and denial. Together with
//! `delivery::websub_distribution` these tests cover every MUST of a hub; `docs/websub.md` lists them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    gateway::PATIENCE,
    http_receiver::{Receiver, Reply},
    subscription_fixture::{gateway, post},
    websub_fixture::{
        LOCAL, ask, challenge, confirming_subscriber, distributed, feed, hub_subscriptions, is_signed, is_verification,
        numbers, ok_status, query, subscribe, unsubscribe, until, until_distributed, until_subscribed,
    },
};

#[tokio::test]
async fn invalid_request_is_refused_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let (topic, callback) = (feed(&gateway), "https://subscriber.example/cb");
    let base = [("hub.mode", "subscribe"), ("hub.callback", callback), ("hub.topic", topic.as_str())];
    let with = |name: &'static str, value: &'static str| {
        let mut all = base.to_vec();
        all.retain(|(known, _)| *known != name);
        all.push((name, value));
        all
    };
    for (parameters, wrong, expected) in [
        (vec![], "hub.mode", "missing"),
        (base[..2].to_vec(), "hub.topic", "missing"),
        (with("hub.mode", "publish"), "hub.mode", "publishes only"),
        (with("hub.callback", "http://subscriber.example/cb"), "hub.callback", "not encrypted"),
        (with("hub.callback", "https://127.0.0.1/cb"), "hub.callback", "127.0.0.1"),
        (with("hub.callback", "https://localhost/cb"), "hub.callback", "itself"),
        (with("hub.topic", "https://elsewhere.example/feed"), "hub.topic", "not a topic of this hub"),
        (with("hub.topic", "feed"), "hub.topic", "not a topic of this hub"),
        (with("hub.lease_seconds", "-5"), "hub.lease_seconds", "whole number"),
    ] {
        let (status, body) = ask(&gateway, &parameters).await;
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &problem["parameter"]), (400, &json!(wrong)), "{parameters:?}: {body}");
        assert_eq!(problem["type"], "urn:tidings:problem:invalid-hub-request");
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{expected}: {body}");
    }
    for (query, expected) in
        [("?chnge=ADD", "change"), ("?before=7", "before"), ("/archive/1", "not a topic of this hub")]
    {
        let topic = format!("{topic}{query}");
        let mut parameters = base;
        parameters[2].1 = &topic;
        let (status, body) = ask(&gateway, &parameters).await;
        assert!(status == 400 && body.contains(expected), "{query}: {body}");
    }
    let secret = "s3cr3t-".repeat(40);
    let mut long = base.to_vec();
    long.push(("hub.secret", &secret));
    let (status, body) = ask(&gateway, &long).await;
    assert!(status == 400 && body.contains("199 bytes") && !body.contains("s3cr3t"), "{body}");
    let plain = gateway.http.post(format!("{}/hub", gateway.url)).body("hub.mode=subscribe").send().await.unwrap();
    assert_eq!(plain.status(), 400);
    assert_eq!(hub_subscriptions(&gateway).await.len(), 0);
}

#[tokio::test]
async fn unconfirmed_subscription_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let elsewhere = confirming_subscriber(&ok_status()).await;
    let moved = elsewhere.url();
    // Each callback fails verification in its own way; the last one confirms.
    let subscriber = Receiver::start(move |_, request| {
        let right = challenge(request);
        match request.path.split('?').next().unwrap() {
            "/wrong" => Reply::Answer(200, vec![], "another".to_owned()),
            "/more" => Reply::Answer(200, vec![], format!("{right} and more")),
            "/empty" => Reply::Answer(204, vec![], String::new()),
            "/not-found" => Reply::Answer(404, vec![], right),
            "/failed" => Reply::Answer(500, vec![], right),
            "/moved" => Reply::Answer(302, vec![("location", format!("{moved}?{}", request.path))], right),
            "/close" => Reply::Close,
            "/flood" => Reply::Flood(200),
            _ => Reply::Answer(200, vec![], right),
        }
    })
    .await;
    let topic = feed(&gateway);
    let base = format!("http://{}", subscriber.address);
    for path in ["wrong", "more", "empty", "not-found", "failed", "moved", "close", "flood", "right"] {
        subscribe(&gateway, &format!("{base}/{path}"), &topic, &[]).await;
    }
    let subscribed = until_subscribed(&gateway, 1).await;
    until("every callback is verified", || subscriber.requests().len() >= 9).await;
    assert_eq!(subscribed[0]["definition"]["callback"], format!("{base}/right"));
    post(&gateway, 1).await;
    until_distributed(&subscriber, 1).await;
    assert_eq!(hub_subscriptions(&gateway).await.len(), 1);
    assert!(elsewhere.requests().is_empty(), "a redirect is not followed");
    assert!(distributed(&subscriber).iter().all(|request| request.path == "/right"));
}

#[tokio::test]
async fn request_waits_for_no_callback() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let silent = Receiver::start(|_, _| Reply::Hang).await;
    let subscriber = Receiver::start(|_, request| match request.method.as_str() {
        "GET" => Reply::Answer(200, vec![], challenge(request)),
        // The body of a response to a distribution is ignored, whatever its size.
        _ => Reply::Flood(200),
    })
    .await;
    let began = Instant::now();
    for number in 0..20 {
        subscribe(&gateway, &format!("{}/{number}", silent.url()), &feed(&gateway), &[]).await;
    }
    subscribe(&gateway, &subscriber.url(), &feed(&gateway), &[]).await;
    until_subscribed(&gateway, 1).await;
    assert!(began.elapsed() < Duration::from_secs(10), "a callback has 15 seconds");
    assert_eq!(silent.requests().len(), 1, "one server gets one verification at a time");
    post(&gateway, 1).await;
    post(&gateway, 2).await;
    until_distributed(&subscriber, 2).await;
    assert!(subscriber.flooded() < 500_000_000, "{} bytes were taken", subscriber.flooded());
}

#[tokio::test]
async fn unconfirmed_renewal_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let agrees = Arc::new(AtomicU16::new(200));
    let answer = Arc::clone(&agrees);
    let subscriber = Receiver::start(move |_, request| match request.method.as_str() {
        "GET" => Reply::Answer(answer.load(Ordering::SeqCst), vec![], challenge(request)),
        _ => Reply::of(200),
    })
    .await;
    let (topic, callback) = (feed(&gateway), subscriber.url());
    subscribe(&gateway, &callback, &topic, &[("hub.secret", "first")]).await;
    let before = until_subscribed(&gateway, 1).await;
    agrees.store(404, Ordering::SeqCst);
    subscribe(&gateway, &callback, &topic, &[("hub.secret", "second"), ("hub.lease_seconds", "60")]).await;
    until("the renewal is verified", || subscriber.requests().len() == 2).await;
    post(&gateway, 1).await;
    let posts = until_distributed(&subscriber, 1).await;
    assert!(is_signed(&posts[0], "first"));
    assert_eq!(hub_subscriptions(&gateway).await[0]["definition"], before[0]["definition"]);
}

#[tokio::test]
async fn unsubscription_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let topic = feed(&gateway);
    let agrees = Arc::new(AtomicU16::new(404));
    let answer = Arc::clone(&agrees);
    let subscriber = Receiver::start(move |_, request| match query(request).get("hub.mode").map(String::as_str) {
        Some("unsubscribe") => Reply::Answer(answer.load(Ordering::SeqCst), vec![], challenge(request)),
        _ => Reply::Answer(200, vec![], challenge(request)),
    })
    .await;
    subscribe(&gateway, &subscriber.url(), &topic, &[]).await;
    until_subscribed(&gateway, 1).await;
    // Another party requests the end of the subscription: the subscriber does not confirm, and nothing changes.
    unsubscribe(&gateway, &subscriber.url(), &topic).await;
    let count = |mode: &str| {
        let requests = subscriber.requests();
        requests.iter().filter(|request| query(request).get("hub.mode").is_some_and(|sent| sent == mode)).count()
    };
    until("the unsubscription is verified", || count("unsubscribe") == 1).await;
    post(&gateway, 1).await;
    until_distributed(&subscriber, 1).await;
    agrees.store(200, Ordering::SeqCst);
    unsubscribe(&gateway, &subscriber.url(), &topic).await;
    until_subscribed(&gateway, 0).await;
    let last = subscriber.requests().last().cloned().unwrap();
    assert_eq!(
        (query(&last)["hub.mode"].as_str(), query(&last)["hub.topic"].as_str()),
        ("unsubscribe", topic.as_str())
    );
    post(&gateway, 2).await;
    assert_eq!(count("denied"), 0, "a subscriber that unsubscribes gets no denial");
    assert_eq!(numbers(&distributed(&subscriber)), [1]);
}

#[tokio::test]
async fn repeated_requests_for_one_callback_are_one_subscription() {
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("{LOCAL}[hub]\nper_callback = 3\n");
    let gateway = gateway(folder.path(), &lines);
    let subscriber = confirming_subscriber(&ok_status()).await;
    let (topic, callback) = (feed(&gateway), subscriber.url());
    let began = Instant::now();
    for _ in 0..3 {
        let crowd = (0..100).map(|_| subscribe(&gateway, &callback, &topic, &[]));
        futures_util::future::join_all(crowd).await;
    }
    until_subscribed(&gateway, 1).await;
    // The newest request is verified too, one second after the previous verification.
    let most = 2 + usize::try_from(began.elapsed().as_secs()).unwrap();
    tokio::time::timeout(PATIENCE, async {
        while subscriber.requests().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    let count = subscriber.requests().iter().filter(|request| is_verification(request)).count();
    assert!(count <= most, "{count} verifications in {:?}", began.elapsed());

    // The number of topics for one callback is limited. The denial gives the reason, and no verification
    // follows.
    for number in 1..=4 {
        subscribe(&gateway, &callback, &format!("{topic}?limit={number}"), &[]).await;
    }
    until("the last request is denied", || {
        let requests = subscriber.requests();
        requests.iter().filter(|request| query(request).get("hub.mode").is_some_and(|mode| mode == "denied")).count()
            == 2
    })
    .await;
    let requests = subscriber.requests().clone();
    let denied = requests.iter().find(|request| query(request)["hub.mode"] == "denied").unwrap();
    assert!(query(denied)["hub.reason"].contains("which is the maximum"), "{}", denied.path);
    assert!(query(denied)["hub.topic"].starts_with(&topic) && !query(denied).contains_key("hub.challenge"));
    until_subscribed(&gateway, 3).await;
}
