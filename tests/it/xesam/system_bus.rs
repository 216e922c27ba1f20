//! A bus with the rules and limits of a system bus.

use std::{fs, path::Path};

use serde_json::json;

use crate::support::{
    dbus_daemon::Bus,
    xesam_fixture::{Target, until, uri},
};

/// Returns the elements of the policy in `packaging/`, for the user of this process instead of `tidings`.
fn policy() -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/org.tidings.Tidings1.conf"));
    let text = text.unwrap();
    let elements = text.split_once("<busconfig>").unwrap().1.split_once("</busconfig>").unwrap().0;
    let id = |flag: &str| {
        let output = std::process::Command::new("id").args([flag, "-n"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    elements
        .replace("user=\"tidings\"", &format!("user=\"{}\"", id("-u")))
        .replace("group=\"tidings\"", &format!("group=\"{}\"", id("-g")))
}

#[tokio::test]
async fn packaged_policy_permits_target_and_crawlers() {
    let refused = Bus::start_strict("");
    let folder = tempfile::tempdir().unwrap();
    let gateway =
        crate::support::xesam_fixture::serve(folder.path(), &crate::support::xesam_fixture::settings(&refused, ""));
    until("the name is refused", async || {
        gateway.json("/subscriptions").await["dbus"]["connection"]["lastError"]["reason"].is_string()
    })
    .await;
    let target = Target::start_on(Bus::start_strict(&policy()), tempfile::tempdir().unwrap(), "", "").await;
    target.add(1).await;
    let crawler = target.crawler(0, 0);
    crawler.until_records(1).await;
    assert_eq!(crawler.names(), ["installed", "CleanUp", "UpdateRecords"]);
}

#[tokio::test]
async fn limit_of_the_bus_on_unanswered_calls_delays_crawlers_and_loses_nothing() {
    let limited = policy().replace(">20000<", ">2<");
    let target = Target::start_on(Bus::start_strict(&limited), tempfile::tempdir().unwrap(), "", "").await;
    target.add(1).await;
    let options = |hold: bool| json!({ "mtime": 1, "hold": hold });
    let mut silent: Vec<_> = (0..2).map(|_| target.crawler_with(&options(true))).collect();
    for crawler in &silent {
        crawler.until_event("UpdateRecords").await;
    }
    let prompt = target.crawler_with(&options(false));
    prompt.until_event("installed").await;
    until("a crawler waits for the bus", async || {
        target.crawlers().await.iter().filter(|crawler| crawler["unansweredSeconds"].as_f64() > Some(0.5)).count() == 3
    })
    .await;
    assert_eq!(prompt.count(), 0);
    for crawler in &mut silent {
        crawler.tell("answer");
    }
    target.add(2).await;
    for crawler in silent.iter().chain([&prompt]) {
        crawler.until_record_of(&uri(2)).await;
        crawler.check_order();
        assert_eq!(crawler.count(), 2);
    }
}
