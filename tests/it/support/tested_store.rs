//! The stores that must keep the promises of `Store`, and what their tests share.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use tidings::{
    journal::{
        acceptance::ObjectNews,
        harvest::{HarvestRun, RunCounts, RunId, RunState},
        store::{
            EventIdentity, EventKey, ItemSelection, NewChange, ObjectUpdate, PrefetchKeys, PrefetchedObject,
            PrefetchedRows, Store, StoreError, StoreLimits, WriteBatch, event_key,
            postgres::PostgresOptions,
            sqlite::{self, SqliteOptions, SqliteStore},
        },
    },
    model::{Change, ChangeId, Seq, SourceName, Timestamp, Uri},
};

use super::{journal_fixture::copy_files, postgres};

/// Opens the store of a folder.
pub(crate) type Open = fn(&Path, StoreLimits) -> Arc<dyn Store>;

/// Returns a run of a harvest that has just begun.
pub(crate) fn new_harvest_run(source: &SourceName) -> HarvestRun {
    HarvestRun {
        id: RunId::mint(),
        source: source.clone(),
        started: Timestamp::EPOCH,
        updated: Timestamp::EPOCH,
        state: RunState::Running,
        reason: None,
        counts: RunCounts::default(),
    }
}

/// A store that must keep the promises.
pub(crate) struct TestedStore {
    pub(crate) name: &'static str,
    pub(crate) open: Open,
    /// Copies the storage of an open store to another folder, as a crash would leave it.
    pub(crate) copy_as_after_crash: fn(&Path, &Path),
    /// Returns the number of stored event keys.
    pub(crate) count_keys: fn(&Path) -> i64,
    /// Returns the only value of a query.
    pub(crate) query: fn(&Path, &str) -> String,
    /// Returns the errors that the store's verification finds.
    pub(crate) verify: fn(&Path) -> Vec<String>,
}

/// Every store; a new store needs an entry here.
pub(crate) const STORES: [TestedStore; 2] = [
    TestedStore {
        name: "sqlite",
        open: open_sqlite,
        copy_as_after_crash: copy_sqlite_as_after_crash,
        count_keys: count_sqlite_keys,
        query: query_sqlite,
        verify: verify_sqlite,
    },
    TestedStore {
        name: "postgres",
        open: open_postgres,
        copy_as_after_crash: postgres::copy_as_after_crash,
        count_keys: |folder| postgres::query(folder, "SELECT count(*) FROM event_keys").parse().unwrap(),
        query: postgres::query,
        verify: postgres::findings,
    },
];

/// Runs of keys are short, so that short tests have many runs.
fn open_sqlite(folder: &Path, limits: StoreLimits) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder, SqliteOptions { limits, run_keys: 5, ..SqliteOptions::default() }).unwrap())
}

/// Maintenance is due after few keys, so that short tests have it often.
fn open_postgres(folder: &Path, limits: StoreLimits) -> Arc<dyn Store> {
    let options = PostgresOptions { limits, trim_keys: 5, ..postgres::options() };
    Arc::new(postgres::open(folder, options))
}

fn count_sqlite_keys(folder: &Path) -> i64 {
    let journal = rusqlite::Connection::open(folder.join(sqlite::FILE_NAME)).unwrap();
    journal.query_row("SELECT sum(keys) FROM key_runs", [], |row| row.get(0)).unwrap()
}

