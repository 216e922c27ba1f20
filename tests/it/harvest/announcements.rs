//! Sources that come and go: events of librairy's bus make, pause, resume and remove harvests.

use std::path::Path;

use serde_json::{Value, json};
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{method, path},
};

use crate::support::{
    gateway::Gateway,
    journal_fixture::{configuration, journal_file, verify_ok},
    nodes_fixture::until,
    rabbitmq::{Broker, Client, Vhost},
    scripted_repository::ScriptedRepository,
};

const EXCHANGE: &str = "librairy.eventbus";

/// The harvest that makes the others.
const MAKER: &str = "librairy_harvests";

/// The system: a broker, an API with descriptions of sources, and repositories.
struct System {
    vhost: Vhost<'static>,
    bus: Client,
    api: MockServer,
    folder: tempfile::TempDir,
}

impl System {
    async fn start() -> Self {
        let vhost = Broker::shared().vhost();
        let bus = vhost.client().await;
        bus.exchange(EXCHANGE).await;
        Self { vhost, bus, api: MockServer::start().await, folder: tempfile::tempdir().unwrap() }
    }

    fn gateway(&self) -> Gateway {
        let lines = format!(
            "[delivery]\nallow = [\"127.0.0.1\"]\n[sources.librairy]\ntransport = \"amqp\"\ndialect = \"hoarder\"\n\
             url = \"{}\"\nexchange = \"{EXCHANGE}\"\nqueue = \"tidings\"\nbindings = [\"source.#\", \"document.#\"]\n\
             harvest = true\nallow = ['http://127[.]0[.]0[.]1:.*']\nsettings = {{ base_url = \"{}/api\" }}\n",
            self.vhost.url(),
            self.api.uri()
        );
        let config = configuration(self.folder.path(), &lines);
        Gateway::start_with(&self.data(), &["--config", &config])
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Describes a source in the API.
    async fn describe(&self, source: &str, status: u16, description: Value) {
        let response = ResponseTemplate::new(status).set_body_json(description);
        Mock::given(method("GET")).and(path(format!("/api/{source}"))).respond_with(response).mount(&self.api).await;
    }

    async fn send(&self, event: &str, source: &str) {
        self.bus.publish(EXCHANGE, &format!("source.{event}"), source).await;
    }
}

/// Returns the address of a repository as the system describes it.
fn address(repository: &ScriptedRepository) -> Value {
    json!({ "name": "upm", "url": repository.url().replace("http://", "oaipmh://") })
}

/// Returns the harvests that events have made.
async fn made(gateway: &Gateway) -> Vec<Value> {
    let harvests = gateway.json("/harvests").await;
    let harvests = harvests["harvests"].as_array().unwrap().iter();
    harvests.filter(|harvest| harvest["announcedBy"] == "librairy").cloned().collect()
}

/// Waits until events have made one harvest that meets a condition, and returns its name.
async fn until_made(gateway: &Gateway, condition: impl Fn(&Value) -> bool) -> String {
    until("a harvest is made", async || {
        let made = made(gateway).await;
        made.len() == 1 && condition(&made[0])
    })
    .await;
    made(gateway).await[0]["source"].as_str().unwrap().to_owned()
}

async fn until_remark(gateway: &Gateway, text: &str) {
    until(text, async || gateway.json(&format!("/harvests/{MAKER}")).await["remarks"].to_string().contains(text)).await;
}

#[tokio::test]
async fn events_make_pause_resume_and_remove_a_harvest() {
    crate::support::needs_sqlite();
    let system = System::start().await;
    let repository = ScriptedRepository::start(25).await;
    system.describe("sources/upm", 200, address(&repository)).await;
    let gateway = system.gateway();
    until("the queue is there", async || gateway.json("/sources").await.to_string().contains("connected")).await;
    system.bus.publish(EXCHANGE, "document.new", "documents/1").await;
    for [new, opened] in [["new", "opened"], ["created", "updated"]] {
        system.send(new, "sources/upm").await;
        let name = until_made(&gateway, |harvest| harvest["run"]["state"] == "completed").await;
        assert!(name.starts_with("librairy_upm-"), "{name}");
        let harvest = gateway.json(&format!("/harvests/{name}")).await;
        assert_eq!((&harvest["from"], &harvest["run"]["records"]), (&json!("api"), &json!(25)), "{harvest}");
        system.send("closed", "sources/upm").await;
        until_made(&gateway, |harvest| harvest["state"] == "paused").await;
        system.send(opened, "sources/upm").await;
        until_made(&gateway, |harvest| harvest["state"] == "waiting").await;
        system.send("deleted", "sources/upm").await;
        until("the harvest is removed", async || made(&gateway).await.is_empty()).await;
    }
    let remarks = gateway.json(&format!("/harvests/{MAKER}")).await["remarks"].clone();
    assert_eq!(remarks, Value::Null);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(&system.data()));
}

