//! CloudEvents 1.0 in structured, batch and binary mode. The rules of the standard are checked here, because
//! the SDKs accept empty identifiers and invalid times. The SDK for Python also reads the events as HTTP,
//! RabbitMQ and AMQP messages.

use std::collections::BTreeMap;

use proptest::{
    prelude::ProptestConfig,
    proptest,
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use serde_json::{Value, json};
use tidings::{
    format::{self, FORMATS, FormatKind, HeaderProtocol},
    model::Change,
};

use crate::{
    formats::samples::changes,
    support::{arbitrary, gateway::Gateway, python, subscription_fixture::post},
};

fn kind(name: &str) -> &'static FormatKind {
    format::format(name).unwrap()
}

/// JSON formats, each with a test against its standard: `docs/json.md` and the schema of `/openapi.json` for
/// our own, and the readers of the others.
#[test]
fn json_formats_all_have_a_test() {
    let in_json: Vec<_> =
        FORMATS.iter().filter(|kind| kind.media_type.contains("json")).map(|kind| kind.name).collect();
    assert_eq!(
        in_json,
        [
            "json",
            "cloudevents",
            "cloudevents-binary",
            "activitystreams",
            "islandora",
            "fileset-result",
            "fileset-file-result"
        ]
    );
}

/// Checks section 3 of the specification and the schema of its JSON format.
fn assert_valid(event: &Value) {
    let event = event.as_object().unwrap();
    for (name, value) in event {
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "a name: {name}");
        assert!(name.len() <= 20, "a name: {name}");
        if name == "data" {
            continue;
        }
        let text = value.as_str().unwrap_or_else(|| panic!("{name} is a text: {value}"));
        assert!(!text.is_empty(), "{name} says something");
        assert!(!text.contains(|c: char| c.is_control()), "{name} has no control characters: {text:?}");
    }
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["datacontenttype"], "application/json");
    assert!(event["data"].is_object());
    for name in ["id", "source", "type", "subject"] {
        assert!(event.contains_key(name), "{name} is there");
    }
    url::Url::parse(event["source"].as_str().unwrap()).unwrap();
    for name in ["time", "recordedtime"] {
        if let Some(time) = event.get(name) {
            chrono::DateTime::parse_from_rfc3339(time.as_str().unwrap()).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cloudevent_of_any_change_is_valid(change in arbitrary::change()) {
        let event: Value = serde_json::from_slice(&(kind("cloudevents").write)(&change)).unwrap();
        assert_valid(&event);
        assert_eq!(event["data"], serde_json::to_value(&change).unwrap());
        assert_eq!(event["id"], change.modification.id.to_string());
        assert_eq!(event["subject"], change.modification.object.as_str());
        let alone: Value = serde_json::from_slice(&(kind("cloudevents").write_modification)(&change.modification)).unwrap();
        assert_valid(&alone);
        for header in kind("cloudevents-binary").headers(&change, HeaderProtocol::Http) {
            let visible = header.value.bytes().all(|byte| byte.is_ascii_graphic());
            assert!(visible, "{}: {}", header.name, header.value);
            assert!(!header.name.ends_with("datacontenttype"));
        }
    }
}

#[test]
fn cloudevent_sequence_sorts_as_text() {
    let sequence = |number: u64| {
        let mut change = changes()[0].1.clone();
        change.seq.0 = number;
        let event: Value = serde_json::from_slice(&(kind("cloudevents").write)(&change)).unwrap();
        event["sequence"].as_str().unwrap().to_owned()
    };
    let sequences = [1, 9, 10, 99, u64::MAX].map(sequence);
    assert!(sequences.is_sorted(), "{sequences:?}");
}

#[test]
fn cloudevent_is_readable_by_the_sdk() {
    let mut runner = TestRunner::deterministic();
    let any = (0..40).map(|_| arbitrary::change().new_tree(&mut runner).unwrap().current());
    let changes: Vec<Change> = changes().into_iter().map(|(_, change)| change).chain(any).collect();
    let mut messages = Vec::new();
    let mut expected = Vec::new();
    for change in &changes {
        let event: Value = serde_json::from_slice(&(kind("cloudevents").write)(change)).unwrap();
        let structured = kind("cloudevents");
        messages.push(message("http", structured.media_type, &BTreeMap::new(), &(structured.write)(change)));
        messages.push(message("rabbitmq", structured.media_type, &BTreeMap::new(), &(structured.write)(change)));
        let binary = kind("cloudevents-binary");
        for (binding, carrier) in
            [("http", HeaderProtocol::Http), ("rabbitmq", HeaderProtocol::Amqp), ("amqp", HeaderProtocol::Amqp)]
        {
            let headers = binary.headers(change, carrier).into_iter();
            let headers = headers.map(|header| (header.name.into_owned(), header.value)).collect();
            messages.push(message(binding, binary.media_type, &headers, &(binary.write)(change)));
        }
        expected.extend(std::iter::repeat_n(event, 5));
    }
    let read = python::read_cloudevents(&messages);
    assert_eq!(read.len(), expected.len());
    for (mut read, expected) in read.into_iter().zip(expected) {
        // Extension attributes are untyped in headers.
        for name in ["time", "recordedtime"] {
            let time = chrono::DateTime::parse_from_rfc3339(read[name].as_str().unwrap()).unwrap();
            assert_eq!(time, chrono::DateTime::parse_from_rfc3339(expected[name].as_str().unwrap()).unwrap());
            read[name] = expected[name].clone();
        }
        assert_eq!(read, expected);
    }
}

#[tokio::test]
async fn cloudevent_batches_page_through_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let plain = gateway.changes().await;
    let mut url = format!("{}/changes?limit=2", gateway.url);
    let mut events = Vec::new();
    for length in [2, 1, 0] {
        let accept = "application/cloudevents-batch+json, application/json;q=0.5";
        let answer = gateway.http.get(&url).header("accept", accept).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/cloudevents-batch+json");
        let next = answer.headers()["link"].to_str().unwrap().strip_prefix('<').unwrap().to_owned();
        let (next, rel) = next.split_once('>').unwrap();
        assert_eq!(rel, "; rel=\"next\"");
        url = url::Url::parse(&url).unwrap().join(next).unwrap().to_string();
        let page: Vec<Value> = answer.json().await.unwrap();
        assert_eq!(page.len(), length);
        events.extend(page);
    }
    assert_eq!(events.iter().map(|event| event["data"].clone()).collect::<Vec<_>>(), plain);
    events.iter().for_each(assert_valid);
    for accept in ["*/*", "application/json", "text/html,*/*;q=0.8"] {
        let answer = gateway.http.get(&url).header("accept", accept).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/json;charset=utf-8", "{accept}");
    }
}

fn message(binding: &str, content_type: &str, headers: &BTreeMap<String, String>, body: &[u8]) -> Value {
    json!({
        "binding": binding, "content_type": content_type, "headers": headers,
        "body": String::from_utf8(body.to_vec()).unwrap(),
    })
}
