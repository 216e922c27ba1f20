//! Administration of subscriptions: pause, resume, rewind and deletion, and their state after a restart.

use serde_json::{Value, json};

use crate::support::{
    rabbitmq::Broker,
    subscription_fixture::{gateway, index, post, seq},
};

fn definition(exchange: &str, start: &Value) -> Value {
    json!({
        "delivery": "amqp", "url": { "env": "TIDINGS_SECRET_RABBIT" }, "exchange": exchange, "start": start,
        "queues": [{ "name": exchange }]
    })
}

/// Starts a gateway with the broker's URL in its environment.
fn gateway_with_secret(data: &std::path::Path, url: &str) -> crate::support::gateway::Gateway {
    let mut command = crate::support::gateway::command();
    command.env("TIDINGS_SECRET_RABBIT", url).stderr(std::process::Stdio::null());
    let file = crate::support::journal_fixture::configuration(data, "[delivery]\nallow = [\"127.0.0.1\"]\n");
    crate::support::gateway::Gateway::start_as(command, data, &["--listen", "127.0.0.1:0", "--config", &file])
}

#[tokio::test]
async fn pause_survives_a_restart_and_rewind_repeats() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let lines = index(&vhost.url(), "");
    let first = gateway(folder.path(), &lines);
    for number in 1..=5 {
        post(&first, number).await;
    }
    first.until_at("index", 5).await;
    let (status, status_json) = first.ask("POST", "/subscriptions/index/pause", None).await;
    assert_eq!((status, &status_json["state"]), (200, &json!("paused")));
    post(&first, 6).await;
    assert!(first.stop().success());

    let gateway = gateway(folder.path(), &lines);
    post(&gateway, 7).await;
    let (_, status_json) = gateway.ask("GET", "/subscriptions/index", None).await;
    assert_eq!(
        (&status_json["state"], &status_json["cursor"], &status_json["lag"]["changes"]),
        (&json!("paused"), &json!(5), &json!(2))
    );
    let (_, status_json) = gateway.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": 4 }))).await;
    assert_eq!((&status_json["state"], &status_json["cursor"]), (&json!("paused"), &json!(3)));
    let (status, _) = gateway.ask("POST", "/subscriptions/index/resume", None).await;
    assert_eq!(status, 200);
    gateway.until_at("index", 7).await;
    let client = vhost.client().await;
    let seqs: Vec<_> = client.read("index", 9).await.iter().map(seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 4, 5, 6, 7]);

    for (to, at) in [(json!("beginning"), 0), (json!("now"), 7), (json!("2000-01-01T00:00:00Z"), 0)] {
        gateway.ask("POST", "/subscriptions/index/pause", None).await;
        let (status, status_json) = gateway.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": to }))).await;
        assert_eq!((status, &status_json["cursor"]), (200, &json!(at)), "{to}");
    }
    for (body, status) in [(json!({ "to": 99 }), 422), (json!({}), 422), (json!({ "from": 1 }), 422)] {
        assert_eq!(gateway.ask("POST", "/subscriptions/index/rewind", Some(body)).await.0, status);
    }
}

