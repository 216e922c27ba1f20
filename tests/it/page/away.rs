//! A gateway that goes and comes back, and one behind a proxy with a path.

use std::path::Path;

use serde_json::json;

use super::{OpenPage, actions::until};
use crate::support::{
    broker_process::free_ports,
    gateway::{Gateway, free_address},
    nginx::Nginx,
    subscription_fixture::post,
};

fn start(data: &Path, address: &str) -> Gateway {
    Gateway::start_elsewhere(data, &["--listen", address], None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_keeps_what_it_knew_while_the_gateway_is_away_and_recovers_without_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut gateway = start(folder.path(), &address);
    post(&gateway, 1).await;
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("All is well");
    page.until_says("main", "http://h.example/objects/1");
    page.value("window.loadedOnce = true");
    gateway.kill();
    page.until_verdict("No answer since");
    page.until_says("main", "http://h.example/objects/1");
    page.browser.until("getComputedStyle(document.querySelector('main > div')).opacity < 1", &json!(true));
    page.go("gateway");
    page.click("Read the configuration again");
    page.until_says("#notice", "the gateway does not answer");
    page.go("");
    gateway = start(folder.path(), &address);
    page.until_verdict("All is well");
    post(&gateway, 2).await;
    page.until_says("main", "http://h.example/objects/2");
    assert_eq!(page.value("window.loadedOnce"), true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_that_is_paused_asks_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut gateway = start(folder.path(), &address);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("All is well");
    gateway.kill();
    page.until_verdict("No answer since");
    page.click_text("Pause");
    gateway = start(folder.path(), &address);
    // The button would vanish when the page had noticed by itself.
    page.click_text("Try now");
    page.until_verdict("All is well");
    page.click_text("Refresh again");
    post(&gateway, 1).await;
    page.until_says("main", "http://h.example/objects/1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_reads_the_configuration_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidings.toml");
    std::fs::write(&config, "").unwrap();
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
    let mut page = OpenPage::open(&format!("{}/#/gateway", gateway.url));
    page.until_verdict("All is well");
    std::fs::write(&config, "[sources.new]\ntransport = \"http\"\ndialect = \"content-change\"\n").unwrap();
    page.click("Read the configuration again");
    // Before, the gateway closes the connections of the former configuration, perhaps with a request on its way.
    page.until_says("#notice", "POST");
    until(&gateway, "/sources", |shown| shown.to_string().contains("\"new\"")).await;
    page.go("sources");
    page.until_row("Sources", "new", "○ hook", "never", &[]);
    std::fs::write(&config, "wrong = 1\n").unwrap();
    page.go("gateway");
    page.click("Read the configuration again");
    page.until_says("#notice .notice", "The gateway continues with the former configuration");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_works_behind_a_proxy_with_a_path() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [port] = free_ports();
    let config = folder.path().join("tidings.toml");
    std::fs::write(&config, format!("[server]\npublic_url = \"http://127.0.0.1:{port}/tidings/\"\n")).unwrap();
    let gateway = Gateway::start_with(data.path(), &["--config", config.to_str().unwrap()]);
    post(&gateway, 1).await;
    let server = format!(
        "server {{ listen 127.0.0.1:{port}; location /tidings/ {{ proxy_pass {}/; proxy_set_header Host $http_host; }} }}",
        gateway.url
    );
    let _nginx = Nginx::start(folder.path(), &server, port);
    let mut page = OpenPage::open(&format!("http://127.0.0.1:{port}/tidings/#/changes"));
    page.until_verdict("All is well");
    page.until_says("tbody", "http://h.example/objects/1");
    page.go("gateway");
    page.click("Read the configuration again");
    page.until_says("#notice", &format!("http://127.0.0.1:{port}/tidings/reload"));
    page.assert_quiet();

    // The addresses of two parts.
    let mut page = OpenPage::open(&format!("http://127.0.0.1:{port}/tidings/live?after=0"));
    page.until_says("#state", "connected");
    page.until_says("tbody", "http://h.example/objects/1");
    page.value("document.querySelector('tbody a').click()");
    page.until_says("main > div h2", "Change 1");
    page.assert_quiet();
    let mut page = OpenPage::open(&format!("http://127.0.0.1:{port}/tidings/docs"));
    page.until_says("main details", "POST /hooks/{source}");
    page.value("document.querySelector('main details').open = true");
    page.until_says("main details pre", &format!("'http://127.0.0.1:{port}/tidings/hooks/{{source}}'"));
    page.value("document.querySelector('main a[href$=\"openapi.json\"]').click()");
    page.browser.until("location.pathname", &json!("/tidings/openapi.json"));
}
