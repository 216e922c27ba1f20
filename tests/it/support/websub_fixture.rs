//! WebSub subscriber on a real socket, with correct or faulty behaviour.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use crate::support::{
    chaos::ReceivedChanges,
    gateway::{Gateway, PATIENCE, client},
    http_receiver::{ReceivedRequest, Receiver, Reply},
};

/// Configuration that allows callbacks on this host.
pub(crate) const LOCAL: &str = "[delivery]\nallow = [\"127.0.0.1\"]\n";

/// Secret with which [`record_entries`] expects each message to be signed.
pub(crate) const SUBSCRIBER_SECRET: &str = "a secret of the test";

/// Returns the decoded query of a request.
pub(crate) fn query(request: &ReceivedRequest) -> BTreeMap<String, String> {
    let url = url::Url::parse(&format!("http://h{}", request.path)).unwrap();
    url.query_pairs().into_owned().collect()
}

pub(crate) fn challenge(request: &ReceivedRequest) -> String {
    query(request).get("hub.challenge").cloned().unwrap_or_default()
}

pub(crate) fn is_verification(request: &ReceivedRequest) -> bool {
    request.method == "GET" && query(request).contains_key("hub.challenge")
}

/// Starts a subscriber that confirms every verification and answers distributions with `status`.
pub(crate) async fn confirming_subscriber(status: &Arc<AtomicU16>) -> Receiver {
    let status = Arc::clone(status);
    Receiver::start(move |_, request| match request.method.as_str() {
        "GET" => Reply::Answer(200, vec![], challenge(request)),
        _ => Reply::of(status.load(Ordering::SeqCst)),
    })
    .await
}

pub(crate) fn ok_status() -> Arc<AtomicU16> {
    Arc::new(AtomicU16::new(204))
}

pub(crate) async fn ask(gateway: &Gateway, parameters: &[(&str, &str)]) -> (u16, String) {
    ask_at(&gateway.url, parameters).await
}

