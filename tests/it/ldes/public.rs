//! Readers without a token, and tokens with a view.

use serde_json::Value;

use crate::support::views_fixture::{OPEN, SECRET, ViewedGateway, live_through};

/// Returns the members that a reader finds.
pub(super) async fn members(gateway: &ViewedGateway, reader: Option<&str>) -> Vec<Value> {
    let root = gateway.request("/ldes", reader).send().await.unwrap();
    let (folder, root) =
        (root.url().path().rsplit_once('/').unwrap().0.to_owned(), root.json::<Value>().await.unwrap());
    assert_eq!(root["transactionPath"].is_null(), reader.is_none(), "the end of a purge can be hidden");
    let mut nodes: Vec<_> =
        root["view"]["relation"].as_array().unwrap().iter().map(|one| one["node"].as_str().unwrap()).collect();
    nodes.dedup();
    let mut all = Vec::new();
    for node in nodes {
        let page = gateway.get(&format!("{folder}/{node}"), reader).await.json();
        all.extend(page["member"].as_array().cloned().unwrap_or_default());
    }
    all
}

#[tokio::test]
async fn public_gets_the_changes_that_it_sees() {
    let gateway =
        ViewedGateway::start(&format!("[access.public]\nsurfaces = [\"ldes\", \"changes\"]\nobjects = [\"{OPEN}\"]\n"));
    live_through(&gateway, 60).await;
    let (public, whole) = (members(&gateway, None).await, members(&gateway, Some("reader")).await);
    let outline = |member: &Value| (member["id"].clone(), member["seq"].clone(), member["object"].clone());
    let expected = |changes: Vec<Value>| changes.iter().map(outline).collect::<Vec<_>>();
    assert_eq!(public.iter().map(outline).collect::<Vec<_>>(), expected(gateway.changes("", None).await));
    assert_eq!(whole.iter().map(outline).collect::<Vec<_>>(), expected(gateway.changes("", Some("reader")).await));
    assert!(!serde_json::to_string(&public).unwrap().contains(SECRET));
    // The order is that of the whole journal.
    for member in &public {
        let same = whole.iter().find(|other| other["id"] == member["id"]).unwrap();
        assert_eq!(member["order"], same["order"]);
    }
    let page = gateway.request("/ldes", None).send().await.unwrap();
    let page = page.url().path().replace("root", "page-1");
    let public = gateway.get(&page, None).await;
    assert_eq!(public.cache_control, "public, max-age=60, immutable");
    assert_eq!(gateway.get(&page, Some("reader")).await.status, 410, "a token has another stream");
}

#[tokio::test]
async fn stream_that_is_not_open_needs_a_token() {
    let gateway = ViewedGateway::start("[access.public]\nsurfaces = [\"feed\"]\n");
    for path in ["/ldes", "/ldes/00000000-0000-8000-8000-000000000000/page-1.jsonld"] {
        assert_eq!(gateway.get(path, None).await.status, 401);
    }
}
