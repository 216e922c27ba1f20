//! Format `activitystreams`: the dialects for Fedora and Islandora can read it, and so can other consumers of
//! those systems.

use proptest::{prelude::ProptestConfig, prop_assert, prop_assert_eq, proptest};
use serde_json::Value;
use tidings::{
    format::{self, HeaderProtocol, Headers, Limits, Message, ParsedMessage},
    model::{Change, Draft, DraftChange, ItemChange, Uri},
};

use crate::{formats::samples::changes, support::arbitrary};

fn body(change: &Change) -> Vec<u8> {
    (format::format("activitystreams").unwrap().write)(change)
}

fn read(dialect: &str, headers: &Headers, body: &[u8]) -> Draft {
    let dialect = (format::dialect(dialect).unwrap().build)(Value::Null, Limits::default()).unwrap();
    let message = Message { content_type: Some("application/activity+json"), headers, body };
    match dialect.read(&message) {
        Ok(ParsedMessage::Drafts(drafts)) if drafts.len() == 1 => drafts[0].clone(),
        other => panic!("{other:?}\n{}", String::from_utf8_lossy(body)),
    }
}

/// Returns the change type of the only item of a draft.
fn kind(draft: &Draft) -> &'static str {
    match draft.items.listed()[0].change {
        DraftChange::Reported(ItemChange::Add { .. }) => "Create",
        DraftChange::Reported(ItemChange::Delete { .. }) => "Delete",
        DraftChange::AddOrUpdate { .. } => "Update",
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn activity_type_and_resource_match_each_change_type() {
    let expected = [
        ("Create", "http://localhost:8080/rest/a/image.tif", Some("http://localhost:8080/rest")),
        (
            "Delete",
            "http://localhost:8080/fedora/objects/demo:1/datastreams/DC/content",
            Some("http://localhost:8080/fedora/objects/demo:1"),
        ),
        ("Delete", "http://localhost:8080/fedora/objects/demo:1", None),
        ("Update", "http://localhost:8080/fedora/objects/demo:%C3%84%20b", None),
        ("Delete", "urn:uuid:9541c0c1-5bee-4973-a93a-69b3c1a1f906", None),
    ];
    for ((name, change), (what, resource, parent)) in changes().iter().zip(expected) {
        let dialect = if name.starts_with("islandora") { "islandora" } else { "fedora-events" };
        let draft = read(dialect, &Headers::default(), &body(change));
        assert_eq!(
            (kind(&draft), draft.object.as_str(), draft.parent.as_ref().map(Uri::as_str)),
            (what, resource, parent),
            "{name}"
        );
        assert_eq!(draft.user, change.modification.user, "{name}");
        assert_eq!(draft.time.reported(), Some(change.modification.time), "{name}");
        assert_eq!(draft.event_id.unwrap().as_str(), change.modification.id.to_string(), "{name}");
    }
}

/// Consumers of Islandora look for representations under `url`, and so does the dialect.
#[test]
fn activity_links_representations_of_a_urn() {
    let (_, change) = &changes()[4];
    let draft = read("islandora", &Headers::default(), &body(change));
    let items: Vec<_> = draft.items.listed().iter().map(|item| item.uri.clone()).collect();
    assert_eq!(items, change.modification.items.iter().map(|item| item.uri.clone()).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn activity_of_any_change_is_readable(change in arbitrary::change()) {
        let written = body(&change);
        let event: Value = serde_json::from_slice(&written).unwrap();
        let resource = event["object"]["id"].as_str().unwrap();
        // Resources of Fedora have a URL; names (URNs) occur only in Islandora.
        let is_name = |uri: &Value| uri.as_str().is_some_and(|uri| uri.starts_with("urn:"));
        let names = is_name(&event["object"]["id"]) || is_name(&event["object"]["isPartOf"]);
        let dialect = if names { "islandora" } else { "fedora-events" };
        let draft = read(dialect, &Headers::default(), &written);
        let modification = &change.modification;
        // A dialect may spell the resource as the REST API does.
        let written = draft.reading.former_of(&draft.object).unwrap_or(&draft.object);
        prop_assert_eq!(written.as_str(), resource);
        prop_assert_eq!(draft.time.reported(), Some(modification.time));
        prop_assert_eq!(draft.event_id.as_ref().unwrap().as_str(), modification.id.to_string());
        prop_assert!(*written == modification.object || modification.items.iter().any(|item| item.uri == *written));
        if *written == modification.object {
            let is_told = |kind: &&Uri| draft.types.contains(kind) || kind.as_str() == "http://www.w3.org/ns/prov#Entity";
            prop_assert!(modification.types.iter().all(|kind| is_told(&kind)), "{:?}", draft.types);
        }
        prop_assert_eq!(event["type"].as_array().unwrap(), &vec![Value::from(kind(&draft))]);
    }

    /// Older consumers read only the headers, so these repeat the body.
    #[test]
    fn activity_headers_repeat_the_body(change in arbitrary::change()) {
        let event: Value = serde_json::from_slice(&body(&change)).unwrap();
        let resource = event["object"]["id"].as_str().unwrap().to_owned();
        if !resource.starts_with("http") {
            return Ok(());
        }
        let kind_of = format::format("activitystreams").unwrap();
        for carrier in [HeaderProtocol::Amqp, HeaderProtocol::Http] {
            let headers: Headers = kind_of.headers(&change, carrier).into_iter().map(|header| (header.name, header.value)).collect();
            // Values that HTTP headers cannot carry are only in the body.
            if carrier == HeaderProtocol::Http && !resource.is_ascii() {
                continue;
            }
            let draft = read("fedora-events", &headers, b"");
            let path = headers.get("org.fcrepo.jms.identifier").unwrap();
            let joined = format!("{}{path}", headers.get("org.fcrepo.jms.baseURL").unwrap());
            prop_assert!(joined == resource || joined == format!("{resource}/"), "{joined} {resource}");
            prop_assert_eq!(draft.time.reported(), Some(change.modification.time));
            prop_assert_eq!(kind(&draft), event["type"][0].as_str().unwrap());
        }
    }
}
