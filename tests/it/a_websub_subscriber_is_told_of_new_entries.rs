//! The WebSub hub, against a subscriber of the test's own on a real socket, that does as it is told or worse:
//! every MUST of a hub and of a publisher (`docs/websub.md` has the list).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    gateway::{Gateway, PATIENCE},
    keeping::configuration,
    receiver::{Got, Receiver, Reply},
    subscribing::{event, gateway, post, post_event},
};

/// A gateway that lets callbacks point to this host.
const LOCAL: &str = "[delivery]\nallow = [\"127.0.0.1\"]\n";

/// The query of a request, decoded.
fn query(got: &Got) -> BTreeMap<String, String> {
    let url = url::Url::parse(&format!("http://h{}", got.path)).unwrap();
    url.query_pairs().into_owned().collect()
}

fn challenge(got: &Got) -> String {
    query(got).get("hub.challenge").cloned().unwrap_or_default()
}

fn is_verification(got: &Got) -> bool {
    got.method == "GET" && query(got).contains_key("hub.challenge")
}

/// A subscriber that agrees to everything, and answers what is distributed with that status.
async fn agreeing(status: &Arc<AtomicU16>) -> Receiver {
    let status = Arc::clone(status);
    Receiver::start(move |_, got| match got.method.as_str() {
        "GET" => Reply::Answer(200, vec![], challenge(got)),
        _ => Reply::of(status.load(Ordering::SeqCst)),
    })
    .await
}

fn fine() -> Arc<AtomicU16> {
    Arc::new(AtomicU16::new(204))
}

