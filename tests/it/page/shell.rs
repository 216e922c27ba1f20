//! The document of the page: without data, for everybody, and with a strict policy.

use std::fs;

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    gateway::Gateway,
    gateway_with_auth::GatewayWithAuth,
    subscription_fixture::{gateway, post},
};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

#[tokio::test]
async fn page_has_no_data_needs_no_token_and_allows_only_its_own_script() {
    let with_tokens = GatewayWithAuth::start();
    let folder = tempfile::tempdir().unwrap();
    let open = Gateway::start(folder.path());
    post(&open, 1).await;
    let mut documents = Vec::new();
    for url in [&with_tokens.gateway.url, &open.url] {
        let response = open.http.get(format!("{url}/")).header("accept", BROWSER).send().await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
        assert!(header("vary").starts_with("Accept, "), "{}", header("vary"));
        let policy = header("content-security-policy");
        let (style, script) =
            (policy.matches("style-src 'sha256-").count(), policy.matches("script-src 'sha256-").count());
        assert_eq!((style, script, policy.contains("unsafe")), (1, 1, false), "{policy}");
        assert!(
            policy.contains("require-trusted-types-for 'script'; ") && policy.contains("form-action 'none'"),
            "{policy}"
        );
        assert!(policy.contains("default-src 'none'; ") && policy.contains("connect-src 'self'; "), "{policy}");
        documents.push(response.text().await.unwrap());
    }
    assert_eq!(documents[0], documents[1], "the document is the same for all gateways");
    assert!(!documents[0].contains(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn page_can_be_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[page]\nenabled = false\n");
    let response = gateway.http.get(format!("{}/", gateway.url)).header("accept", BROWSER).send().await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/json"));
    let home: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(home["name"], "Tidings");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_a_new_gateway_says_that_all_is_well_and_how_to_begin() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidings.toml");
    fs::write(&config, "[sources.fedora3]\nenabled = false\n[sources.fedora]\nenabled = false\n[sources.islandora]\nenabled = false\n[sources.content-change]\nenabled = false\n").unwrap();
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("All is well");
    page.until_verdict("Access is open: whoever reaches this address may read, post and administer.");
    page.until_says("main", "No source yet");
    page.until_says("main", "No subscription yet");
    page.until_says("main", "No change yet");
    assert_eq!(page.value("document.title"), "✓ Tidings");
    for part in ["sources", "subscriptions", "changes", "quarantine", "datasets", "due", "gateway"] {
        page.go(part);
        page.browser.until("document.querySelector('main h2 ~ *, main section:not(.verdict)') != null", &json!(true));
        page.browser.until(&format!("document.querySelector('nav [aria-current]').hash === '#/{part}'"), &json!(true));
        page.until_loaded();
    }
    page.assert_quiet();
}
