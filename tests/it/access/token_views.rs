//! Tokens that are bound to a part of the journal: every surface and every subscription that is made with them has only that
//! part.

use std::time::Instant;

use serde_json::json;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    views_fixture::{OPEN, SECRET, SURFACES, ViewedGateway, live_through, token},
    websub_fixture::{confirming_subscriber, distributed, ok_status, until, until_distributed},
};

const TENANT: &str = "view = { objects = [\"http://h/tenant/\"] }";

/// Posts a change of an object, by a user.
async fn post(gateway: &ViewedGateway, object: &str, user: &str) {
    let item = json!({ "uri": object, "change": "ADD" });
    gateway.post(&json!({ "object": object, "user": { "name": user }, "items": [item] })).await;
}

#[tokio::test]
async fn token_with_a_view_sees_only_its_part() {
    let tokens = token("tenant", "read", TENANT) + &token("guest", "read", "view = { public = true }");
    let gateway = ViewedGateway::start(&tokens);
    live_through(&gateway, 10).await;
    post(&gateway, "http://h/tenant/1", "Ada").await;
    post(&gateway, &format!("{OPEN}late"), SECRET).await;
    let changes = gateway.changes("", Some("tenant")).await;
    assert_eq!(changes.len(), 1);
    // It is no view of the public, so it has names.
    assert_eq!(changes[0]["user"]["name"], "Ada");
    let id = changes[0]["id"].as_str().unwrap();
    for path in
        ["/feed", "/feed?limit=5", "/changes?after=0", "/snapshot", "/snapshot?former=true", &format!("/changes/{id}")]
    {
        let answer = gateway.get(path, Some("tenant")).await;
        assert!(answer.status == 200 && answer.body.contains("http://h/tenant/1"), "{path}: {}", answer.everything);
        assert!(!answer.everything.contains(SECRET) && !answer.body.contains(OPEN), "{path}: {}", answer.body);
        assert!(!answer.cache_control.contains("immutable"), "{path}: {}", answer.cache_control);
        let guest = gateway.get(path, Some("guest")).await;
        assert!(!guest.everything.contains("Ada"), "{path}: {}", guest.body);
    }
    let object = "/objects?uri=http%3A%2F%2Fh%2Ftenant%2F1";
    assert_eq!(gateway.get(object, Some("tenant")).await.status, 200);
    let other = format!("/objects?uri={OPEN}late");
    for (path, status) in [
        (&*other, 404),
        ("/changes/1", 404),
        ("/changes?object=http://h/", 403),
        ("/feed?object=http://h/open/", 403),
        ("/metrics", 403),
        ("/openapi.json", 403),
        ("/service", 403),
        ("/files/0", 403),
        ("/status", 403),
    ] {
        assert_eq!(gateway.get(path, Some("tenant")).await.status, status, "{path}");
    }
    // Details of the home page are for those who may see everything.
    let home = gateway.get("/", Some("tenant")).await.body;
    assert!(home == gateway.get("/", None).await.body && home != gateway.get("/", Some("reader")).await.body);
}

#[tokio::test]
async fn token_of_some_sources_cannot_read_the_registry() {
    let gateway = ViewedGateway::start(&token("part", "read", "view = { sources = [\"fedora3\"] }"));
    post(&gateway, "http://h/1", "Ada").await;
    for (path, status) in [
        ("/snapshot", 403),
        ("/objects?uri=http%3A%2F%2Fh%2F1", 403),
        ("/changes?source=content-change", 403),
        ("/changes/1", 404),
        ("/feed", 200),
    ] {
        assert_eq!(gateway.get(path, Some("part")).await.status, status, "{path}");
    }
    assert!(gateway.changes("", Some("part")).await.is_empty());
}

#[tokio::test]
async fn subscription_keeps_the_view_of_its_token() {
    let lasting = "[server]\npublic_url = \"http://gateway.example.org\"\n[delivery]\nallow = [\"127.0.0.1\"]\n";
    let mut gateway = ViewedGateway::start(&(lasting.to_owned() + &token("tenant", "read", TENANT)));
    let [tenant, whole] = [confirming_subscriber(&ok_status()).await, confirming_subscriber(&ok_status()).await];
    for (receiver, token) in [(&tenant, "tdg_tenant"), (&whole, "tdg_reader")] {
        let (callback, topic) = (receiver.url(), "http://gateway.example.org/feed");
        let form = [("hub.mode", "subscribe"), ("hub.callback", &callback), ("hub.topic", topic)];
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = gateway.gateway.http.post(format!("{}/hub", gateway.gateway.url)).bearer_auth(token).body(body);
        let response = request.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
        assert_eq!(response.status(), 202);
    }
    let began = Instant::now();
    loop {
        let all = gateway.get("/subscriptions", Some("admin")).await.json();
        if all["subscriptions"].as_array().unwrap().iter().filter(|one| one["state"] == "running").count() == 2 {
            assert!(all.to_string().contains(r#""view":{"objects":["http://h/tenant/"]}"#), "{all}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{all}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for round in 1..=2 {
        post(&gateway, &format!("http://h/tenant/{round}"), "Ada").await;
        post(&gateway, &format!("{OPEN}{SECRET}-{round}"), "Bob").await;
        post(&gateway, &format!("http://h/tenant/{round}-end"), "Ada").await;
        let end = format!("http://h/tenant/{round}-end");
        let texts = |receiver| -> String {
            let posts = distributed(receiver);
            posts.iter().map(|post| String::from_utf8_lossy(&post.body).into_owned()).collect()
        };
        until("both receivers have the end", || [&tenant, &whole].iter().all(|of| texts(of).contains(&end))).await;
        assert!(!texts(&tenant).contains(SECRET), "{}", texts(&tenant));
        assert!(texts(&whole).contains(SECRET));
        // The token is removed, and the gateway begins again.
        gateway.configure(lasting);
        gateway.gateway.kill();
        let (data, config) = (gateway.folder.path().join("data"), gateway.config.to_str().unwrap().to_owned());
        gateway.gateway = Gateway::start_with(&data, &["--config", &config]);
    }
    until_distributed(&whole, 6).await;
}

#[tokio::test]
async fn reload_changes_what_readers_see_and_ends_their_streams() {
    let public = |objects: &str| format!("[access.public]\nsurfaces = {SURFACES}\nobjects = [\"{objects}\"]\n");
    let mut gateway = ViewedGateway::start(&public("http://h/"));
    // A client that sends over an open connection while the gateway closes it has to send again, as at every server.
    gateway.gateway.http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    post(&gateway, "http://h/1", "Ada").await;
    let reload = async |gateway: &ViewedGateway| {
        let request = gateway.gateway.http.post(format!("{}/reload", gateway.gateway.url));
        assert!(request.bearer_auth("tdg_admin").send().await.unwrap().status().is_success());
    };
    for (next, status, count) in [(public(OPEN), 200, 0), (String::new(), 401, 0)] {
        let mut stream = gateway.request("/stream?after=0", None).send().await.unwrap();
        assert_eq!(stream.status(), 200);
        gateway.configure(&next);
        reload(&gateway).await;
        while stream.chunk().await.is_ok_and(|chunk| chunk.is_some()) {}
        // The server that ends may still answer a request that came at the same moment.
        let began = Instant::now();
        loop {
            let answer = gateway.get("/changes?after=0", None).await;
            let is_new = answer.status == status
                && (status != 200 || answer.json()["changes"].as_array().unwrap().len() == count);
            if is_new {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{}", answer.everything);
        }
    }
}
