//! Crawlers that do not answer: this is how they pause. They delay nobody, and cost a position.

use serde_json::json;

use crate::support::xesam_fixture::{Target, check_order, until, uri};

#[tokio::test]
async fn crawler_that_does_not_answer_delays_nobody_and_gets_everything_later() {
    let target = Target::start().await;
    let mut paused = target.crawler_with(&json!({ "mtime": 1, "batch": 5, "hold": true }));
    let prompt = target.crawler(1, 5);
    prompt.until_event("installed").await;
    paused.until_event("installed").await;
    // Thirty seconds: many libraries of D-Bus give a call up after 25.
    for (part, seconds) in [0.5, 15.0, 30.0].into_iter().enumerate() {
        for number in part * 40..(part + 1) * 40 {
            target.add(number).await;
        }
        prompt.until_records((part + 1) * 40).await;
        assert_eq!(paused.names(), ["installed", "UpdateRecords"], "one call without an answer");
        until("the view shows it", async || {
            let crawlers = target.crawlers().await;
            crawlers.iter().any(|crawler| crawler["unansweredSeconds"].as_f64() > Some(seconds))
                && crawlers
                    .iter()
                    .any(|crawler| crawler["state"] == "current" && crawler["unansweredSeconds"].is_null())
        })
        .await;
    }
    paused.tell("answer");
    paused.until_records(120).await;
    let uris = |crawler: &crate::support::xesam_fixture::Crawler| -> Vec<_> {
        crawler.records().into_iter().map(|record| (record.uri, record.time)).collect()
    };
    assert_eq!(uris(&paused), uris(&prompt));
    for crawler in [&paused, &prompt] {
        crawler.check_order();
    }
}

#[tokio::test]
async fn crawler_that_is_killed_in_a_batch_is_removed() {
    let target = Target::start().await;
    target.add(1).await;
    let mut killed = target.crawler_with(&json!({ "mtime": 1, "hold": true }));
    let other = target.crawler(1, 0);
    killed.until_event("UpdateRecords").await;
    target.until_crawlers(2).await;
    killed.kill();
    target.until_crawlers(1).await;
    target.add(2).await;
    other.until_records(2).await;
}

#[tokio::test]
async fn retention_that_overtakes_a_crawler_invalidates_it() {
    let target = Target::start_with("", "[journal]\nkeep_changes = 5\n").await;
    target.add(0).await;
    let mut paused = target.crawler_with(&json!({ "mtime": 1, "batch": 1, "hold": true }));
    paused.until_event("UpdateRecords").await;
    for number in 1..40 {
        target.add(number).await;
    }
    until("old changes are removed", async || {
        target.gateway.http.get(format!("{}/changes?after=5", target.gateway.url)).send().await.unwrap().status() == 410
    })
    .await;
    paused.tell("answer");
    let invalidated = paused.until_event("Invalidate").await;
    assert!(invalidated["text"].as_str().unwrap().contains("too far behind"), "{invalidated}");
    target.until_crawlers(0).await;
    let again = target.crawler(paused.records()[0].second(), 0);
    assert_eq!(again.until_event("installed").await["incremental"], false);
    again.until_records(40).await;
}

/// Crawlers of each of two clients.
const EACH: usize = 500;

#[tokio::test]
async fn a_thousand_crawlers_of_which_half_never_answer_cost_little_memory() {
    let target = Target::start().await;
    let mut silent = target.crawler_with(&json!({ "mtime": 1, "hold": true, "install": false, "brief": true }));
    let mut prompt = target.crawler_with(&json!({ "mtime": 1, "fields": ["xesam:url"], "install": false }));
    for number in 0..EACH {
        silent.tell(&format!("install /crawler/{number}"));
        prompt.tell(&format!("install /crawler/{number}"));
    }
    target.until_crawlers(2 * EACH).await;
    let before = resident_kib(target.gateway.id());
    for number in 0..10 {
        target.post(&large(number)).await;
        prompt.until_records(EACH * (number + 1)).await;
    }
    silent.until_records(EACH).await;
    let grown = resident_kib(target.gateway.id()).saturating_sub(before);
    assert!(grown < 48 * 1024, "{before} KiB have grown by {grown} KiB; a record for each would be 100 000 KiB");
    assert_eq!(silent.count(), EACH, "each silent crawler has one call");
    let events = prompt.events();
    for number in 0..EACH {
        let path = format!("/crawler/{number}");
        let of_this = events.iter().filter(|event| event["path"] == path.as_str() && event["event"] == "UpdateRecords");
        assert_eq!(of_this.count(), 10, "{path}");
    }
    check_order(&prompt.records_of("/crawler/7"));
}

/// Returns an object with types of 200 KB.
fn large(number: usize) -> serde_json::Value {
    let kind = |kind: usize| format!("http://h.example/types/{kind}/{}", "x".repeat(1000));
    json!({ "object": uri(number), "types": (0..200).map(kind).collect::<Vec<_>>(), "items": [
        { "uri": uri(number), "change": "ADD" }
    ] })
}

/// Returns the memory of a process.
fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
