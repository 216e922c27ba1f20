//! Repositories that respond slowly, with errors, with nonsense or not at all. With best effort the change is
//! announced with the known facts and a mark, and completed as soon as the repository responds, even across
//! restarts. With a required lookup the event waits unacknowledged.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    lookups::fedora3::repository_config,
    support::{
        fake_fedora3::{FakeFedora3, Fedora3, PATH},
        fake_repository::{Behaviour, FakeRepository},
        fedora3_messages::{BASE, Call},
        gateway::{Gateway, PATIENCE, free_address},
        http_receiver::{Receiver, Reply},
        journal_fixture::configuration,
    },
};

/// One behaviour for each kind of failure.
pub(crate) const FAILURES: [Behaviour; 4] =
    [Behaviour::Status(500), Behaviour::Status(401), Behaviour::Nonsense, Behaviour::Silent];

const OBJ: (&str, &str) = ("dsID", "OBJ");

/// Time limit of one second for a lookup.
pub(crate) const SOON: &str = "timeout_seconds = 1";

pub(crate) async fn repository() -> FakeFedora3 {
    let repository: FakeFedora3 = FakeRepository::start(Fedora3::default()).await;
    repository.api.ingest("demo:1");
    repository.api.relate("demo:1", "isMemberOf", "demo:all", 1);
    repository
}

fn start(folder: &Path, mode: &str, url: &str) -> Gateway {
    std::fs::create_dir_all(folder).unwrap();
    let config = configuration(folder, &repository_config(mode, url, SOON));
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}

pub(crate) fn url(repository: &FakeFedora3) -> String {
    format!("{}{PATH}", repository.url())
}

/// Returns a message about a modification of OBJ.
pub(crate) fn modified(second: u64) -> String {
    let parameters = &[OBJ, ("dsContent", "[OMITTED]")];
    Call { number: second, method: "modifyDatastreamByValue", pid: "demo:1", parameters, returned: None }.message()
}

async fn post(gateway: &Gateway, second: u64) -> (u16, Value) {
    gateway.post("fedora3", "application/atom+xml", modified(second)).await
}

/// Returns the repository of the source as the gateway shows it.
pub(crate) async fn lookup(gateway: &Gateway, source: &str) -> Value {
    let sources = gateway.json("/sources").await;
    let all = sources["sources"].as_array().unwrap();
    all.iter().find(|held| held["name"] == source).unwrap()["lookup"].clone()
}

pub(crate) async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until no change is incomplete; returns all changes.
async fn until_complete(gateway: &Gateway) -> Vec<Value> {
    until("every change is complete", async || (lookup(gateway, "fedora3").await["incomplete"] == 0).then_some(()))
        .await;
    gateway.changes().await
}

/// Panics unless the first change is incomplete and the next one completes it.
fn assert_completed(changes: &[Value], media_type: &str) {
    let [incomplete, update] = changes else { panic!("{changes:#?}") };
    assert_eq!(
        (&incomplete["lookup"], &incomplete["items"][0]["content"]["mediaType"]),
        (&json!("incomplete"), &Value::Null)
    );
    assert_eq!(update["lookup"], Value::Null, "{update:#}");
    for member in ["time", "sourceEventId", "object", "user", "description"] {
        assert_eq!(update[member], incomplete[member], "{member}");
    }
    let (item, before) = (&update["items"][0], &incomplete["items"][0]);
    assert_eq!((&item["change"], &item["uri"]), (&json!("UPDATE"), &before["uri"]));
    assert_eq!(
        (&item["content"]["mediaType"], &item["content"]["url"]),
        (&json!(media_type), &before["content"]["url"])
    );
    assert_eq!(update["parent"], format!("{BASE}/objects/demo:all"));
    assert_eq!(update["late"], Value::Null, "{update:#}");
}

#[tokio::test]
async fn best_effort_completes_the_change_later() {
    for behaviour in FAILURES {
        let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
        repository.api.write("demo:1", "OBJ", "image/jp2", 2);
        repository.set_behaviour(behaviour);
        let gateway = start(folder.path(), "best-effort", &url(&repository));
        let (status, response) = post(&gateway, 2).await;
        assert_eq!(status, 201, "{behaviour:?}: {response}");
        let details = lookup(&gateway, "fedora3").await;
        assert_eq!((&details["mode"], &details["incomplete"]), (&json!("best-effort"), &json!(1)), "{details}");
        assert!(details["lastError"]["reason"].is_string(), "{details}");
        let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
        assert!(metrics.contains("tidings_incomplete_changes{source=\"fedora3\"} 1"), "{metrics}");
        repository.set_behaviour(Behaviour::Normal);
        assert_completed(&until_complete(&gateway).await, "image/jp2");
        // Neither a duplicate nor a restart repeats the completion.
        assert_eq!(post(&gateway, 2).await.1["outcome"], "duplicate");
        assert!(gateway.stop().success());
        let gateway = start(folder.path(), "best-effort", &url(&repository));
        assert_eq!(until_complete(&gateway).await.len(), 2);
    }
}