async fn ask(gateway: &Gateway, parameters: &[(&str, &str)]) -> (u16, String) {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
    let request = gateway.http.post(format!("{}/hub", gateway.url)).body(body);
    let answer = request.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn subscribe(gateway: &Gateway, callback: &str, topic: &str, more: &[(&str, &str)]) {
    let wanted = [("hub.mode", "subscribe"), ("hub.callback", callback), ("hub.topic", topic)];
    let (status, body) = ask(gateway, &[&wanted, more].concat()).await;
    assert_eq!((status, body.as_str()), (202, ""));
}

async fn unsubscribe(gateway: &Gateway, callback: &str, topic: &str) {
    let wanted = [("hub.mode", "unsubscribe"), ("hub.callback", callback), ("hub.topic", topic)];
    assert_eq!(ask(gateway, &wanted).await.0, 202);
}

/// The subscriptions of the hub.
async fn of_hub(gateway: &Gateway) -> Vec<Value> {
    let all = gateway.json("/subscriptions").await["subscriptions"].as_array().unwrap().clone();
    all.into_iter().filter(|subscription| subscription["from"] == "hub").collect()
}

/// Waits until the hub has so many subscriptions, all of them at work.
async fn until_subscribed(gateway: &Gateway, count: usize) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let all = of_hub(gateway).await;
        if all.len() == count && all.iter().all(|one| one["state"] == "running") {
            return all;
        }
        assert!(began.elapsed() < PATIENCE, "{count} were expected: {all:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What was distributed.
fn distributed(receiver: &Receiver) -> Vec<Got> {
    receiver.got().iter().filter(|got| got.method == "POST").cloned().collect()
}

/// The numbers of the changes whose entries came.
fn numbers(posts: &[Got]) -> Vec<u64> {
    let mut all = Vec::new();
    for post in posts {
        let body = String::from_utf8(post.body.clone()).unwrap();
        let seqs = body.split(" seq=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap());
        let mut seqs: Vec<u64> = seqs.collect();
        // A document has the newest first, and an entry for every item.
        seqs.reverse();
        seqs.dedup();
        all.extend(seqs);
    }
    all
}

async fn until_told(receiver: &Receiver, last: u64) -> Vec<Got> {
    until("the last change has come", || numbers(&distributed(receiver)).last() == Some(&last)).await;
    distributed(receiver)
}

fn feed(gateway: &Gateway) -> String {
    format!("{}/feed", gateway.url)
}

#[tokio::test]
async fn a_topic_tells_where_its_hub_is() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    post(&gateway, 1).await;
    let hub = format!("{}/hub", gateway.url);
    let filtered = format!("{}?change=ADD&limit=5", feed(&gateway));
    for (asked, topic) in
        [(feed(&gateway), feed(&gateway)), (format!("{}?limit=5&change=ADD", feed(&gateway)), filtered.clone())]
    {
        for method in [reqwest::Method::GET, reqwest::Method::HEAD] {
            let answer = gateway.http.request(method, &asked).send().await.unwrap();
            let links = answer.headers()["link"].to_str().unwrap().to_owned();
            assert_eq!(links, format!("<{hub}>; rel=\"hub\", <{topic}>; rel=\"self\""));
        }
        let body = gateway.http.get(&asked).send().await.unwrap().text().await.unwrap();
        assert!(body.contains(&format!("<link href=\"{hub}\" rel=\"hub\"/>")), "{body}");
        let escaped = topic.replace('&', "&amp;");
        assert!(body.contains(&format!("<link href=\"{escaped}\" rel=\"self\"")), "{body}");
    }
}

#[tokio::test]
async fn new_entries_are_distributed_signed_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    post(&gateway, 1).await;
    let subscriber = agreeing(&fine()).await;
    let topic = feed(&gateway);
    let callback = format!("{}?key=a%20b&hub.mode=mine", subscriber.url());
    let asked = [("hub.lease_seconds", "120"), ("hub.secret", "pssst"), ("hub.unknown", "x")];
    subscribe(&gateway, &callback, &topic, &asked).await;
    let subscription = until_subscribed(&gateway, 1).await.remove(0);

    let verified = subscriber.got()[0].clone();
    // The callback's own query is kept as it is, with what is new behind it.
    assert!(verified.path.starts_with("/in?key=a%20b&hub.mode=mine&hub.mode=subscribe&"), "{}", verified.path);
    let told = query(&verified);
    assert_eq!((told["hub.topic"].as_str(), told["hub.lease_seconds"].as_str()), (topic.as_str(), "120"));
    assert!(told["hub.challenge"].len() >= 32);
    assert_eq!(verified.method, "GET");

    for number in 2..=40 {
        post(&gateway, number).await;
    }
    let posts = until_told(&subscriber, 40).await;
    assert_eq!(numbers(&posts), (2..=40).collect::<Vec<_>>(), "what was there before is no news");
    for got in &posts {
        assert_eq!(got.path, "/in?key=a%20b&hub.mode=mine");
        assert_eq!(got.header("content-type"), "application/atom+xml;type=feed");
        assert_eq!(got.header("link"), format!("<{}/hub>; rel=\"hub\", <{topic}>; rel=\"self\"", gateway.url));
        let mut mac = Hmac::<Sha256>::new_from_slice(b"pssst").unwrap();
        mac.update(&got.body);
        let signature = hex::encode(mac.finalize().into_bytes());
        assert_eq!(got.header("x-hub-signature"), format!("sha256={signature}"));
        feed_rs::parser::parse(&got.body[..]).unwrap();
    }
    let challenge = &told["hub.challenge"];
    assert!(!subscription.to_string().contains("pssst") && !subscription.to_string().contains(challenge));
    assert_eq!(subscription["definition"]["signed"], true);
    assert_eq!(subscription["definition"]["topic"], topic);
}

#[tokio::test]
async fn a_topic_with_a_filter_gets_what_it_wants() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let subscriber = agreeing(&fine()).await;
    let topic = format!("{}?object=http%3A%2F%2Fh.example%2Fobjects%2F2", feed(&gateway));
    subscribe(&gateway, &subscriber.url(), &topic, &[]).await;
    until_subscribed(&gateway, 1).await;
    assert_eq!(query(&subscriber.got()[0])["hub.lease_seconds"], "864000", "ten days where nobody says");
    for number in 1..=21 {
        post(&gateway, number).await;
    }
    let posts = until_told(&subscriber, 21).await;
    assert_eq!(numbers(&posts), [2, 20, 21]);
    assert!(posts.iter().all(|got| got.header("x-hub-signature").is_empty()), "there is no secret");
    let escaped = topic.replace('&', "&amp;");
    let body = String::from_utf8(posts[0].body.clone()).unwrap();
    assert!(body.contains(&format!("<link href=\"{escaped}\" rel=\"self\"")), "{body}");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_at_once() {
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
    for (parameters, wrong, told) in [
        (vec![], "hub.mode", "missing"),
        (base[..2].to_vec(), "hub.topic", "missing"),
        (with("hub.mode", "publish"), "hub.mode", "publishes nothing but"),
        (with("hub.callback", "http://subscriber.example/cb"), "hub.callback", "not encrypted"),
        (with("hub.callback", "https://127.0.0.1/cb"), "hub.callback", "127.0.0.1"),
        (with("hub.callback", "https://localhost/cb"), "hub.callback", "itself"),
        (with("hub.topic", "https://elsewhere.example/feed"), "hub.topic", "none of this hub"),
        (with("hub.topic", "feed"), "hub.topic", "none of this hub"),
        (with("hub.lease_seconds", "-5"), "hub.lease_seconds", "whole number"),
    ] {
        let (status, body) = ask(&gateway, &parameters).await;
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &problem["parameter"]), (400, &json!(wrong)), "{parameters:?}: {body}");
        assert_eq!(problem["type"], "urn:tidings:problem:invalid-hub-request");
        assert!(problem["detail"].as_str().unwrap().contains(told), "{told}: {body}");
    }
    for (query, told) in [("?chnge=ADD", "change"), ("?before=7", "before"), ("/archive/1", "none of this hub")] {
        let topic = format!("{topic}{query}");
        let mut parameters = base;
        parameters[2].1 = &topic;
        let (status, body) = ask(&gateway, &parameters).await;
        assert!(status == 400 && body.contains(told), "{query}: {body}");
    }
    let secret = "s3cr3t-".repeat(40);
    let mut long = base.to_vec();
    long.push(("hub.secret", &secret));
    let (status, body) = ask(&gateway, &long).await;
    assert!(status == 400 && body.contains("199 bytes") && !body.contains("s3cr3t"), "{body}");
    let plain = gateway.http.post(format!("{}/hub", gateway.url)).body("hub.mode=subscribe").send().await.unwrap();
    assert_eq!(plain.status(), 400);
    assert_eq!(of_hub(&gateway).await.len(), 0);
}

