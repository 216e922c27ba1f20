//! The dialect mapped with any JSON: no message makes it panic, its drafts fit the limits, and an explanation has the texts of
//! the draft.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidings::format::{self, Dialect, Headers, Limits, Message, ParsedMessage, RejectionKind};

use crate::support::fixtures;

fn dialect(settings: &Value, limits: Limits) -> Box<dyn Dialect> {
    (format::dialect("mapped").unwrap().build)(settings.clone(), limits).unwrap()
}

fn message<'a>(headers: &'a Headers, body: &'a [u8]) -> Message<'a> {
    Message { content_type: Some("application/json"), headers, body }
}

/// Returns names that the presets and the samples read, so that generated messages have members that matter.
fn names() -> impl Strategy<Value = String> {
    let known = [
        "Records",
        "s3",
        "object",
        "bucket",
        "name",
        "key",
        "eventName",
        "versionId",
        "size",
        "uri",
        "time",
        "id",
        "kind",
        "data",
        "resource",
        "type",
        "source",
        "isFile",
        "content",
        "bib",
        "mms_id",
        "event",
        "value",
        "item",
        "types",
        "state",
        "url",
        "skip",
        "primaryHierarchy",
        "resourceBefore",
    ];
    prop_oneof![9 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = ["ObjectCreated:Put", "urn:x:1", "content", "purge", "node.Created", "BIB_CREATED", "ACTIVE", "a+b%2"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(words.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let object = prop::collection::vec((names(), inner.clone()), 0..8);
        prop_oneof![
            1 => prop::collection::vec(inner, 0..5).prop_map(Value::from),
            3 => object.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_message_panics(document in any_json(), headers in prop::bool::ANY) {
        let kind = format::dialect("mapped").unwrap();
        let body = document.to_string();
        let headers: Headers = if headers {
            [("ce-specversion", "1.0"), ("ce-type", "org.alfresco.event.node.Created")].into_iter().collect()
        } else {
            Headers::default()
        };
        for sample in kind.sample_settings {
            let dialect = dialect(&serde_json::from_str(sample).unwrap(), Limits::default());
            let message = message(&headers, body.as_bytes());
            let read = dialect.read(&message);
            prop_assert_eq!(&read, &dialect.read(&message));
            let explained = dialect.explain(&message).unwrap();
            if let Ok(ParsedMessage::Drafts(drafts)) = read {
                prop_assert!(drafts.len() <= explained.len());
            }
        }
    }
}

#[test]
fn explanation_names_value_and_origin() {
    let settings = json!({ "preset": "s3", "user": "/by", "content": { "size": "/bytes" } });
    let body = std::fs::read(fixtures::folder("mapped").join("s3-several-records-synthetic.json")).unwrap();
    let explained = dialect(&settings, Limits::default()).explain(&message(&Headers::default(), &body)).unwrap();
    let places: Vec<_> = explained.iter().map(|element| element.place.as_str()).collect();
    assert_eq!(places, ["/Records/0", "/Records/1", "/Records/2", "/Records/3"]);
    let member = |name: &str| {
        let found = explained[0].members.iter().find(|member| member.member == name).unwrap();
        (found.value.as_deref(), found.origin.as_str())
    };
    assert_eq!(member("time"), (Some("2026-03-04T05:06:07.089Z"), "preset s3, pointer /eventTime"));
    assert_eq!(member("user"), (None, "pointer /by"));
    assert_eq!(member("content.size"), (None, "pointer /bytes"));
    assert_eq!(member("object").0, Some("s3://pictures/a.jpg"));
}

#[test]
fn limits_bound_elements_and_texts() {
    let limits = Limits { items: 3, change_bytes: 40_000, ..Limits::default() };
    let settings = json!({ "each": "", "object": "urn:x:{{ element }}", "description": "{{ 'x' * 15000 }}" });
    let read = |elements: usize| {
        let body = json!((0..elements).collect::<Vec<_>>()).to_string();
        dialect(&settings, limits).read(&message(&Headers::default(), body.as_bytes()))
    };
    assert!(matches!(read(2), Ok(ParsedMessage::Drafts(drafts)) if drafts.len() == 2));
    let texts = read(3).unwrap_err();
    assert!(matches!(texts.kind, RejectionKind::LimitExceeded(_)) && texts.to_string().contains("limits.change_bytes"));
    let elements = read(4).unwrap_err();
    assert!(matches!(elements.kind, RejectionKind::LimitExceeded(_)) && elements.to_string().contains("limits.items"));
}
