//! The page of several nodes behind a load balancer.

use serde_json::json;

use super::OpenPage;
use crate::support::{
    broker_process::free_ports,
    nginx::Nginx,
    nodes_fixture::{SharedJournal, until_acquainted},
    subscription_fixture::post,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_says_which_node_answers() {
    let [port] = free_ports();
    let journal = SharedJournal::new(&format!("[server]\npublic_url = \"http://127.0.0.1:{port}/\"\n"));
    let (a, b) = (journal.node("a"), journal.node("b"));
    until_acquainted(&[&a, &b]).await;
    let address = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
    let servers = format!(
        "upstream nodes {{ server {}; server {}; }}\nserver {{ listen 127.0.0.1:{port}; location / {{ \
         proxy_pass http://nodes; proxy_set_header Host $http_host; proxy_connect_timeout 1s; }} }}",
        address(&a.url),
        address(&b.url)
    );
    let folder = tempfile::tempdir().unwrap();
    let _nginx = Nginx::start(folder.path(), &servers, port);
    let mut page = OpenPage::open(&format!("http://127.0.0.1:{port}/"));
    // Each in turn.
    for name in ["a", "b", "a"] {
        page.until_says("#about", &format!("node {name} answers"));
    }
    post(&a, 1).await;
    page.until_says("[aria-label='Newest changes'] tbody", "/objects/1");
    page.go("gateway");
    page.browser.until(
        "[...document.querySelectorAll('[aria-label=Nodes] tbody tr')].map(row => row.cells[0].textContent)",
        &json!(["a", "b"]),
    );
    assert_eq!(a.stop().code(), Some(0));
    post(&b, 2).await;
    page.go("");
    page.until_says("[aria-label='Newest changes'] tbody", "/objects/2");
    page.browser.until("document.querySelector('#about').textContent.includes('node')", &json!(false));
    page.assert_quiet();
}
