//! The stream and the description of the interface are parts of the page, also at `/live` and `/docs`.

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    gateway::Gateway,
    gateway_with_auth::{GatewayWithAuth, configuration},
    subscription_fixture::{gateway, post},
};

/// Numbers of the rows, newest first.
const NUMBERS: &str = "[...document.querySelectorAll('main tbody tr')].map(row => Number(row.cells[0].textContent))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_part_follows_pauses_and_filters() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let mut page = OpenPage::open(&format!("{}/#/live", gateway.url));
    page.until_says("#state", "connected");
    for number in 1..=2 {
        post(&gateway, number).await;
    }
    page.browser.until(NUMBERS, &json!([2, 1]));
    page.until_says("main tbody", "content-changeADDhttp://h.example/objects/2");
    let pause = "[...document.querySelectorAll('header button')].find(one => one.ariaPressed).click()";
    page.value(pause);
    page.until_says("#state", "paused");
    post(&gateway, 3).await;
    assert_eq!(page.value(NUMBERS), json!([2, 1]));
    page.value(pause);
    page.browser.until(NUMBERS, &json!([3, 2, 1]));

    let form = "document.querySelector('main form')";
    page.value(&format!("{form}.elements.object.value = 'http://h.example/objects/2', {form}.requestSubmit()"));
    page.until_says("#state", "connected");
    page.browser.until("location.hash", &json!("#/live?object=http%3A%2F%2Fh.example%2Fobjects%2F2"));
    page.go("live?after=0&object=http://h.example/objects/2");
    page.browser.until(NUMBERS, &json!([2]));
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_part_is_for_everybody_if_the_stream_is_public() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "[access.public]\nsurfaces = [\"live\"]\n");
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let message = json!({ "object": "http://h.example/1", "items": [{ "uri": "http://h.example/1/a", "change": "ADD", "stateAfter": "ACTIVE" }] });
    let post = gateway.http.post(format!("{}/hooks/content-change", gateway.url)).bearer_auth("tdg_publisher");
    assert_eq!(post.body(message.to_string()).send().await.unwrap().status(), 201);
    let mut page = OpenPage::open(&format!("{}/live?after=0", gateway.url));
    page.browser.until(NUMBERS, &json!([1]));
    let links = page.value("[...document.querySelectorAll('main tbody a')].map(link => link.href)");
    let object = format!("{}/objects?uri=http%3A%2F%2Fh.example%2F1", gateway.url);
    assert_eq!(links, json!([format!("{}/changes/1", gateway.url), object]));
    page.value("document.querySelector('main button[aria-pressed]').click()");
    page.until_says("#state", "paused");
    // The rest needs a token.
    page.go("sources");
    page.until_says("main h2", "Sign in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docs_part_has_every_route_with_its_scope_and_searches() {
    let gateway = GatewayWithAuth::start();
    let mut page = OpenPage::open(&format!("{}/docs", gateway.gateway.url));
    page.until_says("main h2", "Sign in");
    page.value("document.querySelector('[name=token]').value = 'tdg_reader', document.querySelector('main form').requestSubmit()");
    page.browser.until("document.querySelectorAll('main details').length > 50", &json!(true));
    let routes = tidings::router::routes().list().count();
    assert_eq!(page.value("document.querySelectorAll('main details').length"), routes);
    page.until_says("main details", "POST /hooks/{source}");
    page.until_says("main details small", "publish");
    let search = "document.querySelector('main input[type=search]')";
    page.value(&format!("{search}.value = 'GET /objects', {search}.oninput({{ target: {search} }})"));
    page.browser.until("document.querySelectorAll('main details').length", &json!(1));
    page.value("document.querySelector('main details').open = true");
    page.until_says("main details pre", "/objects?uri=…'");
    page.until_says("main details pre", "-H \"Authorization: Bearer $TOKEN\"");
    page.until_says("main [aria-label=Parameters]", "Required.");
}

#[tokio::test]
async fn live_and_docs_are_switched_off_with_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[page]\nenabled = false\n");
    for path in ["/live", "/docs"] {
        let response = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        let problem: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert!(problem["detail"].as_str().unwrap().contains("page.enabled is false"), "{problem:#}");
    }
}
