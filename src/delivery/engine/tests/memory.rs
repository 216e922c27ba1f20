//! Memory: in-flight messages of all subscriptions together have a bound in bytes.

use serde_json::json;

use super::{Arc, DuplicatePolicy, MemoryBudget, Receiver, SourceName, SourcePolicy, Submission, World};
use crate::model::Draft;

const MIB: usize = 1024 * 1024;

/// Journals a change of 10 000 items.
async fn append_large(world: &World, number: u64) {
    let item = |at: u64| json!({ "uri": format!("urn:i:{number}:{at}"), "change": "ADD" });
    let items: Vec<_> = (0..10_000).map(item).collect();
    let draft: Draft = serde_json::from_value(json!({ "object": "urn:o", "items": items })).unwrap();
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    let drafts = vec![(None, draft)];
    world
        .journal
        .append(Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None })
        .await
        .unwrap();
}

#[tokio::test]
async fn in_flight_messages_of_many_receivers_that_hang_are_bounded() {
    let mut world = World::new().await;
    for number in 1..=4 {
        append_large(&world, number).await;
    }
    let largest =
        world.journal.after(super::Seq::ZERO, 10).await.unwrap().iter().map(|change| change.json().len()).max();
    let largest = largest.unwrap();
    // Room for three messages and their changes, and for one while a receiver fails.
    let (working, failing) = (7 * largest, 2 * largest);
    world.memory = Arc::new(MemoryBudget::new(working, failing));
    let stalled = Receiver::default();
    stalled.with(|script| script.held = true);
    let hanging: Vec<_> = (0..50).map(|_| world.run(&stalled, 0)).collect();
    let healthy = Receiver::default();
    let running = world.run(&healthy, 0);
    running.until_at(4).await;
    assert_eq!(healthy.taken(), [1, 2, 3, 4]);
    let (sent, most) = stalled.with(|script| (script.sent.len(), script.most_bytes));
    assert!(sent > 0 && most <= (working + failing) / 2, "{most} bytes of {sent} messages of {largest}");
    assert!(working + failing < 40 * MIB);
    for stalled in hanging {
        stalled.stop.cancel();
        stalled.engine.abort();
    }
    running.stop().await;
}
