//! Promise 3 of `Store`, for every store: a duplicate returns the first number for as long as the window lasts,
//! wherever the event key is stored.

use tidings::{
    journal::store::{StoreLimits, WriteBatch},
    model::Seq,
};

use crate::support::tested_store::{append, empty_batch, every_store, every_tested_store, key, known_unchanged, write};

#[test]
fn promise_3_duplicate_returns_the_first_number() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        assert_eq!(append(&*store, &[1, 2]).unwrap(), [Seq(1), Seq(2)]);
        assert_eq!(append(&*store, &[2, 3, 1]).unwrap(), [Seq(2), Seq(3), Seq(1)]);
        drop(store);
        assert_eq!(append(&*open(folder, StoreLimits::default()), &[1, 3, 4]).unwrap(), [Seq(1), Seq(3), Seq(4)]);
    });
}

#[test]
fn promise_3_duplicates_are_recognized_within_the_window() {
    every_tested_store(|folder, tested| {
        let open = tested.open;
        let limits = StoreLimits { dedupe_events: 10, dedupe_millis: -1, ..StoreLimits::default() };
        let store = open(folder, limits);
        for event in 1..=40 {
            append(&*store, &[event]).unwrap();
        }
        assert_eq!(append(&*store, &[35]).unwrap(), [Seq(35)], "an event within the window");
        assert_eq!(append(&*store, &[3]).unwrap(), [Seq(41)], "an event before the window");
        drop(store);
        let store = open(folder, limits);
        for event in 100..200 {
            append(&*store, &[event]).unwrap();
        }
        store.maintain().unwrap();
        drop(store);
        let kept = (tested.count_keys)(folder);
        assert!(kept < 40, "{kept} keys are kept of a window of 10");
    });
}

#[test]
fn promise_3_duplicates_of_events_without_change_are_recognized() {
    every_store(|folder, open| {
        let limits = StoreLimits { dedupe_events: 10, dedupe_millis: -1, ..StoreLimits::default() };
        let store = open(folder, limits);
        for event in 1..=40 {
            write(&*store, &WriteBatch { unchanged: vec![key(event), key(event)], ..empty_batch() }).unwrap();
            assert_eq!(known_unchanged(&*store, &[event]), [event]);
        }
        drop(store);
        let store = open(folder, limits);
        assert_eq!(known_unchanged(&*store, &[35, 3, 41]), [35]);
        assert_eq!(store.head().unwrap(), Seq::ZERO);
    });
}

/// Event keys collect in memory and are later stored in sorted runs; they are found in both.
#[test]
fn promise_3_duplicates_are_recognized_wherever_their_keys_are_stored() {
    every_tested_store(|folder, tested| {
        let open = tested.open;
        let limits = StoreLimits::default();
        let mut store = open(folder, limits);
        let mut next = 1;
        for batch in [1, 7, 30, 2, 11, 3, 1, 25, 4, 4, 4, 19, 1, 1, 9] {
            let events: Vec<u64> = (next..next + batch).collect();
            next += batch;
            append(&*store, &events).unwrap();
            if batch % 2 == 1 {
                drop(store);
                store = open(folder, limits);
            }
            for event in 1..next {
                assert_eq!(append(&*store, &[event]).unwrap(), [Seq(event)], "after {next}");
            }
        }
        drop(store);
        let findings = (tested.verify)(folder);
        let lost: Vec<_> = findings.iter().filter(|finding| finding.contains("would not be detected")).collect();
        assert!(lost.is_empty(), "{lost:?}");
    });
}

/// An event key remains when its change is removed.
#[test]
fn promise_3_duplicates_of_removed_changes_are_recognized() {
    every_store(|folder, open| {
        let mut store = open(folder, StoreLimits::default());
        for round in 0..5 {
            append(&*store, &(round * 20 + 1..=round * 20 + 20).collect::<Vec<_>>()).unwrap();
            assert!(store.prune(Seq(round * 20 + 11), usize::MAX, None).unwrap() > 0);
            for event in 1..=round * 20 + 20 {
                assert_eq!(append(&*store, &[event]).unwrap(), [Seq(event)], "round {round}");
            }
            drop(store);
            store = open(folder, StoreLimits::default());
        }
        for event in 1..=100 {
            assert_eq!(append(&*store, &[event]).unwrap(), [Seq(event)]);
        }
    });
}
