//! Contract tests of `Store`, for every store.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use foldhash::HashMap;
use tidings::{
    journal::{
        RegistryPosition,
        store::{ItemSelection, NewChange, PrefetchKeys, Store, StoreLimits, WriteBatch},
        subscriptions::{CursorAdvance, DefinitionText, MadeBy, NewDeadLetter, SubscriptionWrite},
    },
    model::{Change, MissingFacts, Seq, SourceName, SubscriptionName, Timestamp, Uri, UriPrefix},
};

use crate::support::tested_store::{
    STORES, TestedStore, append, change, empty_batch, every_store, every_tested_store, fully_written, key,
    known_unchanged, object, prefetch, seqs, write,
};

#[test]
fn promise_1_append_is_durable_on_return() {
    for TestedStore { open, copy_as_after_crash, .. } in STORES {
        let [folder, copy] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = open(folder.path(), StoreLimits::default());
        append(&*store, &[1, 2, 3]).unwrap();
        copy_as_after_crash(folder.path(), copy.path());
        let reopened = open(copy.path(), StoreLimits::default());
        assert_eq!(seqs(&*reopened, 0), [1, 2, 3]);
        assert_eq!(reopened.object(&object()).unwrap(), store.object(&object()).unwrap());
        assert_eq!(reopened.identity(), store.identity());
    }
}

#[test]
fn promises_2_and_6_readers_see_a_growing_prefix_up_to_the_head() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut longest, mut reads) = (0, 0);
                        while !done.load(Ordering::Acquire) {
                            let head = store.head().unwrap();
                            let numbers = seqs(&*store, 0);
                            assert_eq!(
                                numbers,
                                (1..=numbers.len() as u64).collect::<Vec<_>>(),
                                "a gap, or out of order"
                            );
                            assert!(numbers.len() >= longest, "an existing change has disappeared");
                            assert!(numbers.len() as u64 >= head.0, "the head is ahead of the readable changes");
                            (longest, reads) = (numbers.len(), reads + 1);
                        }
                        assert!(reads > 3);
                    })
                })
                .collect();
            let one_at_a_time = Mutex::new(());
            std::thread::scope(|writers| {
                for writer in 0..4u64 {
                    let (store, one_at_a_time) = (&store, &one_at_a_time);
                    writers.spawn(move || {
                        for event in 0..50 {
                            let _turn = one_at_a_time.lock().unwrap();
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
fn promise_4_batches_are_atomic() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        append(&*store, &[1]).unwrap();
        let before = store.object(&object()).unwrap();
        let questions =
            PrefetchKeys { objects: [(object(), ItemSelection::All)].into_iter().collect(), ..PrefetchKeys::default() };
        // The second change has a number that is already in use, so the store cannot write it.
        let mut touched_object = prefetch(&*store, &questions).objects.remove(&object()).unwrap();
        touched_object.state.purged.at = Some(Timestamp::now());
        let changes = vec![change(Seq(2), 2), change(Seq(1), 3)];
        let unchanged = vec![key(4)];
        let objects = [fully_written(touched_object)].into();
        let refused = write(&*store, &WriteBatch { changes, unchanged, objects, ..empty_batch() });
        assert!(refused.is_err());
        assert_eq!(seqs(&*store, 0), [1]);
        assert_eq!(store.object(&object()).unwrap(), before);
        assert_eq!(append(&*store, &[2, 3]).unwrap(), [Seq(2), Seq(3)], "the keys were not stored either");
        assert!(known_unchanged(&*store, &[4]).is_empty());
    });
}

#[test]
fn promise_4_changes_get_their_assigned_numbers_or_none() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        // The first change may skip numbers, as after a restore.
        let changes = (5..=24).map(|seq| change(Seq(seq), seq)).collect();
        write(&*store, &WriteBatch { changes, ..empty_batch() }).unwrap();
        let numbered = |changes: Vec<tidings::journal::store::StoredChange>| {
            let numbers = changes.iter().map(|stored| serde_json::from_slice::<Change>(&stored.json).unwrap().seq);
            numbers.zip(&changes).map(|(numbers, stored)| (numbers.0, stored.seq.0)).collect::<Vec<_>>()
        };
        let expected: Vec<_> = (5..=24).map(|seq| (seq, seq)).collect();
        assert_eq!(numbered(store.after(Seq(4), 100, usize::MAX).unwrap().unwrap()), expected);
        assert!(store.after(Seq(3), 100, usize::MAX).unwrap().is_none(), "the journal never gave the number 4");
        // A number in the middle is skipped, so no change is written under a wrong number.
        let changes = (25..=45).filter(|seq| *seq != 28).map(|seq| change(Seq(seq), seq)).collect();
        assert!(write(&*store, &WriteBatch { changes, ..empty_batch() }).is_err());
        assert_eq!(numbered(store.after(Seq(4), 100, usize::MAX).unwrap().unwrap()), expected);
    });
}

