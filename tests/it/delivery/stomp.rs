//! STOMP delivery through the real program and a real ActiveMQ, read with stomp.py, with ActiveMQ's own Java client, and
//! with the gateway's own source: headers, formats, order across a killed broker, refusals, and TLS.

use std::{collections::BTreeMap, fs, net::TcpListener};

use serde_json::{Value, json};

use crate::support::{
    activemq::{Broker, PASSWORD, SMALL_BODY, USER},
    amqp_source::{until_head, until_state},
    gateway::Gateway,
    python::consume_with_stomp_py,
    stomp_source,
    subscription_fixture::{event, gateway, post, post_event},
};

pub(super) const REST: &str = "http://localhost:8080/rest";

/// Returns a subscription to a destination.
pub(super) fn subscription(name: &str, url: &str, destination: &str, more: &str) -> String {
    format!(
        "[subscriptions.{name}]\ndelivery = \"stomp\"\nstart = \"beginning\"\nurl = \"{url}\"\n\
         destination = \"{destination}\"\n{more}\n"
    )
}

fn text<'a>(message: &'a Value, header: &str) -> &'a str {
    message["headers"][header].as_str().unwrap_or_else(|| panic!("{header} of {message:#}"))
}

fn seq(message: &Value) -> u64 {
    text(message, "seq").parse().unwrap()
}

/// Panics unless the messages are complete and in order, apart from repeats.
fn assert_in_order(messages: &[Value], last: u64) {
    let (mut newest, mut ids) = (0, BTreeMap::new());
    for message in messages {
        let (seq, id) = (seq(message), text(message, "change-id"));
        assert_eq!(*ids.entry(seq).or_insert(id), id, "a repeat has the same identifier");
        assert!(seq <= newest + 1, "{seq} comes after {newest}");
        newest = newest.max(seq);
    }
    assert_eq!((newest, ids.len() as u64), (last, last));
}

