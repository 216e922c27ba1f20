//! Pages for people: a change and an object with its life, which escape everything and fit on a phone.

use reqwest::{Response, StatusCode};
use serde_json::json;

use crate::support::{
    browser::Browser,
    gateway::Gateway,
    gateway_with_auth::configuration,
    subscription_fixture::{gateway, post, post_event},
};

/// `Accept` of a browser.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

const OBJECT: &str = "http://h.example/objects/demo:1";

async fn get(gateway: &Gateway, path: &str, accept: &str) -> Response {
    gateway.http.get(format!("{}{path}", gateway.url)).header("accept", accept).send().await.unwrap()
}

async fn page(gateway: &Gateway, path: &str) -> String {
    let page = get(gateway, path, BROWSER).await;
    assert_eq!(
        (page.status(), &page.headers()["content-type"]),
        (StatusCode::OK, &"text/html; charset=utf-8".parse().unwrap())
    );
    assert_eq!(page.headers()["cache-control"], "no-cache");
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("script"), "{policy}");
    page.text().await.unwrap()
}

/// Adds an item of the object, withdraws it, and deletes it: three changes.
async fn life(gateway: &Gateway) {
    let item = format!("{OBJECT}/photo");
    let content = json!({ "url": "http://h.example/content?a=1&b=2", "mediaType": "image/png", "size": 7 });
    for (change, description) in [
        (
            json!({ "uri": item, "change": "ADD", "content": content, "stateAfter": "ACTIVE" }),
            "<script>alert(1)</script>",
        ),
        (json!({ "uri": item, "stateBefore": "ACTIVE", "stateAfter": "INACTIVE" }), "withdrawn"),
        (json!({ "uri": item, "change": "DELETE" }), "\u{202e}deleted"),
    ] {
        let parent = "javascript-is-no-scheme-here:x";
        let event = json!({ "object": OBJECT, "parent": parent, "description": description, "items": [change] });
        post_event(gateway, &event).await;
    }
}

#[tokio::test]
async fn page_of_a_change_shows_its_facts_and_escapes_them() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    life(&gateway).await;
    let added = page(&gateway, "/changes/1").await;
    for part in [
        "<h1>Added: demo:1/photo</h1>",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "<a href=\"http://h.example/content?a=1&amp;b=2\" rel=\"nofollow\">",
        "<dt>State</dt><dd>— → ACTIVE</dd>",
        "<dt>Size</dt><dd>7 bytes</dd>",
        "<dt>Parent</dt><dd>javascript-is-no-scheme-here:x</dd>",
        "<a href=\"../objects?uri=http%3A%2F%2Fh.example%2Fobjects%2Fdemo%3A1\">",
        "<a href=\"2\">Next change</a>",
    ] {
        assert!(added.contains(part), "{part}: {added}");
    }
    assert!(!added.contains("<script") && !added.contains("Previous"), "{added}");
    let deleted = page(&gateway, "/changes/3").await;
    assert!(deleted.contains("\\u{202e}deleted") && deleted.contains("<a href=\"2\">Previous change</a>"), "{deleted}");
    let id = gateway.changes().await[1]["id"].as_str().unwrap().to_owned();
    assert_eq!(page(&gateway, &format!("/changes/{id}")).await, page(&gateway, "/changes/2").await);
    // Programs get the formats as before.
    let atom = get(&gateway, &format!("/changes/{id}"), "*/*").await;
    assert_eq!(atom.headers()["content-type"].to_str().unwrap().split(';').next(), Some("application/atom+xml"));
    assert_eq!(get(&gateway, "/changes/9", BROWSER).await.status(), 404);
}

