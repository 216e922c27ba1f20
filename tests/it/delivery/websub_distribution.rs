//! Distribution by the WebSub hub, to a subscriber on a real socket.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
    subscription_fixture::{event, gateway, post, post_event},
    websub_fixture::{
        LOCAL, ask, confirming_subscriber, distributed, feed, hub_subscriptions, is_signed, is_verification, numbers,
        ok_status, query, subscribe, until, until_distributed, until_subscribed,
    },
};

#[tokio::test]
async fn topic_links_to_its_hub() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    post(&gateway, 1).await;
    let hub = format!("{}/hub", gateway.url);
    let filtered = format!("{}?change=ADD&limit=5", feed(&gateway));
    for (options, topic) in
        [(feed(&gateway), feed(&gateway)), (format!("{}?limit=5&change=ADD", feed(&gateway)), filtered.clone())]
    {
        for method in [reqwest::Method::GET, reqwest::Method::HEAD] {
            let answer = gateway.http.request(method, &options).send().await.unwrap();
            let links = answer.headers()["link"].to_str().unwrap().to_owned();
            assert_eq!(links, format!("<{hub}>; rel=\"hub\", <{topic}>; rel=\"self\""));
        }
        let body = gateway.http.get(&options).send().await.unwrap().text().await.unwrap();
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
    let subscriber = confirming_subscriber(&ok_status()).await;
    let topic = feed(&gateway);
    let callback = format!("{}?key=a%20b&hub.mode=mine", subscriber.url());
    let options = [("hub.lease_seconds", "120"), ("hub.secret", "pssst"), ("hub.unknown", "x")];
    subscribe(&gateway, &callback, &topic, &options).await;
    let subscription = until_subscribed(&gateway, 1).await.remove(0);

    let verification = subscriber.requests()[0].clone();
    // The callback's own query is preserved, and the hub's parameters follow it.
    assert!(verification.path.starts_with("/in?key=a%20b&hub.mode=mine&hub.mode=subscribe&"), "{}", verification.path);
    let parameters = query(&verification);
    assert_eq!((parameters["hub.topic"].as_str(), parameters["hub.lease_seconds"].as_str()), (topic.as_str(), "120"));
    assert!(parameters["hub.challenge"].len() >= 32);
    assert_eq!(verification.method, "GET");

    for number in 2..=40 {
        post(&gateway, number).await;
    }
    let posts = until_distributed(&subscriber, 40).await;
    assert_eq!(numbers(&posts), (2..=40).collect::<Vec<_>>(), "earlier entries are not distributed");
    for request in &posts {
        assert_eq!(request.path, "/in?key=a%20b&hub.mode=mine");
        assert_eq!(request.header("content-type"), "application/atom+xml;type=feed");
        assert_eq!(request.header("link"), format!("<{}/hub>; rel=\"hub\", <{topic}>; rel=\"self\"", gateway.url));
        assert!(is_signed(request, "pssst"));
        feed_rs::parser::parse(&request.body[..]).unwrap();
    }
    let challenge = &parameters["hub.challenge"];
    assert!(!subscription.to_string().contains("pssst") && !subscription.to_string().contains(challenge));
    assert_eq!(subscription["definition"]["signed"], true);
    assert_eq!(subscription["definition"]["topic"], topic);
}

#[tokio::test]
async fn topic_with_a_filter_distributes_only_matches() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let subscriber = confirming_subscriber(&ok_status()).await;
    let topic = format!("{}?object=http%3A%2F%2Fh.example%2Fobjects%2F2", feed(&gateway));
    subscribe(&gateway, &subscriber.url(), &topic, &[]).await;
    until_subscribed(&gateway, 1).await;
    assert_eq!(query(&subscriber.requests()[0])["hub.lease_seconds"], "864000", "default of ten days");
    for number in 1..=21 {
        post(&gateway, number).await;
    }
    let posts = until_distributed(&subscriber, 21).await;
    assert_eq!(numbers(&posts), [2, 20, 21]);
    assert!(posts.iter().all(|request| request.header("x-hub-signature").is_empty()), "there is no secret");
    let escaped = topic.replace('&', "&amp;");
    let body = String::from_utf8(posts[0].body.clone()).unwrap();
    assert!(body.contains(&format!("<link href=\"{escaped}\" rel=\"self\"")), "{body}");
}

/// The lease expires in real time, with the shortest duration.
#[tokio::test]
async fn lease_expiry_ends_the_subscription() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &format!("{LOCAL}[hub]\nlongest_lease_seconds = 60\n"));
    let subscriber = confirming_subscriber(&ok_status()).await;
    let topic = feed(&gateway);
    let short = format!("{}/short", subscriber.url());
    let renewed = format!("{}/renewed", subscriber.url());
    let long = format!("{}/long", subscriber.url());
    subscribe(&gateway, &short, &topic, &[("hub.lease_seconds", "2")]).await;
    subscribe(&gateway, &renewed, &topic, &[("hub.lease_seconds", "2")]).await;
    subscribe(&gateway, &long, &topic, &[("hub.lease_seconds", "999999999")]).await;
    until_subscribed(&gateway, 3).await;
    // A renewal counts from its verification, has its own secret, and does not repeat earlier entries.
    post(&gateway, 1).await;
    until("the first entry is distributed", || distributed(&subscriber).len() == 3).await;
    subscribe(&gateway, &renewed, &topic, &[("hub.lease_seconds", "30"), ("hub.secret", "new")]).await;
    let began = Instant::now();
    while hub_subscriptions(&gateway).await.len() == 3 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "the subscription ended by its lease, not by a failure");
    let leases: Vec<_> = subscriber.requests().iter().filter(|request| is_verification(request)).map(query).collect();
    let of = |lease: &str| leases.iter().filter(|parameters| parameters["hub.lease_seconds"] == lease).count();
    assert_eq!((of("2"), of("60"), of("30")), (2, 1, 1), "one that is too long is cut: {leases:?}");
    post(&gateway, 2).await;
    until("the second entry is distributed", || distributed(&subscriber).len() >= 5).await;
    let last = &distributed(&subscriber)[3..];
    let mut paths: Vec<_> = last.iter().map(|request| request.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/in/long", "/in/renewed"]);
    assert_eq!(numbers(last), [2, 2]);
    let signed = last.iter().find(|request| request.path == "/in/renewed").unwrap();
    assert!(signed.header("x-hub-signature").starts_with("sha256="));
}

