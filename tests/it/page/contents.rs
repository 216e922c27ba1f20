//! Contents that others wrote are shown as texts, and find their way to no script and no wide page.

use serde_json::json;

use super::OpenPage;
use crate::support::subscription_fixture::{gateway, post_event};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_contents_are_texts_and_widen_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let long = format!("http://h.example/{}", "x".repeat(1900));
    for (number, object) in
        ["urn:example:1", "info:fedora/demo:1", &long, "http://h.example/%3Cimg%20src=x%20onerror=alert(1)%3E"]
            .iter()
            .enumerate()
    {
        let event = json!({ "object": object, "sourceEventId": number.to_string(), "description": "<img src=x onerror=alert(1)> javascript:alert(1)", "items": [{ "uri": object, "change": "ADD" }] });
        post_event(&gateway, &event).await;
    }
    let body = format!("<script>alert(1)</script>\u{202e}{}", "y".repeat(100_000));
    assert_eq!(gateway.post("content-change", "application/json", body).await.0, 422);
    let mut page = OpenPage::open(&format!("{}/#/changes", gateway.url));
    page.value("window.alert = () => { window.alerted = true }");
    page.browser.resize(360, 800);
    let is_narrow = json!(true);
    for (route, text) in [
        ("changes", "info:fedora/demo:1"),
        ("changes/1", "<img src=x onerror=alert(1)> javascript:alert(1)"),
        ("changes/3", &long),
        ("objects?uri=javascript%3Aalert(1)", "javascript:alert(1)"),
        ("quarantine/1", "<script>alert(1)</script>⟨202e⟩yyy"),
        ("quarantine", "content-change"),
        ("constructor", "h.example"),
        ("", "h.example"),
    ] {
        page.go(route);
        page.until_says("main", text);
        page.browser.until("document.documentElement.scrollWidth <= innerWidth", &is_narrow);
    }
    let schemes = "[...document.querySelectorAll('a')].every(link => typeof link.href !== 'string' || /^https?:/.test(link.href))";
    assert_eq!(page.value(schemes), true);
    page.go("quarantine/1");
    page.until_says("main pre", "yyy");
    let shown = page.value("[...document.querySelectorAll('main pre')].map(pre => pre.textContent.length)");
    assert!(shown[0].as_u64().unwrap() <= 65_536 + 8, "{shown}");
    assert_eq!(page.value("document.querySelectorAll('main img, main script').length"), 0);
    assert_eq!(page.value("window.alerted ?? false"), false);
    page.assert_quiet();
}

/// A request can have any further members, which the change repeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_in_documents_of_others_become_no_elements() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n");
    let element = json!({ "name": "meta", "attributes": { "http-equiv": "refresh", "content": "0;url=https://h.example" }, "children": [] });
    let request = json!({
        "ingest_type": "dataset", "base_url": "https://doi.org/10.5072/zenodo.17", "reason": element, "uri": element,
        "content": { "url": element, "size": "large" }, "rate": "fast", "lag": { "changes": null }, "line": { "line": 1 },
        "state": [element], "note": "the last member",
    });
    let (status, answer) = gateway.post("requests", "application/json", request.to_string()).await;
    assert_eq!(status, 201, "{answer}");
    let mut page = OpenPage::open(&format!("{}/#/changes/1", gateway.url));
    page.until_says("main", "the last member");
    assert_eq!(page.value("document.querySelectorAll('main meta').length"), 0);
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_a_hundred_sources_groups_them_and_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let source = |number| format!("[sources.s{number}]\ntransport = \"http\"\ndialect = \"content-change\"\n");
    let lines: String = (0..100).map(source).collect();
    let gateway = gateway(folder.path(), &lines);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_says("svg", "hook");
    assert!(page.value("document.querySelectorAll('svg a').length").as_u64().unwrap() <= 12);
    assert!(page.value("document.body.scrollHeight").as_u64().unwrap() < 2000);
    page.go("sources");
    page.browser.until("document.querySelectorAll('main tbody tr').length >= 100", &json!(true));
    page.assert_quiet();
}
