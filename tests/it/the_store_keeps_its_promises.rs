//! The promises of `Store`, held against every store.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tidings::{
    journal::store::{
        Decision, EventIdentity, EventKey, ItemsAsked, Known, NewChange, Questions, Store, StoreError, event_key,
        sqlite::{Bounds, SqliteStore},
    },
    model::{Change, ChangeId, Seq, Settlement, SourceName, Timestamp, Uri},
};

/// Opens a store over what is kept in the folder.
type Open = fn(&Path, Bounds) -> Arc<dyn Store>;

/// Every store: a new one has a line here.
const STORES: [(&str, Open); 1] =
    [("sqlite", |folder, bounds| Arc::new(SqliteStore::open(folder, bounds).unwrap()) as Arc<dyn Store>)];

fn every_store(test: impl Fn(&Path, Open)) {
    for (name, open) in STORES {
        let folder = tempfile::Builder::new().prefix(name).tempdir().unwrap();
        test(folder.path(), open);
    }
}

fn key(number: u64) -> EventKey {
    let id = number.to_string();
    event_key(&SourceName::parse("s").unwrap(), EventIdentity::Id(&id), 0)
}

fn object() -> Uri {
    Uri::parse("http://localhost:8080/fedora/objects/demo:1").unwrap()
}

/// A change at that number, told by the event of that number.
fn change(seq: Seq, event: u64) -> NewChange {
    let mut change: Change = serde_json::from_str(include_str!("../../fixtures/change.json")).unwrap();
    change.seq = seq;
    change.modification.id = ChangeId::mint();
    let json = Bytes::from(serde_json::to_vec(&change).unwrap());
    NewChange { change, json, key: Some(key(event)) }
}

/// Appends what these events tell, as the writer does: an event that is known makes no change, and
/// the registry takes over every change.
fn append(store: &dyn Store, events: &[u64]) -> Result<Vec<Seq>, StoreError> {
    let questions = Questions {
        keys: events.iter().copied().map(key).collect(),
        objects: [(object(), ItemsAsked::All)].into(),
        ..Questions::default()
    };
    let mut numbers = Vec::new();
    store.append(&questions, &mut |known: Known| {
        let mut decision = nothing();
        let mut state = known.objects.get(&object()).cloned().unwrap_or_default();
        let mut head = known.head;
        numbers.clear();
        for event in events {
            if let Some((first, _)) = known.seen.get(&key(*event)) {
                numbers.push(*first);
                continue;
            }
            head = head.next();
            numbers.push(head);
            let new = change(head, *event);
            state.apply(new.change.modification.time, &new.change.modification, &Settlement::default());
            decision.changes.push(new);
        }
        decision.objects.insert(object(), state);
        decision
    })?;
    Ok(numbers)
}

/// A decision to write nothing.
fn nothing() -> Decision {
    let received = Timestamp::EPOCH;
    Decision { changes: Vec::new(), unchanged: Vec::new(), received, objects: BTreeMap::new() }
}

/// Which of these events are known to have changed nothing.
fn known_unchanged(store: &dyn Store, events: &[u64]) -> Vec<u64> {
    let questions = Questions { unchanged: events.iter().copied().map(key).collect(), ..Questions::default() };
    let mut found = Vec::new();
    let decide = &mut |known: Known| {
        found = events.iter().copied().filter(|event| known.unchanged.contains(&key(*event))).collect();
        nothing()
    };
    store.append(&questions, decide).unwrap();
    found
}

fn seqs(store: &dyn Store, after: u64) -> Vec<u64> {
    store.after(Seq(after), 10_000).unwrap().iter().map(|change| change.seq.0).collect()
}

/// Copies the files as they are at this moment, as a crash would leave them.
fn as_after_a_crash(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        // The index of the write-ahead log is shared memory: it is gone after a crash.
        if !file.file_name().to_string_lossy().ends_with("-shm") {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    copy
}

#[test]
fn promise_1_what_is_accepted_is_durable_on_return() {
    every_store(|folder, open| {
        let store = open(folder, Bounds::default());
        append(&*store, &[1, 2, 3]).unwrap();
        let copy = as_after_a_crash(folder);
        let reopened = open(copy.path(), Bounds::default());
        assert_eq!(seqs(&*reopened, 0), [1, 2, 3]);
        assert_eq!(reopened.object(&object()).unwrap(), store.object(&object()).unwrap());
        assert_eq!(reopened.identity(), store.identity());
    });
}

#[test]
fn promises_2_and_6_readers_see_a_growing_beginning_and_the_head_can_be_read() {
    every_store(|folder, open| {
        let store = open(folder, Bounds::default());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut longest, mut reads) = (0, 0);
                        while !done.load(Ordering::Acquire) {
                            let head = store.head().unwrap();
                            let seen = seqs(&*store, 0);
                            assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>(), "a gap, or out of order");
                            assert!(seen.len() >= longest, "a change that was there is gone");
                            assert!(seen.len() as u64 >= head.0, "the head ran ahead");
                            (longest, reads) = (seen.len(), reads + 1);
                        }
                        assert!(reads > 3);
                    })
                })
                .collect();
            std::thread::scope(|writers| {
                for writer in 0..4u64 {
                    let store = &store;
                    writers.spawn(move || {
                        for event in 0..50 {
                            append(&**store, &[writer * 1000 + event * 2, writer * 1000 + event * 2 + 1]).unwrap();
                        }
                    });
                }
            });
            done.store(true, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        assert_eq!(seqs(&*store, 0).len(), 400);
    });
}

