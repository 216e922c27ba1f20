//! The changes of one journal, read by another one with the dialect `gateway`, make the same changes there.

use proptest::prelude::*;
use serde_json::json;
use tidings::{
    format::{Headers, Limits, Message, ParsedMessage, dialect},
    journal::registry::Registry,
    model::{Change, Draft, DraftTime, Seq, Timestamp, Uri},
};

use crate::{
    journal::registry_order::{RegistryFixture, arrival_order, drafts, operation, visible_items},
    support::run_length::lengthened,
};

/// Reads a change as the harvest of a gateway passes it to the dialect.
fn relayed(change: &Change) -> Draft {
    let body = json!({ "change": change }).to_string();
    let kind = dialect("gateway").unwrap();
    let dialect = (kind.build)(serde_json::Value::Null, Limits::default()).unwrap();
    let headers = Headers::default();
    let message = Message { content_type: Some("application/json"), headers: &headers, body: body.as_bytes() };
    match dialect.read(&message) {
        Ok(ParsedMessage::Drafts(drafts)) => drafts.into_vec().remove(0),
        other => panic!("{other:?}"),
    }
}

/// Returns all changes without the facts that each journal sets itself.
fn changes(registry: &RegistryFixture) -> Vec<Change> {
    let changes = registry.runtime.block_on(registry.journal.after(Seq(0), 10_000)).unwrap();
    let change = |recorded: &std::sync::Arc<tidings::journal::RecordedChange>| {
        let change = recorded.change().unwrap();
        Change { received: Timestamp::EPOCH, ..change.clone() }
    };
    changes.iter().map(change).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: lengthened(20), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn relayed_journal_has_the_same_changes_and_registry(
        operations in prop::collection::vec(operation(), 1..25),
        keys in prop::collection::vec(any::<u64>(), 25),
    ) {
        let object = Uri::parse("http://repository.example.org/fedora/objects/demo:1").unwrap();
        let ordered = drafts(&object, &operations);
        let arrival = arrival_order(ordered.len(), &keys).into_iter().map(|index| {
            let mut draft = ordered[index].clone();
            // Some sources have no times, and harvests see old ones.
            draft.time = match (draft.time, keys[index] % 7) {
                (DraftTime::Reported(time), 1) => DraftTime::Observed(time),
                (DraftTime::Reported(_), 2) => DraftTime::Arrival,
                (time, _) => time,
            };
            draft
        });
        let (one, other) = (RegistryFixture::new(), RegistryFixture::new());
        one.send(&arrival.collect::<Vec<_>>());
        let originals = changes(&one);
        let drafts: Vec<Draft> = originals.iter().map(relayed).collect();
        other.send(&drafts);
        let copies = changes(&other);
        for (original, copy) in originals.iter().zip(&copies) {
            prop_assert_eq!(original, copy);
        }
        prop_assert_eq!(originals.len(), copies.len());
        // Reports without news are in no change, so the copy equals what the journal says.
        let mut registry = Registry::default();
        originals.iter().for_each(|change| registry.apply(&Change { received: Timestamp::now(), ..change.clone() }));
        let rebuilt = registry.objects.remove(&object).unwrap_or_default();
        prop_assert_eq!(visible_items(&rebuilt), visible_items(&other.object(&object)));
    }
}
