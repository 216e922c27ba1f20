//! Batches settled against rows that a store could return.

use std::sync::Arc;

use super::{
    AcceptanceTime, BatchContext, ChangeBounds, DraftOutcome, DuplicatePolicy, ObjectState, PrefetchedObject,
    PrefetchedRows, SettledBatch, SourcePolicy, Submission, Timestamp,
};
use crate::model::{SourceName, Uri};

fn context(prefetched: PrefetchedRows, now: Timestamp) -> BatchContext {
    BatchContext { prefetched, bounds: ChangeBounds::default(), now, earliest: AcceptanceTime::default() }
}

fn submission(drafts: &[&str]) -> Submission {
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    let drafts = drafts.iter().map(|draft| (None, serde_json::from_str(draft).unwrap())).collect();
    Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None }
}

fn settled(submission: Submission, context: BatchContext) -> SettledBatch {
    SettledBatch::build(vec![submission], Vec::new(), Vec::new(), Vec::new(), context).unwrap()
}

#[test]
fn times_of_receipt_never_decrease_when_the_clock_goes_back() {
    let time = |millis| Timestamp::from_millis(millis).unwrap();
    let draft =
        r#"{"object":"http://h/1","time":"2000-01-01T00:00:00Z","items":[{"uri":"http://h/1","change":"ADD"}]}"#;
    for (newest, now, received) in [(None, 5_000, 5_000), (Some(9_000), 5_000, 9_000), (Some(9_000), 9_500, 9_500)] {
        let prefetched = PrefetchedRows { received: newest.map(time), ..PrefetchedRows::default() };
        let batch = settled(submission(&[draft]), context(prefetched, time(now)));
        assert!(matches!(batch.outcomes[0][..], [DraftOutcome::Accepted { .. }]), "{:?}", batch.outcomes);
        assert_eq!(batch.writes.changes[0].change.received, time(received));
    }
}

#[test]
fn an_item_with_two_changes_is_written_once() {
    let draft = r#"{"object":"http://h/1","time":"2000-01-01T00:00:00Z","items":[
        {"uri":"http://h/b","change":"ADD"},{"uri":"http://h/a","change":"ADD"},{"uri":"http://h/b","change":"UPDATE"}]}"#;
    let batch = settled(submission(&[draft, draft]), context(PrefetchedRows::default(), Timestamp::now()));
    let items: Vec<_> = batch.writes.objects[0].changed_items.as_slice().iter().map(Uri::as_str).collect();
    assert_eq!((batch.writes.objects.len(), items), (1, vec!["http://h/a", "http://h/b"]));
}

#[test]
fn an_object_keeps_its_first_source() {
    let draft =
        r#"{"object":"http://h/1","time":"2000-01-01T00:00:00Z","items":[{"uri":"http://h/1","change":"UPDATE"}]}"#;
    for (registered, source, is_written) in [(Some("first"), "first", false), (None, "s", true)] {
        let state =
            ObjectState { source: registered.map(|name| SourceName::parse(name).unwrap()), ..Default::default() };
        let object = PrefetchedObject { state, other_items: None };
        let objects = [(Uri::parse("http://h/1").unwrap(), object)].into_iter().collect();
        let prefetched = PrefetchedRows { objects, ..PrefetchedRows::default() };
        let batch = settled(submission(&[draft, draft]), context(prefetched, Timestamp::now()));
        let update = &batch.writes.objects[0];
        assert_eq!(update.state.source.as_ref().map(SourceName::as_str), Some(source));
        assert_eq!(update.object_changed, is_written);
    }
}
