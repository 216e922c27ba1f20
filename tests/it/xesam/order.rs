//! Order of records on the wire.

use serde_json::json;

use crate::support::{
    journal_fixture::OpenJournal,
    xesam_fixture::{Target, next_second, state_after, uri},
};

#[tokio::test]
async fn crawlers_with_different_times_get_the_same_tail() {
    let target = Target::start().await;
    let mut times = Vec::new();
    for second in 0..3 {
        times.push(next_second().await);
        for number in 0..4 {
            target.add(second * 10 + number).await;
        }
    }
    let crawlers: Vec<_> = times.iter().map(|time| target.crawler(*time, 3)).collect();
    for crawler in &crawlers {
        crawler.until_record_of(&uri(23)).await;
    }
    target.add(30).await;
    let mut tails = Vec::new();
    for (crawler, expected) in crawlers.iter().zip([13, 9, 5]) {
        let records = crawler.until_record_of(&uri(30)).await;
        crawler.check_order();
        assert_eq!(records.len(), expected);
        tails.push(records[expected - 5..].to_vec());
    }
    assert!(tails.iter().all(|tail| *tail == tails[0]), "{tails:?}");
}

#[tokio::test]
async fn changes_of_one_millisecond_have_growing_timestamps() {
    let data = tempfile::tempdir().unwrap();
    let journal = OpenJournal::at(&data.path().join("data"));
    journal.append(0..500).await;
    journal.close();
    let target = Target::start_in(data, "", "").await;
    let received: std::collections::BTreeSet<_> =
        target.gateway.changes().await.iter().map(|change| change["received"].to_string()).collect();
    assert_eq!(received.len(), 1, "one transaction has one time of receipt");
    let crawlers = [7, 0].map(|batch| target.crawler(1, batch));
    for crawler in &crawlers {
        // Each change has a record of its object and one of its item.
        crawler.until_records(1000).await;
        crawler.check_order();
    }
    assert_eq!(crawlers[0].records(), crawlers[1].records());
}

#[tokio::test]
async fn many_records_arrive_in_small_batches() {
    let target = Target::start().await;
    for object in 0..10 {
        let item = |number: usize| json!({ "uri": format!("{}/{number}", uri(object)), "change": "ADD" });
        let items: Vec<_> = (0..9_999).map(item).collect();
        target.post(&json!({ "object": uri(object), "items": items })).await;
    }
    let incremental = target.crawler(1, 7);
    let records = incremental.until_records(100_000).await;
    assert_eq!(state_after(&records).len(), 100_000);
    incremental.check_order();
    let sizes: Vec<_> =
        incremental.events().iter().filter_map(|event| Some(event["records"].as_array()?.len())).collect();
    assert!(sizes.iter().all(|size| *size <= 7) && sizes.len() < 14_300, "{} batches", sizes.len());
    let full = target.crawler(0, 0);
    let dumped = full.until_records(100_000).await;
    full.check_order();
    assert_eq!(state_after(&dumped), state_after(&records), "a full dump and the changes have the same records");
}

#[tokio::test]
async fn late_event_does_not_bring_back_older_facts() {
    let target = Target::start().await;
    let message = |time: &str, url: &str| {
        json!({ "object": uri(1), "time": time, "items": [
            { "uri": uri(1), "change": "UPDATE", "content": { "url": url, "mediaType": "image/png" } }
        ] })
    };
    let crawler = target.crawler(1, 0);
    target.post(&message("2026-01-02T00:00:00Z", "http://h.example/new.png")).await;
    crawler.until_records(1).await;
    target.post(&message("2026-01-01T00:00:00Z", "http://h.example/old.png")).await;
    let records = crawler.until_records(2).await;
    crawler.check_order();
    assert_eq!(records[1].values("xesam:url"), ["http://h.example/new.png"]);
    assert_eq!(records[1].values("xesam:sourceModified"), ["2026-01-02T00:00:00.000Z"]);
}