#[tokio::test]
async fn subscription_created_over_http_survives_a_restart_without_storing_its_secret() {
    crate::support::needs_sqlite();
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = gateway_with_secret(folder.path(), &vhost.url());
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    for (name, start, cursor) in [
        ("beginning", json!("beginning"), 0),
        ("now", json!("now"), 3),
        ("third", json!(3), 2),
        ("time", json!("2000-01-01T00:00:00.000Z"), 0),
    ] {
        let put = Some(definition(name, &start));
        let (status, status_json) = gateway.ask("PUT", &format!("/subscriptions/{name}"), put.clone()).await;
        assert_eq!(status, 201, "{status_json}");
        assert_eq!((&status_json["from"], &status_json["definition"]["start"]), (&json!("api"), &start));
        assert!(status_json["cursor"].as_u64().unwrap() >= cursor);
        assert_eq!(gateway.ask("PUT", &format!("/subscriptions/{name}"), put).await.0, 200);
    }
    post(&gateway, 4).await;
    let client = vhost.client().await;
    for (name, expected) in
        [("beginning", vec![1, 2, 3, 4]), ("now", vec![4]), ("third", vec![3, 4]), ("time", vec![1, 2, 3, 4])]
    {
        gateway.until_at(name, 4).await;
        let seqs: Vec<_> = client.read(name, expected.len()).await.iter().map(seq).collect();
        assert_eq!(seqs, expected, "{name}");
    }
    assert_eq!(gateway.ask("DELETE", "/subscriptions/time", None).await.0, 204);
    assert_eq!(gateway.ask("DELETE", "/subscriptions/time", None).await.0, 404);
    gateway.kill();
    let journal = std::fs::read(crate::support::journal_fixture::journal_file(folder.path())).unwrap();
    let secret = b"guest:guest@";
    assert!(!journal.windows(secret.len()).any(|window| window == secret));

    let gateway = gateway_with_secret(folder.path(), &vhost.url());
    post(&gateway, 5).await;
    gateway.until_at("now", 5).await;
    let all = gateway.json("/subscriptions").await;
    let names: Vec<_> = all["subscriptions"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["beginning", "now", "third"]);
    assert!(!all.to_string().contains("guest:guest"), "{all:#}");
    assert!(gateway.stop().success());

    // Without the secret in the environment the subscription cannot work, and reports that.
    let gateway = crate::support::gateway::Gateway::start(folder.path());
    let (_, status_json) = gateway.ask("GET", "/subscriptions/now", None).await;
    assert_eq!(status_json["state"], "failed");
    assert!(status_json["lastError"]["reason"].as_str().unwrap().contains("is not set"), "{status_json:#}");
    assert_eq!(gateway.ask("POST", "/subscriptions/now/resume", None).await.0, 409);
}

#[tokio::test]
async fn subscription_removed_from_the_configuration_keeps_its_cursor() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let lines = index(&vhost.url(), "");
    let with = gateway(folder.path(), &lines);
    post(&with, 1).await;
    with.until_at("index", 1).await;
    assert!(with.stop().success());

    let without = gateway(folder.path(), "");
    post(&without, 2).await;
    let (_, status_json) = without.ask("GET", "/subscriptions/index", None).await;
    assert_eq!(
        (&status_json["state"], &status_json["from"], &status_json["cursor"]),
        (&json!("orphaned"), &json!("config"), &json!(1))
    );
    assert!(without.stop().success());

    let with = gateway(folder.path(), &lines);
    with.until_at("index", 2).await;
    let client = vhost.client().await;
    assert_eq!(client.read("index", 2).await.iter().map(seq).collect::<Vec<_>>(), [1, 2]);
    assert!(with.stop().success());

    let without = gateway(folder.path(), "");
    assert_eq!(without.ask("DELETE", "/subscriptions/index", None).await.0, 204);
    assert_eq!(without.json("/subscriptions").await, json!({ "subscriptions": [] }));
}

#[tokio::test]
async fn subscription_with_an_expired_cursor_reports_it_and_can_be_rewound() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("[journal]\nkeep_changes = 10\n{}", index(&vhost.url(), ""));
    let gateway = gateway(folder.path(), &lines);
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    gateway.ask("POST", "/subscriptions/index/pause", None).await;
    for number in 2..=40 {
        post(&gateway, number).await;
    }
    let began = std::time::Instant::now();
    while gateway.ask("GET", "/changes?after=2", None).await.0 != 410 {
        assert!(began.elapsed() < crate::support::gateway::PATIENCE, "retention removes nothing");
    }
    gateway.ask("POST", "/subscriptions/index/resume", None).await;
    let status_json = gateway.until("index", "it notices", |status_json| status_json["state"] == "fell-behind").await;
    let reason = status_json["lastError"]["reason"].as_str().unwrap();
    assert!(reason.contains("changes after 1 are no longer available") && reason.contains("/snapshot"), "{reason}");
    let (status, _) = gateway.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": "beginning" }))).await;
    assert_eq!(status, 200);
    gateway.until_at("index", 40).await;
}