/// A change of a resource of Fedora, which is the object and its only item.
pub(super) fn resource(path: &str, change: &str, more: &Value) -> Value {
    let uri = format!("{REST}{path}");
    let mut event =
        json!({ "object": uri, "time": "2026-01-02T03:04:05.678Z", "items": [{ "uri": uri, "change": change }] });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[tokio::test]
async fn messages_have_the_headers_of_the_gateway_and_of_fedora() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let more = format!("format = \"json\"\nbase_url = \"{REST}/\"");
    let gateway = gateway(folder.path(), &subscription("index", &broker.url(), &queue, &more));
    let types = json!({
        "types": ["http://www.w3.org/ns/ldp#BasicContainer", "http://pcdm.org/models#Object"],
        "user": { "name": "bypassAdmin" }, "parent": format!("{REST}/book"),
    });
    post_event(&gateway, &resource("/book/page1", "ADD", &types)).await;
    post_event(&gateway, &resource("/book/page1", "UPDATE", &json!({}))).await;
    post_event(&gateway, &resource("/Sk%C3%B8yen", "DELETE", &json!({}))).await;
    post(&gateway, 4).await;
    // A name that a header must escape.
    let user = json!({ "user": { "name": "a:b\\c\nd €😀" } });
    post_event(&gateway, &resource("/x", "ADD", &user)).await;
    gateway.until_at("index", 5).await;
    let messages = consume_with_stomp_py(broker.port, &queue, 5);
    assert_in_order(&messages, 5);
    let changes = gateway.changes().await;
    for (message, change) in messages.iter().zip(&changes) {
        assert_eq!(&serde_json::from_str::<Value>(message["body"].as_str().unwrap()).unwrap(), change);
        for (header, value) in [
            ("content-type", "application/json"),
            ("type", "content-change"),
            ("persistent", "true"),
            ("source", "content-change"),
            ("object", change["object"].as_str().unwrap()),
            ("change-id", change["id"].as_str().unwrap()),
            ("changes", change["items"][0]["change"].as_str().unwrap()),
            ("org.fcrepo.jms.eventID", change["id"].as_str().unwrap()),
        ] {
            assert_eq!(text(message, header), value, "{header}");
        }
    }
    let of_fedora = |message: &Value| {
        let headers = message["headers"].as_object().unwrap().iter();
        let own = headers.filter_map(|(name, value)| Some((name.strip_prefix("org.fcrepo.jms.")?, value.as_str()?)));
        let own = own.filter(|(name, _)| *name != "eventID").map(|(name, value)| (name.to_owned(), value.to_owned()));
        own.collect::<BTreeMap<_, _>>()
    };
    let event = |values: &[(&str, &str)]| {
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let created = event(&[
        ("timestamp", "1767323045678"),
        ("identifier", "/book/page1"),
        ("baseURL", REST),
        ("eventType", "https://www.w3.org/ns/activitystreams#Create"),
        ("resourceType", "http://www.w3.org/ns/ldp#BasicContainer,http://pcdm.org/models#Object"),
        ("user", "bypassAdmin"),
    ]);
    assert_eq!(of_fedora(&messages[0]), created);
    for (message, identifier, kind) in [(1, "/book/page1", "Update"), (2, "/Sk%C3%B8yen", "Delete")] {
        let headers = of_fedora(&messages[message]);
        assert_eq!((headers["baseURL"].as_str(), headers["identifier"].as_str()), (REST, identifier));
        assert_eq!(headers["eventType"], format!("https://www.w3.org/ns/activitystreams#{kind}"));
    }
    // An item of an object is a resource below it, and `base_url` is not above it.
    let item = of_fedora(&messages[3]);
    assert_eq!((item["baseURL"].as_str(), item["identifier"].as_str()), ("http://h.example/objects/4", "/item"));
    assert_eq!(text(&messages[4], "org.fcrepo.jms.user"), changes[4]["user"]["name"].as_str().unwrap());
}

#[tokio::test]
async fn activemqs_own_client_reads_texts_and_properties() {
    let broker = Broker::shared();
    let name = broker.name();
    let folder = tempfile::tempdir().unwrap();
    let queue = format!("/queue/{name}");
    let more = format!("format = \"json\"\nbase_url = \"{REST}\"");
    let gateway = gateway(folder.path(), &subscription("index", &broker.url(), &queue, &more));
    post_event(&gateway, &resource("/a", "ADD", &json!({ "description": "Skøyen €" }))).await;
    post_event(&gateway, &resource("/b", "DELETE", &json!({}))).await;
    // ActiveMQ would not convert this text.
    post_event(&gateway, &resource("/c", "ADD", &json!({ "description": "😀" }))).await;
    gateway.until_at("index", 3).await;
    let created = "changes = 'ADD' AND JMSType = 'content-change'";
    let messages = broker.consume_with_openwire(&name, 2, created);
    let value = |message: usize, name: &str| {
        let found = messages[message].iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("{name} of {messages:#?}"), |(_, value)| value.as_str())
    };
    assert!(value(0, "text").contains("Skøyen €") && value(1, "bytes").contains("😀"), "{messages:#?}");
    for (message, identifier) in [(0, "/a"), (1, "/c")] {
        assert_eq!(value(message, "org.fcrepo.jms.identifier"), identifier);
        assert_eq!(value(message, "org.fcrepo.jms.baseURL"), REST);
        assert_eq!(value(message, "milliseconds"), "1767323045678");
        assert_eq!((value(message, "persistent"), value(message, "JMSType")), ("true", "content-change"));
    }
}

#[tokio::test]
async fn gateways_own_source_reads_events_from_a_topic() {
    let broker = Broker::shared();
    let topic = format!("/topic/{}", broker.name());
    // A second gateway, because the registry decides whether an event is an ADD or an UPDATE.
    let [sending, reading] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let durable = format!("durable = \"{topic}\"");
    let reader = stomp_source::start_with(reading.path(), &broker.url(), &topic, "fedora-events", &durable);
    // A topic keeps messages only for subscriptions that it knows.
    until_state(&reader, "connected").await;
    let lines = subscription("index", &broker.url(), &topic, "format = \"activitystreams\"");
    let sender = gateway(sending.path(), &lines);
    for (path, change) in [("/a", "ADD"), ("/a", "UPDATE"), ("/b/c", "ADD"), ("/a", "DELETE")] {
        post_event(&sender, &resource(path, change, &json!({ "user": { "name": "me" } }))).await;
    }
    until_head(&reader, 4).await;
    let facts = async |gateway: &Gateway| {
        let changes = gateway.changes().await.into_iter();
        let facts = changes.map(|change| {
            json!([change["object"], change["time"], change["user"]["name"], change["items"][0]["change"]])
        });
        facts.collect::<Vec<_>>()
    };
    assert_eq!(facts(&reader).await, facts(&sender).await);
    assert_eq!(reader.json("/quarantine").await["messages"], json!([]));
}