#[tokio::test]
async fn page_of_an_object_lists_its_life_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    life(&gateway).await;
    // The URI of this object begins with that of the other.
    let other = format!("{OBJECT}1");
    post_event(&gateway, &json!({ "object": other, "items": [{ "uri": other, "change": "ADD" }] })).await;
    let url = "/objects?uri=http%3A%2F%2Fh.example%2Fobjects%2Fdemo%3A1";
    let whole = page(&gateway, url).await;
    let order =
        ["Deleted: demo:1/photo", "New state: demo:1/photo, ACTIVE → INACTIVE", "Added: demo:1/photo, — → ACTIVE"];
    let places: Vec<_> = order.map(|part| whole.find(part).unwrap_or_else(|| panic!("{part}: {whole}"))).into();
    assert!(places.is_sorted(), "{whole}");
    assert!(!whole.contains("demo:11") && !whole.contains("Older changes"), "{whole}");
    assert!(whole.contains("<span class=\"gone\">") && !whole.contains("datetime=\"1970"), "{whole}");

    for number in 0..60 {
        let item =
            json!({ "uri": OBJECT, "change": "UPDATE", "content": { "url": format!("http://h.example/{number}") } });
        post_event(&gateway, &json!({ "object": OBJECT, "items": [item] })).await;
    }
    let newest = page(&gateway, url).await;
    let count = |page: &str| page.matches("<li value=").count();
    let older = newest.split("<a href=\"").find_map(|rest| Some(rest.split_once("\">Older changes</a>")?.0)).unwrap();
    let older = page(&gateway, &format!("/{}", older.replace("&amp;", "&"))).await;
    assert_eq!((count(&newest), count(&older)), (50, 13));

    let json = get(&gateway, url, "*/*").await;
    assert_eq!(json.headers()["content-type"], "application/json;charset=utf-8");
    assert_eq!(json.headers()["vary"], "Accept");
    assert_eq!(get(&gateway, &format!("{url}&before=3"), "application/json").await.status(), 400);
    assert_eq!(get(&gateway, url, "image/png").await.status(), 406);
    assert_eq!(get(&gateway, "/objects?uri=http://nowhere.example.org/1", BROWSER).await.status(), 404);
}

#[tokio::test]
async fn pages_need_the_same_token_as_their_json() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "");
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    for path in ["/changes/1", "/objects?uri=http://h.example/1", "/feed.css"] {
        assert_eq!(get(&gateway, path, BROWSER).await.status(), 401, "{path}");
    }
    let icon = get(&gateway, "/favicon.ico", "image/*").await;
    assert_eq!(icon.status(), StatusCode::NO_CONTENT);
    assert_eq!(icon.headers()["cache-control"], "private, max-age=86400");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_fit_on_a_phone() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    life(&gateway).await;
    post(&gateway, 1).await;
    let long = format!("http://h.example/{}", "long-name-without-a-break".repeat(20));
    post_event(&gateway, &json!({ "object": long, "items": [{ "uri": long, "change": "ADD" }] })).await;
    let mut browser = Browser::start();
    browser.resize(360, 640);
    let docs = (
        "/docs",
        "document.querySelectorAll('details').length > 50",
        "document.querySelectorAll('details pre').length > 50",
    );
    let live = ("/live?after=0", "document.querySelectorAll('main tbody tr').length == 5", "true");
    let object = format!("/objects?uri={OBJECT}");
    let of_long = format!("/objects?uri={long}");
    let content = "document.querySelectorAll('h1').length == 1";
    for (path, ready, opened) in [
        docs,
        live,
        ("/changes/1", content, "true"),
        ("/changes/5", content, "true"),
        (object.as_str(), content, "true"),
        (of_long.as_str(), content, "true"),
    ] {
        browser.go(&format!("{}{path}", gateway.url));
        browser.until(ready, &json!(true));
        browser.value("document.querySelectorAll('details').forEach(details => details.open = true)");
        browser.until(opened, &json!(true));
        let widest = "[...document.querySelectorAll('body *')].filter(e => !e.closest('pre')).map(e => [Math.ceil(e.getBoundingClientRect().right), e.outerHTML.slice(0, 200)]).sort((a, b) => b[0] - a[0])[0]";
        let widest = browser.value(widest);
        assert!(widest[0].as_u64().unwrap() <= 360, "{path}: {widest}");
        browser.until("document.documentElement.scrollWidth", &json!(360));
    }
}
