//! Restarts of the bus and of the gateway. Crawlers install themselves again after the time of their last record.

use serde_json::json;

use crate::support::{
    dbus_daemon::Bus,
    xesam_fixture::{Target, check_order, serve, settings, state_after, until, uri},
};

#[tokio::test]
async fn crawlers_miss_nothing_when_the_gateway_is_killed_in_a_batch() {
    let mut target = Target::start().await;
    for number in 0..20 {
        target.add(number).await;
    }
    // Two have accepted different numbers of records, and one is in its full dump.
    let mut crawlers: Vec<_> = [(1, 3), (1, 7), (0, 4)]
        .map(|(mtime, batch)| target.crawler_with(&json!({ "mtime": mtime, "batch": batch, "hold": true })))
        .into();
    crawlers[0].until_event("UpdateRecords").await;
    crawlers[1].until_event("UpdateRecords").await;
    crawlers[2].until_event("CleanUp").await;
    crawlers[2].tell("answer");
    crawlers[2].tell("hold");
    crawlers[2].until_records(4).await;
    target.restart_after_kill().await;
    for number in 20..25 {
        target.add(number).await;
    }
    for (crawler, is_incremental) in crawlers.iter().zip([true, true, false]) {
        let before = crawler.records();
        let last = before.last().unwrap().second();
        let again = target.crawler(last, 5);
        let after = again.until_record_of(&uri(24)).await;
        again.check_order();
        assert_eq!(again.until_event("installed").await["incremental"], is_incremental);
        let mut known = state_after(if is_incremental { &before } else { &[] });
        known.extend(state_after(&after));
        assert_eq!(known.len(), 25, "nothing is missing");
        let repeated = after.iter().filter(|record| before.iter().any(|old| old.uri == record.uri));
        if is_incremental {
            assert!(repeated.clone().all(|record| record.second() >= last), "only the last second is repeated");
            let same = |record| before.iter().any(|old| old == record);
            assert!(repeated.clone().all(same), "a repeated record is the same");
        }
    }
}

#[tokio::test]
async fn crawlers_install_themselves_again_when_the_bus_is_back() {
    let mut target = Target::start().await;
    target.add(1).await;
    let crawler = target.crawler(1, 0);
    let records = crawler.until_records(1).await;
    target.bus.end();
    crawler.until_event("disconnected").await;
    target.until_crawlers(0).await;
    until("the loss is shown", async || target.view().await["connection"]["lastError"].is_object()).await;
    target.add(2).await;
    target.bus.resume();
    target.until_connected().await;
    let again = target.crawler(records[0].second(), 0);
    let after = again.until_record_of(&uri(2)).await;
    check_order(&after);
    assert_eq!(again.until_event("installed").await["incremental"], true);
}

#[tokio::test]
async fn gateway_without_a_bus_serves_and_logs_it_once() {
    let mut bus = Bus::not_running();
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &settings(&bus, ""));
    let connection = async || gateway.json("/subscriptions").await["dbus"]["connection"].clone();
    let failures = async || {
        let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
        let line =
            metrics.lines().find(|line| line.starts_with("tidings_connection_failures_total{connection=\"dbus\"}"));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    until("it has tried three times", async || failures().await >= 3).await;
    assert_eq!(connection().await["state"], "waiting");
    let reason = connection().await["lastError"]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("cannot use the bus"), "{reason}");
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log.matches("the D-Bus target cannot use its bus").count(), 1, "{log}");
    bus.resume();
    until("it has connected", async || connection().await["state"] == "connected").await;
}

#[tokio::test]
async fn a_name_of_another_program_is_tried_again() {
    let target = Target::start().await;
    let folder = tempfile::tempdir().unwrap();
    let other = serve(folder.path(), &settings(&target.bus, ""));
    let connection = async || other.json("/subscriptions").await["dbus"]["connection"].clone();
    until("the name is taken", async || connection().await["state"] == "waiting").await;
    let reason = connection().await["lastError"]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("another program has the name org.tidings.Tidings1"), "{reason}");
    assert!(target.gateway.stop().success());
    until("the name is free", async || connection().await["state"] == "connected").await;
}

#[tokio::test]
async fn gateway_that_stops_invalidates_its_crawlers() {
    let target = Target::start().await;
    let crawler = target.crawler(1, 0);
    crawler.until_event("installed").await;
    assert!(target.gateway.stop().success());
    let text = crawler.until_event("Invalidate").await["text"].clone();
    assert!(text.as_str().unwrap().contains("stopping"), "{text}");
}
