//! Sealed segments: the closed spans of the journal as immutable files.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::OpenJournal,
};

mod filters;
mod nodes;
mod readers;
mod retention;
mod sealing;

/// Waits until something is there.
async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Fills the journal of a folder with so many changes.
async fn fill(data: &Path, changes: u64) {
    let opened = OpenJournal::at(data);
    for first in (1..=changes).step_by(500) {
        opened.append(first..(first + 500).min(changes + 1)).await;
    }
    opened.close();
}

/// Waits until the gateway has so many segments; returns them.
async fn segments(gateway: &Gateway, count: usize) -> Vec<Value> {
    until("the spans are sealed", async || {
        let segments = gateway.json("/segments?limit=1000").await["segments"].as_array().unwrap().clone();
        (segments.len() == count).then_some(segments)
    })
    .await
}

/// Returns the changes in the file of a segment.
async fn content(gateway: &Gateway, segment: &Value) -> Vec<Value> {
    let url = format!("{}{}", gateway.url, segment["url"].as_str().unwrap());
    let response = gateway.http.get(url).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let lines = zstd::decode_all(&response.bytes().await.unwrap()[..]).unwrap();
    String::from_utf8(lines).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
