//! Messages of librairy's event bus contain only a URI; the routing key contains the type of the change.

use serde_json::{Value, json};

use crate::support::hoarder_sfm_fixture::{gateway, send};

#[tokio::test]
async fn hoarder_vocabularies_both_become_changes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let mut changes = Vec::new();
    for (key, body) in [
        ("source.new", "sources/oa-upm"),
        ("source.closed", "sources/oa-upm"),
        ("source.closed", "sources/oa-upm"),
        ("source.opened", "sources/oa-upm"),
        ("document.new", "documents/oa-upm-17"),
        ("document.new", "documents/oa-upm-17"),
        ("document.opened", "documents/oa-upm-17"),
        ("document.opened", "documents/oa-upm-17"),
        ("item.created", "\"items/17-eciencia\""),
        ("item.updated", "items/17-eciencia"),
        ("item.deleted", "items/17-eciencia"),
        ("item.deleted", "items/17-eciencia"),
        ("item.new", "items/17-eciencia"),
    ] {
        let (_, answer) = send(&gateway, "hoarder", key, body).await;
        changes.push(answer["outcome"].clone());
    }
    let unchanged: Vec<_> = (0..changes.len()).filter(|index| changes[*index] == "unchanged").collect();
    assert_eq!(unchanged, [2, 5, 11], "a repeated `new` and a repeated end change nothing: {changes:?}");
    let changes = gateway.changes().await;
    let short = |change: &Value| {
        let item = &change["items"][0];
        assert_eq!(item["uri"], change["object"]);
        let object =
            change["object"].as_str().unwrap().strip_prefix("http://librairy.example.org/").unwrap().to_owned();
        (object, item["change"].clone(), item["stateBefore"].clone(), item["stateAfter"].clone())
    };
    let (source, document, item) = ("sources/oa-upm", "documents/oa-upm-17", "items/17-eciencia");
    let expected = [
        (source, json!("ADD"), json!(null), json!(null)),
        (source, json!(null), json!(null), json!("CLOSED")),
        (source, json!("UPDATE"), json!("CLOSED"), json!("OPENED")),
        (document, json!("ADD"), json!(null), json!(null)),
        (document, json!("UPDATE"), json!(null), json!(null)),
        (document, json!("UPDATE"), json!(null), json!(null)),
        (item, json!("ADD"), json!(null), json!(null)),
        (item, json!("UPDATE"), json!(null), json!(null)),
        (item, json!("DELETE"), json!(null), json!(null)),
        (item, json!("ADD"), json!(null), json!(null)),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(object, a, b, c)| (object.to_owned(), a, b, c)).collect();
    assert_eq!(changes.iter().map(short).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn hoarder_java_object_is_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let body = b"\xAC\xED\x00\x05sr\x00\x0Eorg.example.Foo".to_vec();
    let (status, problem) = send(&gateway, "hoarder", "item.created", body.clone()).await;
    assert_eq!(status, 400);
    assert!(problem["reason"].as_str().unwrap().contains("serialised Java object"), "{problem}");
    let quarantined = gateway.json(problem["instance"].as_str().unwrap()).await;
    assert_eq!(quarantined["bodyHex"], hex(&body));
    let (status, _) = send(&gateway, "hoarder", "domain.created", "domains/1").await;
    assert_eq!(status, 422);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
