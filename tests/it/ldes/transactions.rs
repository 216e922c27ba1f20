//! A purge is a transaction, also one that the journal divides into several changes.

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    subscription_fixture::{gateway, post, post_event},
};

/// Returns all members, oldest first.
async fn members(gateway: &Gateway) -> Vec<Value> {
    let root = gateway.http.get(format!("{}/ldes", gateway.url)).send().await.unwrap();
    let mut all = Vec::new();
    for page in 1.. {
        let page = gateway.http.get(root.url().join(&format!("page-{page}.jsonld")).unwrap()).send().await.unwrap();
        if page.status() == 404 {
            return all;
        }
        all.extend(page.json::<Value>().await.unwrap()["member"].as_array().unwrap().iter().cloned());
    }
    unreachable!()
}

#[tokio::test]
async fn divided_purge_is_a_transaction_across_pages() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nitems = 2\n");
    let object = "http://h/purged";
    let item = |number: usize| json!({ "uri": format!("{object}/{number}"), "change": "ADD" });
    for number in 0..5 {
        post_event(&gateway, &json!({ "object": object, "items": [item(2 * number), item(2 * number + 1)] })).await;
    }
    for number in 6..=97 {
        post(&gateway, number).await;
    }
    // Ten items are five parts: three on this page, and two on the next one.
    post_event(&gateway, &json!({ "object": object, "purge": true, "items": [] })).await;
    post_event(&gateway, &json!({ "object": "http://h/other", "purge": true, "items": [] })).await;
    let members = members(&gateway).await;
    assert_eq!(members.len(), 103);
    for member in &members {
        let seq = member["seq"].as_u64().unwrap();
        let expected = match seq {
            98..=102 => json!(102),
            // A purge with one member.
            103 => json!(103),
            _ => Value::Null,
        };
        assert_eq!(member["transaction"], expected, "{member}");
        assert_eq!(member["final"], if seq >= 102 { json!(true) } else { Value::Null }, "{member}");
    }
    assert_eq!((&members[101]["type"], &members[102]["type"]), (&json!("as:Delete"), &json!("as:Delete")));
}
