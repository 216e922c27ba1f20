//! The page at `/live` shows the stream, and the `EventSource` of a real browser follows it as well.

use std::path::Path;

use serde_json::json;

use crate::support::{
    browser::Browser,
    gateway::{Gateway, free_address},
    gateway_with_auth::configuration,
    subscription_fixture::post,
};

fn start(data: &Path, address: &str) -> Gateway {
    Gateway::start_elsewhere(data, &["--listen", address], None)
}

/// Numbers on the page, oldest first.
const NUMBERS: &str =
    "[...document.querySelectorAll('main tbody tr')].map(row => Number(row.cells[0].textContent)).reverse()";

/// Opens a stream and records each event.
fn open(browser: &mut Browser, query: &str) {
    browser.value(&format!(
        "(() => {{
            window.came = [];
            const source = new EventSource('stream{query}');
            const keep = ({{ type, lastEventId, data }}) => came.push([type, lastEventId, data]);
            for (const type of ['message', 'add', 'mixed', 'error']) source.addEventListener(type, keep);
            return new Promise(resolve => source.onopen = () => resolve());
        }})()"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_page_shows_each_change_once_across_a_gateway_kill() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut gateway = start(folder.path(), &address);
    let mut browser = Browser::start();
    browser.go(&format!("{}/live?after=0", gateway.url));
    browser.until("state.textContent.includes('connected')", &json!(true));
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    browser.until(NUMBERS, &json!([1, 2, 3]));
    let row = "document.querySelector('main tbody tr:last-child')";
    browser.until(&format!("{row}.textContent.endsWith('ADDhttp://h.example/objects/1')"), &json!(true));
    let links = browser.value(&format!("[...{row}.querySelectorAll('a')].map(link => link.hash)"));
    let object = "#/objects?uri=http%3A%2F%2Fh.example%2Fobjects%2F1";
    assert_eq!(links, json!(["#/changes/1", "#/sources/content-change", object]));

    // A second stream of the same page, without a cursor. It has its first id and no change before the gateway
    // is killed.
    browser.watch_network();
    open(&mut browser, "");
    browser.until_received(&format!("{}/stream", gateway.url));
    gateway.kill();
    browser.until("state.textContent.includes('reconnecting')", &json!(true));
    gateway = start(folder.path(), &address);
    for number in 4..=6 {
        post(&gateway, number).await;
    }
    browser.until(NUMBERS, &json!([1, 2, 3, 4, 5, 6]));
    browser.until(
        "came.filter(([type]) => type != 'error').map(([type, id]) => type + id)",
        &json!(["add4", "add5", "add6"]),
    );

    // A change of several lines equals that of other views.
    open(&mut browser, "?after=5&format=atom");
    browser.until("came.length", &json!(1));
    let id = gateway.changes().await[5]["id"].as_str().unwrap().to_owned();
    let atom = gateway.http.get(format!("{}/changes/{id}", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!(atom.contains('\n'), "the test finds no lines");
    assert_eq!(browser.value("came[0]"), json!(["add", "6", atom]));

    // A permanently refused request is not repeated.
    browser.go(&format!("{}/live?after=7", gateway.url));
    browser.until("state.textContent.includes('refused')", &json!(true));
    browser.until("state.textContent.includes('The journal cannot be read from 7')", &json!(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_sent_with_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "");
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let message =
        json!({ "object": "http://h.example/1", "items": [{ "uri": "http://h.example/1/a", "change": "ADD" }] });
    let post = gateway.http.post(format!("{}/hooks/content-change", gateway.url)).bearer_auth("tdg_publisher");
    assert_eq!(post.body(message.to_string()).send().await.unwrap().status(), 201);
    let mut browser = Browser::start();
    browser.go(&format!("{}/live?after=0", gateway.url));
    let form = "document.querySelector('main form')";
    browser.until(&format!("{form}?.elements.token != null"), &json!(true));
    assert_eq!(browser.value(NUMBERS), json!([]), "a stranger sees no change");
    browser.value(&format!("{form}.elements.token.value = 'tdg_reader', {form}.requestSubmit()"));
    browser.until("state.textContent.includes('connected')", &json!(true));
    browser.until(NUMBERS, &json!([1]));
    assert_eq!(browser.value("location.search + location.hash"), "?after=0", "the token is in no address");
}
