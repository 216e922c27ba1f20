//! The time of receipt never decreases. A clock that is set back, or that was ahead once, changes neither
//! numbers nor earlier times nor the order of the feed.

use std::path::Path;

use flate2::Crc;
use rusqlite::Connection;
use serde_json::Value;

use crate::support::{
    gateway::Gateway,
    journal_fixture::{journal_file, post, verify_ok},
};

/// Time of receipt of the newest change.
const AHEAD: &str = "2999-01-01T00:00:00.000Z";

/// Moves the newest change into the future, as if the clock had been ahead.
fn move_newest_into_future(folder: &Path) {
    let connection = Connection::open(journal_file(folder)).unwrap();
    let newest = "SELECT seq, json FROM changes ORDER BY seq DESC LIMIT 1";
    let (seq, json): (i64, String) = connection.query_row(newest, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let received = serde_json::from_str::<Value>(&json).unwrap()["received"].as_str().unwrap().to_owned();
    let json = json.replacen(&format!("\"received\":\"{received}\""), &format!("\"received\":\"{AHEAD}\""), 1);
    assert!(json.contains(AHEAD), "{json}");
    let mut checksum = Crc::new();
    checksum.update(&seq.to_be_bytes());
    checksum.update(json.as_bytes());
    let millis = chrono::DateTime::parse_from_rfc3339(AHEAD).unwrap().timestamp_millis();
    let change = "UPDATE changes SET json = ?, received = ?, checksum = ? WHERE seq = ?";
    connection.execute(change, (json, millis, checksum.sum(), seq)).unwrap();
}

#[tokio::test]
async fn clock_set_back_keeps_numbers_times_and_feed_order() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for number in 1..=3 {
        assert_eq!(post(&gateway, number).await, number);
    }
    assert!(gateway.stop().success());
    move_newest_into_future(folder.path());
    verify_ok(&journal_file(folder.path()));

    let gateway = Gateway::start(folder.path());
    for number in 4..=6 {
        assert_eq!(post(&gateway, number).await, number);
    }
    // A duplicate is recognized whatever its time.
    assert_eq!(post(&gateway, 3).await, 3);
    let changes = gateway.changes().await;
    let seqs: Vec<_> = changes.iter().map(|change| change["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    let received: Vec<_> = changes.iter().map(|change| change["received"].as_str().unwrap()).collect();
    assert!(received.is_sorted(), "{received:?}");
    assert!(received[2..].iter().all(|received| received.starts_with("2999-01-01T00:00:00")), "{received:?}");

    let feed = gateway.http.get(format!("{}/feed", gateway.url)).send().await.unwrap().text().await.unwrap();
    let items: Vec<_> = feed.match_indices("/items/").filter_map(|(at, _)| feed[at + 7..].chars().next()).collect();
    let mut order = items.clone();
    order.dedup();
    assert_eq!(order, ['6', '5', '4', '3', '2', '1'], "newest first");
    let (_, updated) = feed.split_once("<updated>").unwrap();
    assert!(updated.starts_with("2999-01-01T00:00:00"), "{}", &updated[..30]);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(folder.path()));
}
