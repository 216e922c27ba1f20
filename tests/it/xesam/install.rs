//! Requests of crawlers: which of them get the changes after their time, and which get everything.

use serde_json::json;
use tidings::journal::store::sqlite::{backup::back_up, restore::restore};

use crate::support::xesam_fixture::{Target, check_order, next_second, state_after, uri};

#[tokio::test]
async fn crawler_without_a_time_cleans_up_and_gets_everything() {
    let target = Target::start().await;
    for number in 0..5 {
        target.add(number).await;
    }
    target.post(&json!({ "object": uri(0), "items": [{ "uri": uri(0), "change": "DELETE" }] })).await;
    let crawler = target.crawler(0, 2);
    let records = crawler.until_records(4).await;
    assert_eq!(crawler.names(), ["installed", "CleanUp", "UpdateRecords", "UpdateRecords"]);
    assert_eq!(crawler.until_event("installed").await["incremental"], false);
    assert!(records.iter().all(|record| !record.is_deleted), "the crawler has nothing to delete: {records:?}");
    assert_eq!(records.iter().map(|record| record.uri.clone()).collect::<Vec<_>>(), [1, 2, 3, 4].map(uri));
    target.add(5).await;
    let records = crawler.until_record_of(&uri(5)).await;
    assert_eq!(records.len(), 5);
    crawler.check_order();
}

#[tokio::test]
async fn clean_up_is_called_even_if_there_is_nothing_to_send() {
    let target = Target::start().await;
    let crawler = target.crawler(0, 0);
    crawler.until_event("CleanUp").await;
    target.add(1).await;
    crawler.until_records(1).await;
    assert_eq!(crawler.names(), ["installed", "CleanUp", "UpdateRecords"]);
}

#[tokio::test]
async fn crawler_continues_after_the_time_of_its_last_record() {
    let target = Target::start().await;
    for number in 0..3 {
        target.add(number).await;
    }
    let first = target.crawler(0, 2);
    let records = first.until_records(3).await;
    // Before the last record of a full dump, the crawler knows no time by which it could miss something.
    assert_eq!(records.iter().map(|record| record.second() == 0).collect::<Vec<_>>(), [true, true, false]);
    let last = records.last().unwrap().second();
    let since = next_second().await;
    target.add(3).await;
    let second = target.crawler(last, 0);
    second.until_record_of(&uri(3)).await;
    assert_eq!(second.until_event("installed").await["incremental"], true);
    let repeated: Vec<_> = second.records().into_iter().map(|record| record.uri).collect();
    assert_eq!(repeated, [0, 1, 2, 3].map(uri), "the last second comes again");
    let third = target.crawler(since, 0);
    let records = third.until_records(1).await;
    assert_eq!(records.iter().map(|record| record.uri.clone()).collect::<Vec<_>>(), [uri(3)]);
    assert!(!second.names().contains(&"CleanUp".to_owned()) && !third.names().contains(&"CleanUp".to_owned()));
    assert_eq!(second.records().last(), third.records().last(), "a record has the same timestamp for every crawler");
}

#[tokio::test]
async fn a_time_in_the_future_gets_nothing_before_it() {
    let target = Target::start().await;
    target.add(0).await;
    let now = next_second().await;
    let (far, never, near) = (target.crawler(now + 3600, 0), target.crawler(u64::MAX, 0), target.crawler(now, 0));
    for crawler in [&far, &never] {
        assert_eq!(crawler.until_event("installed").await["incremental"], true);
    }
    near.until_event("installed").await;
    target.add(1).await;
    near.until_records(1).await;
    target.until_crawlers(3).await;
    crate::support::xesam_fixture::until("all have the change", async || {
        target.crawlers().await.iter().all(|crawler| crawler["state"] == "current" && crawler["lag"]["changes"] == 0)
    })
    .await;
    assert_eq!((far.count(), never.count(), near.count()), (0, 0, 1));
}

