//! Tokens: the page asks for one after a single refused request, keeps it in the tab, and shows what it allows.

use serde_json::json;

use super::OpenPage;
use crate::support::gateway_with_auth::GatewayWithAuth;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_signs_in_with_the_token_of_an_administrator() {
    let gateway = GatewayWithAuth::start();
    let mut page = OpenPage::open(&format!("{}/", gateway.gateway.url));
    page.until_says("main h2", "Sign in");
    let refused = || gateway.log().matches("access denied").count();
    assert_eq!(refused(), 1, "one request shows that a token is needed");

    page.sign_in("tdg_unknown");
    page.until_says("[role=alert]", "token");
    assert_eq!(refused(), 2);
    assert_eq!(page.value("sessionStorage.length"), 0, "a wrong token is not kept");

    page.sign_in("tdg_admin");
    page.until_verdict("1 thing needs attention");
    page.until_verdict("The token expired has expired");
    page.until_says("nav", "Sources");
    assert_eq!(page.value("localStorage.length + document.cookie.length"), 0);
    assert_eq!(page.value("location.href.includes('tdg_')"), false);
    let requested = page.browser.requested();
    assert!(requested.iter().all(|url| !url.contains("tdg_")), "{requested:?}");
    assert!(!gateway.log().contains("tdg_admin"));

    // The tab keeps the token until it is told to forget it.
    page.browser.go(&format!("{}/#/sources", gateway.gateway.url));
    page.value("window.isOld = true; location.reload()");
    page.browser.until("window.isOld ?? false", &json!(false));
    page.until_says("main", "islandora");
    // The next person reads nothing of this one's, also where the stream was paused.
    page.go("live");
    page.until_says("#state", "connected");
    page.click_text("Pause");
    page.until_says("#state", "paused");
    page.click_text("Sign out");
    page.until_says("main h2", "Sign in");
    assert_eq!(page.value("sessionStorage.length"), 0);
    assert_eq!(refused(), 3, "the stream has been tried without a token");
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_shows_a_reader_the_changes_and_no_button_that_is_refused() {
    let gateway = GatewayWithAuth::start();
    let message = crate::support::gateway_with_auth::message(1);
    let posted = gateway.post("fedora3", &message).bearer_auth("tdg_fedora3").send().await.unwrap();
    assert_eq!(posted.status(), 201);
    let mut page = OpenPage::open(&format!("{}/", gateway.gateway.url));
    page.sign_in("tdg_reader");
    page.until_says("main", "This token may read");
    page.until_says("tbody", "PURGE");
    let parts = page.value("[...document.querySelectorAll('nav a')].map(link => link.textContent)");
    assert_eq!(parts, json!(["Changes", "Live", "Interface"]));
    page.go("sources");
    page.until_says("main h2", "Changes");
    page.go("changes/1");
    page.until_says("main h2", "Change 1");
    let labels = page.value("[...document.querySelectorAll('button')].map(one => one.textContent)");
    assert_eq!(labels, json!(["Find", "Pause", "Sign out"]));
    // Only the two first requests were beyond the scope of the token.
    assert_eq!(gateway.log().matches("access denied").count(), 2);
    page.assert_quiet();
}

/// A proxy can answer for the gateway, and a reload of the configuration can make a token one of a reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_claims_nothing_after_a_refused_status() {
    let gateway = GatewayWithAuth::start();
    let mut page = OpenPage::open(&format!("{}/", gateway.gateway.url));
    page.sign_in("tdg_admin");
    page.until_verdict("1 thing needs attention");
    page.value("window.answer = null; const real = fetch; window.fetch = (path, rest) => path === 'status' && answer ? Promise.resolve(new Response('{\"detail\":\"refused\"}', { status: answer })) : real(path, rest)");
    page.value("window.answer = 502");
    page.until_verdict("The gateway does not answer");
    page.value("window.answer = null");
    page.until_verdict("1 thing needs attention");
    page.value("window.answer = 403");
    page.until_says("main", "This token may read");
}