#[tokio::test]
async fn who_does_not_confirm_is_not_subscribed() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let elsewhere = agreeing(&fine()).await;
    let moved = elsewhere.url();
    // Each answers in its own wrong way, and the last in the right one.
    let subscriber = Receiver::start(move |_, got| {
        let right = challenge(got);
        match got.path.split('?').next().unwrap() {
            "/wrong" => Reply::Answer(200, vec![], "another".to_owned()),
            "/more" => Reply::Answer(200, vec![], format!("{right} and more")),
            "/empty" => Reply::Answer(204, vec![], String::new()),
            "/not-found" => Reply::Answer(404, vec![], right),
            "/failed" => Reply::Answer(500, vec![], right),
            "/moved" => Reply::Answer(302, vec![("location", format!("{moved}?{}", got.path))], right),
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
    until("all were asked", || subscriber.got().len() >= 9).await;
    assert_eq!(subscribed[0]["definition"]["callback"], format!("{base}/right"));
    post(&gateway, 1).await;
    until_told(&subscriber, 1).await;
    assert_eq!(of_hub(&gateway).await.len(), 1);
    assert!(elsewhere.got().is_empty(), "a redirect is not followed");
    assert!(distributed(&subscriber).iter().all(|got| got.path == "/right"));
}

/// A lease runs out, by the clock: the shortest there is.
#[tokio::test]
async fn a_lease_that_runs_out_ends_the_subscription() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &format!("{LOCAL}[hub]\nlongest_lease_seconds = 60\n"));
    let subscriber = agreeing(&fine()).await;
    let topic = feed(&gateway);
    let short = format!("{}/short", subscriber.url());
    let renewed = format!("{}/renewed", subscriber.url());
    let long = format!("{}/long", subscriber.url());
    subscribe(&gateway, &short, &topic, &[("hub.lease_seconds", "2")]).await;
    subscribe(&gateway, &renewed, &topic, &[("hub.lease_seconds", "2")]).await;
    subscribe(&gateway, &long, &topic, &[("hub.lease_seconds", "999999999")]).await;
    until_subscribed(&gateway, 3).await;
    // A renewal counts from when it is verified, has its own secret, and does not repeat what came before.
    post(&gateway, 1).await;
    until("the first is told", || distributed(&subscriber).len() == 3).await;
    subscribe(&gateway, &renewed, &topic, &[("hub.lease_seconds", "30"), ("hub.secret", "new")]).await;
    let began = Instant::now();
    while of_hub(&gateway).await.len() == 3 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "it ended by its lease, and not by a failure");
    let leases: Vec<_> = subscriber.got().iter().filter(|got| is_verification(got)).map(query).collect();
    let of = |lease: &str| leases.iter().filter(|told| told["hub.lease_seconds"] == lease).count();
    assert_eq!((of("2"), of("60"), of("30")), (2, 1, 1), "one that is too long is cut: {leases:?}");
    post(&gateway, 2).await;
    until("the others are told", || distributed(&subscriber).len() >= 5).await;
    let last = &distributed(&subscriber)[3..];
    let mut paths: Vec<_> = last.iter().map(|got| got.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/in/long", "/in/renewed"]);
    assert_eq!(numbers(last), [2, 2]);
    let signed = last.iter().find(|got| got.path == "/in/renewed").unwrap();
    assert!(signed.header("x-hub-signature").starts_with("sha256="));
}

