//! Batches that fail because the disk is full: each event still makes one change, and the state before each
//! change is the state after the previous one.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tidings::{
    journal::{
        DraftOutcome, DuplicatePolicy, Journal, JournalSettings, Submission, TailBounds,
        settle::SourcePolicy,
        store::{
            EventIdentity, event_key,
            sqlite::{SqliteOptions, SqliteStore},
        },
    },
    model::{ChangeId, Draft, ItemChange, Seq, SourceName, State},
};

use crate::support::{
    journal_fixture::{journal_file, verify_ok},
    small_disk::SmallDisk,
};

const SENDERS: u64 = 6;
const EVENTS_AT_ONCE: u64 = 150;
const ITEMS: u64 = 90;

/// Returns the event with that number: one of few items gets one of two states.
fn draft(number: u64) -> Draft {
    let object = format!("http://localhost/objects/{}", number % (ITEMS / 3));
    let item = format!("{object}/items/{}", number % ITEMS);
    let state = if number * 2_654_435_761 % 7 < 3 { "ACTIVE" } else { "INACTIVE" };
    serde_json::from_value(
        serde_json::json!({ "object": object, "items": [{ "uri": item, "stateAfter": state }], "description": "x".repeat(300) }),
    )
    .unwrap()
}

fn submission(from: u64) -> Submission {
    let name = SourceName::parse("s").unwrap();
    let key = |number: u64| event_key(&name, EventIdentity::Id(&number.to_string()), 0);
    let drafts = (from..from + EVENTS_AT_ONCE).map(|number| (Some(key(number)), draft(number))).collect();
    let policy = Arc::new(SourcePolicy { name: name.clone(), metadata_changes: false });
    Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberAll, completes: None }
}

/// Outcomes of each event, for its first submission and every repeat.
type Outcomes = Arc<Mutex<BTreeMap<u64, Vec<DraftOutcome>>>>;

/// Submits these events from several senders, each event twice. Returns the number of failures, and counts them
/// in `failed` meanwhile.
async fn send(journal: &Journal, first: u64, batches: u64, outcomes: &Outcomes, failed: &Arc<AtomicU64>) -> u64 {
    let (next, before) = (Arc::new(AtomicU64::new(0)), failed.load(Ordering::Relaxed));
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let (journal, outcomes) = (journal.clone(), Arc::clone(outcomes));
            let (next, failed) = (Arc::clone(&next), Arc::clone(failed));
            tokio::spawn(async move {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= 2 * batches {
                        break;
                    }
                    let from = first + turn / 2 * EVENTS_AT_ONCE;
                    let Ok(told) = journal.append(submission(from)).await else {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let mut outcomes = outcomes.lock().unwrap();
                    (from..).zip(told).for_each(|(event, outcome)| outcomes.entry(event).or_default().push(outcome));
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    failed.load(Ordering::Relaxed) - before
}

/// Repeatedly fills the disk until a batch has failed, and makes room until one has succeeded.
fn fill_repeatedly(disk: &SmallDisk, failed: &AtomicU64, outcomes: &Outcomes, is_over: &AtomicBool) {
    let is_over = || is_over.load(Ordering::Acquire);
    while !is_over() {
        let (failures, done) = (failed.load(Ordering::Relaxed), outcomes.lock().unwrap().len());
        let filling = disk.fill();
        while failed.load(Ordering::Relaxed) == failures && !is_over() {
            std::thread::yield_now();
        }
        std::fs::remove_file(filling).unwrap();
        while outcomes.lock().unwrap().len() == done && !is_over() {
            std::thread::yield_now();
        }
    }
}

/// Panics unless each event made at most one change and each change follows from the previous one.
async fn assert_correct(journal: &Journal, folder: &Path, outcomes: &Outcomes) {
    let mut changes: BTreeMap<Seq, ChangeId> = BTreeMap::new();
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    let mut after = Seq::ZERO;
    loop {
        let page = journal.after(after, 500).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq();
        for recorded in page {
            let change = recorded.change().unwrap();
            changes.insert(change.seq, change.modification.id);
            for item in &change.modification.items {
                let ItemChange::State { before, after } = &item.change else { panic!("{:?}", item.change) };
                let previous = states.insert(item.uri.to_string(), after.clone());
                assert_eq!(*before, previous, "change {}", change.seq);
                assert_ne!(before.as_ref(), Some(after), "change {}", change.seq);
            }
        }
    }
    let mut accepted = 0;
    for (event, outcomes) in outcomes.lock().unwrap().iter() {
        let made: Vec<_> = outcomes.iter().filter(|outcome| matches!(outcome, DraftOutcome::Accepted { .. })).collect();
        assert!(made.len() <= 1, "event {event}: {outcomes:?}");
        accepted += made.len();
        for outcome in outcomes {
            match outcome {
                DraftOutcome::Accepted { seq, id } | DraftOutcome::Duplicate { seq, id: Some(id) } => {
                    assert_eq!(changes.get(seq), Some(id), "event {event}: {outcomes:?}");
                }
                DraftOutcome::Unchanged => assert!(made.is_empty(), "event {event}: {outcomes:?}"),
                DraftOutcome::Duplicate { .. }
                | DraftOutcome::TooManyItems
                | DraftOutcome::Refused
                | DraftOutcome::OtherObject { .. } => {
                    panic!("event {event}: {outcomes:?}")
                }
            }
        }
    }
    assert!(accepted <= changes.len() && changes.len() > 1000, "{accepted} of {}", changes.len());
    assert_eq!(verify_ok(&journal_file(folder)).changes, changes.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_batches_from_many_senders_settle_correctly() {
    let disk = SmallDisk::of(48);
    let data = disk.path().join("data");
    let options = SqliteOptions { run_keys: 500, ..SqliteOptions::default() };
    let (journal, writer) = Journal::start(
        SqliteStore::open(&data, options).unwrap(),
        JournalSettings { tail: TailBounds { changes: 100, ..TailBounds::default() }, ..JournalSettings::default() },
    )
    .unwrap();
    let (outcomes, failed) = (Outcomes::default(), Arc::new(AtomicU64::new(0)));
    assert_eq!(send(&journal, 0, 16, &outcomes, &failed).await, 0);
    assert_correct(&journal, &data, &outcomes).await;

    let disk = Arc::new(disk);
    let is_over = Arc::new(AtomicBool::new(false));
    let filling = {
        let (disk, failed, outcomes) = (Arc::clone(&disk), Arc::clone(&failed), Arc::clone(&outcomes));
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || fill_repeatedly(&disk, &failed, &outcomes, &is_over))
    };
    let first = 16 * EVENTS_AT_ONCE;
    assert!(send(&journal, first, 40, &outcomes, &failed).await > 0);
    is_over.store(true, Ordering::Release);
    filling.join().unwrap();
    assert_correct(&journal, &data, &outcomes).await;
    // All failed events are sent again, and some of the others.
    assert_eq!(send(&journal, first, 40, &outcomes, &failed).await, 0);
    assert_correct(&journal, &data, &outcomes).await;
    drop(journal);
    writer.join();
    verify_ok(&journal_file(&data));
}
