//! Life of one Fedora 3 object over HTTP. No message lists the items of the object or its previous state; every
//! change does.

use serde_json::{Value, json};

use crate::support::{
    fedora3_messages::{BASE, Call},
    gateway::Gateway,
};

fn life() -> Vec<Call<'static>> {
    let call = |number, method, parameters, returned| Call { number, method, pid: "demo:1", parameters, returned };
    vec![
        call(1, "ingest", &[("logMessage", "null")][..], Some("demo:1")),
        call(2, "addDatastream", &[("dsID", "DC"), ("dsState", "A")], Some("DC")),
        call(3, "addDatastream", &[("dsID", "OBJ"), ("dsState", "I")], Some("OBJ")),
        call(4, "addDatastream", &[("dsID", "TN"), ("dsState", "A")], Some("TN")),
        call(5, "modifyDatastreamByValue", &[("dsID", "DC"), ("dsContent", "[OMITTED]")], None),
        call(6, "setDatastreamState", &[("dsID", "DC"), ("dsState", "I")], None),
        call(7, "setDatastreamState", &[("dsID", "DC"), ("dsState", "I")], None),
        call(8, "purgeDatastream", &[("dsID", "TN"), ("startDT", "null"), ("endDT", "null")], Some("[OMITTED]")),
        call(9, "addRelationship", &[("relationship", "info:x"), ("object", "info:fedora/demo:2")], Some("true")),
        call(10, "addRelationship", &[("relationship", "info:x"), ("object", "info:fedora/demo:3")], Some("true")),
        call(11, "purgeObject", &[("logMessage", "null")], None),
    ]
}

/// Returns the name, change type, state before and state after of each item.
fn items(change: &Value) -> Vec<[String; 4]> {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let name = |uri: &Value| {
        let path = uri.as_str().unwrap().strip_prefix(&format!("{BASE}/objects/demo:1")).unwrap().to_owned();
        path.split('/').nth(2).unwrap_or("the object").to_owned()
    };
    let items = change["items"].as_array().unwrap().iter();
    items
        .map(|item| [name(&item["uri"]), word(&item["change"]), word(&item["stateBefore"]), word(&item["stateAfter"])])
        .collect()
}

#[tokio::test]
async fn object_life_has_states_and_items_that_no_message_lists() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let mut outcomes = Vec::new();
    for call in life() {
        let (status, answer) = gateway.post("fedora3", "application/atom+xml", call.message()).await;
        outcomes.push((status, answer["outcome"].as_str().unwrap().to_owned()));
    }
    let accepted = |n| vec![(201, "accepted".to_owned()); n];
    assert_eq!(outcomes, [accepted(6), vec![(200, "unchanged".to_owned())], accepted(4)].concat());

    let changes: Vec<_> = gateway.changes().await.iter().map(items).collect();
    let expected = [
        vec![["the object", "ADD", "-", "-"]],
        vec![["DC", "ADD", "-", "ACTIVE"]],
        vec![["OBJ", "ADD", "-", "INACTIVE"]],
        vec![["TN", "ADD", "-", "ACTIVE"]],
        vec![["DC", "UPDATE", "ACTIVE", "-"]],
        vec![["DC", "-", "ACTIVE", "INACTIVE"]],
        vec![["TN", "DELETE", "ACTIVE", "-"]],
        vec![["RELS-EXT", "ADD", "-", "ACTIVE"]],
        vec![["RELS-EXT", "UPDATE", "ACTIVE", "-"]],
        vec![
            ["the object", "DELETE", "-", "-"],
            ["DC", "DELETE", "INACTIVE", "-"],
            ["OBJ", "DELETE", "INACTIVE", "-"],
            ["RELS-EXT", "DELETE", "ACTIVE", "-"],
        ],
    ];
    assert_eq!(json!(changes), json!(expected));
    assert_eq!(
        gateway.json("/changes?after=4&limit=1").await["changes"][0]["items"][0]["content"]["url"],
        format!("{BASE}/objects/demo:1/datastreams/DC/content?asOfDateTime=2026-03-01T10:00:05.125Z")
    );
}

#[tokio::test]
async fn duplicate_purge_makes_no_change_and_unknown_purge_makes_one() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let purge = Call { number: 1, method: "purgeObject", pid: "demo:1", parameters: &[], returned: None };
    let (status, first) = gateway.post("fedora3", "text/xml", purge.message()).await;
    assert_eq!((status, &first["outcome"]), (201, &json!("accepted")));
    let (status, second) = gateway.post("fedora3", "text/xml", purge.message()).await;
    assert_eq!((status, &second["outcome"]), (200, &json!("duplicate")));
    assert_eq!(second["changes"][0]["seq"], first["changes"][0]["seq"]);
    assert_eq!(second["changes"][0]["id"], first["changes"][0]["id"]);
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 1);
    assert_eq!(items(&changes[0]), [["the object", "DELETE", "-", "-"]]);
}
