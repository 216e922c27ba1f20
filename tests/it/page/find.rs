//! One field finds a change by its number or identifier, and an object by its URI.

use serde_json::json;

use super::OpenPage;
use crate::support::{
    gateway::Gateway,
    subscription_fixture::{gateway, post},
};

fn find(page: &mut OpenPage, text: &str) {
    page.browser.until("!!document.querySelector('[type=search]')", &json!(true));
    page.value(&format!("document.querySelector('[type=search]').value = {}", json!(text)));
    page.click_text("Find");
}

async fn identifier(gateway: &Gateway, seq: usize) -> String {
    gateway.changes().await[seq - 1]["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn things_are_found_and_have_addresses_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    find(&mut page, " 2 ");
    page.until_says("main > div h2", "Change 2");
    page.until_says("main", "http://h.example/objects/2/item");
    assert_eq!(page.value("location.hash"), "#/changes/2");
    let id = identifier(&gateway, 3).await;
    find(&mut page, &id);
    page.until_says("main > div h2", "Change 3");
    assert_eq!(page.value("location.hash"), json!(format!("#/changes/{id}")));
    find(&mut page, "http://h.example/objects/1");
    page.until_says("main", "http://h.example/objects/1/item");
    page.until_says("main", "image/png");
    find(&mut page, "http://h.example/objects/none");
    page.until_says("main", "No object; it may be an item");
    find(&mut page, "4");
    page.until_says("main", "The journal has no change with the number 4");

    page.go("sources/%");
    page.until_says("main", "not a name");

    // The same addresses work in a new tab, and so do the links of the page.
    let mut page = OpenPage::open(&format!("{}/#/changes/1", gateway.url));
    page.until_says("main > div h2", "Change 1");
    page.value("document.querySelector('main dd a[href*=objects]').click()");
    page.until_says("main > div h2", "Object or item");
    page.value("history.back()");
    page.until_says("main > div h2", "Change 1");
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_filtered_by_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let mut page = OpenPage::open(&format!("{}/#/changes", gateway.url));
    page.until_says("tbody", "http://h.example/objects/3");
    let numbers = "[...document.querySelectorAll('tbody tr')].map(row => row.cells[0].textContent)";
    page.browser.until(numbers, &json!(["3", "2", "1"]));
    page.value("document.querySelector('[name=object]').value = 'http://h.example/objects/2'");
    page.click_text("Filter");
    page.browser.until(numbers, &json!(["2"]));
    assert_eq!(page.value("location.hash"), "#/changes?object=http%3A%2F%2Fh.example%2Fobjects%2F2");
    page.browser.until("document.querySelector('[name=object]').value", &json!("http://h.example/objects/2"));
    page.go("changes?source=nobody");
    page.until_says("main", "No change fulfils these conditions.");
    page.assert_quiet();
}
