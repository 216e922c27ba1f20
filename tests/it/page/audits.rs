//! Audits: each button that starts or stops one.

use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::{OpenPage, actions::until};
use crate::support::{
    crawl_fixture::CrawlFixture,
    crawled_repository::{CrawledRepository, Fedora3},
};

const AUDIT: &str = "/sources/fedora3/audit";

/// Waits until the last audit has a state, and has compared a number of objects.
fn is(state: &'static str, objects: u64) -> impl Fn(&Value) -> bool {
    move |shown| shown["audit"]["state"] == state && shown["audit"]["objects"] == objects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_is_stopped_samples_and_corrects() {
    let repository = CrawledRepository::start(Fedora3::with(60)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    repository.replace_responses(|_| Some(ResponseTemplate::new(200).set_delay(std::time::Duration::from_secs(600))));
    let mut page = OpenPage::open(&format!("{}/#/sources/fedora3", gateway.url));
    page.click("Compare all fedora3");
    until(&gateway, AUDIT, is("running", 0)).await;
    page.click("Stop the audit fedora3");
    until(&gateway, AUDIT, is("stopped", 0)).await;
    repository.restore_responses();
    page.click("Compare all fedora3");
    until(&gateway, AUDIT, is("complete", 60)).await;

    repository.change(|contents| contents.objects.get_mut("demo:11").unwrap().state = 'D');
    page.click("Compare 1000 fedora3");
    until(&gateway, AUDIT, |shown| is("complete", 60)(shown) && shown["audit"]["sample"] == 1000).await;
    // A sample that finds differences is no verdict about the source.
    page.click("Compare all fedora3");
    until(&gateway, AUDIT, |shown| is("complete", 60)(shown) && shown["audit"]["sample"].is_null()).await;
    page.go("");
    page.until_problem("audit-differs", "source/fedora3", "");
    page.go("sources/fedora3");
    page.until_says("[aria-label=Differences] tbody", "/objects/demo:11");
    page.confirm("Correct fedora3", "Each difference becomes a change: the last audit found 1 item.");
    until(&gateway, AUDIT, |shown| is("complete", 60)(shown) && shown["audit"]["corrections"] == 1).await;
    assert_eq!(gateway.changes().await.pop().unwrap()["object"].as_str().unwrap().rsplit('/').next(), Some("demo:11"));
    page.go("");
    page.until_no_problem("audit-differs", "source/fedora3");
    assert_eq!(gateway.json(AUDIT).await["audit"]["repair"], json!(true));
    page.assert_quiet();
}