/// A decision after a failed batch must not contain anything of that batch.
#[test]
fn promise_4_batches_are_atomic_with_concurrent_failures() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let one_at_a_time = Arc::new(Mutex::new(()));
        let writers: Vec<_> = (0..3_u64)
            .map(|writer| {
                let (store, one_at_a_time) = (Arc::clone(&store), Arc::clone(&one_at_a_time));
                std::thread::spawn(move || {
                    let mut acknowledged = Vec::new();
                    for event in (0..200).map(|event| writer * 1000 + event) {
                        let _turn = one_at_a_time.lock().unwrap();
                        if event % 3 == 0 {
                            fails(&*store, event);
                        }
                        acknowledged.push((event, append(&*store, &[event]).unwrap()[0]));
                    }
                    acknowledged
                })
            })
            .collect();
        let mut acknowledged: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        acknowledged.sort_by_key(|(_, seq)| *seq);
        assert_eq!(seqs(&*store, 0), (1..=600).collect::<Vec<_>>());
        assert_eq!(acknowledged.iter().map(|(_, seq)| seq.0).collect::<Vec<_>>(), seqs(&*store, 0));
        drop(store);
        let store = open(folder, StoreLimits::default());
        for (event, seq) in acknowledged {
            assert_eq!(append(&*store, &[event]).unwrap(), [seq], "event {event}");
        }
    });
}

/// Decides on two changes with the same number, which no store can write.
fn fails(store: &dyn Store, event: u64) {
    let questions =
        PrefetchKeys { objects: [(object(), ItemSelection::All)].into_iter().collect(), ..PrefetchKeys::default() };
    let prefetched = prefetch(store, &questions);
    let next = prefetched.head.next();
    let changes = vec![change(next, event), change(next, event + 500)];
    let mut object = prefetched.objects.get(&object()).cloned().unwrap_or_default();
    object.state.purged.at = Some(Timestamp::now());
    let unchanged = vec![key(4)];
    assert!(
        write(store, &WriteBatch { changes, unchanged, objects: [fully_written(object)].into(), ..empty_batch() })
            .is_err()
    );
}

#[test]
fn promise_5_reading_moves_no_cursor() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        append(&*store, &[1, 2, 3, 4]).unwrap();
        for _ in 0..2 {
            assert_eq!(seqs(&*store, 2), [3, 4]);
            let newest_first: Vec<_> =
                store.before(Seq(4), 2, usize::MAX).unwrap().iter().map(|change| change.seq.0).collect();
            assert_eq!(newest_first, [3, 2]);
        }
        assert_eq!(seqs(&*store, 4), [] as [u64; 0]);
        assert_eq!(store.head().unwrap(), Seq(4));
    });
}

#[test]
fn promise_5_no_cursor_is_above_the_head_or_in_a_skipped_range() {
    every_tested_store(|folder, tested| {
        let store = (tested.open)(folder, StoreLimits::default());
        let [index, other] = ["index", "other"].map(|name| SubscriptionName::parse(name).unwrap());
        let put = |name: &SubscriptionName, cursor| SubscriptionWrite::Put {
            name: name.clone(),
            made_by: MadeBy::Api,
            definition: DefinitionText::default(),
            cursor: Seq(cursor),
        };
        append(&*store, &[1, 2, 3, 4]).unwrap();
        store.write_subscriptions(&[put(&index, 2), put(&other, 9)], None).unwrap();
        let cursors = |store: &dyn Store| -> Vec<_> {
            store.subscriptions().unwrap().iter().map(|stored| stored.cursor.0).collect()
        };
        assert_eq!(cursors(&*store), [2, 4]);
        assert_eq!((store.surviving(Seq(3)).unwrap(), store.surviving(Seq(9)).unwrap()), (Seq(3), Seq(4)));
        let advance = |store: &dyn Store, to| {
            write(store, &WriteBatch { cursors: vec![advance_to(&index, to)], ..empty_batch() }).unwrap();
        };
        advance(&*store, 9);
        assert_eq!(cursors(&*store), [2, 4]);
        drop(store);
        // As after a loss of the changes 5 to 9.
        (tested.query)(folder, "INSERT INTO restores (head, floor) VALUES (4, 1000) RETURNING 'stored'");
        let store = (tested.open)(folder, StoreLimits::default());
        assert_eq!(append(&*store, &[5]).unwrap(), [Seq(1001)]);
        advance(&*store, 9);
        assert_eq!(cursors(&*store), [2, 4], "9 was lost");
        store.write_subscriptions(&[SubscriptionWrite::Rewind(index.clone(), Seq(9))], None).unwrap();
        assert_eq!(cursors(&*store), [4, 4]);
        assert_eq!((store.surviving(Seq(9)).unwrap(), store.surviving(Seq(1001)).unwrap()), (Seq(4), Seq(1001)));
        advance(&*store, 1001);
        assert_eq!(cursors(&*store), [1001, 4]);
    });
}

