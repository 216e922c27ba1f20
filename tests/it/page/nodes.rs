//! Several nodes: the page says which one answers, and what each does.

use serde_json::json;

use super::OpenPage;
use crate::support::{
    broker_process::free_ports,
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    nginx::Nginx,
    nodes_fixture::{SharedJournal, holder_and_other, until_acquainted},
    subscription_fixture::post,
    webhook_fixture::webhook,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_names_the_node_that_answers_and_what_others_do() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let lines = format!("[delivery]\nallow = [\"127.0.0.1\"]\n{}", webhook("index", &receiver.url(), ""));
    let journal = SharedJournal::new(&lines);
    let nodes = ["a", "b"].map(|name| (name, journal.node(name)));
    until_acquainted(&[&nodes[0].1, &nodes[1].1]).await;
    let (holder, other) = holder_and_other(nodes, &journal, "subscription/index").await;
    for ((name, node), state, buttons) in [(&holder, "✓ running", &["Pause index"][..]), (&other, "○ elsewhere", &[])]
    {
        let mut page = OpenPage::open(&format!("{}/", node.url));
        page.until_says("#about", &format!("node {name} answers"));
        page.until_row("Subscriptions", "index", state, "", buttons);
        page.go("gateway");
        let rows = "[...document.querySelectorAll('[aria-label=Nodes] tbody tr')].map(row => [row.cells[0].textContent, row.querySelector('[data-label=Answering]').textContent])";
        let answers = |one| if *name == one { "yes" } else { "no" };
        page.browser.until(rows, &json!([["a", answers("a")], ["b", answers("b")]]));
        page.value("document.querySelectorAll('[aria-label=Nodes] details').forEach(one => one.open = true)");
        page.until_says("[aria-label=Nodes] tbody", "subscription/index");
    }

    // Behind a load balancer, another node answers when one has gone.
    let folder = tempfile::tempdir().unwrap();
    let [port] = free_ports();
    let host = |node: &Gateway| node.url.trim_start_matches("http://").to_owned();
    let http = format!(
        "upstream nodes {{ server {} max_fails=1; server {} backup; }}\nserver {{ listen 127.0.0.1:{port}; location / {{ \
         proxy_pass http://nodes; proxy_set_header Host $http_host; }} }}",
        host(&holder.1),
        host(&other.1)
    );
    let _nginx = Nginx::start(folder.path(), &http, port);
    let mut page = OpenPage::open(&format!("http://127.0.0.1:{port}/"));
    page.until_says("#about", &format!("node {} answers", holder.0));
    let (mut lost, name) = (holder.1, holder.0);
    lost.kill();
    page.until_problem("node-lost", &format!("node/{name}"), "");
    page.until_row("Subscriptions", "index", "✓ running", "", &["Pause index"]);
    let _back = journal.node(name);
    page.until_no_problem("node-lost", &format!("node/{name}"));
    page.until_says("#about", &format!("node {} answers", other.0));
}

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
