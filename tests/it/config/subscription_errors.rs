//! Error messages about subscription definitions, over HTTP and in the configuration file: each names the key
//! and the fix, and contains no password.

use serde_json::{Value, json};
use tidings::{
    delivery::{Definition, DefinitionContext},
    http_client::OutboundPolicy,
    journal::subscriptions::MadeBy,
};

use crate::support::{
    config_loader::load,
    gateway::Gateway,
    subscription_fixture::{gateway, index},
};

/// Returns a definition with these members changed.
#[expect(clippy::needless_pass_by_value, reason = "it stands around json!")]
fn with(members: Value) -> Value {
    let mut definition = json!({ "delivery": "amqp", "url": "amqps://h", "exchange": "content" });
    for (key, value) in members.as_object().unwrap() {
        definition[key] = value.clone();
    }
    definition
}

fn refusals() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (json!(7), "", "give an object"),
        (json!({}), "delivery", "it is missing; add it; there are amqp"),
        (with(json!({ "delivery": "ampq" })), "delivery", "there is no delivery \"ampq\"; did you mean \"amqp\"?"),
        (with(json!({ "format": "atm" })), "format", "did you mean \"atom\"?"),
        (with(json!({ "exchnage": "x" })), "exchnage", "did you mean \"exchange\"?"),
        (with(json!({ "start": "yesterday" })), "start", "give \"now\", \"beginning\", the number of a change"),
        (with(json!({ "start": 0 })), "start", "give \"now\", \"beginning\", the number of a change"),
        (with(json!({ "start": true })), "start", "give \"now\", \"beginning\", the number of a change"),
        (with(json!({ "dead_letters": 1_000_001 })), "dead_letters", "give a whole number from 0 to 1000000"),
        (
            with(json!({ "filter": { "source": ["a"] } })),
            "filter.source",
            "did you mean \"sources\"? There are sources, objects, parents, types, changes, media_types, states, visibility",
        ),
        (with(json!({ "filter": { "changes": ["gone"] } })), "filter.changes[0]", "give ADD, UPDATE, DELETE or STATE"),
        (with(json!({ "filter": { "media_types": ["png"] } })), "filter.media_types[0]", "write it as in image/jpeg"),
        (with(json!({ "filter": { "states": vec!["A"; 51] } })), "filter.states", "more than 50 values"),
        (with(json!({ "filter": { "since": "2026-01-01T00:00:00Z" } })), "filter.since", "give start instead"),
        (with(json!({ "url": null })), "url", "it is missing"),
        (with(json!({ "url": "http://hush" })), "url", "is neither amqp nor amqps"),
        (with(json!({ "url": 7 })), "url", "give a URL in quotation marks"),
        (with(json!({ "url": { "env": "TIDINGS_SECRET_NOT_SET" } })), "url", "is not set"),
        (with(json!({ "exchange": "" })), "exchange", "it is empty"),
        (with(json!({ "exchange": "x".repeat(256) })), "exchange", "it has 256 bytes; AMQP allows 255"),
        (with(json!({ "routing_key": "a.{object}" })), "routing_key", "there are {kind} and {source}"),
        (with(json!({ "queues": [{}] })), "queues[0]", "name is missing"),
        (with(json!({ "queues": [{ "name": "q", "type": "stream" }] })), "queues.0.type", "give quorum or classic"),
        (with(json!({ "queues": [{ "name": "q", "durable": true }] })), "queues[0].durable", "there are name, "),
        (with(json!({ "unroutable": "drop" })), "unroutable", "there are hold, count"),
        (with(json!({ "window": 0 })), "window", "give a whole number from 1 to 65535"),
        (with(json!({ "confirm_seconds": "5" })), "confirm_seconds", "give a whole number"),
    ]
}

/// Returns the key in one notation, because its path is written in two ways.
fn key(path: &str) -> String {
    path.replace(['[', ']'], ".").replace("..", ".").trim_matches('.').to_owned()
}

