//! Lookups for messages of a queue: a failing repository delays the queue only if the lookup is required.

use crate::lookups::failures::{FAILURES, SOON, lookup, modified, repository, until, url};
use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    activemq::Broker,
    amqp_source::{SOURCE, connection},
    fake_fedora3::{FakeFedora3, PATH, time},
    fake_repository::Behaviour,
    fake_stomp_broker::FakeStompBroker,
    fedora3_messages::BASE,
    gateway::Gateway,
    journal_fixture::configuration,
    python::Repository,
    stomp_source::start_with,
};

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
    let details = crate::support::amqp_source::until(&gateway, "the end of the connection is shown", async || {
        let details = connection(&gateway).await;
        (details["state"] == "stalled" && details["lastError"]["reason"].is_string()).then_some(details)
    })
    .await;
    assert_eq!(details["lastError"]["reason"], "the connection to the broker broke: the broker closed it");
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
        until(&format!("{behaviour:?}: every change is completed"), async || {
            (gateway.changes().await.len() >= 20).then_some(())
        })
        .await;
        repository.set_behaviour(Behaviour::Uneven);
        until("every change is complete", async || (lookup(&gateway, SOURCE).await["incomplete"] == 0).then_some(()))
            .await;
        let changes = gateway.changes().await;
        assert_in_order(changes.iter().filter(|change| change["lookup"] == "incomplete"));
        let details = gateway.json(&format!("/objects?uri={BASE}/objects/demo:1")).await;
        let content = &details["items"][0]["content"];
        assert_eq!((&content["mediaType"], &content["size"]), (&json!("image/jp2"), &json!(121)), "{details}");
        assert_eq!(details["parent"], format!("{BASE}/objects/demo:all"));
        assert!(gateway.stop().success());
    }
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
            (waiting > 0 && source["connection"]["state"] == "stalled").then_some(())
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
        until(&format!("{behaviour:?}: every change is completed"), async || {
            (gateway.changes().await.len() == 20).then_some(())
        })
        .await;
        let changes = gateway.changes().await;
        assert_in_order(changes.iter());
        for change in &changes {
            assert_eq!(change["items"][0]["content"]["mediaType"], "image/jp2", "{change:#}");
            assert!(matches!(change["lookup"].as_str(), None | Some("newer")), "{change:#}");
        }
        until("no message waits", async || {
            let sources = gateway.json("/sources").await;
            let all = sources["sources"].as_array().unwrap();
            let source = all.iter().find(|held| held["name"] == SOURCE).unwrap();
            (source["lookup"]["waiting"] == 0 && source["connection"]["state"] == "connected").then_some(())
        })
        .await;
        assert!(gateway.stop().success());
    }
}
