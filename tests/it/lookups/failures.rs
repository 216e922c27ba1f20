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
        activemq::Broker,
        amqp_source::{SOURCE, connection},
        fake_fedora3::{FakeFedora3, Fedora3, PATH, time},
        fake_repository::{Behaviour, FakeRepository},
        fake_stomp_broker::FakeStompBroker,
        fedora3_messages::{BASE, Call},
        gateway::{Gateway, PATIENCE, free_address},
        http_receiver::{Receiver, Reply},
        journal_fixture::configuration,
        python::Repository,
        stomp_source::start_with,
    },
};

/// One behaviour for each kind of failure.
const FAILURES: [Behaviour; 4] =
    [Behaviour::Status(500), Behaviour::Status(401), Behaviour::Nonsense, Behaviour::Silent];

const OBJ: (&str, &str) = ("dsID", "OBJ");

/// Time limit of one second for a lookup.
const SOON: &str = "timeout_seconds = 1";

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
async fn lookup(gateway: &Gateway, source: &str) -> Value {
    let sources = gateway.json("/sources").await;
    let all = sources["sources"].as_array().unwrap();
    all.iter().find(|held| held["name"] == source).unwrap()["lookup"].clone()
}

async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
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
    until("all is complete", async || (lookup(gateway, "fedora3").await["incomplete"] == 0).then_some(())).await;
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
        let shown = lookup(&gateway, "fedora3").await;
        assert_eq!((&shown["mode"], &shown["incomplete"]), (&json!("best-effort"), &json!(1)), "{shown}");
        assert!(shown["lastError"]["reason"].is_string(), "{shown}");
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
    let shown = lookup(&gateway, "fedora3").await;
    assert_eq!((&shown["incomplete"], &shown["state"]), (&json!(18), &json!("circuit-open")), "{shown}");
    assert!(shown["nextAttempt"].is_string(), "{shown}");
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
        until("it is known", async || (lookup(&gateway, "fedora3").await["incomplete"] == 1).then_some(())).await;
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
    let shown = gateway.json(&format!("/objects?uri={BASE}/objects/demo:1")).await;
    assert!(shown["items"].as_array().unwrap().iter().all(|item| item["live"] == false), "{shown}");
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
    assert_eq!(until_complete(&gateway).await.len(), 400, "each has an UPDATE that says that it is gone");
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
    until("it is taken", async || (post(&gateway, 2).await.0 == 201).then_some(())).await;
    let changes = gateway.changes().await;
    assert_eq!(
        (&changes[0]["lookup"], &changes[0]["items"][0]["content"]["mediaType"]),
        (&Value::Null, &json!("image/jp2"))
    );
}

/// Returns the configuration of a source with a queue and a repository, and twenty messages about versions that
/// the repository has.
fn queue_of(folder: &Path, mode: &str, queue: &str, repository: &FakeFedora3) -> (String, Vec<(Value, String)>) {
    let config = configuration(
        folder,
        &format!(
            "[sources.{SOURCE}]\ntransport = \"stomp\"\ndialect = \"fedora-apim\"\nurl = \"{}\"\n\
             destination = \"{queue}\"\nprefetch = 7\nlookup = \"{mode}\"\n\
             [sources.{SOURCE}.repository]\nurl = \"{}\"\npublic_urls = [\"{BASE}\"]\n{SOON}\n",
            Broker::shared().url(),
            url(repository),
        ),
    );
    let message = |second| {
        repository.api.write("demo:1", "OBJ", "image/jp2", second);
        (json!({ "methodName": "modifyDatastreamByValue", "pid": "demo:1" }), modified(second))
    };
    (config, (2..22).map(message).collect())
}

/// Panics unless the changes report the versions of the messages in order.
fn assert_in_order<'c>(changes: impl Iterator<Item = &'c Value>) {
    for (change, second) in changes.zip(2..) {
        let url = format!("{BASE}/objects/demo:1/datastreams/OBJ/content?asOfDateTime={}", time(second));
        assert_eq!(change["items"][0]["content"]["url"], url, "{change:#}");
    }
}

