//! The `EventSource` of a real browser follows the stream, and the page at `/live` shows its events.

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
const NUMBERS: &str = "[...changes.children].map(line => Number(line.textContent.split(' ')[0])).reverse()";

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
    browser.until("state.value", &json!("connected"));
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    browser.until(NUMBERS, &json!([1, 2, 3]));
    browser.until("changes.lastChild.textContent.startsWith('1 add http://h.example/objects/1')", &json!(true));
    browser.until("waiting.hidden", &json!(true));
    let links = browser.value("[...changes.lastChild.querySelectorAll('a')].map(link => link.href)");
    let id = gateway.changes().await[0]["id"].as_str().unwrap().replace("urn:uuid:", "");
    let object = "objects?uri=http%3A%2F%2Fh.example%2Fobjects%2F1";
    assert_eq!(links, json!([format!("{}/changes/{id}", gateway.url), format!("{}/{object}", gateway.url)]));

    // A second stream of the same page, without a cursor. It has its first id and no change before the gateway
    // is killed.
    browser.watch_network();
    open(&mut browser, "");
    browser.until_received(&format!("{}/stream", gateway.url));
    gateway.kill();
    browser.until("state.value", &json!("reconnecting"));
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
    browser.until("state.value", &json!("refused"));
    browser.until("reason.textContent.startsWith('The journal cannot be read from 7')", &json!(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_credentials_are_sent_with_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "");
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let message =
        json!({ "object": "http://h.example/1", "items": [{ "uri": "http://h.example/1/a", "change": "ADD" }] });
    let post = gateway.http.post(format!("{}/hooks/content-change", gateway.url)).bearer_auth("tdg_publisher");
    assert_eq!(post.body(message.to_string()).send().await.unwrap().status(), 201);
    let mut browser = Browser::start();
    let with_token = gateway.url.replace("http://", "http://any:tdg_reader@");
    browser.go(&format!("{with_token}/live?after=0"));
    browser.until("state.value", &json!("connected"));
    browser.until(NUMBERS, &json!([1]));
    let mut stranger = Browser::start();
    // The browser asks for a user name and a password, which nobody enters.
    assert_eq!(stranger.navigate(&format!("{}/live", gateway.url)), "net::ERR_INVALID_AUTH_CREDENTIALS");
}
