//! Batches settled against rows that a store could return.

use std::sync::Arc;

use super::{
    BatchContext, ChangeBounds, DraftOutcome, DuplicatePolicy, PrefetchedRows, SettledBatch, SourcePolicy, Submission,
    Timestamp,
};
use crate::model::{Draft, SourceName, Uri};

fn context(prefetched: PrefetchedRows, now: Timestamp) -> BatchContext {
    BatchContext { prefetched, bounds: ChangeBounds::default(), now }
}

#[test]
fn times_of_receipt_never_decrease_when_the_clock_goes_back() {
    let time = |millis| Timestamp::from_millis(millis).unwrap();
    let draft =
        r#"{"object":"http://h/1","time":"2000-01-01T00:00:00Z","items":[{"uri":"http://h/1","change":"ADD"}]}"#;
    let draft: Draft = serde_json::from_str(draft).unwrap();
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    for (newest, now, received) in [(None, 5_000, 5_000), (Some(9_000), 5_000, 9_000), (Some(9_000), 9_500, 9_500)] {
        let prefetched = PrefetchedRows { received: newest.map(time), ..PrefetchedRows::default() };
        let drafts = vec![(None, draft.clone())];
        let submission = Submission {
            policy: Arc::clone(&policy),
            drafts,
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: None,
        };
        let batch =
            SettledBatch::build(vec![submission], Vec::new(), Vec::new(), Vec::new(), context(prefetched, time(now)))
                .unwrap();
        assert!(matches!(batch.outcomes[0][..], [DraftOutcome::Accepted { .. }]), "{:?}", batch.outcomes);
        assert_eq!(batch.writes.changes[0].change.received, time(received));
    }
}

#[test]
fn an_item_with_two_changes_is_written_once() {
    let draft = r#"{"object":"http://h/1","time":"2000-01-01T00:00:00Z","items":[
        {"uri":"http://h/b","change":"ADD"},{"uri":"http://h/a","change":"ADD"},{"uri":"http://h/b","change":"UPDATE"}]}"#;
    let draft: Draft = serde_json::from_str(draft).unwrap();
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    let drafts = vec![(None, draft.clone()), (None, draft)];
    let submission = Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None };
    let batch = SettledBatch::build(
        vec![submission],
        Vec::new(),
        Vec::new(),
        Vec::new(),
        context(PrefetchedRows::default(), Timestamp::now()),
    )
    .unwrap();
    let items: Vec<_> = batch.writes.objects[0].changed_items.as_slice().iter().map(Uri::as_str).collect();
    assert_eq!((batch.writes.objects.len(), items), (1, vec!["http://h/a", "http://h/b"]));
}