#[tokio::test]
async fn broken_connection_is_reported_while_the_lookup_waits() {
    let folder = tempfile::tempdir().unwrap();
    let peer = FakeStompBroker::start(vec![Box::new(|peer| {
        peer.accept(&[("version", "1.2")]);
        peer.send("m1", &[("methodName", "modifyDatastreamByValue"), ("pid", "demo:1")], modified(2).as_bytes());
    })]);
    // Nothing listens at that address.
    let lines = format!(
        "lookup = \"required\"\n[sources.{SOURCE}.repository]\nurl = \"http://127.0.0.1:1{PATH}\"\npublic_urls = [\"{BASE}\"]\n"
    );
    let gateway = start_with(folder.path(), &peer.url(), "/queue/q", "fedora-apim", &lines);
    let shown = crate::support::amqp_source::until(&gateway, "the end of the connection is shown", async || {
        let shown = connection(&gateway).await;
        (shown["state"] == "paused" && shown["lastError"]["reason"].is_string()).then_some(shown)
    })
    .await;
    assert_eq!(shown["lastError"]["reason"], "the connection to the broker broke: the broker closed it");
}

#[tokio::test]
async fn best_effort_keeps_reading_the_queue() {
    let broker = Broker::shared();
    for behaviour in FAILURES {
        let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
        let queue = format!("/queue/{}", broker.name());
        let (config, messages) = queue_of(folder.path(), "best-effort", &queue, &repository);
        repository.set_behaviour(behaviour);
        Repository::start(broker.port, &queue, &messages, folder.path()).wait();
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        until(&format!("{behaviour:?}: all are told"), async || (gateway.changes().await.len() >= 20).then_some(()))
            .await;
        repository.set_behaviour(Behaviour::Uneven);
        until("all is complete", async || (lookup(&gateway, SOURCE).await["incomplete"] == 0).then_some(())).await;
        let changes = gateway.changes().await;
        assert_in_order(changes.iter().filter(|change| change["lookup"] == "incomplete"));
        let shown = gateway.json(&format!("/objects?uri={BASE}/objects/demo:1")).await;
        let content = &shown["items"][0]["content"];
        assert_eq!((&content["mediaType"], &content["size"]), (&json!("image/jp2"), &json!(121)), "{shown}");
        assert_eq!(shown["parent"], format!("{BASE}/objects/demo:all"));
        assert!(gateway.stop().success());
    }
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

#[tokio::test]
async fn required_lookup_leaves_messages_with_the_broker() {
    let broker = Broker::shared();
    for behaviour in FAILURES {
        let (folder, repository) = (tempfile::tempdir().unwrap(), repository().await);
        let queue = format!("/queue/{}", broker.name());
        let (config, messages) = queue_of(folder.path(), "required", &queue, &repository);
        repository.set_behaviour(behaviour);
        let start =
            || Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &folder.path().join("log"));
        let gateway = start();
        Repository::start(broker.port, &queue, &messages, folder.path()).wait();
        let is_waiting = async |gateway: &Gateway| {
            let sources = gateway.json("/sources").await;
            let all = sources["sources"].as_array().unwrap();
            let source = all.iter().find(|held| held["name"] == SOURCE).unwrap();
            let waiting = source["lookup"]["waiting"].as_u64().unwrap();
            assert!(waiting <= 7, "{source}");
            (waiting > 0 && source["connection"]["state"] == "paused").then_some(())
        };
        until("messages wait", async || is_waiting(&gateway).await).await;
        assert_eq!(gateway.changes().await.len(), 0);
        // The gateway stops immediately, and waiting messages stay with the broker.
        let began = Instant::now();
        assert!(gateway.stop().success());
        assert!(began.elapsed() < Duration::from_secs(4), "{behaviour:?}: {:?}", began.elapsed());
        let gateway = start();
        until("messages wait again", async || is_waiting(&gateway).await).await;
        // The changes are in order, whichever response arrives first.
        repository.set_behaviour(Behaviour::Uneven);
        until(&format!("{behaviour:?}: all are told"), async || (gateway.changes().await.len() == 20).then_some(()))
            .await;
        let changes = gateway.changes().await;
        assert_in_order(changes.iter());
        for change in &changes {
            assert_eq!(change["items"][0]["content"]["mediaType"], "image/jp2", "{change:#}");
            assert!(matches!(change["lookup"].as_str(), None | Some("newer")), "{change:#}");
        }
        until("nothing waits", async || {
            let sources = gateway.json("/sources").await;
            let all = sources["sources"].as_array().unwrap();
            let source = all.iter().find(|held| held["name"] == SOURCE).unwrap();
            (source["lookup"]["waiting"] == 0 && source["connection"]["state"] == "connected").then_some(())
        })
        .await;
        assert!(gateway.stop().success());
    }
}
