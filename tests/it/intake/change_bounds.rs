//! Limits on one change and on one object: a purge beyond them is split into several changes, and any other
//! message beyond them is quarantined.

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use tidings::model::{Draft, json_size};

use crate::support::{
    arbitrary,
    gateway::Gateway,
    run_length::lengthened,
    subscription_fixture::{self, gateway},
};

const LIMITS: &str = "[limits]\nitems = 10\nobject_items = 25\ntypes = 3\n";

/// Returns an event about these items of an object.
fn event(object: &str, id: &str, items: std::ops::Range<usize>) -> Value {
    let item = |number| json!({ "uri": format!("{object}/{number:03}"), "change": "ADD", "stateAfter": "ACTIVE" });
    json!({ "object": object, "sourceEventId": format!("{object} {id}"), "items": items.map(item).collect::<Vec<_>>() })
}

async fn post(gateway: &Gateway, event: &Value) -> (u16, Value) {
    gateway.post("content-change", "application/json", event.to_string()).await
}

/// Creates an object with 25 items; returns the event that purges it.
async fn filled(gateway: &Gateway, object: &str) -> Value {
    for (id, items) in [("a", 0..10), ("b", 10..20), ("c", 20..25)] {
        assert_eq!(post(gateway, &event(object, id, items)).await.0, 201);
    }
    json!({ "object": object, "sourceEventId": format!("{object} purge"), "purge": true })
}

#[tokio::test]
async fn purge_of_many_items_is_split_and_its_duplicate_returns_all_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LIMITS);
    let purge = filled(&gateway, "http://h/1").await;
    let (status, first) = post(&gateway, &purge).await;
    assert_eq!(status, 201, "{first}");
    let first_numbers: Vec<_> =
        first["changes"].as_array().unwrap().iter().map(|change| change["seq"].clone()).collect();
    assert_eq!(first_numbers, [4, 5, 6]);

    let changes = gateway.changes().await;
    let parts = &changes[3..];
    let lengths: Vec<_> = parts.iter().map(|part| part["items"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [10, 10, 5]);
    let purges: Vec<_> = parts.iter().map(|part| part["purge"] == true).collect();
    assert_eq!(purges, [false, false, true]);
    let items = parts.iter().flat_map(|part| part["items"].as_array().unwrap());
    assert!(items.clone().all(|item| item["change"] == "DELETE" && item["stateBefore"] == "ACTIVE"));
    let uris: Vec<_> = items.map(|item| item["uri"].clone()).collect();
    assert_eq!(uris, (0..25).map(|number| json!(format!("http://h/1/{number:03}"))).collect::<Vec<_>>());

    // The result is the same after a restart, when nothing of it is in memory.
    let (status, again) = post(&gateway, &purge).await;
    assert_eq!((status, &again["outcome"]), (200, &json!("duplicate")), "{again}");
    let numbers = |answer: &Value| {
        answer["changes"].as_array().unwrap().iter().map(|change| change["seq"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&again), first_numbers);
    assert!(gateway.stop().success());
    let gateway = Gateway::start(folder.path());
    let (_, again) = post(&gateway, &purge).await;
    assert_eq!(numbers(&again), first_numbers);
}

#[tokio::test]
async fn object_item_limit_refuses_new_items_only() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LIMITS);
    filled(&gateway, "http://h/1").await;
    for (id, items) in [("d", 24..26), ("e", 30..31)] {
        let (status, problem) = post(&gateway, &event("http://h/1", id, items)).await;
        assert_eq!(status, 422, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("limits.object_items"), "{problem}");
    }
    assert_eq!(post(&gateway, &event("http://h/1", "f", 20..25)).await.0, 201, "items that are known");
    assert_eq!(post(&gateway, &event("http://h/2", "a", 0..1)).await.0, 201, "another object");
    let quarantined = gateway.json("/quarantine").await;
    assert_eq!(quarantined["messages"].as_array().unwrap().len(), 2, "{quarantined}");
    assert_eq!(gateway.changes().await.len(), 5);
    // The count is the same when it is read from disk.
    assert!(gateway.stop().success());
    let gateway = subscription_fixture::gateway(folder.path(), LIMITS);
    assert_eq!(post(&gateway, &event("http://h/1", "g", 30..31)).await.0, 422);
    assert_eq!(post(&gateway, &event("http://h/1", "h", 0..1)).await.0, 201);
}

#[tokio::test]
async fn type_limit_quarantines_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LIMITS);
    let typed = |id: &str, types: usize| {
        let mut event = event("http://h/1", id, 0..1);
        event["types"] = (0..types).map(|number| json!(format!("http://h/type/{number}"))).collect();
        event
    };
    assert_eq!(post(&gateway, &typed("a", 3)).await.0, 201);
    let (status, problem) = post(&gateway, &typed("b", 4)).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("limits.types"), "{problem}");
    let part = json!({
        "walk": "01935c5a-0000-7000-8000-000000000001", "part": 1, "place": "", "objects": [{
            "object": "http://h/9", "at": "2020-01-01T00:00:00Z", "types": ["urn:x:1", "urn:x:2", "urn:x:3", "urn:x:4"],
            "items": [{ "uri": "http://h/9", "at": "2020-01-01T00:00:00Z" }]
        }]
    });
    let (status, problem) = gateway.ask("POST", "/sources/content-change/registry", Some(part)).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("limits.types"), "{problem}");
}

#[tokio::test]
async fn byte_limit_quarantines_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nchange_bytes = 4194304\n");
    let (status, problem) = post(&gateway, &event("http://h/1", "a", 0..8000)).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("limits.change_bytes"), "{problem}");
    assert_eq!(post(&gateway, &event("http://h/1", "b", 0..5000)).await.0, 201);
}

#[test]
fn json_size_bound_holds_for_every_change() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: lengthened(500),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&arbitrary::change(), |change| {
            let json = serde_json::to_vec(&change).unwrap().len();
            let items: usize = change.modification.items.iter().map(json_size::of_item).sum();
            let settled = json_size::of_change(&change.modification) + items;
            let draft = json_size::of_draft(&Draft::from(change.modification), 3);
            prop_assert!(json <= settled && json <= draft, "{json} {settled} {draft}");
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn script_uris_are_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LIMITS);
    for uri in ["javascript:alert(1)", "JavaScript:alert(1)", "vbscript:x", "data:text/html,<script>"] {
        let ordinary = "http://h/1/a";
        for (object, item, content) in [(uri, ordinary, ordinary), (ordinary, uri, ordinary), (ordinary, ordinary, uri)]
        {
            let item = json!({ "uri": item, "change": "ADD", "content": { "url": content } });
            let (status, answer) = post(&gateway, &json!({ "object": object, "items": [item] })).await;
            assert_eq!(status, 422, "{object} {uri}: {answer}");
        }
    }
    assert_eq!(gateway.head().await, 0);
    assert_eq!(gateway.json("/quarantine").await["messages"].as_array().unwrap().len(), 12);
}
