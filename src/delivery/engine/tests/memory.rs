//! The memory of in-flight messages is bounded across all subscriptions.

use std::sync::Arc;

use serde_json::json;

use super::{EngineFixture, Receiver};
use crate::{
    delivery::memory::MemoryBudget,
    journal::{DuplicatePolicy, Submission, settle::SourcePolicy},
    model::{Draft, Seq, SourceName},
};

const MIB: usize = 1024 * 1024;

/// Appends a change of 10 000 items to the journal.
async fn append_large(fixture: &EngineFixture, number: u64) {
    let item = |at: u64| json!({ "uri": format!("urn:i:{number}:{at}"), "change": "ADD" });
    let items: Vec<_> = (0..10_000).map(item).collect();
    let draft: Draft = serde_json::from_value(json!({ "object": "urn:o", "items": items })).unwrap();
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    let drafts = vec![(None, draft)];
    fixture
        .journal
        .append(Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None })
        .await
        .unwrap();
}

#[tokio::test]
async fn in_flight_memory_of_hanging_receivers_is_bounded() {
    let mut fixture = EngineFixture::new().await;
    for number in 1..=4 {
        append_large(&fixture, number).await;
    }
    let largest = fixture.journal.after(Seq::ZERO, 10).await.unwrap().iter().map(|change| change.json().len()).max();
    let largest = largest.unwrap();
    // Room for three messages with their changes, and for one while a receiver fails.
    let (working, failing) = (7 * largest, 2 * largest);
    fixture.memory = Arc::new(MemoryBudget::new(working, failing));
    let stalled = Receiver::default();
    stalled.with(|script| script.hangs = true);
    let hanging: Vec<_> = (0..50).map(|_| fixture.run(&stalled, 0)).collect();
    let healthy = Receiver::default();
    let running = fixture.run(&healthy, 0);
    running.until_at(4).await;
    assert_eq!(healthy.accepted(), [1, 2, 3, 4]);
    let (sent, max_bytes) = stalled.with(|script| (script.sent.len(), script.max_bytes));
    assert!(sent > 0 && max_bytes <= (working + failing) / 2, "{max_bytes} bytes of {sent} messages of {largest}");
    assert!(working + failing < 40 * MIB);
    for stalled in hanging {
        stalled.stop.cancel();
        stalled.engine.abort();
    }
    running.stop().await;
}