async fn ask_at(gateway: &str, parameters: &[(&str, &str)]) -> (u16, String) {
    let answer = hub_request(gateway, parameters).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn hub_request(gateway: &str, parameters: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
    let request = client().post(format!("{gateway}/hub")).body(body);
    request.header("content-type", "application/x-www-form-urlencoded")
}

/// Subscribes to a topic, or renews the subscription, at a gateway that may not respond. Messages are signed with
/// [`SUBSCRIBER_SECRET`]. Returns whether the gateway has accepted the request.
pub(crate) async fn try_subscribe(gateway: &str, callback: &str, topic: &str) -> bool {
    let parameters = [("hub.mode", "subscribe"), ("hub.callback", callback), ("hub.topic", topic)];
    let request = hub_request(gateway, &[&parameters[..], &[("hub.secret", SUBSCRIBER_SECRET)]].concat());
    match request.timeout(Duration::from_secs(2)).send().await {
        Ok(response) => {
            let status = response.status().as_u16();
            assert!(status == 202 || status == 503, "{gateway} refuses a subscription: {status}");
            status == 202
        }
        Err(_) => false,
    }
}

pub(crate) async fn subscribe(gateway: &Gateway, callback: &str, topic: &str, more: &[(&str, &str)]) {
    let parameters = [("hub.mode", "subscribe"), ("hub.callback", callback), ("hub.topic", topic)];
    let (status, body) = ask(gateway, &[&parameters, more].concat()).await;
    assert_eq!((status, body.as_str()), (202, ""));
}

/// Subscribes to the feed of the gateway at that URL.
pub(crate) async fn subscribe_at(gateway: &str, callback: &str, more: &[(&str, &str)]) {
    let topic = format!("{gateway}/feed");
    let parameters = [("hub.mode", "subscribe"), ("hub.callback", callback), ("hub.topic", &topic)];
    let (status, body) = ask_at(gateway, &[&parameters, more].concat()).await;
    assert_eq!((status, body.as_str()), (202, ""));
}

pub(crate) async fn unsubscribe(gateway: &Gateway, callback: &str, topic: &str) {
    let parameters = [("hub.mode", "unsubscribe"), ("hub.callback", callback), ("hub.topic", topic)];
    assert_eq!(ask(gateway, &parameters).await.0, 202);
}

/// Waits until the gateway at that URL has `count` running subscriptions.
pub(crate) async fn until_running_at(gateway: &str, count: usize) {
    let began = Instant::now();
    loop {
        let all: Value = client().get(format!("{gateway}/subscriptions")).send().await.unwrap().json().await.unwrap();
        let all = all["subscriptions"].as_array().unwrap();
        if all.iter().filter(|one| one["state"] == "running").count() == count {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{count} were expected: {all:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the subscriptions of the hub.
pub(crate) async fn hub_subscriptions(gateway: &Gateway) -> Vec<Value> {
    let all = gateway.json("/subscriptions").await["subscriptions"].as_array().unwrap().clone();
    all.into_iter().filter(|subscription| subscription["from"] == "hub").collect()
}

/// Waits until the hub has `count` running subscriptions.
pub(crate) async fn until_subscribed(gateway: &Gateway, count: usize) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let all = hub_subscriptions(gateway).await;
        if all.len() == count && all.iter().all(|one| one["state"] == "running") {
            return all;
        }
        assert!(began.elapsed() < PATIENCE, "{count} were expected: {all:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "timeout while waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the distribution requests.
pub(crate) fn distributed(receiver: &Receiver) -> Vec<ReceivedRequest> {
    receiver.requests().iter().filter(|request| request.method == "POST").cloned().collect()
}

/// Returns the numbers of the changes in the distributed entries.
pub(crate) fn numbers(posts: &[ReceivedRequest]) -> Vec<u64> {
    let mut all = Vec::new();
    for post in posts {
        let body = String::from_utf8(post.body.clone()).unwrap();
        let seqs = body.split(" seq=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap());
        let mut seqs: Vec<u64> = seqs.collect();
        // A document lists the newest entry first, with one entry for each item.
        seqs.reverse();
        seqs.dedup();
        all.extend(seqs);
    }
    all
}

/// Returns the numbers and identifiers of the changes in a document, oldest first.
fn changes(document: &str) -> Vec<(u64, String)> {
    let between = |text: &str, start: &str, end: &str| {
        let (_, rest) = text.split_once(start).unwrap();
        rest.split_once(end).unwrap().0.to_owned()
    };
    let entries = document.split("<entry>").skip(1).map(|entry| {
        let source = between(entry, "<source>", "</source>");
        (between(entry, " seq=\"", "\"").parse().unwrap(), between(&source, "<id>", "</id>"))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.reverse();
    entries
}

/// Confirms a verification, or records the changes of a message, whatever its reply will be.
pub(crate) fn record_entries(received: &ReceivedChanges, request: &ReceivedRequest) -> Option<Reply> {
    if request.method == "GET" {
        return Some(Reply::Answer(200, vec![], challenge(request)));
    }
    assert!(is_signed(request, SUBSCRIBER_SECRET));
    for (seq, id) in changes(std::str::from_utf8(&request.body).unwrap()) {
        received.record(seq, &id);
    }
    None
}

pub(crate) async fn until_distributed(receiver: &Receiver, last: u64) -> Vec<ReceivedRequest> {
    until("the last change has come", || numbers(&distributed(receiver)).last() == Some(&last)).await;
    distributed(receiver)
}

pub(crate) fn feed(gateway: &Gateway) -> String {
    format!("{}/feed", gateway.url)
}

/// Returns true if a message is signed with this secret. The signature is computed here independently.
pub(crate) fn is_signed(request: &ReceivedRequest, secret: &str) -> bool {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(&request.body);
    request.header("x-hub-signature") == format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

impl Gateway {
    /// Waits until the hub has `count` subscriptions.
    pub(crate) async fn until_hub(&self, count: usize) {
        let began = Instant::now();
        while hub_subscriptions(self).await.len() != count {
            assert!(began.elapsed() < PATIENCE, "{count} subscriptions of the hub were expected");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