#[tokio::test]
async fn slow_response_is_awaited() {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    repository.api.write("demo:1", "OBJ", "image/jp2", 2);
    repository.set_behaviour(Behaviour::Slow(Duration::from_millis(200)));
    for mode in ["best-effort", "required"] {
        let gateway = start(&folder.path().join(mode), mode, &url(&repository));
        assert_eq!(post(&gateway, 2).await.0, 201);
        let changes = gateway.changes().await;
        assert_eq!(
            (&changes[0]["items"][0]["content"]["mediaType"], &changes[0]["lookup"]),
            (&json!("image/jp2"), &Value::Null)
        );
    }
    // The absence of a resource is a valid response.
    repository.set_behaviour(Behaviour::Status(404));
    for mode in ["best-effort", "required"] {
        let gateway = start(&folder.path().join(mode), mode, &url(&repository));
        assert_eq!(post(&gateway, 3).await.0, 201);
        assert_eq!(gateway.changes().await[1]["lookup"], "gone");
    }
}

#[tokio::test]
async fn unreachable_repository_completes_the_change_later() {
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let gateway = start(folder.path(), "best-effort", &format!("http://{address}{PATH}"));
    for second in 2..20 {
        assert_eq!(post(&gateway, second).await.0, 201);
    }
    let details = lookup(&gateway, "fedora3").await;
    assert_eq!((&details["incomplete"], &details["state"]), (&json!(18), &json!("circuit-open")), "{details}");
    assert!(details["nextAttempt"].is_string(), "{details}");
}

#[tokio::test]
async fn kill_9_loses_no_pending_lookup() {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    repository.api.write("demo:1", "OBJ", "image/jp2", 2);
    repository.set_behaviour(Behaviour::Status(503));
    let mut gateway = start(folder.path(), "best-effort", &url(&repository));
    assert_eq!(post(&gateway, 2).await.0, 201);
    for _ in 0..3 {
        gateway.kill();
        gateway = start(folder.path(), "best-effort", &url(&repository));
        until("the change is counted as incomplete", async || {
            (lookup(&gateway, "fedora3").await["incomplete"] == 1).then_some(())
        })
        .await;
    }
    repository.set_behaviour(Behaviour::Normal);
    assert_completed(&until_complete(&gateway).await, "image/jp2");
    gateway.kill();
    let gateway = start(folder.path(), "best-effort", &url(&repository));
    assert_eq!(until_complete(&gateway).await.len(), 2);
}

#[tokio::test]
async fn outdated_lookup_is_not_reported() {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    repository.set_behaviour(Behaviour::Status(500));
    let gateway = start(folder.path(), "best-effort", &url(&repository));
    assert_eq!(post(&gateway, 2).await.0, 201);
    repository.set_behaviour(Behaviour::Normal);
    repository.api.write("demo:1", "OBJ", "image/jp2", 2);
    repository.api.write("demo:1", "OBJ", "image/png", 3);
    let purge = Call { number: 9, method: "purgeObject", pid: "demo:1", parameters: &[], returned: None };
    // A purge needs no lookup, so the circuit may stay open.
    assert_eq!(gateway.post("fedora3", "application/atom+xml", purge.message()).await.0, 201);
    let changes = until_complete(&gateway).await;
    let completed_before = changes.len() == 3 && changes[1]["items"][0]["content"]["mediaType"] == "image/jp2";
    assert!(changes.len() == 2 || completed_before, "{changes:#?}");
    let details = gateway.json(&format!("/objects?uri={BASE}/objects/demo:1")).await;
    assert!(details["items"].as_array().unwrap().iter().all(|item| item["live"] == false), "{details}");
}