#[tokio::test]
async fn source_that_is_not_allowed_is_refused_with_the_reason() {
    let system = System::start().await;
    let gateway = system.gateway();
    until("the queue is there", async || gateway.json("/sources").await.to_string().contains("connected")).await;
    for (source, status, description, reason) in [
        ("sources/evil", 200, json!({ "url": "oaipmh://192.0.2.1/oai" }), "is not in the setting allow"),
        ("sources/ftp", 200, json!({ "url": "ftp://127.0.0.1/" }), "cannot be harvested"),
        ("sources/gone", 404, json!({}), "the system does not return its description (404 Not Found)"),
        ("sources/text", 200, json!("text"), "its description is no JSON with a url"),
    ] {
        system.describe(source, status, description).await;
        system.send("new", source).await;
        until_remark(&gateway, reason).await;
    }
    system.send("new", &format!("{}/other/sources/x", system.api.uri())).await;
    until_remark(&gateway, "its description is not below settings.base_url").await;
    assert_eq!(made(&gateway).await, Vec::<Value>::new());
    // A refused source holds up no other one.
    let repository = ScriptedRepository::start(3).await;
    system.describe("sources/good", 200, address(&repository)).await;
    system.send("new", "sources/good").await;
    until_made(&gateway, |harvest| harvest["run"]["state"] == "completed").await;
}

#[tokio::test]
async fn harvest_that_somebody_else_has_made_is_left_alone() {
    let system = System::start().await;
    let repository = ScriptedRepository::start(3).await;
    system.describe("sources/upm", 200, address(&repository)).await;
    let gateway = system.gateway();
    until("the queue is there", async || gateway.json("/sources").await.to_string().contains("connected")).await;
    system.send("new", "sources/upm").await;
    let name = until_made(&gateway, |harvest| harvest["run"]["state"] == "completed").await;
    assert_eq!(gateway.ask("DELETE", &format!("/harvests/{name}"), None).await.0, 204);
    let mut definition = json!({
        "name": name, "transport": "oai-pmh", "dialect": "oai-pmh", "url": repository.url(), "announcedBy": "librairy"
    });
    let (status, refused) = gateway.ask("POST", "/harvests", Some(definition.clone())).await;
    assert_eq!((status, &refused["key"]), (422, &json!("announcedBy")), "{refused}");
    definition.as_object_mut().unwrap().remove("announcedBy");
    assert_eq!(gateway.ask("POST", "/harvests", Some(definition)).await.0, 201);
    for event in ["deleted", "closed", "opened"] {
        system.send(event, "sources/upm").await;
    }
    until("the events are read", async || {
        let harvest = gateway.json(&format!("/harvests/{MAKER}")).await;
        harvest["state"] == "waiting" && harvest["position"].as_str() == Some(&*gateway.head().await.to_string())
    })
    .await;
    let harvest = gateway.json(&format!("/harvests/{name}")).await;
    assert_ne!(harvest["state"], "paused", "{harvest}");
    until_remark(&gateway, "there is a harvest of a source").await;
}

#[tokio::test]
async fn kill_9_loses_no_event_and_makes_no_harvest_twice() {
    crate::support::needs_sqlite();
    let system = System::start().await;
    let repository = ScriptedRepository::start(2).await;
    let mut gateway = system.gateway();
    until("the queue is there", async || gateway.json("/sources").await.to_string().contains("connected")).await;
    for number in 0..6 {
        let source = format!("sources/{number}");
        system.describe(&source, 200, address(&repository)).await;
        system.send("new", &source).await;
        if number % 2 == 0 {
            until("the event is in the journal", async || is_in_journal(&gateway, &source).await).await;
        }
        gateway.kill();
        gateway = system.gateway();
    }
    until("all harvests are made", async || {
        let made = made(&gateway).await;
        made.len() == 6 && made.iter().all(|harvest| harvest["run"]["state"] == "completed")
    })
    .await;
    drop(gateway);
    verify(&system.data());
}

async fn is_in_journal(gateway: &Gateway, source: &str) -> bool {
    gateway.changes().await.iter().any(|change| change["object"].as_str().unwrap().ends_with(source))
}

fn verify(data: &Path) {
    verify_ok(&journal_file(data));
}