#[test]
fn promise_3_a_repeat_returns_the_first_number() {
    every_store(|folder, open| {
        let store = open(folder, Bounds::default());
        assert_eq!(append(&*store, &[1, 2]).unwrap(), [Seq(1), Seq(2)]);
        assert_eq!(append(&*store, &[2, 3, 1]).unwrap(), [Seq(2), Seq(3), Seq(1)]);
        drop(store);
        assert_eq!(append(&*open(folder, Bounds::default()), &[1, 3, 4]).unwrap(), [Seq(1), Seq(3), Seq(4)]);
    });
}

#[test]
fn promise_3_holds_for_a_window_and_the_keys_before_it_go() {
    every_store(|folder, open| {
        let bounds = Bounds { dedupe_events: 10, dedupe_millis: -1, ..Bounds::default() };
        let store = open(folder, bounds);
        for event in 1..=40 {
            append(&*store, &[event]).unwrap();
        }
        assert_eq!(append(&*store, &[35]).unwrap(), [Seq(35)], "an event within the window");
        assert_eq!(append(&*store, &[3]).unwrap(), [Seq(41)], "an event before the window");
    });
}

#[test]
fn promise_3_holds_for_events_that_changed_nothing() {
    every_store(|folder, open| {
        let bounds = Bounds { dedupe_events: 10, dedupe_millis: -1, ..Bounds::default() };
        let store = open(folder, bounds);
        for event in 1..=40 {
            let unchanged = vec![key(event), key(event)];
            store
                .append(&Questions::default(), &mut |_| Decision { unchanged: unchanged.clone(), ..nothing() })
                .unwrap();
        }
        drop(store);
        let store = open(folder, bounds);
        assert_eq!(known_unchanged(&*store, &[35, 3, 41]), [35]);
        assert_eq!(store.head().unwrap(), Seq::ZERO);
    });
}

#[test]
fn promise_4_a_batch_is_stored_as_a_whole_or_not_at_all() {
    every_store(|folder, open| {
        let store = open(folder, Bounds::default());
        append(&*store, &[1]).unwrap();
        let before = store.object(&object()).unwrap();
        let questions = Questions { objects: [(object(), ItemsAsked::All)].into(), ..Questions::default() };
        // The second change takes a number that is taken: the store cannot write it.
        let refused = store.append(&questions, &mut |known: Known| {
            let mut state = known.objects.get(&object()).cloned().unwrap_or_default();
            state.items.clear();
            state.purged.at = Some(Timestamp::now());
            let changes = vec![change(Seq(2), 2), change(Seq(1), 3)];
            Decision { changes, objects: [(object(), state)].into(), unchanged: vec![key(4)], ..nothing() }
        });
        assert!(refused.is_err());
        assert_eq!(seqs(&*store, 0), [1]);
        assert_eq!(store.object(&object()).unwrap(), before);
        assert_eq!(append(&*store, &[2, 3]).unwrap(), [Seq(2), Seq(3)], "the keys were not stored either");
        assert!(known_unchanged(&*store, &[4]).is_empty());
    });
}

#[test]
fn promise_5_reading_moves_nothing() {
    every_store(|folder, open| {
        let store = open(folder, Bounds::default());
        append(&*store, &[1, 2, 3, 4]).unwrap();
        for _ in 0..2 {
            assert_eq!(seqs(&*store, 2), [3, 4]);
            let newest_first: Vec<_> = store.before(Seq(4), 2).unwrap().iter().map(|change| change.seq.0).collect();
            assert_eq!(newest_first, [3, 2]);
        }
        assert_eq!(seqs(&*store, 4), [] as [u64; 0]);
        assert_eq!(store.head().unwrap(), Seq(4));
    });
}

#[test]
fn the_oldest_changes_can_be_removed_and_nothing_else_goes() {
    every_store(|folder, open| {
        let store = open(folder, Bounds::default());
        assert_eq!((store.first().unwrap(), store.first_of_newest(3).unwrap()), (None, None));
        assert_eq!(store.prune(Seq(5), 9).unwrap(), 0);
        append(&*store, &(1..=10).collect::<Vec<_>>()).unwrap();
        let known = store.object(&object()).unwrap();
        let received = change(Seq(1), 1).change.received;
        let later = Timestamp::from_millis(received.millis() + 1).unwrap();
        assert_eq!(store.first_since(received).unwrap(), Some(Seq(1)));
        assert_eq!(store.first_since(later).unwrap(), None);
        for (count, first) in [(0, 10), (1, 10), (4, 7), (10, 1)] {
            assert_eq!(store.first_of_newest(count).unwrap(), Some(Seq(first)), "{count}");
        }
        assert_eq!(store.prune(Seq(8), 4).unwrap(), 4);
        assert_eq!((seqs(&*store, 0), store.first().unwrap()), ((5..=10).collect(), Some(Seq(5))));
        assert_eq!(store.prune(Seq(8), 4).unwrap(), 3);
        assert_eq!(store.prune(Seq(u64::MAX), 9).unwrap(), 2, "the newest stays");
        assert_eq!((store.holds(Seq(9)).unwrap(), store.holds(Seq(10)).unwrap()), (false, true));
        drop(store);
        let store = open(folder, Bounds::default());
        assert_eq!((store.head().unwrap(), store.object(&object()).unwrap()), (Seq(10), known.clone()));
        assert_eq!(store.registry(None, 9).unwrap(), [(object(), known.unwrap())]);
        assert!(store.registry(Some(&object()), 9).unwrap().is_empty());
        assert_eq!(append(&*store, &[3, 11]).unwrap(), [Seq(3), Seq(11)]);
    });
}
