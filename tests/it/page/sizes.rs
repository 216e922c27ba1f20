//! Contents of the greatest sizes, and hostile ones in every field: nothing of them runs or widens the page, and the page
//! draws only a part of them.
//!
//! The test prints how long the page takes to draw each view anew.

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    gateway::Gateway,
    subscription_fixture::{gateway, post_event},
    webhook_fixture::webhook,
};

/// Markup, a link that runs, characters that reorder others or that nobody sees, and a long word.
fn hostile() -> String {
    format!(
        "<img src=x onerror=alert(1)>`</script><script>alert(1)</script> javascript:alert(1) \u{202e}\u{200b}⟨7⟩ {}",
        "w".repeat(300)
    )
}

/// Returns the milliseconds that drawing the view anew takes, with its layout: the second best of seven.
const DRAWING: &str = "(() => {
    const draw = () => { const begun = performance.now(); dispatchEvent(new Event('resize')); document.body.offsetHeight; return performance.now() - begun };
    return Math.round(Array.from({ length: 7 }, draw).sort((one, other) => one - other)[1] * 10) / 10;
})()";

/// Number of elements that a view has at most, so that drawing it anew takes little time.
const MAX_ELEMENTS: u64 = 4000;

async fn fill(gateway: &Gateway) {
    let text = hostile();
    let uri = format!("http://h.example/%3Cimg%20onerror=alert(1)%3E{}", "x".repeat(2000));
    let event = json!({
        "object": uri, "sourceEventId": "e<img src=x onerror=alert(1)>", "description": text, "user": { "name": text },
        "items": [{ "uri": format!("{uri}/1"), "change": "ADD", "stateAfter": "ACTIVE",
            "content": { "url": uri, "mediaType": "text/html" } }],
    });
    post_event(gateway, &event).await;
    let many: Vec<_> = (0..10_000)
        .map(|number| json!({ "uri": format!("http://h.example/many/{number}"), "change": "ADD" }))
        .collect();
    post_event(gateway, &json!({ "object": "http://h.example/many", "items": many })).await;
    let long = format!("{text}{}", "d".repeat(1_000_000));
    let event = json!({ "object": "http://h.example/long", "description": long, "user": { "name": long }, "items": [{ "uri": "http://h.example/long/1", "change": "ADD" }] });
    // Texts have a limit, so the message may be refused.
    gateway.post("content-change", "application/json", event.to_string()).await;
    let mut posts = tokio::task::JoinSet::new();
    for part in 0..8 {
        let (http, url) = (gateway.http.clone(), gateway.url.clone());
        posts.spawn(async move {
            for number in 0..1250 {
                // Each has its own reason, of each of the sources.
                let body = json!({ hostile().chars().take(number % 100).collect::<String>(): number }).to_string();
                let sent = http.post(format!("{url}/hooks/s{}", (part * 1250 + number) % 100)).body(body).send().await;
                assert_eq!(sent.unwrap().status(), 422);
            }
        });
    }
    posts.join_all().await;
    let body = format!("{text}{}", "y".repeat(1_000_000));
    let status = gateway.post("content-change", "application/json", body).await.0;
    assert!(matches!(status, 400 | 422), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_draws_a_part_of_large_and_hostile_contents() {
    let sources =
        (0..100).map(|number| format!("[sources.s{number}]\ntransport = \"http\"\ndialect = \"content-change\"\n"));
    // One in twenty cannot deliver, and the others have nothing to deliver.
    let subscription = |number: usize| {
        let source = if number.is_multiple_of(20) { "content-change" } else { "s0" };
        webhook(&format!("to-{number}"), "http://127.0.0.1:1/", &format!("filter = {{ sources = [\"{source}\"] }}"))
    };
    let lines: String = sources.chain((0..1000).map(subscription)).collect();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &format!("[delivery]\nallow = [\"127.0.0.1\"]\n{lines}"));
    fill(&gateway).await;
    assert_eq!(gateway.json("/subscriptions").await["subscriptions"].as_array().map(Vec::len), Some(1000));
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.value("window.alert = () => { window.hasRun = true }");
    page.until_verdict("things need attention");
    let many = "objects?uri=http%3A%2F%2Fh.example%2Fmany";
    let message = gateway.json("/quarantine?limit=1").await["messages"][0]["id"].clone();
    let message = format!("quarantine/{message}");
    for (route, text) in [
        ("", "Newest changes"),
        ("sources", "s11"),
        ("sources/s0", "messages in the quarantine"),
        ("subscriptions", "More of 1\u{202f}000"),
        ("subscriptions/to-20", "Connection refused"),
        ("changes", "ADD ×10000"),
        ("changes/1", "<img src=x onerror=alert(1)>"),
        ("changes/2", "More of 10\u{202f}000"),
        (many, "More of 10\u{202f}000"),
        ("quarantine", "Older messages"),
        (&message, "<script>alert(1)</script>"),
        ("connect", "More of"),
        ("gateway", "Nodes"),
        ("live?after=0", "http://h.example/many"),
    ] {
        page.go(route);
        page.until_loaded();
        page.until_says("main > div", text);
        for width in [1280, 360] {
            page.browser.resize(width, 800);
            page.browser.until("document.documentElement.scrollWidth <= innerWidth || location.hash", &json!(true));
        }
        page.browser.resize(1280, 800);
        let (time, elements) = (page.value(DRAWING), page.value("document.querySelectorAll('*').length"));
        eprintln!("drawing {route:?} anew: {time} ms, {elements} elements");
        assert!(elements.as_u64().unwrap() < MAX_ELEMENTS, "{route}: {elements} elements");
        assert_eq!(page.value("document.querySelectorAll('main img, main script').length"), 0);
    }
    assert_eq!(page.value("window.hasRun ?? false"), Value::Bool(false));
    page.go("subscriptions");
    page.until_says("main > div", "More of");
    page.click_text("More of 1\u{202f}000");
    page.browser.until("document.querySelectorAll('[aria-label=Subscriptions] tbody tr').length", &json!(200));
    page.assert_quiet();
}
