//! A reader that copies `/snapshot` page by page while changes arrive, and then applies `/changes` after the
//! head of the first page, has the contents of the registry.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::gateway::Gateway;

/// ReaderCopy of a reader: the present items with their states.
type ReaderCopy = BTreeMap<String, Value>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_and_later_changes_rebuild_the_registry() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for number in 0..60 {
        post_event(&gateway, number, number % 12).await;
    }
    let (mut copy, mut head, mut after, mut number) = (ReaderCopy::new(), None, String::new(), 60);
    loop {
        let page = gateway.json(&format!("/snapshot?limit=2{after}")).await;
        head.get_or_insert(page["head"].as_u64().unwrap());
        take(&mut copy, &page);
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
        // Changes that arrive meanwhile are in the following pages, and in the changes after the first head.
        for _ in 0..7 {
            number += 1;
            post_event(&gateway, number, number * 5 % 17).await;
        }
    }
    let mut from = head.unwrap();
    loop {
        let page = gateway.json(&format!("/changes?after={from}&limit=10")).await;
        let changes = page["changes"].as_array().unwrap();
        if changes.is_empty() {
            break;
        }
        changes.iter().for_each(|change| apply(&mut copy, change));
        from = page["next"].as_u64().unwrap();
    }
    let mut registry = ReaderCopy::new();
    take(&mut registry, &gateway.json("/snapshot?limit=1000").await);
    assert_eq!(copy, registry);
    assert!(registry.len() > 10);
}

#[tokio::test]
async fn snapshot_refuses_invalid_queries_and_is_empty_without_items() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let empty = gateway.json("/snapshot").await;
    assert_eq!(empty, json!({ "journal": empty["journal"], "head": 0, "seeds": 0, "objects": [] }));
    for query in ["limit=0", "limit=1001", "after=x", "before=1"] {
        let refused = gateway.http.get(format!("{}/snapshot?{query}", gateway.url)).send().await.unwrap();
        assert_eq!(refused.status(), 400, "{query}");
    }
}

/// Posts an event about one item: it is added, changes its state and is deleted, in turn.
async fn post_event(gateway: &Gateway, number: u64, item: u64) {
    let object = format!("http://h/{:02}", item % 9);
    let uri = format!("{object}/{item}");
    let change = match number % 4 {
        0 => json!({ "uri": uri, "change": "DELETE" }),
        1 => json!({ "uri": uri, "stateAfter": "INACTIVE" }),
        _ => json!({ "uri": uri, "change": "ADD", "stateAfter": "ACTIVE" }),
    };
    let event = json!({ "object": object, "description": number.to_string(), "items": [change] });
    let (status, answer) = gateway.post("content-change", "application/json", event.to_string()).await;
    assert!(status < 300, "{answer}");
}

fn take(copy: &mut ReaderCopy, page: &Value) {
    for item in page["objects"].as_array().unwrap().iter().flat_map(|object| object["items"].as_array().unwrap()) {
        assert_eq!(item["live"], true);
        copy.insert(item["uri"].as_str().unwrap().to_owned(), item["state"].clone());
    }
}

fn apply(copy: &mut ReaderCopy, change: &Value) {
    for item in change["items"].as_array().unwrap() {
        let (uri, state) = (item["uri"].as_str().unwrap(), item["stateAfter"].clone());
        match item["change"].as_str() {
            Some("DELETE") => drop(copy.remove(uri)),
            // Any other change of an item means that the item is present.
            _ if state.is_null() => drop(copy.entry(uri.to_owned()).or_default()),
            _ => drop(copy.insert(uri.to_owned(), state)),
        }
    }
}
