//! Senders that disconnect while a repository is slow leave nothing behind: their lookups end by their own time
//! limit, and the next lookup is sent.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{
    lookups::{
        failures::{repository, url},
        fedora3::repository_config,
    },
    support::{
        fake_fedora3::FakeFedora3,
        fake_repository::Behaviour,
        fedora3_messages::Call,
        gateway::{Gateway, PATIENCE},
        journal_fixture::configuration,
    },
};

fn modified(number: u64, pid: &str) -> String {
    let parameters = &[("dsID", "OBJ"), ("dsContent", "[OMITTED]")];
    Call { number, method: "modifyDatastreamByValue", pid, parameters, returned: None }.message()
}

async fn lookup(gateway: &Gateway) -> Value {
    let sources = gateway.json("/sources").await;
    let all = sources["sources"].as_array().unwrap();
    all.iter().find(|source| source["name"] == "fedora3").unwrap()["lookup"].clone()
}

/// One lookup may be in flight, the repository is silent, and three senders disconnect. Then the repository
/// answers again.
async fn abandon(mode: &str) -> (tempfile::TempDir, Gateway, FakeFedora3) {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    let config = repository_config(mode, &url(&repository), "in_flight = 1\ntimeout_seconds = 2");
    let config = configuration(folder.path(), &config);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    repository.set_behaviour(Behaviour::Silent);
    for number in 1..=3 {
        let hook =
            gateway.http.post(format!("{}/hooks/fedora3", gateway.url)).header("content-type", "application/atom+xml");
        let body = modified(number, &format!("demo:{number}"));
        let sent = hook.timeout(Duration::from_millis(300)).body(body).send().await;
        assert!(sent.unwrap_err().is_timeout());
    }
    assert!(!repository.requests().is_empty());
    repository.set_behaviour(Behaviour::Normal);
    (folder, gateway, repository)
}

#[tokio::test]
async fn abandoned_requests_free_permits_for_required_lookups() {
    let (_folder, gateway, _repository) = abandon("required").await;
    let began = Instant::now();
    loop {
        let (status, answer) = gateway.post("fedora3", "application/atom+xml", modified(9, "demo:1")).await;
        if status == 201 {
            return;
        }
        assert_eq!(status, 503, "{answer}");
        assert!(began.elapsed() < PATIENCE, "{answer} {}", lookup(&gateway).await);
    }
}

#[tokio::test]
async fn abandoned_requests_free_permits_for_follow_up_lookups() {
    let (_folder, gateway, _repository) = abandon("best-effort").await;
    assert_eq!(gateway.post("fedora3", "application/atom+xml", modified(9, "demo:1")).await.0, 201);
    let began = Instant::now();
    loop {
        let details = lookup(&gateway).await;
        if details["incomplete"] == 0 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{details}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