/// Returns the move of a cursor without a delivery.
fn advance_to(name: &SubscriptionName, to: u64) -> CursorAdvance {
    CursorAdvance { name: name.clone(), cursor: Seq(to), delivered: None, term: None }
}

#[test]
fn promise_5_cursor_moves_back_only_by_a_rewind() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let name = SubscriptionName::parse("index").unwrap();
        let put = |cursor| SubscriptionWrite::Put {
            name: name.clone(),
            made_by: MadeBy::Api,
            definition: DefinitionText::default(),
            cursor: Seq(cursor),
        };
        let advance = |to| {
            write(&*store, &WriteBatch { cursors: vec![advance_to(&name, to)], ..empty_batch() }).unwrap();
        };
        let cursors = |store: &dyn Store| {
            let all = store.subscriptions().unwrap();
            (all[0].cursor.0, all[0].paused, all[0].dead_letters)
        };
        let letter = |seq| NewDeadLetter { seq: Seq(seq), reason: "no".into(), json: Bytes::from_static(b"{}") };
        append(&*store, &[1, 2, 3, 4, 5, 6, 7]).unwrap();
        store.write_subscriptions(&[put(3), SubscriptionWrite::Pause(name.clone(), "a test".into())], None).unwrap();
        advance(7);
        advance(8);
        advance(5);
        assert_eq!(cursors(&*store), (7, true, 0));
        store.write_subscriptions(&[put(1), SubscriptionWrite::AddDeadLetter(name.clone(), letter(6))], None).unwrap();
        assert_eq!(store.subscription(&name).unwrap().as_ref(), store.subscriptions().unwrap().first());
        assert_eq!(store.subscription(&SubscriptionName::parse("another").unwrap()).unwrap(), None);
        assert_eq!(cursors(&*store), (7, true, 1), "a redefined subscription keeps its cursor");
        store
            .write_subscriptions(
                &[
                    SubscriptionWrite::Rewind(name.clone(), Seq(2)),
                    SubscriptionWrite::AddDeadLetter(name.clone(), letter(4)),
                ],
                None,
            )
            .unwrap();
        drop(store);
        let store = open(folder, StoreLimits::default());
        assert_eq!(cursors(&*store), (4, true, 2), "a dead letter is written with the cursor past it");

        let letters = store.dead_letters(&name, None, 9).unwrap();
        assert_eq!(letters.iter().map(|letter| letter.letter.seq.0).collect::<Vec<_>>(), [4, 6]);
        assert_eq!(store.dead_letters(&name, Some(letters[0].id), 9).unwrap(), letters[1..]);
        assert!(store.replays(&name, None, 9).unwrap().is_empty());
        let concerned = store
            .write_subscriptions(&[SubscriptionWrite::ReplayDeadLetters(name.clone(), Some(letters[1].id))], None)
            .unwrap();
        assert_eq!((concerned, store.replays(&name, None, 9).unwrap().len()), (vec![1], 1));
        let again = SubscriptionWrite::DeadLetterRefused(name.clone(), letters[1].id, "still no".into());
        store.write_subscriptions(&[again], None).unwrap();
        let refused = store.dead_letter(&name, letters[1].id).unwrap().unwrap();
        assert_eq!((refused.attempts, refused.replay, refused.letter.reason.as_str()), (2, false, "still no"));
        let concerned = store.write_subscriptions(
            &[SubscriptionWrite::DropDeadLetters(name.clone(), None), SubscriptionWrite::Delete(name.clone())],
            None,
        );
        assert_eq!(concerned.unwrap(), [2, 1]);
        assert!(store.subscriptions().unwrap().is_empty());
    });
}