#[tokio::test]
async fn broker_kill_loses_nothing() {
    let mut broker = Broker::start();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &subscription("index", &broker.url(), &queue, "window = 20"));
    let mut posted = 0;
    for _ in 0..2 {
        for _ in 0..60 {
            posted += 1;
            post(&gateway, posted).await;
            if posted % 60 == 30 {
                broker.kill();
            }
        }
        let shown = gateway.until("index", "it notices", |shown| shown["state"] == "retrying").await;
        assert!(shown["lastError"]["reason"].is_string(), "{shown:#}");
        broker.start_again();
        gateway.until_at("index", posted).await;
    }
    // Only persistent messages survive this.
    broker.kill();
    broker.start_again();
    assert_in_order(&consume_with_stomp_py(broker.port, &queue, posted), posted);
}

#[tokio::test]
async fn gateway_kill_repeats_messages_under_the_same_ids() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let lines = subscription("index", &broker.url(), &queue, "");
    let mut posted = 0;
    for _ in 0..2 {
        let mut gateway = gateway(folder.path(), &lines);
        for _ in 0..40 {
            posted += 1;
            post(&gateway, posted).await;
        }
        gateway.kill();
    }
    let gateway = gateway(folder.path(), &lines);
    gateway.until_at("index", posted).await;
    assert_in_order(&consume_with_stomp_py(broker.port, &queue, posted), posted);
    assert!(gateway.stop().success());
}

#[tokio::test]
async fn formats_and_filters_apply() {
    let broker = Broker::shared();
    let formats = ["atom", "json", "xml", "cloudevents", "cloudevents-binary", "activitystreams", "hoarder"];
    let name = broker.name();
    let queue = |format: &str| format!("/queue/{name}.{format}");
    let lines: String = formats
        .map(|format| {
            let more = format!("format = \"{format}\"\nfilter = {{ changes = [\"ADD\"] }}");
            subscription(format, &broker.url(), &queue(format), &more)
        })
        .concat();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &lines);
    post(&gateway, 1).await;
    post_event(&gateway, &resource("/a", "DELETE", &json!({}))).await;
    post(&gateway, 3).await;
    let changes = gateway.changes().await;
    for format in formats {
        gateway.until_at(format, 3).await;
        // librairy has one event for an object, and one for its item.
        let expected: &[u64] = if format == "hoarder" { &[1, 1, 3, 3] } else { &[1, 3] };
        let messages = consume_with_stomp_py(broker.port, &queue(format), expected.len() as u64);
        assert_eq!(messages.iter().map(seq).collect::<Vec<_>>(), expected, "{format}");
        let (message, id) = (&messages[0], changes[0]["id"].as_str().unwrap());
        match format {
            "hoarder" => {
                assert_eq!(text(message, "change-id"), format!("{id}#0"));
                assert!(!text(message, "routing-key").is_empty() && !text(message, "resource").is_empty());
                assert!(message["headers"].get("org.fcrepo.jms.eventType").is_none());
            }
            _ => {
                assert_eq!(text(message, "change-id"), id);
                assert!(text(message, "org.fcrepo.jms.eventType").ends_with("#Create"));
            }
        }
        if format == "cloudevents-binary" {
            assert_eq!((text(message, "cloudEvents_id"), text(message, "cloudEvents_specversion")), (id, "1.0"));
        }
    }
}

async fn post_large(gateway: &Gateway, number: u64) {
    let mut large = event(number);
    large["description"] = "x".repeat(SMALL_BODY).into();
    post_event(gateway, &large).await;
}

async fn dead_letter(gateway: &Gateway, name: &str) -> Value {
    let (_, page) = gateway.ask("GET", &format!("/subscriptions/{name}/dead-letters"), None).await;
    let letters = page["deadLetters"].as_array().unwrap();
    assert_eq!(letters.len(), 1, "{page:#}");
    letters[0].clone()
}

#[tokio::test]
async fn message_that_is_too_large_becomes_a_dead_letter() {
    let broker = Broker::shared();
    let name = broker.name();
    let own = subscription(
        "own",
        &broker.url(),
        &format!("/queue/{name}.own"),
        "max_message_bytes = 2000\nformat = \"json\"",
    );
    let small = format!("stomp://127.0.0.1:{}", broker.small_port);
    let brokers = subscription("brokers", &small, &format!("/queue/{name}.brokers"), "format = \"json\"");
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &(own + &brokers));
    for number in 1..=9 {
        if number == 5 {
            post_large(&gateway, number).await;
        } else {
            post(&gateway, number).await;
        }
    }
    for (subscription, reason) in [
        ("own", "the maximum is 2000 (max_message_bytes)"),
        ("brokers", "the broker refuses the message: The maximum data length was exceeded"),
    ] {
        gateway.until_at(subscription, 9).await;
        let letter = dead_letter(&gateway, subscription).await;
        assert_eq!(letter["seq"], 5);
        assert!(letter["reason"].as_str().unwrap().contains(reason), "{letter:#}");
        let messages = consume_with_stomp_py(broker.port, &format!("/queue/{name}.{subscription}"), 8);
        // The refusal closes the connection, so messages may be repeated.
        let mut first: Vec<_> = messages.iter().map(seq).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first, [1, 2, 3, 4, 6, 7, 8, 9], "{subscription}");
    }
}