#[tokio::test]
async fn unsubscribing_is_verified_too() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let topic = feed(&gateway);
    let agrees = Arc::new(AtomicU16::new(404));
    let told = Arc::clone(&agrees);
    let subscriber = Receiver::start(move |_, got| match query(got).get("hub.mode").map(String::as_str) {
        Some("unsubscribe") => Reply::Answer(told.load(Ordering::SeqCst), vec![], challenge(got)),
        _ => Reply::Answer(200, vec![], challenge(got)),
    })
    .await;
    subscribe(&gateway, &subscriber.url(), &topic, &[]).await;
    until_subscribed(&gateway, 1).await;
    // Somebody else asks for the end: the subscriber does not agree, and all stays as it is.
    unsubscribe(&gateway, &subscriber.url(), &topic).await;
    let asked = |mode: &str| {
        let got = subscriber.got();
        got.iter().filter(|got| query(got).get("hub.mode").is_some_and(|told| told == mode)).count()
    };
    until("it was asked", || asked("unsubscribe") == 1).await;
    post(&gateway, 1).await;
    until_told(&subscriber, 1).await;
    agrees.store(200, Ordering::SeqCst);
    unsubscribe(&gateway, &subscriber.url(), &topic).await;
    until_subscribed(&gateway, 0).await;
    let last = subscriber.got().last().cloned().unwrap();
    assert_eq!(
        (query(&last)["hub.mode"].as_str(), query(&last)["hub.topic"].as_str()),
        ("unsubscribe", topic.as_str())
    );
    post(&gateway, 2).await;
    assert_eq!(asked("denied"), 0, "who ends it is not told so");
    assert_eq!(numbers(&distributed(&subscriber)), [1]);
}

#[tokio::test]
async fn a_failing_subscriber_is_tried_again_and_one_that_is_gone_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let status = Arc::new(AtomicU16::new(500));
    let subscriber = agreeing(&status).await;
    subscribe(&gateway, &subscriber.url(), &feed(&gateway), &[]).await;
    let name = until_subscribed(&gateway, 1).await[0]["name"].as_str().unwrap().to_owned();
    post(&gateway, 1).await;
    let shown = gateway.until(&name, "it fails", |shown| shown["failures"].as_u64() >= Some(1)).await;
    assert!(shown["lastError"]["reason"].as_str().unwrap().contains("500"), "{shown:#}");
    post(&gateway, 2).await;
    status.store(302, Ordering::SeqCst);
    let failed = distributed(&subscriber).len();
    until("it is tried again", || distributed(&subscriber).len() > failed).await;
    status.store(200, Ordering::SeqCst);
    gateway.until_at(&name, 2).await;
    let mut told = numbers(&distributed(&subscriber));
    told.dedup();
    assert!(told.ends_with(&[1, 2]), "the first comes again with the second: {told:?}");
    status.store(410, Ordering::SeqCst);
    post(&gateway, 3).await;
    until_subscribed(&gateway, 0).await;
}

