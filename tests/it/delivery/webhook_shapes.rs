//! Requests from templates, through the real program: Solr, Elasticsearch, a cache, and receivers of one's own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    python::Example,
    subscription_fixture::{gateway, post, post_event},
    varnish::Varnish,
};

fn shaped(url: &str, request: &str, more: &str) -> String {
    format!(
        "[subscriptions.index]\ndelivery = \"webhook\"\nformat = \"json\"\nstart = \"beginning\"\nurl = \"{url}\"\n\
         {more}\n[subscriptions.index.request]\n{request}\n"
    )
}

fn event(object: &str, time: &str, item: Value) -> Value {
    let mut item = item;
    item["uri"] = json!(format!("http://h.example/objects/{object}/image"));
    json!({ "object": format!("http://h.example/objects/{object}"), "time": time, "items": [item] })
}

fn content(media_type: &str) -> Value {
    json!({ "url": "http://h.example/content", "mediaType": media_type, "size": 5 })
}

/// Returns the documents that a search of the core finds, once as many as `expected` are there.
async fn documents(port: u16, is_there: impl Fn(&BTreeMap<String, Value>) -> bool) -> BTreeMap<String, Value> {
    let url = format!("http://127.0.0.1:{port}/solr/repository/select?rows=1000");
    for _ in 0..1000 {
        let found: Value = serde_json::from_slice(&reqwest::get(&url).await.unwrap().bytes().await.unwrap()).unwrap();
        let documents = found["response"]["docs"].as_array().unwrap().iter();
        let documents: BTreeMap<_, _> =
            documents.map(|one| (one["id"].as_str().unwrap().to_owned(), one.clone())).collect();
        if is_there(&documents) {
            return documents;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the index does not become what it should be: {:?}", documents_now(&url).await);
}

async fn documents_now(url: &str) -> String {
    reqwest::get(url).await.unwrap().text().await.unwrap()
}

fn is_document(documents: &BTreeMap<String, Value>, object: &str, field: &str, value: &Value) -> bool {
    documents.get(&format!("http://h.example/objects/{object}/image")).is_some_and(|one| one.get(field) == Some(value))
}

/// The index has what the registry says: additions, new content, states, deletions, and nothing that came late. The index
/// is killed and comes back.
#[tokio::test]
async fn solr_follows_the_registry_over_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (solr, port) = Example::solr("0", folder.path()).await;
    let url = format!("http://127.0.0.1:{port}/solr/repository");
    let lines = shaped(&url, "preset = \"solr\"\nvalues = { commit_within = 1 }", "max_batch = 10");
    let gateway = gateway(folder.path(), &lines);
    for (object, time, item) in [
        (
            "1",
            "2024-01-01T00:00:01.5Z",
            json!({ "change": "ADD", "content": content("image/png"), "stateAfter": "ACTIVE" }),
        ),
        ("2", "2024-01-01T00:00:01.5Z", json!({ "change": "ADD", "content": content("image/png") })),
        ("3", "2024-01-01T00:00:01.5Z", json!({ "change": "ADD", "content": content("image/gif") })),
    ] {
        post_event(&gateway, &event(object, time, item)).await;
    }
    documents(port, |documents| documents.len() == 3).await;
    drop(solr);
    for (object, time, item) in [
        ("1", "2024-01-01T00:00:05.5Z", json!({ "stateBefore": "ACTIVE", "stateAfter": "INACTIVE" })),
        (
            "2",
            "2024-01-01T00:00:05.5Z",
            json!({ "change": "UPDATE", "content": { "url": "http://h.example/content" } }),
        ),
        ("3", "2024-01-01T00:00:05.5Z", json!({ "change": "DELETE" })),
        // Older than what the registry has.
        ("2", "2024-01-01T00:00:03.5Z", json!({ "change": "UPDATE", "content": content("image/late") })),
        ("1", "2024-01-01T00:00:03.5Z", json!({ "change": "DELETE" })),
    ] {
        post_event(&gateway, &event(object, time, item)).await;
    }
    let (solr, _) = Example::solr(&port.to_string(), folder.path()).await;
    gateway.until_at("index", 8).await;
    let index =
        documents(port, |documents| documents.len() == 2 && is_document(documents, "1", "state_s", &json!("INACTIVE")))
            .await;
    assert!(is_document(&index, "1", "media_type_s", &json!("image/png")), "{index:#?}");
    let second = &index["http://h.example/objects/2/image"];
    assert_eq!((second.get("media_type_s"), second.get("size_l")), (None, None), "they were of the content before");
    assert_eq!(solr.stop().len(), 1);
}

#[tokio::test]
async fn index_that_refuses_a_document_gets_the_others() {
    let receiver = Receiver::start(|_, request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let error = |kind: &str| json!({ "errors": true, "items": [{ "index": { "error": { "type": kind } } }] });
        match () {
            () if body.contains("objects/2") => {
                Reply::Answer(200, Vec::new(), error("mapper_parsing_exception").to_string())
            }
            () => Reply::Answer(200, Vec::new(), json!({ "errors": false }).to_string()),
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let lines =
        shaped(&receiver.url(), "preset = \"elasticsearch\"\nvalues = { index = \"things\" }", "max_batch = 10");
    let gateway = gateway(folder.path(), &lines);
    assert_eq!(gateway.ask("POST", "/subscriptions/index/pause", None).await.0, 200);
    for number in 1..=4 {
        post(&gateway, number).await;
    }
    assert_eq!(gateway.ask("POST", "/subscriptions/index/resume", None).await.0, 200);
    let status_json = gateway.until_at("index", 4).await;
    assert_eq!((&status_json["delivered"], &status_json["deadLetters"]), (&json!(3), &json!(1)));
    let (_, letters) = gateway.ask("GET", "/subscriptions/index/dead-letters", None).await;
    let reason = letters["deadLetters"][0]["reason"].as_str().unwrap();
    assert_eq!(reason, "it responded with 200 OK, and request.refuse_if holds");
    let requests = receiver.requests().clone();
    assert_eq!(requests.len(), 5, "the batch, and then each change");
    for request in &requests {
        assert_eq!(request.path, "/in/_bulk?filter_path=errors,items.*.error.type,items.*.error.reason");
        assert_eq!((request.header("content-type"), request.header("webhook-signature")), ("application/x-ndjson", ""));
        assert!(!request.header("webhook-id").is_empty());
        for line in String::from_utf8(request.body.clone()).unwrap().lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
}

/// A full queue of the index is no refusal of the document.
#[tokio::test]
async fn index_that_is_busy_gets_the_same_request_again() {
    let busy =
        json!({ "errors": true, "items": [{ "index": { "error": { "type": "es_rejected_execution_exception" } } }] });
    let receiver = Receiver::start(move |nth, _| match nth {
        0 => Reply::Answer(200, Vec::new(), busy.to_string()),
        _ => Reply::Answer(200, Vec::new(), "{\"errors\":false}".to_owned()),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &shaped(&receiver.url(), "preset = \"elasticsearch\"", ""));
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    let requests = receiver.requests().clone();
    assert_eq!((requests.len(), &requests[0].body), (2, &requests[1].body));
}

/// A real cache has the new object after the change, and keeps the others.
#[tokio::test]
async fn cache_forgets_what_has_changed() {
    let origin = Receiver::start(|nth, _| Reply::Answer(200, Vec::new(), format!("version {nth}"))).await;
    let varnish = Varnish::start(origin.address).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = shaped(&format!("http://127.0.0.1:{}", varnish.port), "preset = \"purge\"", "");
    let gateway = gateway(folder.path(), &lines);
    let http = reqwest::Client::new();
    let read = async |path: &str| {
        let request = http.get(format!("http://127.0.0.1:{}{path}", varnish.port)).header("host", "h.example");
        request.send().await.unwrap().text().await.unwrap()
    };
    let paths = ["/objects/1", "/objects/1/item", "/objects/2", "/objects/2/item"];
    let mut before = Vec::new();
    for path in paths {
        before.push(read(path).await);
        assert_eq!(&read(path).await, before.last().unwrap(), "it is cached");
    }
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    for (path, before) in paths.into_iter().zip(before) {
        assert_eq!(read(path).await != before, path.starts_with("/objects/1"), "{path}");
    }
}

/// The credentials of a header reach the receiver, and nobody else: no status, no log, no attempt, no configuration.
#[tokio::test]
async fn header_with_a_secret_is_seen_by_the_receiver_alone() {
    let receiver = Receiver::start(|_, request| {
        Reply::Answer(
            500,
            Vec::new(),
            format!("no: {}{}", request.header("authorization"), request.header("fastly-key")),
        )
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "ApiKey hushhush1\n").unwrap();
    let request = format!(
        "headers = {{ authorization = {{ file = \"{}\" }}, fastly-key = \"hushhush2\", x-of = \"{{{{ change.source }}}}\" }}",
        folder.path().join("key").display()
    );
    let log = folder.path().join("log");
    let config = configuration(folder.path(), &shaped(&receiver.url(), &request, ""));
    let gateway = Gateway::start_logging(folder.path(), &["--config", &config], &log);
    post(&gateway, 1).await;
    let status_json = gateway.until("index", "it fails", |status_json| status_json["state"] == "retrying").await;
    let received = receiver.until(1).await;
    let received = ["authorization", "fastly-key", "x-of"].map(|name| received[0].header(name));
    assert_eq!(received, ["ApiKey hushhush1", "hushhush2", "content-change"]);
    let (_, attempts) = gateway.ask("GET", "/subscriptions/index/attempts", None).await;
    let (_, all) = gateway.ask("GET", "/status", None).await;
    let shown = format!("{status_json}{attempts}{all}{}", std::fs::read_to_string(&log).unwrap());
    assert!(!shown.contains("hushhush"), "{shown}");
    assert_eq!(attempts["attempts"][0]["answer"], "no: (secret)(secret)");
    let headers = &status_json["definition"]["request"]["headers"];
    assert_eq!((&headers["authorization"], &headers["x-of"]), (&json!("(hidden)"), &json!("{{ change.source }}")));
}

/// A message that a template cannot say becomes a dead letter with the reason, and the next one goes out.
#[tokio::test]
async fn message_without_requests_costs_no_other() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let request = "each = \"item\"\npath = \"/docs/{{ item.uri }}\"\nbody = \"\"\n\
        method = \"{{ 'DELETE' if item.change == 'DELETE' else ('PUT' if item.change else '') }}\"\n\
        headers = { x-user = \"{{ change.description }}\" }\naccepted_statuses = [404]";
    let gateway = gateway(folder.path(), &shaped(&receiver.url(), request, ""));
    let mut first = event("1", "2024-01-01T00:00:01.5Z", json!({ "change": "ADD", "content": content("a/b") }));
    first["description"] = json!("one\ntwo");
    post_event(&gateway, &first).await;
    let mut second = event("2", "2024-01-01T00:00:01.5Z", json!({ "stateAfter": "ACTIVE" }));
    let other = json!({ "uri": "http://h.example/a/../c?d", "change": "ADD" });
    second["items"].as_array_mut().unwrap().push(other);
    post_event(&gateway, &second).await;
    let status_json = gateway.until_at("index", 2).await;
    assert_eq!((&status_json["delivered"], &status_json["deadLetters"]), (&json!(1), &json!(1)));
    let (_, letters) = gateway.ask("GET", "/subscriptions/index/dead-letters", None).await;
    assert_eq!(letters["deadLetters"][0]["reason"], "request.headers.x-user: a header cannot carry it");
    let requests = receiver.requests().clone();
    let lines: Vec<_> = requests.iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_eq!(lines, ["PUT /in/docs/http%3A%2F%2Fh.example%2Fa%2F..%2Fc%3Fd"]);
    assert_eq!(requests[0].header("content-type"), "");
}

/// A wrong template stops the program before it serves, and `check` says the same.
#[tokio::test]
async fn wrong_template_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidings.toml");
    let lines = shaped("http://127.0.0.1:1/in", "body = '{\"of\": {{ change.objekt }}}'", "");
    std::fs::write(&config, lines).unwrap();
    let check = crate::support::gateway::command().args(["check", "--config"]).arg(&config).output().unwrap();
    let text = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(!check.status.success());
    let expected = "for an item that was added: line 1 of the template: it names something that is not there";
    assert!(text.contains("line 8: the setting subscriptions.index.request.body"), "{text}");
    assert!(text.contains(expected), "{text}");
}

/// A subscription over HTTP has a shape too, and survives a restart.
#[tokio::test]
async fn shape_is_kept_with_the_subscription() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let allow = "[delivery]\nallow = [\"127.0.0.1\"]\n";
    let gateway: Gateway = gateway(folder.path(), allow);
    let definition = json!({
        "delivery": "webhook", "format": "json", "start": "beginning", "url": receiver.url(),
        "request": { "preset": "slack" }
    });
    let (status, answer) = gateway.ask("PUT", "/subscriptions/index", Some(definition)).await;
    assert_eq!(status, 201, "{answer}");
    let wrong = json!({ "delivery": "webhook", "format": "atom", "url": receiver.url(), "request": {} });
    let (status, answer) = gateway.ask("PUT", "/subscriptions/other", Some(wrong)).await;
    assert_eq!(status, 422, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("templates read the format json"), "{answer}");
    assert!(gateway.stop().success());
    let gateway = self::gateway(folder.path(), allow);
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    let body = receiver.requests()[0].json();
    assert!(body["text"].as_str().unwrap().contains("http://h.example/objects/1"), "{body}");
}