fn query_sqlite(folder: &Path, sql: &str) -> String {
    let journal = rusqlite::Connection::open(folder.join(sqlite::FILE_NAME)).unwrap();
    journal.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn verify_sqlite(folder: &Path) -> Vec<String> {
    sqlite::verify::verify(&folder.join(sqlite::FILE_NAME), &mut |_, _| {}).unwrap().findings
}

pub(crate) fn every_store(test: impl Fn(&Path, Open)) {
    every_tested_store(|folder, store| test(folder, store.open));
}

pub(crate) fn every_tested_store(test: impl Fn(&Path, &TestedStore)) {
    for store in STORES {
        let folder = tempfile::Builder::new().prefix(store.name).tempdir().unwrap();
        test(folder.path(), &store);
    }
}

pub(crate) fn key(number: u64) -> EventKey {
    let id = number.to_string();
    event_key(&SourceName::parse("s").unwrap(), EventIdentity::Id(&id), 0)
}

pub(crate) fn object() -> Uri {
    Uri::parse("http://localhost:8080/fedora/objects/demo:1").unwrap()
}

/// Returns a change with that number, made by the event with that number.
pub(crate) fn change(seq: Seq, event: u64) -> NewChange {
    let mut change: Change = serde_json::from_str(include_str!("../../../fixtures/change.json")).unwrap();
    change.seq = seq;
    change.modification.id = ChangeId::mint();
    let json = Bytes::from(serde_json::to_vec(&change).unwrap());
    NewChange { change, json, visibility: None, key: Some(key(event)), incomplete: None }
}

/// Returns an object whose rows are all written.
pub(crate) fn fully_written(PrefetchedObject { state, .. }: PrefetchedObject) -> ObjectUpdate {
    let items = state.items.keys().cloned().collect();
    ObjectUpdate {
        uri: object(),
        object_changed: true,
        news: ObjectNews::Public,
        state,
        changed_items: items,
        item_count: None,
    }
}

/// Appends the changes of these events as the writer does: a duplicate makes no change, and the registry
/// absorbs every change.
pub(crate) fn append(store: &dyn Store, events: &[u64]) -> Result<Vec<Seq>, StoreError> {
    let questions = PrefetchKeys {
        keys: events.iter().copied().map(key).collect(),
        objects: [(object(), ItemSelection::All)].into_iter().collect(),
        ..PrefetchKeys::default()
    };
    let mut transaction = store.begin()?;
    let (decision, numbers) = decide(events, &transaction.prefetch(&questions)?);
    transaction.write(&decision)?;
    transaction.commit()?;
    Ok(numbers)
}

/// Writes a decision in a separate transaction.
pub(crate) fn write(store: &dyn Store, decision: &WriteBatch) -> Result<(), StoreError> {
    let mut transaction = store.begin()?;
    transaction.write(decision)?;
    Ok(transaction.commit()?)
}

/// Reads in a transaction without writes.
pub(crate) fn prefetch(store: &dyn Store, questions: &PrefetchKeys) -> PrefetchedRows {
    store.begin().unwrap().prefetch(questions).unwrap()
}

fn decide(events: &[u64], prefetched: &PrefetchedRows) -> (WriteBatch, Vec<Seq>) {
    let mut object = prefetched.objects.get(&object()).cloned().unwrap_or_default();
    let (mut changes, mut numbers, mut head) = (Vec::new(), Vec::new(), prefetched.head);
    for event in events {
        if let Some((first, _)) = prefetched.first_changes.get(&key(*event)) {
            numbers.push(*first);
            continue;
        }
        head = head.next();
        numbers.push(head);
        let new = change(head, *event);
        object.state.apply_change(&new.change);
        changes.push(new);
    }
    (WriteBatch { changes, objects: [fully_written(object)].into(), ..empty_batch() }, numbers)
}

/// Returns a decision without writes.
pub(crate) fn empty_batch() -> WriteBatch {
    WriteBatch::nothing(Timestamp::EPOCH)
}

/// Returns those events that are known to have made no change.
pub(crate) fn known_unchanged(store: &dyn Store, events: &[u64]) -> Vec<u64> {
    let questions = PrefetchKeys { unchanged: events.iter().copied().map(key).collect(), ..PrefetchKeys::default() };
    let prefetched = prefetch(store, &questions);
    events.iter().copied().filter(|event| prefetched.unchanged.contains(&key(*event))).collect()
}

/// Returns the numbers of all retained changes after `after`.
pub(crate) fn seqs(store: &dyn Store, after: u64) -> Vec<u64> {
    let newest_first = store.before(Seq(u64::MAX), 10_000, usize::MAX).unwrap();
    newest_first.iter().rev().map(|change| change.seq.0).filter(|seq| *seq > after).collect()
}

/// Copies the files except the index of the write-ahead log, which is shared memory and does not survive a crash.
fn copy_sqlite_as_after_crash(from: &Path, to: &Path) {
    let files = std::fs::read_dir(from).unwrap().map(|file| file.unwrap().path());
    copy_files(files.filter(|file| !file.to_string_lossy().ends_with("-shm")), to);
}