#[tokio::test]
async fn subscription_errors_over_http_name_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let put = async |definition: Value| gateway.ask("PUT", "/subscriptions/new", Some(definition)).await;
    let mut cases = refusals();
    cases.extend([
        (with(json!({ "url": "amqp://me:hush@h" })), "url", "it has a password"),
        (with(json!({ "url": { "env": "PATH" } })), "url", "only variables whose names begin with TIDINGS_SECRET_"),
        (with(json!({ "url": { "file": "/etc/passwd" } })), "url", "only the configuration file may name a file"),
        (with(json!({ "ca": "/etc/passwd" })), "ca", "only the configuration file may name a file"),
        (with(json!({ "start": 7 })), "start", "there is no change 7"),
    ]);
    for (definition, at, told) in cases {
        let (status, problem) = put(definition.clone()).await;
        assert_eq!((status, problem["type"].as_str()), (422, Some("urn:tidings:problem:invalid-subscription")));
        assert_eq!(key(problem["key"].as_str().unwrap()), key(at), "{problem}");
        let detail = problem["detail"].as_str().unwrap().to_lowercase();
        assert!(detail.contains(&told.to_lowercase()), "{definition}: {detail}");
        assert!(!problem.to_string().contains("hush"), "{problem}");
    }
    let broken = gateway.http.put(format!("{}/subscriptions/new", gateway.url)).body("{").send().await.unwrap();
    assert_eq!(broken.status(), 400);
    for name in ["New", "a.b", &"x".repeat(65)] {
        assert_eq!(gateway.ask("PUT", &format!("/subscriptions/{name}"), Some(with(json!({})))).await.0, 404, "{name}");
    }
    assert_eq!(gateway.json("/subscriptions").await, json!({ "subscriptions": [] }));
}

#[test]
fn subscription_errors_in_a_file_name_the_key() {
    let guard = OutboundPolicy::unrestricted();
    let maker = DefinitionContext { made_by: MadeBy::Config, variable: &|_| None, guard: &guard };
    for (definition, at, told) in refusals() {
        let refusal = Definition::read(definition, &maker).unwrap_err();
        assert_eq!(key(&refusal.key), key(at), "{refusal}");
        assert!(refusal.reason.contains(told), "{refusal}");
        assert!(!refusal.to_string().contains("hush"), "{refusal}");
    }
    let refused = |lines: &str| load(lines, &[]).unwrap_err();
    let table = "[subscriptions.index]\ndelivery = \"amqp\"\nexchange = \"content\"\n";
    for (lines, told) in [
        (format!("{table}url = \"amqp://me:hush@\"\n"), "the setting subscriptions.index.url"),
        (format!("{table}url = \"amqp://h\"\nwindow = 0\n"), "the setting subscriptions.index.window"),
        (
            format!("{table}url = \"amqp://h\"\nfilter = {{ changes = [\"gone\"] }}\n"),
            "subscriptions.index.filter.changes",
        ),
        (table.to_owned(), "the setting subscriptions.index.url"),
        (table.replace("subscriptions.index", "subscriptions.\"in dex\""), "is not a name"),
    ] {
        let refusal = refused(&lines);
        assert!(refusal.contains(told) && !refusal.contains("hush"), "{refusal}");
    }
    let many = |count: usize| {
        let tables = (0..count).map(|at| format!("{}url = \"amqp://h\"\n", table.replace("index", &format!("s{at}"))));
        load(&tables.collect::<String>(), &[])
    };
    assert_eq!(many(1000).unwrap().subscriptions.len(), 1000);
    let refusal = many(1001).unwrap_err();
    assert!(refusal.contains("it defines 1001 subscriptions, and 1000 are possible; remove some"), "{refusal}");
    let environment = [("RABBIT", "amqp://me:hush@h/v"), ("TIDINGS_SUBSCRIPTIONS__INDEX__WINDOW", "7")];
    let config = load(&format!("{table}url = {{ env = \"RABBIT\" }}\n"), &environment).unwrap();
    let (_, definition) = config.subscriptions.iter().next().unwrap();
    let status_json = definition.redacted();
    assert_eq!((&status_json["url"], &status_json["window"]), (&json!("amqp://me@h:5672/v"), &json!(7)));
    assert!(!format!("{config:?}").contains("hush"));
}

#[tokio::test]
async fn subscription_from_the_configuration_is_read_only_over_http() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens at that URL: a subscription can be created while its broker is down.
    let gateway = gateway(folder.path(), &index("amqp://127.0.0.1:1", ""));
    for method in ["PUT", "DELETE"] {
        let body = (method == "PUT").then(|| with(json!({})));
        let (status, problem) = gateway.ask(method, "/subscriptions/index", body).await;
        assert_eq!((status, problem["type"].as_str()), (409, Some("urn:tidings:problem:conflict")));
        assert!(problem["detail"].as_str().unwrap().contains("defined in the configuration file"), "{problem}");
    }
    for path in ["/subscriptions/none", "/subscriptions/none/dead-letters", "/subscriptions/index/dead-letters/7"] {
        assert_eq!(gateway.ask("GET", path, None).await.0, 404, "{path}");
    }
    let status_json =
        gateway.until("index", "it fails to connect", |status_json| status_json["state"] == "retrying").await;
    assert!(status_json["lastError"]["reason"].as_str().unwrap().contains("cannot be reached"), "{status_json:#}");
}
