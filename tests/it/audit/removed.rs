//! The audits of a harvest are removed with it, even if one of them runs.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{harvests::post, report_at};
use crate::support::{
    folder_fixture::put,
    gateway::{Gateway, PATIENCE},
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
};

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_a_removed_harvest_leaves_nothing() {
    // The server never answers, so the audit runs until it is stopped.
    let server = Receiver::start(|_, _| Reply::Hang).await;
    let folder = tempfile::tempdir().unwrap();
    let share = folder.path().join("share");
    put(&share.join("a.txt"), "a", Duration::from_secs(3600));
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n\
         [sources.share]\ntransport = \"folder\"\ndialect = \"folder\"\npath = {share:?}\nmode = \"once\"\n"
    );
    let (config, log) = (configuration(folder.path(), &lines), folder.path().join("log"));
    let gateway = Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &log);
    let add = async || {
        let url = format!("http://{}/feed", server.address);
        let new =
            json!({ "name": "news", "transport": "feed", "dialect": "feed", "url": url, "mode": "once" }).to_string();
        let answer = gateway.http.post(format!("{}/harvests", gateway.url)).body(new);
        let answer = answer.header("content-type", "application/json").send().await.unwrap();
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    };
    add().await;
    post(&gateway, "/sources/news/audit").await;
    until(|| async { gateway.json("/sources/news/audit").await["audit"]["state"] == "running" }).await;
    let answer = gateway.http.delete(format!("{}/harvests/news", gateway.url)).send().await.unwrap();
    assert_eq!(answer.status(), 204);
    // Another audit wakes the runner, which stops the one of the removed harvest.
    report_at(&gateway.url, "share", &[]).await;
    until(|| async { fs::read_to_string(&log).unwrap().contains("the audits of a removed harvest are removed") }).await;
    add().await;
    assert_eq!(gateway.json("/sources/news/audit").await["audit"], Value::Null);
}

async fn until<F: Future<Output = bool>>(condition: impl Fn() -> F) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