#[tokio::test]
async fn a_time_before_the_oldest_change_is_too_old() {
    let target = Target::start_with("", "[journal]\nkeep_changes = 5\n").await;
    let before = next_second().await;
    target.add(0).await;
    let kept = target.crawler(before, 0);
    assert_eq!(kept.until_event("installed").await["incremental"], true, "nothing has been removed");
    next_second().await;
    for number in 1..10 {
        target.add(number).await;
    }
    let after = next_second().await;
    target.add(10).await;
    crate::support::xesam_fixture::until("old changes are removed", async || {
        target.gateway.http.get(format!("{}/changes?after=1", target.gateway.url)).send().await.unwrap().status() == 410
    })
    .await;
    let (old, new) = (target.crawler(before, 0), target.crawler(after, 0));
    assert_eq!(old.until_event("installed").await["incremental"], false);
    assert_eq!(new.until_event("installed").await["incremental"], true);
    let records = old.until_records(11).await;
    assert_eq!(old.names().iter().filter(|name| *name == "CleanUp").count(), 1);
    assert_eq!(old.names()[1], "CleanUp");
    assert_eq!(state_after(&records).len(), 11, "removed changes are in the registry");
    assert_eq!(new.until_records(1).await[0].uri, uri(10));
}

#[tokio::test]
async fn a_time_in_a_lost_part_of_the_journal_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    let mut target = Target::start().await;
    let oldest = next_second().await;
    target.add(0).await;
    back_up(&target.data(), &backup, &mut |_, _| {}).unwrap();
    next_second().await;
    target.add(1).await;
    let lost = next_second().await;
    target.gateway.kill();
    for file in ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"] {
        let _ = std::fs::remove_file(target.data().join(file));
    }
    restore(&backup, &target.data(), false, &mut |_, _| {}).unwrap();
    target.restart_after_kill().await;
    target.add(2).await;
    let restored = next_second().await;
    target.add(3).await;
    let crawlers = [oldest - 1, lost, restored].map(|mtime| target.crawler(mtime, 0));
    let mut incremental = Vec::new();
    for crawler in &crawlers {
        let records = crawler.until_record_of(&uri(3)).await;
        check_order(&records);
        incremental.push(crawler.until_event("installed").await["incremental"].as_bool().unwrap());
    }
    assert_eq!(incremental, [true, false, true]);
    assert_eq!(crawlers[0].records().len(), 3, "the crawler continues across the gap");
    let state: Vec<_> = state_after(&crawlers[1].records()).into_keys().collect();
    assert_eq!(state, [0, 2, 3].map(uri), "the crawler has what the journal has");
}

#[tokio::test]
async fn an_object_is_one_crawler_at_a_time() {
    let target = Target::start().await;
    let mut crawler = target.crawler(1, 0);
    crawler.until_event("installed").await;
    crawler.tell("install");
    let refused = crawler.until_event("error").await;
    assert_eq!(refused["name"], "org.freedesktop.xesam.pmh.Error.AlreadyInstalled");
    crawler.tell("install /crawler/other");
    target.until_crawlers(2).await;
    crawler.tell("invalidated");
    target.until_crawlers(1).await;
    crawler.tell("install");
    target.until_crawlers(2).await;
    target.add(1).await;
    let records = crawler.until_records(2).await;
    assert_eq!(records.len(), 2, "each of the two objects gets the record");
    assert!(!crawler.names().contains(&"Invalidate".to_owned()), "the target does not answer an invalidation");
}

#[tokio::test]
async fn number_of_crawlers_is_limited() {
    let target = Target::start_with("crawlers = 1", "").await;
    let mut crawler = target.crawler(1, 0);
    crawler.until_event("installed").await;
    crawler.tell("install /crawler/other");
    let refused = crawler.until_event("error").await;
    assert_eq!(refused["name"], "org.freedesktop.xesam.pmh.Error.TooManyCrawlers");
}
