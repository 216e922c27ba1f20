//! What an open page costs the gateway: it asks for what has changed.

use serde_json::json;

use super::OpenPage;
use crate::support::subscription_fixture::{gateway, post};

/// Returns how often the page has requested a resource.
fn number(page: &mut OpenPage, resource: &str) -> usize {
    // Events arrive with the answer.
    page.value("null");
    let resource = format!("{}{resource}", page.url);
    page.browser.requested().iter().filter(|url| url.split('?').next() == Some(&resource)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_a_quiet_gateway_asks_only_for_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    // With a problem, the page is renewed more often.
    assert_eq!(gateway.post("content-change", "application/json", "{}").await.0, 422);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("1 thing needs attention");
    page.until_says("[aria-label='Newest changes'] tbody", "/objects/1");
    page.until_says("main", "Last week");
    let lists = ["sources", "subscriptions", "changes", "flow", "harvests", "nodes"];
    let sum = |page: &mut OpenPage| lists.iter().map(|name| number(page, name)).sum::<usize>();
    let (statuses, others) = (number(&mut page, "status"), sum(&mut page));
    while number(&mut page, "status") < statuses + 6 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let more = sum(&mut page) - others;
    assert!(more < 12, "{more} other requests in 6 refreshes");
    assert_eq!(number(&mut page, "harvests") + number(&mut page, "nodes"), 0);

    // A change, and another state, are seen.
    post(&gateway, 2).await;
    page.until_says("[aria-label='Newest changes'] tbody", "/objects/2");
    page.browser.until(
        "[...document.querySelectorAll('[aria-label=Sources] tbody tr')].find(row => row.cells[0].textContent === 'content-change').textContent.includes('2 accepted')",
        &json!(true),
    );
    page.assert_quiet();
}
