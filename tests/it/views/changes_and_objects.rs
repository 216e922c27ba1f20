//! `/changes`, `/changes/{id}`, `/objects`, `/service` and the gateway's health, through the real
//! program.

use serde_json::{Value, json};

use crate::support::{
    fedora3_messages::{BASE, Call},
    gateway::Gateway,
};

async fn gateway_with(changes: u64) -> (tempfile::TempDir, Gateway) {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for number in 1..=changes {
        let pid = format!("demo:{number}");
        let parameters = &[("dsID", "DC"), ("dsState", "A")];
        let call = Call { number, method: "addDatastream", pid: &pid, parameters, returned: Some("DC") };
        let (status, answer) = gateway.post("fedora3", "application/atom+xml", call.message()).await;
        assert_eq!(status, 201, "{answer}");
    }
    (folder, gateway)
}

async fn get(gateway: &Gateway, path: &str, accept: &str) -> reqwest::Response {
    gateway.http.get(format!("{}{path}", gateway.url)).header("accept", accept).send().await.unwrap()
}

#[tokio::test]
async fn changes_are_paged() {
    let (_folder, gateway) = gateway_with(5).await;
    let page = gateway.json("/changes?limit=2").await;
    let numbers: Vec<_> = page["changes"].as_array().unwrap().iter().map(|change| &change["seq"]).collect();
    assert_eq!((json!(numbers), &page["next"]), (json!([1, 2]), &json!(2)));
    let page = gateway.json("/changes?after=4&limit=2").await;
    assert_eq!((page["changes"].as_array().unwrap().len(), &page["next"]), (1, &json!(5)));
    let page = gateway.json("/changes?after=5").await;
    assert_eq!(page, json!({ "changes": [], "next": 5, "journal": page["journal"] }));
    assert!(uuid::Uuid::parse_str(page["journal"].as_str().unwrap()).is_ok(), "{page}");
    for query in ["limit=0", "limit=1001", "limit=x", "after=-1", "aftre=1"] {
        let refused = get(&gateway, &format!("/changes?{query}"), "*/*").await;
        assert_eq!(refused.status(), 400, "{query}");
        let problem: Value = refused.json::<Value>().await.unwrap();
        assert_eq!(problem["type"], "urn:tidings:problem:invalid-query", "{query}");
    }
}

#[tokio::test]
async fn change_is_negotiated_and_immutable() {
    let (_folder, gateway) = gateway_with(1).await;
    let change = gateway.json("/changes").await["changes"][0].clone();
    let id = change["id"].as_str().unwrap();
    for path in [format!("/changes/{id}"), format!("/changes/{}", id.strip_prefix("urn:uuid:").unwrap())] {
        let json = get(&gateway, &path, "application/json").await;
        assert_eq!(json.headers()["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(json.json::<Value>().await.unwrap(), change);
        let atom = get(&gateway, &path, "application/atom+xml;q=0.9, application/json;q=0.1").await;
        assert!(atom.headers()["content-type"].to_str().unwrap().starts_with("application/atom+xml"));
        let tag = atom.headers()["etag"].clone();
        let text = atom.text().await.unwrap();
        assert!(text.contains("content-change-message-0.1") && text.contains(id), "{text}");
        let request = gateway.http.get(format!("{}{path}", gateway.url)).header("if-none-match", tag);
        assert_eq!(request.header("accept", "application/atom+xml").send().await.unwrap().status(), 304);
    }
    assert_eq!(get(&gateway, &format!("/changes/{id}"), "image/png").await.status(), 406);
    for unknown in ["nonsense", "urn:uuid:00000000-0000-4000-8000-000000000001", "+1", "-1", "99999999999999999999"] {
        assert_eq!(get(&gateway, &format!("/changes/{unknown}"), "*/*").await.status(), 404, "{unknown}");
    }
}

#[tokio::test]
async fn change_is_found_by_its_number() {
    let (_folder, gateway) = gateway_with(2).await;
    let change = get(&gateway, "/changes/2", "application/json").await;
    // After a restore the number may be that of another change.
    assert_eq!(change.headers()["cache-control"], "no-cache");
    assert_eq!(change.json::<Value>().await.unwrap(), gateway.changes().await[1]);
    for (number, detail) in [
        ("0", "no change with the number 0: the newest is 2."),
        ("3", "no change with the number 3: the newest is 2."),
        ("x", "a change is found by its identifier, a UUID, or by its number."),
    ] {
        let missing = get(&gateway, &format!("/changes/{number}"), "*/*").await;
        assert_eq!(missing.status(), 404);
        let problem: Value = missing.json().await.unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
}

#[tokio::test]
async fn object_shows_its_registry_state() {
    let (_folder, gateway) = gateway_with(1).await;
    let object = gateway.json(&format!("/objects?uri={BASE}/objects/demo:1")).await;
    let item = format!("{BASE}/objects/demo:1/datastreams/DC/content");
    let expected = json!({
        "uri": format!("{BASE}/objects/demo:1"),
        "types": [],
        "source": "fedora3",
        "items": [{
            "uri": item, "live": true, "since": "2026-03-01T10:00:01.125Z", "state": "ACTIVE", "content": { "url": item },
        }],
    });
    assert_eq!(object, expected);
    assert_eq!(get(&gateway, "/objects?uri=http://nowhere.example.org/1", "*/*").await.status(), 404);
    assert_eq!(get(&gateway, "/objects?uri=nothing", "*/*").await.status(), 400);
    assert_eq!(get(&gateway, "/objects", "*/*").await.status(), 400);
}

#[tokio::test]
async fn service_document_lists_each_hook_and_its_media_types() {
    let (_folder, gateway) = gateway_with(0).await;
    let answer = get(&gateway, "/service", "*/*").await;
    assert_eq!(answer.headers()["content-type"], "application/atomsvc+xml");
    let document = answer.text().await.unwrap();
    let url = &gateway.url;
    for (hook, accept) in [
        ("content-change", "application/atom+xml;type=feed"),
        ("fedora", "application/activity+json"),
        ("fedora3", "application/atom+xml;type=entry"),
        ("islandora", "application/ld+json"),
    ] {
        let collection = document.split(&format!("<collection href=\"{url}/hooks/{hook}\">")).nth(1).unwrap();
        let collection = collection.split("</collection>").next().unwrap();
        assert!(collection.contains(&format!("<accept>{accept}</accept>")), "{collection}");
    }
    assert!(document.contains(&format!("<collection href=\"{url}/feed\">")), "{document}");
}

#[tokio::test]
async fn health_is_reported_and_errors_are_problems() {
    let (_folder, gateway) = gateway_with(2).await;
    assert_eq!(gateway.json("/healthz").await, json!({ "status": "ok" }));
    assert_eq!(gateway.json("/readyz").await, json!({ "status": "ready", "head": 2 }));
    let hook = format!("{}/hooks/fedora3", gateway.url);
    let unknown = format!("{}/hooks/fedroa3", gateway.url);
    let large = vec![b' '; 5 * 1024 * 1024];
    for (request, status, code) in [
        (gateway.http.get(format!("{}/nowhere", gateway.url)), 404, "not-found"),
        (gateway.http.get(&hook), 405, "method-not-allowed"),
        (gateway.http.post(&unknown).body("x"), 404, "unknown-source"),
        (gateway.http.post(&hook).body(large), 413, "body-too-large"),
        (gateway.http.post(&hook), 400, "malformed-message"),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{code}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{code}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["type"], format!("urn:tidings:problem:{code}"));
        assert!(problem["detail"].as_str().unwrap().len() > 20, "{problem}");
    }
}
