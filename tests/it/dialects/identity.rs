//! Identity of events and time: equal messages are events, one identifier belongs to one object, and a time that the gateway
//! made up makes nothing late.

use serde_json::{Value, json};

use crate::support::gateway::Gateway;

const JSON: &str = "application/json";

/// Returns an event about the item of an object, without identifier and time.
fn event(members: &Value) -> Value {
    let mut item = json!({ "uri": "http://repository.example.org/scan/8/tiff" });
    item.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({ "object": "http://repository.example.org/scan/8", "items": [item] })
}

fn content(size: u64) -> Value {
    event(
        &json!({ "change": "UPDATE", "content": { "url": "http://repository.example.org/scan/8/tiff", "size": size } }),
    )
}

async fn send(gateway: &Gateway, source: &str, event: &Value) -> String {
    let (_, answer) = gateway.post(source, JSON, event.to_string()).await;
    answer["outcome"].as_str().map_or_else(|| answer.to_string(), str::to_owned)
}

async fn only_item(gateway: &Gateway) -> Value {
    let objects = gateway.json("/snapshot").await["objects"].clone();
    assert_eq!((objects.as_array().unwrap().len(), objects[0]["items"].as_array().unwrap().len()), (1, 1), "{objects}");
    objects[0]["items"][0].clone()
}

#[tokio::test]
async fn equal_messages_without_identifier_and_time_are_events() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for size in [2048, 4096, 2048, 2048] {
        assert_eq!(send(&gateway, "content-change", &content(size)).await, "accepted");
        assert_eq!(only_item(&gateway).await["content"]["size"], size);
    }
    let state = |state: &str| event(&json!({ "stateAfter": state }));
    for after in ["INACTIVE", "ACTIVE", "INACTIVE"] {
        assert_eq!(send(&gateway, "content-change", &state(after)).await, "accepted");
        assert_eq!(only_item(&gateway).await["state"], after);
    }
    let update = json!({ "type": "Update", "object": { "id": "http://h.example.org/rest/a", "type": [] } });
    for _ in 0..2 {
        assert_eq!(send(&gateway, "fedora", &update).await, "accepted");
    }
}

#[tokio::test]
async fn time_in_whole_seconds_does_not_identify_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for (time, outcome) in [("2026-11-25T21:18:16Z", "accepted"), ("2026-11-25T21:18:16.739Z", "duplicate")] {
        let mut event = content(2048);
        event["time"] = time.into();
        assert_eq!(send(&gateway, "content-change", &event).await, "accepted");
        assert_eq!(send(&gateway, "content-change", &event).await, outcome);
    }
}

#[tokio::test]
async fn identifier_of_another_object_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(folder.path());
    let with_id = |object: &str| {
        let items = json!([{ "uri": format!("{object}/a"), "change": "ADD" }]);
        json!({ "sourceEventId": "e-1", "object": object, "items": items })
    };
    let activity = |resource: &str| json!({ "id": "urn:uuid:1", "type": "Update", "object": { "id": resource } });
    let cases = [
        ("content-change", with_id("http://h/1"), with_id("http://h/2")),
        ("fedora", activity("http://h/3"), activity("http://h/4")),
    ];
    for (source, first, _) in &cases {
        assert_eq!(send(&gateway, source, first).await, "accepted");
    }
    for _ in 0..2 {
        for (source, first, second) in &cases {
            let (status, problem) = gateway.post(source, JSON, second.to_string()).await;
            assert_eq!(status, 422, "{problem}");
            assert!(problem["reason"].as_str().unwrap().contains("for an event about another object"), "{problem}");
            assert_eq!(send(&gateway, source, first).await, "duplicate");
        }
        // The same after a restart, when nothing of it is in memory.
        gateway.kill();
        gateway = Gateway::start(folder.path());
    }
    assert_eq!((gateway.head().await, gateway.json("/quarantine").await["messages"].as_array().unwrap().len()), (2, 4));
}

#[tokio::test]
async fn idempotency_key_of_another_object_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for (object, status) in [("http://h/1", 201), ("http://h/2", 422), ("http://h/1", 200)] {
        let body = json!({ "object": object, "items": [{ "uri": object, "change": "ADD" }] }).to_string();
        let request =
            gateway.http.post(format!("{}/hooks/content-change", gateway.url)).header("idempotency-key", "k-1");
        assert_eq!(request.body(body).send().await.unwrap().status(), status, "{object}");
    }
}

#[tokio::test]
async fn event_without_time_makes_no_later_event_late() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let add = event(&json!({ "change": "ADD" }));
    assert_eq!(send(&gateway, "content-change", &add).await, "accepted");
    let mut delete = event(&json!({ "change": "DELETE" }));
    // A clock that is cut to seconds, and slow besides.
    let time = chrono::Utc::now() - chrono::TimeDelta::seconds(2);
    delete["time"] = time.format("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    assert_eq!(send(&gateway, "content-change", &delete).await, "accepted");
    let changes = gateway.changes().await;
    assert!(changes[0]["asOf"].is_string(), "{}", changes[0]);
    assert_eq!(changes[1]["items"][0]["late"], Value::Null, "{}", changes[1]);
    assert_eq!(gateway.json("/snapshot").await["objects"], json!([]));
}

#[tokio::test]
async fn time_in_whole_seconds_covers_its_second() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for (change, time, late) in [
        ("ADD", "2026-11-25T21:18:16.739Z", false),
        ("DELETE", "2026-11-25T21:18:16Z", false),
        ("ADD", "2026-11-25T21:18:16Z", false),
        ("DELETE", "2026-11-25T21:18:16.738Z", true),
        ("DELETE", "2026-11-25T21:18:15Z", true),
    ] {
        let mut event = event(&json!({ "change": change }));
        event["time"] = time.into();
        assert_eq!(send(&gateway, "content-change", &event).await, "accepted");
        let newest = gateway.changes().await.pop().unwrap();
        assert_eq!(newest["items"][0]["late"] != Value::Null, late, "{newest}");
    }
}