#[tokio::test]
async fn refusals_are_shown_without_the_password() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("url");
    fs::write(&file, format!("stomp://{USER}:not-{PASSWORD}@127.0.0.1:{}\n", broker.port)).unwrap();
    let password = subscription("password", "", &queue, "")
        .replace("url = \"\"", &format!("url = {{ file = \"{}\" }}", file.display()));
    let forbidden = subscription("forbidden", &broker.url(), "/queue/forbidden", "");
    let openwire = subscription("closed", "stomp://127.0.0.1:1", &queue, "");
    let gateway = gateway(folder.path(), &(password + &forbidden + &openwire));
    post(&gateway, 1).await;
    for (name, reason) in [
        ("password", "the broker refused the gateway (User name [tidings] or password is invalid"),
        ("forbidden", "the broker accepts no messages for the destination (User anonymous is not authorized to"),
        ("closed", "the broker cannot be reached"),
    ] {
        let is_told = |shown: &Value| {
            shown["lastError"]["reason"].as_str().unwrap_or_default().contains(reason) && shown["state"] == "retrying"
        };
        let shown = gateway.until(name, reason, is_told).await;
        assert_eq!((&shown["cursor"], &shown["deadLetters"]), (&json!(0), &json!(0)));
        assert!(!shown.to_string().contains(PASSWORD), "{shown:#}");
    }
    // A corrected file is read at the next start.
    fs::write(&file, format!("stomp://{USER}:{PASSWORD}@127.0.0.1:{}\n", broker.port)).unwrap();
    assert!(gateway.stop().success());
    let config = folder.path().join("tidings.toml");
    let gateway = Gateway::start_with(folder.path(), &["--config", config.to_str().unwrap()]);
    gateway.until_at("password", 1).await;
}

#[tokio::test]
async fn encrypted_connections_check_the_certificate() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let url = format!("stomp+ssl://localhost:{}", broker.tls_port);
    let folder = tempfile::tempdir().unwrap();
    let ca = format!("ca = \"{}\"", broker.certificate().display());
    let lines = subscription("index", &url, &queue, &ca) + &subscription("strict", &url, &queue, "");
    let gateway = gateway(folder.path(), &lines);
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    assert_in_order(&consume_with_stomp_py(broker.port, &queue, 1), 1);
    let refused = "no encrypted connection can be made";
    gateway.until("strict", "it is refused", |shown| shown.to_string().contains(refused)).await;
}

#[tokio::test]
async fn url_that_is_not_allowed_is_refused_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let definition = |url: &str| json!({ "delivery": "stomp", "url": url, "destination": "/queue/q" });
    for (url, told) in [
        ("stomp+ssl://127.0.0.1", "a loopback address"),
        ("stomp://broker.example.org", "it is not encrypted"),
        ("stomp+ssl://me:hush@broker.example.org", "it has a password"),
    ] {
        let (status, problem) = gateway.ask("PUT", "/subscriptions/w", Some(definition(url))).await;
        assert_eq!((status, &problem["key"]), (422, &json!("url")), "{url}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(told), "{url}: {problem}");
    }
    let accepted = definition("stomp+ssl://broker.example.org");
    assert_eq!(gateway.ask("PUT", "/subscriptions/w", Some(accepted)).await.0, 201);
}

#[tokio::test]
async fn name_with_a_private_ip_is_refused() {
    let service = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    service.set_nonblocking(true).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The name may resolve into an allowed network, so it is resolved before the decision.
    let gateway = gateway(folder.path(), "[delivery]\nallow = [\"10.0.0.0/8\"]\n");
    let url = format!("stomp://localhost:{}", service.local_addr().unwrap().port());
    let definition = json!({ "delivery": "stomp", "url": url, "destination": "/queue/q", "start": "beginning" });
    assert_eq!(gateway.ask("PUT", "/subscriptions/w", Some(definition)).await.0, 201);
    let told = "a loopback address; if that is intended, list it";
    gateway.until("w", "it is refused", |shown| shown["lastError"]["reason"].to_string().contains(told)).await;
    assert!(service.accept().is_err(), "nobody connected");
}