#[tokio::test]
async fn failing_subscriber_is_retried_and_410_ends_the_subscription() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let status = Arc::new(AtomicU16::new(500));
    let subscriber = confirming_subscriber(&status).await;
    subscribe(&gateway, &subscriber.url(), &feed(&gateway), &[]).await;
    let name = until_subscribed(&gateway, 1).await[0]["name"].as_str().unwrap().to_owned();
    post(&gateway, 1).await;
    let status_json =
        gateway.until(&name, "the subscription fails", |status_json| status_json["failures"].as_u64() >= Some(1)).await;
    assert!(status_json["lastError"]["reason"].as_str().unwrap().contains("500"), "{status_json:#}");
    post(&gateway, 2).await;
    status.store(302, Ordering::SeqCst);
    let failed = distributed(&subscriber).len();
    until("the distribution is retried", || distributed(&subscriber).len() > failed).await;
    status.store(200, Ordering::SeqCst);
    gateway.until_at(&name, 2).await;
    let mut parameters = numbers(&distributed(&subscriber));
    parameters.dedup();
    assert!(parameters.ends_with(&[1, 2]), "the first comes again with the second: {parameters:?}");
    status.store(410, Ordering::SeqCst);
    post(&gateway, 3).await;
    until_subscribed(&gateway, 0).await;
}

#[tokio::test]
async fn subscriptions_survive_a_restart_and_can_be_deleted_by_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let file = configuration(folder.path(), &format!("{LOCAL}[server]\npublic_url = \"http://gateway.example\"\n"));
    let start = || Gateway::start_logging(folder.path(), &["--config", &file], &log);
    let mut gateway = start();
    let topic = "http://gateway.example/feed";
    let subscriber = confirming_subscriber(&ok_status()).await;
    let lasting = format!("{}/kept?key=pssst-key", subscriber.url());
    let short = format!("{}/short", subscriber.url());
    subscribe(&gateway, &lasting, topic, &[("hub.secret", "pssst-secret")]).await;
    subscribe(&gateway, &short, topic, &[("hub.lease_seconds", "2")]).await;
    gateway.until_hub(2).await;
    gateway.until_hub(1).await;
    post(&gateway, 1).await;
    until_distributed(&subscriber, 1).await;
    let parameters = std::fs::read_to_string(&log).unwrap();
    gateway.kill();

    let gateway = start();
    post(&gateway, 2).await;
    let posts = until_distributed(&subscriber, 2).await;
    let last = posts.last().unwrap();
    assert!(last.path.starts_with("/in/kept") && last.header("x-hub-signature").starts_with("sha256="));
    assert_eq!(last.header("link"), format!("<http://gateway.example/hub>; rel=\"hub\", <{topic}>; rel=\"self\""));
    let name = hub_subscriptions(&gateway).await[0]["name"].as_str().unwrap().to_owned();

    // Only the subscriber can define its subscription. The operator can delete it, and the subscriber is
    // notified.
    let definition = json!({ "delivery": "amqp", "url": "amqps://h", "exchange": "x" });
    assert_eq!(gateway.ask("PUT", &format!("/subscriptions/{name}"), Some(definition)).await.0, 409);
    assert_eq!(gateway.ask("DELETE", &format!("/subscriptions/{name}"), None).await.0, 204);
    until("the denial arrives", || {
        let requests = subscriber.requests();
        requests.last().is_some_and(|request| query(request).get("hub.mode").is_some_and(|mode| mode == "denied"))
    })
    .await;
    let status_json = gateway.json("/subscriptions").await.to_string();
    let parameters = parameters + &std::fs::read_to_string(&log).unwrap() + &status_json;
    assert!(!parameters.contains("pssst-secret") && !parameters.contains("pssst-key"), "no secret comes out");
}

#[tokio::test]
async fn disabled_hub_is_neither_linked_nor_served() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[hub]\nenabled = false\n");
    post_event(&gateway, &event(1)).await;
    let answer = gateway.http.get(feed(&gateway)).send().await.unwrap();
    assert!(!answer.headers().contains_key("link"));
    assert!(!answer.text().await.unwrap().contains("rel=\"hub\""));
    assert_eq!(ask(&gateway, &[("hub.mode", "subscribe")]).await.0, 404);
}

/// Every test that `docs/internals/websub-notes.md` names exists.
#[test]
fn websub_page_names_existing_tests() {
    let page = include_str!("../../../docs/internals/websub-notes.md");
    let tests = [
        include_str!("websub_distribution.rs"),
        include_str!("websub_verification.rs"),
        include_str!("websub_library.rs"),
        include_str!("../../../src/delivery/websub/request.rs"),
    ]
    .concat();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("MUST"));
    let named: Vec<_> = rows.map(|row| row.trim_end_matches(" |").rsplit("| ").next().unwrap()).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named.iter().flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')) {
        assert!(tests.contains(&format!("fn {name}()")), "{name}");
    }
}