#[tokio::test]
async fn a_thousand_requests_for_one_callback_are_one_subscription() {
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("{LOCAL}[hub]\nper_callback = 3\n");
    let gateway = gateway(folder.path(), &lines);
    let subscriber = agreeing(&fine()).await;
    let (topic, callback) = (feed(&gateway), subscriber.url());
    let began = Instant::now();
    for _ in 0..10 {
        let crowd = (0..100).map(|_| subscribe(&gateway, &callback, &topic, &[]));
        futures_util::future::join_all(crowd).await;
    }
    until_subscribed(&gateway, 1).await;
    // What came last is verified too, a second after what came before.
    let most = 2 + usize::try_from(began.elapsed().as_secs()).unwrap();
    tokio::time::timeout(PATIENCE, async {
        while subscriber.got().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    let asked = subscriber.got().iter().filter(|got| is_verification(got)).count();
    assert!(asked <= most, "{asked} verifications in {:?}", began.elapsed());

    // One callback may have so many topics and no more: it is told so, and nothing else is asked of it.
    for number in 1..=4 {
        subscribe(&gateway, &callback, &format!("{topic}?limit={number}"), &[]).await;
    }
    until("the last is denied", || {
        let got = subscriber.got();
        got.iter().filter(|got| query(got).get("hub.mode").is_some_and(|mode| mode == "denied")).count() == 2
    })
    .await;
    let got = subscriber.got().clone();
    let denied = got.iter().find(|got| query(got)["hub.mode"] == "denied").unwrap();
    assert!(query(denied)["hub.reason"].contains("may have no more"), "{}", denied.path);
    assert!(query(denied)["hub.topic"].starts_with(&topic) && !query(denied).contains_key("hub.challenge"));
    until_subscribed(&gateway, 3).await;
}

#[tokio::test]
async fn subscriptions_survive_a_restart_and_the_operator_may_end_them() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let file = configuration(folder.path(), &format!("{LOCAL}[server]\npublic_url = \"http://gateway.example\"\n"));
    let start = || Gateway::start_logging(folder.path(), &["--config", &file], &log);
    let mut gateway = start();
    let topic = "http://gateway.example/feed";
    let subscriber = agreeing(&fine()).await;
    let kept = format!("{}/kept?key=pssst-key", subscriber.url());
    let short = format!("{}/short", subscriber.url());
    subscribe(&gateway, &kept, topic, &[("hub.secret", "pssst-secret")]).await;
    subscribe(&gateway, &short, topic, &[("hub.lease_seconds", "2")]).await;
    gateway.until_hub(2).await;
    gateway.until_hub(1).await;
    post(&gateway, 1).await;
    until_told(&subscriber, 1).await;
    let told = std::fs::read_to_string(&log).unwrap();
    gateway.kill();

    let gateway = start();
    post(&gateway, 2).await;
    let posts = until_told(&subscriber, 2).await;
    let last = posts.last().unwrap();
    assert!(last.path.starts_with("/in/kept") && last.header("x-hub-signature").starts_with("sha256="));
    assert_eq!(last.header("link"), format!("<http://gateway.example/hub>; rel=\"hub\", <{topic}>; rel=\"self\""));
    let name = of_hub(&gateway).await[0]["name"].as_str().unwrap().to_owned();

    // Nobody but the subscriber says what it is, and the operator may end it: the subscriber is told.
    let definition = json!({ "delivery": "amqp", "url": "amqp://h", "exchange": "x" });
    assert_eq!(gateway.ask("PUT", &format!("/subscriptions/{name}"), Some(definition)).await.0, 409);
    assert_eq!(gateway.ask("DELETE", &format!("/subscriptions/{name}"), None).await.0, 204);
    until("it is told", || {
        let got = subscriber.got();
        got.last().is_some_and(|got| query(got).get("hub.mode").is_some_and(|mode| mode == "denied"))
    })
    .await;
    let shown = gateway.json("/subscriptions").await.to_string();
    let told = told + &std::fs::read_to_string(&log).unwrap() + &shown;
    assert!(!told.contains("pssst-secret") && !told.contains("pssst-key"), "no secret comes out");
}

#[tokio::test]
async fn without_a_hub_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[hub]\nenabled = false\n");
    post_event(&gateway, &event(1)).await;
    let answer = gateway.http.get(feed(&gateway)).send().await.unwrap();
    assert!(!answer.headers().contains_key("link"));
    assert!(!answer.text().await.unwrap().contains("rel=\"hub\""));
    assert_eq!(ask(&gateway, &[("hub.mode", "subscribe")]).await.0, 404);
}

impl Gateway {
    /// Waits until the hub has so many subscriptions.
    async fn until_hub(&self, count: usize) {
        let began = Instant::now();
        while of_hub(self).await.len() != count {
            assert!(began.elapsed() < PATIENCE, "{count} subscriptions of the hub were expected");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
