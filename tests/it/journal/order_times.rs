//! Order times: they increase strictly, follow from the journal alone, and stay when retention removes the changes before.

use tidings::{
    journal::{
        order::OrderTime,
        retention::Retention,
        segments::{SegmentRecord, SpanWrite},
        store::StoreLimits,
    },
    model::{Seq, Timestamp},
};

use crate::support::{
    journal_fixture::OpenJournal,
    tested_store::{append, every_store},
};

#[tokio::test]
async fn order_times_increase_and_outlive_the_changes_before() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let journal = &opened.journal;
    // Batches whose changes have one time of receipt each.
    opened.append(1..=600).await;
    opened.append(601..=900).await;
    let changes = journal.after(Seq(0), 900).await.unwrap();
    let mut expected = OrderTime::default();
    let mut times = Vec::new();
    for change in &changes {
        expected = expected.following(change.change().unwrap().received);
        times.push(expected);
    }
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    let read = async |seq: u64| journal.order_time(Seq(seq)).await.unwrap();
    for seq in [1, 2, 599, 600, 601, 900] {
        assert_eq!(read(seq).await, times[usize::try_from(seq).unwrap() - 1], "{seq}");
    }
    assert_eq!((read(0).await, read(5000).await), (OrderTime::default(), times[899]));

    // As retention does: a piece is noted, and then removed. All times hold at each moment.
    let mut first = 1;
    while let Some(last) = journal.note_removal(Seq(500), 70).await.unwrap() {
        for seq in (first..=900).step_by(7) {
            assert_eq!(read(seq).await, times[usize::try_from(seq).unwrap() - 1], "{seq} before {last} is removed");
        }
        assert_eq!(journal.prune(last.next(), 70).await.unwrap() as u64, last.0 + 1 - first);
        first = last.0 + 1;
        for seq in (first - 1..=900).step_by(7) {
            assert_eq!(read(seq).await, times[usize::try_from(seq).unwrap() - 1], "{seq} after {last} is removed");
        }
    }
    assert_eq!(first, 500);
    let retention = Retention { changes: Some(250), ..Retention::default() };
    assert_eq!(retention.enforce(journal, Timestamp::now()).await.unwrap(), 151);
    for seq in [650, 651, 700, 900] {
        assert_eq!(read(seq).await, times[usize::try_from(seq).unwrap() - 1], "{seq} after retention");
    }
    // The changes of a batch were received in one millisecond, so that only the note knows their times.
    assert!(times[650].0 > changes[650].change().unwrap().received.millis());
}

#[test]
fn order_times_and_segments_are_noted() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        append(&*store, &[10, 11, 12]).unwrap();
        assert_eq!(store.noted_order_time(Seq(9)).unwrap(), None);
        let note = |seq, time, oldest| {
            let write = SpanWrite::OrderTime { seq: Seq(seq), time: OrderTime(time), oldest: Seq(oldest) };
            store.write_span(&write, None).unwrap();
        };
        note(1, 50, 0);
        note(3, 70, 0);
        // The first one stays: a cut never moves.
        note(3, 99, 0);
        let noted = |seq| store.noted_order_time(Seq(seq)).unwrap();
        assert_eq!(
            [noted(2), noted(3), noted(8)],
            [(1, 50), (3, 70), (3, 70)].map(|(seq, at)| Some((Seq(seq), OrderTime(at))))
        );
        note(5, 90, 3);
        assert_eq!(noted(2), None);
        let received = store.times_of_receipt(Seq(1), Seq(3), 10).unwrap();
        assert_eq!(received.iter().map(|(seq, _)| seq.0).collect::<Vec<_>>(), [2, 3]);

        let segment = |first: u64, manifest: &str| SegmentRecord {
            first: Seq(first),
            last: Seq(first + 9_999),
            manifest: manifest.to_owned(),
        };
        assert_eq!(store.newest_sealed().unwrap(), None);
        for (first, manifest) in [(1, "{}"), (10_001, "{\"a\":1}"), (10_001, "{\"a\":2}"), (20_001, "{}")] {
            store.write_span(&SpanWrite::Segment(segment(first, manifest)), None).unwrap();
        }
        drop(store);
        let store = open(folder, StoreLimits::default());
        assert_eq!(store.newest_sealed().unwrap(), Some(Seq(30_000)));
        let after = |seq, limit| store.segments_after(Seq(seq), limit).unwrap();
        assert_eq!(after(0, 1), [segment(1, "{}")]);
        assert_eq!(after(9_999, 1), [segment(1, "{}")]);
        assert_eq!(after(10_000, 9), [segment(10_001, "{\"a\":2}"), segment(20_001, "{}")]);
        store.write_span(&SpanWrite::RemoveSegments { before: Seq(20_001) }, None).unwrap();
        assert_eq!(store.segments_after(Seq(0), 9).unwrap(), [segment(20_001, "{}")]);
    });
}