#[tokio::test]
async fn ingest_is_completed_with_its_datastreams() {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    repository.api.write("demo:1", "DC", "text/xml", 1);
    repository.api.write("demo:1", "OBJ", "image/jp2", 1);
    repository.set_behaviour(Behaviour::Nonsense);
    let gateway = start(folder.path(), "best-effort", &url(&repository));
    let ingest = Call { number: 1, method: "ingest", pid: "demo:1", parameters: &[], returned: Some("demo:1") };
    assert_eq!(gateway.post("fedora3", "application/atom+xml", ingest.message()).await.0, 201);
    repository.set_behaviour(Behaviour::Normal);
    let changes = until_complete(&gateway).await;
    let [incomplete, update] = &changes[..] else { panic!("{changes:#?}") };
    assert_eq!((&incomplete["lookup"], incomplete["items"].as_array().unwrap().len()), (&json!("incomplete"), 1));
    let names = |change: &Value| {
        let items = change["items"].as_array().unwrap().clone();
        let last = |item: &Value| {
            item["uri"].as_str().unwrap().trim_end_matches("/content").rsplit('/').next().unwrap().to_owned()
        };
        items.iter().map(|item| (last(item), item["change"].as_str().unwrap().to_owned())).collect::<Vec<_>>()
    };
    let expected = [("demo:1", "UPDATE"), ("DC", "ADD"), ("OBJ", "ADD"), ("RELS-EXT", "ADD")];
    assert_eq!(names(update), expected.map(|(name, change)| (name.to_owned(), change.to_owned())));
    assert_eq!(update["parent"], format!("{BASE}/objects/demo:all"));
}

#[tokio::test]
async fn failing_repository_opens_the_circuit() {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    repository.set_behaviour(Behaviour::Status(500));
    let gateway = start(folder.path(), "best-effort", &url(&repository));
    let began = Instant::now();
    for second in 0..200 {
        assert_eq!(post(&gateway, second).await.0, 201);
    }
    // Requests at the beginning, and one for each trial while the circuit is open.
    let tries = usize::try_from(began.elapsed().as_secs()).unwrap() * 2 + 12;
    let requests = repository.requests().len();
    assert!(requests <= tries, "{requests} requests in {:?}", began.elapsed());
    repository.set_behaviour(Behaviour::Normal);
    assert_eq!(until_complete(&gateway).await.len(), 400, "each has an UPDATE with the mark `gone`");
}

#[tokio::test]
async fn required_lookup_failure_makes_the_hook_return_503() {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    repository.api.write("demo:1", "OBJ", "image/jp2", 2);
    let gateway = start(folder.path(), "required", &url(&repository));
    for behaviour in FAILURES {
        repository.set_behaviour(behaviour);
        let sent = gateway.http.post(format!("{}/hooks/fedora3", gateway.url)).body(modified(2)).send().await.unwrap();
        assert_eq!(sent.status(), 503, "{behaviour:?}");
        let seconds: u64 = sent.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=61).contains(&seconds), "{seconds}");
        let problem: Value = serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap();
        assert!(problem["detail"].as_str().unwrap().contains("wait for its repository"), "{problem}");
    }
    assert_eq!(gateway.changes().await.len(), 0);
    repository.set_behaviour(Behaviour::Normal);
    until("the event is accepted", async || (post(&gateway, 2).await.0 == 201).then_some(())).await;
    let changes = gateway.changes().await;
    assert_eq!(
        (&changes[0]["lookup"], &changes[0]["items"][0]["content"]["mediaType"]),
        (&Value::Null, &json!("image/jp2"))
    );
}

/// Behaviour that no correct server shows.
#[tokio::test]
async fn truncated_and_endless_responses_are_failures() {
    for reply in [Reply::Close, Reply::Hang, Reply::Flood(200)] {
        let folder = tempfile::tempdir().unwrap();
        let replied = reply.clone();
        let receiver = Receiver::start(move |_, _| replied.clone()).await;
        let gateway = start(folder.path(), "best-effort", &format!("http://{}{PATH}", receiver.address));
        assert_eq!(post(&gateway, 2).await.0, 201, "{reply:?}");
        assert_eq!(gateway.changes().await[0]["lookup"], "incomplete");
        // Two responses of 4 MiB, bytes in flight, and repeated requests.
        assert!(receiver.flooded() < 100_000_000, "{} bytes", receiver.flooded());
        assert!(gateway.stop().success());
    }
}

#[tokio::test]
async fn disabled_lookup_sends_no_request() {
    let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
    let gateway = start(folder.path(), "off", &url(&repository));
    assert_eq!(post(&gateway, 2).await.0, 201);
    assert_eq!((&gateway.changes().await[0]["lookup"], lookup(&gateway, "fedora3").await), (&Value::Null, Value::Null));
    assert!(repository.requests().is_empty());
}
