//! Crawlers on D-Bus: their rows, and the button that invalidates one.

use serde_json::json;

use super::OpenPage;
use crate::support::xesam_fixture::{Target, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawler_is_shown_and_invalidated() {
    let target = Target::start().await;
    target.add(1).await;
    let crawler = target.crawler(1, 0);
    crawler.until_records(1).await;
    until("it waits for changes", async || {
        target.crawlers().await.first().is_some_and(|one| one["state"] == "current")
    })
    .await;
    let mut page = OpenPage::open(&format!("{}/#/subscriptions", target.gateway.url));
    page.until_says("[aria-label=Crawlers] tbody", "✓ current");
    page.until_says("[aria-label=Crawlers] tbody", &crawler.owner().await);
    page.confirm("Invalidate crawler 1", "The crawler has 1 record and gets no more until it installs itself again.");
    crawler.until_event("Invalidate").await;
    target.until_crawlers(0).await;
    page.browser.until("!document.querySelector('[aria-label=Crawlers]')", &json!(true));
    page.until_says("main", "No crawler.");
    page.assert_quiet();
}