#[test]
fn incomplete_changes_are_stored_and_removed_with_their_changes() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let new = |seq: u64, untold| NewChange { incomplete: untold, ..change(Seq(seq), seq) };
        let source = change(Seq(1), 1).change.modification.origin.source;
        let changes = vec![new(1, Some(MissingFacts::Content)), new(2, None), new(3, Some(MissingFacts::Items))];
        let json = changes[2].json.clone();
        write(&*store, &WriteBatch { changes, ..empty_batch() }).unwrap();
        // The change may be removed; its pending lookup remains.
        assert_eq!(store.prune(Seq(3), 9, None).unwrap(), 2);
        drop(store);
        let store = open(folder, StoreLimits::default());
        let seqs = |after, limit| {
            let found = store.incomplete(&source, Seq(after), limit).unwrap();
            found.iter().map(|incomplete| (incomplete.seq.0, incomplete.missing)).collect::<Vec<_>>()
        };
        assert_eq!(seqs(0, 9), [(1, MissingFacts::Content), (3, MissingFacts::Items)]);
        assert_eq!((seqs(0, 1), seqs(1, 1)), (vec![(1, MissingFacts::Content)], vec![(3, MissingFacts::Items)]));
        assert_eq!(store.incomplete(&source, Seq(1), 1).unwrap()[0].json, json);
        assert_eq!(store.incomplete_counts().unwrap(), [(source.clone(), 2)].into());
        let other = SourceName::parse("other").unwrap();
        assert!(store.incomplete(&other, Seq::ZERO, 9).unwrap().is_empty());
        write(&*store, &WriteBatch { completed: vec![Seq(1), Seq(2)], ..empty_batch() }).unwrap();
        assert_eq!(seqs(0, 9), [(3, MissingFacts::Items)]);
        write(&*store, &WriteBatch { completed: vec![Seq(3)], ..empty_batch() }).unwrap();
        assert!(store.incomplete_counts().unwrap().is_empty());
    });
}

#[test]
fn retention_removes_only_the_oldest_changes() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        assert_eq!((store.first().unwrap(), store.first_of_newest(3).unwrap()), (None, None));
        assert_eq!(store.prune(Seq(5), 9, None).unwrap(), 0);
        append(&*store, &(1..=10).collect::<Vec<_>>()).unwrap();
        let prefetched = store.object(&object()).unwrap();
        let received = change(Seq(1), 1).change.received;
        let later = Timestamp::from_millis(received.millis() + 1).unwrap();
        assert_eq!(store.first_since(received).unwrap(), Some(Seq(1)));
        assert_eq!(store.first_since(later).unwrap(), None);
        for (count, first) in [(0, 10), (1, 10), (4, 7), (10, 1)] {
            assert_eq!(store.first_of_newest(count).unwrap(), Some(Seq(first)), "{count}");
        }
        assert_eq!(store.prune(Seq(8), 4, None).unwrap(), 4);
        assert_eq!((seqs(&*store, 0), store.first().unwrap()), ((5..=10).collect(), Some(Seq(5))));
        assert_eq!(store.prune(Seq(8), 4, None).unwrap(), 3);
        assert_eq!(store.prune(Seq(u64::MAX), 9, None).unwrap(), 2, "the newest stays");
        let is_place = |seq| store.after(Seq(seq), 1, 1).unwrap().is_some();
        assert_eq!(
            [is_place(0), is_place(8), is_place(9), is_place(10), is_place(11)],
            [false, false, true, true, false]
        );
        drop(store);
        let store = open(folder, StoreLimits::default());
        assert_eq!((store.head().unwrap(), store.object(&object()).unwrap()), (Seq(10), prefetched.clone()));
        assert_eq!(store.registry(&RegistryPosition::Beginning, 9).unwrap(), [(object(), prefetched.unwrap())]);
        assert!(store.registry(&RegistryPosition::After(object()), 9).unwrap().is_empty());
        let at = |prefix: &str| {
            let position = RegistryPosition::At(UriPrefix::parse(prefix).unwrap());
            store.registry(&position, 9).unwrap().into_iter().map(|(uri, _)| uri).collect::<Vec<_>>()
        };
        assert_eq!([at(object().as_str()), at(&object().as_str()[..9])], [[object()], [object()]]);
        assert!(at(&format!("{}x", object())).is_empty());
        assert_eq!(append(&*store, &[3, 11]).unwrap(), [Seq(3), Seq(11)]);
    });
}

#[test]
fn several_objects_are_read_with_the_selected_items() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        append(&*store, &[1, 2]).unwrap();
        let whole = store.object(&object()).unwrap().unwrap();
        let unknown = Uri::parse("http://localhost/unknown").unwrap();
        let read = |items: ItemSelection| {
            let selected = [(object(), items), (unknown.clone(), ItemSelection::All)].into_iter().collect();
            store.objects(&selected).unwrap()
        };
        let all = read(ItemSelection::All);
        assert_eq!((all.len(), &all[&object()]), (1, &whole), "an unknown object is absent");
        assert!(!whole.items.is_empty());
        let first = whole.items.keys().next().unwrap().clone();
        let some = read(ItemSelection::these([first.clone(), unknown.clone()])).remove(&object()).unwrap();
        assert_eq!(some.items.keys().collect::<Vec<_>>(), [&first]);
        assert_eq!((&some.types, some.items.get(&first)), (&whole.types, whole.items.get(&first)));
        assert!(read(ItemSelection::these([]))[&object()].items.is_empty());
        assert!(store.objects(&HashMap::default()).unwrap().is_empty());
    });
}
