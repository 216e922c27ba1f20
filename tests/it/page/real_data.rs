//! The page shows what the interface says: the flow, deliveries, the life of an item, and the place of an error.

use serde_json::{Value, json};

use super::{OpenPage, actions::until};
use crate::support::{
    http_receiver::{Receiver, Reply},
    subscription_fixture::{gateway, post},
    webhook_fixture::SECRET,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_shows_flow_deliveries_and_lives() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let index = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[subscriptions.index]\ndelivery = \"webhook\"\nformat = \"json\"\nstart = \"beginning\"\nurl = \"{}\"\nsecrets = [\"{SECRET}\"]\n\
         [subscriptions.other]\ndelivery = \"webhook\"\nformat = \"json\"\nurl = \"{}\"\nsecrets = [\"{SECRET}\"]\nfilter = {{ sources = [\"fedora3\"] }}\n",
        receiver.url(),
        receiver.url()
    );
    let gateway = gateway(folder.path(), &index);
    for number in 1..=60 {
        post(&gateway, number).await;
    }
    gateway.until_at("index", 60).await;
    // A page that has read the flow before the last deliveries are counted reads it again only after a while.
    until(&gateway, "/flow", |flow| {
        let delivered = |of: &Value| of["delivered"].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
        flow["subscriptions"].as_array().unwrap().iter().any(|of| of["name"] == "index" && delivered(of) == 60)
    })
    .await;
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    let box_of = |route: &str| format!("document.querySelector('svg a[href=\"#/{route}\"]')?.ariaLabel");
    for route in ["sources/content-change", "changes", "subscriptions/index"] {
        page.browser.until(&format!("{}?.includes('60 in the last hour')", box_of(route)), &json!(true));
    }
    page.until_says("main", "Last week");
    page.click_text("Last week");
    page.browser.until(&format!("{}?.includes('60 in the last week')", box_of("changes")), &json!(true));
    // A slot without figures has no bar; the gateway ran in one slot, so there are as many bars as slots since then.
    let bars =
        page.value("document.querySelector('svg a[href=\"#/changes\"] path').getAttribute('d').split('z').length - 1");
    assert!(bars.as_u64().unwrap() <= 2, "{bars}");

    page.go("changes");
    page.browser.until("Number(document.querySelector('main tbody td').textContent)", &json!(60));
    page.value("[...document.querySelectorAll('main a')].find(one => one.textContent === 'Older changes').click()");
    page.browser.until("Number(document.querySelector('main tbody td').textContent)", &json!(10));

    page.go("changes/7");
    page.until_says("[aria-label=Deliveries]", "delivered");
    page.until_says("[aria-label=Deliveries]", "not-selected");
    page.go(&format!("objects?uri={}", "http%3A%2F%2Fh.example%2Fobjects%2F7%2Fitem"));
    page.until_says("main", "it may be an item.");
    page.browser.until("[...document.querySelectorAll('[aria-label=Changes] tbody td')][0]?.textContent", &json!("7"));
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_marks_the_place_of_an_error_and_tries_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let body = "{\n \"object\": \"http://h.example/ä\",\n \"items\": [oops]\n}";
    assert_eq!(gateway.post("content-change", "application/json", body.to_owned()).await.0, 400);
    let at = gateway.json("/quarantine/1").await["at"].clone();
    assert_eq!((&at["line"], &at["column"]), (&json!(3), &json!(12)), "{at}");
    let mut page = OpenPage::open(&format!("{}/#/quarantine/1", gateway.url));
    page.browser.until("document.querySelector('main mark')?.textContent", &json!("o"));
    page.browser.until("document.querySelector('main pre').textContent", &json!(body));
    page.click("Try it message 1");
    page.until_says("#notice", "outcome quarantined, reason");
    assert_eq!(gateway.json("/quarantine").await["messages"].as_array().map(Vec::len), Some(1));
    let order = page.value("[...document.querySelectorAll('main .bar button')].map(one => one.textContent)");
    assert_eq!(order, json!(["Try it", "Read it again", "Drop…"]));
    page.assert_quiet();
}

/// A message that a setting has made unreadable is read after the setting is corrected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_shows_what_a_message_would_change_before_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let source = |settings: &str| {
        format!("[sources.mine]\ntransport = \"http\"\ndialect = \"mapped\"\n[sources.mine.settings]\n{settings}\n")
    };
    let broken = gateway(folder.path(), &source("object = \"/wrong\"\nkind = \"update\""));
    let body = json!({ "right": "http://h.example/objects/1" }).to_string();
    assert_eq!(broken.post("mine", "application/json", body).await.0, 422);
    drop(broken);
    let gateway = gateway(folder.path(), &source("object = \"/right\"\nkind = \"update\""));
    let mut page = OpenPage::open(&format!("{}/#/quarantine/1", gateway.url));
    page.click("Try it message 1");
    page.until_says("[aria-label=\"It would make\"]", "http://h.example/objects/1");
    assert_eq!(gateway.changes().await, Vec::<Value>::new());
    page.click("Read it again message 1");
    page.until_says("main", "It is no longer in the quarantine.");
    assert_eq!(gateway.changes().await.len(), 1);
    page.assert_quiet();
}
