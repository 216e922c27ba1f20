//! Appending to the journal with settling, registry and event keys, compared with bare inserts of the same rows of
//! changes into a database with the same settings.

use std::{
    cell::Cell,
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::measure::{Contender, compare};
use tidings::{
    journal::{
        DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission,
        settle::SourcePolicy,
        store::{EventIdentity, EventKey, event_key, sqlite},
    },
    model::{
        ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, EventId, ItemChange, MediaType,
        NonEmpty, Reading, SourceName, State, Text, Timestamp, Uri, User,
    },
};

/// Number of rows in a transaction of the bare inserts.
const BATCH: usize = 512;

/// Number of concurrent senders. With [`DRAFTS_IN_FLIGHT`] each, they have about as many drafts in flight as the
/// default prefetch of a queue.
pub(crate) const SENDERS: usize = 16;
/// Number of drafts that each sender has in flight.
const DRAFTS_IN_FLIGHT: usize = 64;

/// Number of concurrent senders that keeps the queue of the journal filled, as the bare inserts have their rows at
/// hand.
pub(crate) const MANY_SENDERS: usize = 64;

/// Number of objects of the changes.
pub(crate) const MANY: u64 = 100_000;

/// Number of concurrent senders with one draft in flight each.
const SINGLE: usize = 256;
/// Number of changes in a round.
const ROUND: usize = 100_000;

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn appends() {
    let runtime = &runtime();
    let folder = tempfile::tempdir().unwrap();
    // Each contender has its own journal, because it would otherwise flush data of another one.
    let opened = ["journal", "fewer", "singly"].map(|name| open(&folder.path().join(name)));
    let [(journal, _), (fewer, _), (singly, _)] = &opened;
    let next = Cell::new(0);
    let drafts = |next: &Cell<u64>| {
        let from = next.replace(next.get() + ROUND as u64);
        (from..next.get()).map(draft).collect::<Vec<_>>()
    };
    // The bare inserts write the same rows as the journal.
    append_batches(runtime, journal, drafts(&next), MANY_SENDERS);
    append_batches(runtime, fewer, drafts(&next), SENDERS);
    append(runtime, singly, drafts(&next));
    let rows = rows(&folder.path().join("journal"));
    let bare = bare_file(&folder.path().join("bare.sqlite"));
    let mut bare_seq = 0;
    compare(
        "appending",
        "changes",
        5,
        vec![
            Contender::timed("bare inserts of the rows of changes", || {
                let began = Instant::now();
                for batch in rows.chunks(BATCH) {
                    bare.execute_batch("BEGIN IMMEDIATE").unwrap();
                    let mut insert = bare.prepare_cached(INSERT).unwrap();
                    for Row { id, received, checksum, json, key } in batch {
                        bare_seq += 1;
                        // A unique identifier in every round, ordered by time like the first one.
                        let mut id = *id;
                        id[8..].copy_from_slice(&(bare_seq as u64).to_be_bytes());
                        insert.execute((bare_seq, id, received, checksum, json, key)).unwrap();
                    }
                    bare.execute_batch("COMMIT").unwrap();
                }
                (rows.len() as u64, began.elapsed())
            }),
            Contender::timed("the journal: settling, registry, event keys and all", || {
                append_batches(runtime, journal, drafts(&next), MANY_SENDERS)
            }),
            Contender::timed("the journal, with 16 senders instead of 64", || {
                append_batches(runtime, fewer, drafts(&next), SENDERS)
            }),
            Contender::timed("the journal, with 256 senders of one draft each", || {
                append(runtime, singly, drafts(&next))
            }),
        ],
    );
    opened.into_iter().for_each(|(journal, writer)| close(journal, writer));
}

pub(crate) fn open(folder: &Path) -> (Journal, JournalThreads) {
    let store = sqlite::SqliteStore::open(folder, sqlite::SqliteOptions::default()).unwrap();
    Journal::start(store, JournalSettings::default()).unwrap()
}

pub(crate) fn close(journal: Journal, writer: JournalThreads) {
    drop(journal);
    writer.join();
}

/// Returns the drafts with their event keys, as the intake submits them.
fn keyed(source: &SourceName, drafts: Vec<Draft>) -> Vec<(Option<EventKey>, Draft)> {
    let key = |draft: &Draft| event_key(source, EventIdentity::Id(draft.event_id.as_ref().unwrap().as_str()), 0);
    drafts.into_iter().map(|draft| (Some(key(&draft)), draft)).collect()
}

fn policy() -> Arc<SourcePolicy> {
    Arc::new(SourcePolicy { name: SourceName::parse("fedora3").unwrap(), metadata_changes: false })
}

/// Appends the drafts from `senders` concurrent senders, which submit batches and wait for each result.
pub(crate) fn append_batches(
    runtime: &tokio::runtime::Runtime,
    journal: &Journal,
    drafts: Vec<Draft>,
    senders: usize,
) -> (u64, Duration) {
    let policy = policy();
    let units = drafts.len() as u64;
    let mut keyed = keyed(&policy.name, drafts).into_iter();
    let batches: VecDeque<Vec<_>> =
        (0..units.div_ceil(DRAFTS_IN_FLIGHT as u64)).map(|_| keyed.by_ref().take(DRAFTS_IN_FLIGHT).collect()).collect();
    let batches = Arc::new(Mutex::new(batches));
    let began = Instant::now();
    runtime.block_on(async {
        let senders: Vec<_> = (0..senders)
            .map(|_| {
                let (journal, policy, batches) = (journal.clone(), Arc::clone(&policy), Arc::clone(&batches));
                tokio::spawn(async move {
                    loop {
                        let Some(drafts) = batches.lock().unwrap().pop_front() else { break };
                        journal
                            .append(Submission {
                                policy: Arc::clone(&policy),
                                drafts,
                                duplicate_policy: DuplicatePolicy::RememberChanges,
                                completes: None,
                            })
                            .await
                            .unwrap();
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
    });
    (units, began.elapsed())
}

/// Many senders, each with one draft on its way at a time.
pub(crate) fn append(runtime: &tokio::runtime::Runtime, journal: &Journal, drafts: Vec<Draft>) -> (u64, Duration) {
    let policy = policy();
    let units = drafts.len() as u64;
    let keyed = keyed(&policy.name, drafts);
    let share = keyed.len().div_ceil(SINGLE);
    let mut keyed = keyed.into_iter();
    let shares: Vec<Vec<_>> = (0..SINGLE).map(|_| keyed.by_ref().take(share).collect()).collect();
    let began = Instant::now();
    runtime.block_on(async {
        let senders: Vec<_> = shares
            .into_iter()
            .map(|share| {
                let (journal, policy) = (journal.clone(), Arc::clone(&policy));
                tokio::spawn(async move {
                    for keyed in share {
                        let submission = Submission {
                            policy: Arc::clone(&policy),
                            drafts: vec![keyed],
                            duplicate_policy: DuplicatePolicy::RememberChanges,
                            completes: None,
                        };
                        journal.append(submission).await.unwrap();
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
    });
    (units, began.elapsed())
}

/// Returns draft `number`: the modification of a datastream by a Fedora 3, about 1 kB.
pub(crate) fn draft(number: u64) -> Draft {
    draft_of(number, MANY)
}

/// Returns draft `number`, about one of `objects` objects.
pub(crate) fn draft_of(number: u64, objects: u64) -> Draft {
    let object = format!("http://repository.example.org:8080/fedora/objects/demo:{}", number % objects);
    let item = format!("{object}/datastreams/MD_DESCRIPTIVE/content");
    let content = ContentLocation {
        media_type: MediaType::parse("text/xml").ok(),
        ..ContentLocation::at(Uri::parse(&format!("{item}?asOfDateTime=2026-03-01T10:00:05.125Z")).unwrap())
    };
    let change = ItemChange::Update { content: Some(content), before: Some(State::ACTIVE), after: None };
    Draft {
        id: None,
        event_id: EventId::parse(&format!("urn:uuid:00000000-0000-4000-8000-{number:012x}")),
        software_version: Some(Text::new("3.8.1")),
        user: User::new("fedoraAdmin", None),
        time: Timestamp::from_millis(1_700_000_000_000 + i64::try_from(number).unwrap()).into(),
        object: Uri::parse(&object).unwrap(),
        parent: None,
        types: Vec::new(),
        description: Text::new("modifyDatastreamByValue"),
        items: DraftItems::Listed(NonEmpty::one(DraftItem::new(
            Uri::parse(&item).unwrap(),
            DraftChange::Reported(change),
        ))),
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    }
}

/// Row of the table of changes, without its number.
struct Row {
    id: [u8; 16],
    received: i64,
    checksum: i64,
    json: String,
    key: [u8; 16],
}

const INSERT: &str = "INSERT INTO changes (seq, id, received, checksum, json, key) VALUES (?, ?, ?, ?, ?, ?)";

/// Returns the rows of changes that the journal in `folder` has written.
fn rows(folder: &Path) -> Vec<Row> {
    let journal = rusqlite::Connection::open(folder.join(sqlite::FILE_NAME)).unwrap();
    let mut rows = journal.prepare("SELECT id, received, checksum, json, key FROM changes").unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        let (id, received, checksum) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Row { id, received, checksum, json: row.get(3)?, key: row.get(4)? })
    };
    rows.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Creates a database with only the table of changes and its index, with the settings of the journal.
fn bare_file(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch(
            "PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL; PRAGMA cache_size = -16384;
             CREATE TABLE changes (seq INTEGER PRIMARY KEY, id BLOB NOT NULL, received INTEGER NOT NULL,
                                   checksum INTEGER NOT NULL, json TEXT NOT NULL, visibility TEXT, key BLOB);
             CREATE UNIQUE INDEX changes_by_id ON changes (id);",
        )
        .unwrap();
    connection
}
