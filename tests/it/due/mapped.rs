//! Dates of visibility in messages that a map reads.

use std::fs;

use serde_json::{Value, json};

use super::{due_changes, in_millis};
use crate::support::{gateway::Gateway, nodes_fixture::until};

const MAP: &str = "[sources.uploads]\ntransport = \"http\"\ndialect = \"mapped\"\n\
    [sources.uploads.settings]\nobject = \"/uri\"\nkind = \"/kind\"\nstate = \"/state\"\nid = \"/id\"\n\
    visible_from = \"/rights/from\"\nvisible_until = \"/rights/until\"\ncontent = { url = \"/url\" }\n";

/// Kinds of events that can have dates.
const KINDS: [&str; 6] = ["content", "add", "update", "present", "metadata", "state"];

fn start(folder: &tempfile::TempDir) -> Gateway {
    let config = folder.path().join("tidings.toml");
    fs::write(&config, MAP).unwrap();
    Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()])
}

/// Returns a message about an object, which is its own item.
fn message(name: &str, kind: &str, more: Value) -> Value {
    let mut message =
        json!({ "uri": format!("http://h/{name}"), "kind": kind, "url": format!("http://h/{name}/{kind}") });
    let Value::Object(more) = more else { panic!("the members are an object") };
    message.as_object_mut().unwrap().extend(more);
    message
}

async fn send(gateway: &Gateway, message: &Value) -> (u16, Value) {
    gateway.post("uploads", "application/json", message.to_string()).await
}

/// Returns the names of the objects with a date, and the present states of them.
async fn announced(gateway: &Gateway) -> Vec<(String, String)> {
    let due = gateway.json("/due").await;
    let text = |value: &Value| value.as_str().unwrap().trim_start_matches("http://h/").to_owned();
    let mut announced: Vec<_> =
        due["due"].as_array().unwrap().iter().map(|item| (text(&item["object"]), text(&item["state"]))).collect();
    announced.sort_unstable();
    announced
}

#[tokio::test]
async fn dates_of_a_map_hide_the_item_until_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    let mut expected = Vec::new();
    let soon = in_millis(6000);
    for kind in KINDS {
        for state in [json!("ACTIVE"), Value::Null] {
            if kind == "state" && state.is_null() {
                continue;
            }
            let name = format!("{kind}-{}", state.is_null());
            if kind != "add" {
                send(&gateway, &message(&name, "content", json!({}))).await;
            }
            let dated = message(&name, kind, json!({ "state": state, "rights": { "from": soon } }));
            let (status, answer) = send(&gateway, &dated).await;
            assert_eq!((status, &answer["outcome"]), (201, &json!("accepted")), "{name}: {answer}");
            expected.push((name, "EMBARGOED".to_owned()));
        }
    }
    expected.sort_unstable();
    assert_eq!(announced(&gateway).await, expected);
    until("all dates have come", async || due_changes(&gateway).await.len() == expected.len()).await;
    let moved = due_changes(&gateway).await;
    assert!(
        moved.iter().all(|(_, before, after)| (before.as_str(), after.as_str()) == ("EMBARGOED", "ACTIVE")),
        "{moved:?}"
    );
    assert!(announced(&gateway).await.is_empty());
}

#[tokio::test]
async fn record_without_its_former_dates_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    let dates = json!({ "rights": { "from": "2099-01-01", "until": "2199-01-01" } });
    for name in ["record", "event"] {
        send(&gateway, &message(name, "present", dates.clone())).await;
    }
    assert_eq!(announced(&gateway).await.len(), 2);
    send(&gateway, &message("record", "present", json!({}))).await;
    send(&gateway, &message("event", "update", json!({}))).await;
    assert_eq!(announced(&gateway).await, [("event".to_owned(), "EMBARGOED".to_owned())]);
    let object = gateway.json("/objects?uri=http://h/record").await;
    assert_eq!(object["items"][0]["state"], "ACTIVE", "{object}");
}

#[tokio::test]
async fn unreadable_dates_of_a_map_make_nothing_public() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    for (rights, place, reason) in [
        (json!({ "from": "next spring" }), "/rights/from", "visible_from"),
        (json!({ "until": 20_300_203 }), "/rights/until", "visible_until"),
        (json!({ "from": ["2030-01-02"] }), "/rights/from", "visible_from"),
        (
            json!({ "from": "2030-01-02", "until": "2030-01-01" }),
            "the JSON document",
            "visible_from is not before visible_until",
        ),
    ] {
        for kind in KINDS {
            let (status, answer) =
                send(&gateway, &message("a", kind, json!({ "state": "ACTIVE", "rights": rights }))).await;
            assert_eq!((status, answer["place"].as_str()), (422, Some(place)), "{kind}: {answer}");
            assert!(answer.to_string().contains(reason), "{answer}");
        }
    }
    assert!(gateway.changes().await.is_empty());
}
