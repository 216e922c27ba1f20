//! Cursors of readers: the default under retention, the lag after a restore, and the mark on snapshot pages
//! when the registry was seeded meanwhile.

use serde_json::json;

use crate::support::{
    gateway::{Gateway, PATIENCE, free_address},
    journal_fixture::{configuration, post, run},
    subscription_fixture::gateway,
    webhook_fixture::webhook,
};

async fn status(gateway: &Gateway, path: &str) -> u16 {
    gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn cursor_defaults_to_the_oldest_retained_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 3\n");
    for number in 1..=10 {
        post(&gateway, number).await;
    }
    let began = std::time::Instant::now();
    while status(&gateway, "/changes?after=6").await != 410 {
        assert!(began.elapsed() < PATIENCE, "retention takes too long");
        post(&gateway, 11 + fastrand::u64(..1 << 40)).await;
    }
    let page = gateway.json("/changes?limit=1").await;
    assert!(page["changes"][0]["seq"].as_u64().unwrap() > 6, "{page}");
    assert_eq!(status(&gateway, "/changes?after=0").await, 410, "expired cursor");
}

#[tokio::test]
async fn cursor_lag_after_a_restore_counts_changes() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let lines = webhook("index", &format!("http://{}/", free_address()), "");
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let file = folder.path().join("backup");
    assert!(run("backup", &[&file, "--data".as_ref(), &data]).status.success());
    assert!(gateway.stop().success());
    assert!(run("restore", &[&file, "--force".as_ref(), "--data".as_ref(), &data]).status.success());
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    for number in 4..=5 {
        assert!(post(&gateway, number).await > 1000);
    }
    let details = gateway.json("/subscriptions/index").await;
    assert_eq!((&details["cursor"], &details["lag"]["changes"]), (&json!(0), &json!(5)), "{details}");
    let began = std::time::Instant::now();
    let line = "tidings_subscription_lag_changes{subscription=\"index\"} 5\n";
    loop {
        let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
        if metrics.contains(line) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{metrics}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn snapshot_pages_report_registry_seeding() {
    let folder = tempfile::tempdir().unwrap();
    let started = gateway(folder.path(), "");
    let part = |part: u64, object: &str| {
        let at = "2020-01-01T00:00:00Z";
        let found = json!({ "object": object, "at": at, "items": [{ "uri": object, "at": at }] });
        json!({ "walk": "01935c5a-0000-7000-8000-000000000001", "part": part, "place": "", "objects": [found] })
    };
    let seed =
        async |gateway: &Gateway, body| gateway.ask("POST", "/sources/content-change/registry", Some(body)).await.0;
    for (number, object) in (1..).zip(["http://h/1", "http://h/2", "http://h/5"]) {
        assert_eq!(seed(&started, part(number, object)).await, 200);
    }
    let first = started.json("/snapshot?limit=2").await;
    assert_eq!(seed(&started, part(4, "http://h/0")).await, 200);
    let next = first["next"].as_str().unwrap();
    let last = started.json(&format!("/snapshot?limit=2&after={next}")).await;
    assert_ne!(first["seeds"], last["seeds"], "{first} {last}");
    post(&started, 1).await;
    let calm = started.json("/snapshot").await;
    assert_eq!(calm["seeds"], last["seeds"], "a batch contains a single change");
    assert!(started.stop().success());
    let again = gateway(folder.path(), "").json("/snapshot").await;
    assert_eq!(again["seeds"], calm["seeds"]);
}
