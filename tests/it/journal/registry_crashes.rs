//! Every batch writes the registry together with its changes. After a crash at any moment the registry
//! therefore matches the newest change exactly: facts, clocks and confirmations.

use std::{cell::Cell, fs, path::Path, sync::Arc};

use proptest::{prelude::*, test_runner::TestRunner};
use rusqlite::Connection;
use serde_json::json;
use tidings::{
    journal::{
        DuplicatePolicy, Journal, JournalSettings, RegistryPosition, Submission,
        registry::ObjectState,
        settle::SourcePolicy,
        store::{
            Store,
            sqlite::{SqliteOptions, SqliteStore},
        },
    },
    model::{Draft, SourceName, Timestamp, Uri},
};

use crate::{
    journal::registry_order::{arrival_order, drafts, operation},
    support::{
        gateway::Gateway,
        journal_fixture::{copy_files, journal_file, verify_ok},
        run_length::lengthened,
    },
};

/// Copies the files of an open journal, as a crash would leave them.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    copy_files(["journal.sqlite", "journal.sqlite-wal"].map(|name| from.join(name)), to);
}

/// Returns the number of objects with rows.
fn rows(folder: &Path) -> u64 {
    let connection = Connection::open(journal_file(folder)).unwrap();
    connection.query_row("SELECT count(*) FROM objects", [], |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
}

fn policy() -> Arc<SourcePolicy> {
    Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false })
}

pub(crate) async fn append(journal: &Journal, drafts: impl Iterator<Item = Draft>) {
    // Without keys, a repeated event is settled again and confirms known facts.
    let drafts = drafts.map(|draft| (None, draft)).collect();
    journal
        .append(Submission {
            policy: policy(),
            drafts,
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: None,
        })
        .await
        .unwrap();
}

pub(crate) fn registry(store: &dyn Store) -> Vec<(Uri, ObjectState)> {
    store.registry(&RegistryPosition::Beginning, 1000).unwrap()
}

/// Copies and opens the files after each message and compares the registry; sometimes continues with the copy.
#[test]
fn registry_survives_a_crash_after_any_message() {
    const OBJECTS: usize = 5;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config =
        ProptestConfig { cases: lengthened(40), max_shrink_iters: 50, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let cases = (
        prop::collection::vec(prop::collection::vec(operation(), 1..12), OBJECTS),
        prop::collection::vec(any::<u64>(), 48),
    );
    let confirmed = Cell::new(0);
    runner
        .run(&cases, |(operations, keys)| {
            let object = |number| Uri::parse(&format!("http://h/objects/{number}")).unwrap();
            let events: Vec<_> = operations
                .iter()
                .enumerate()
                .flat_map(|(number, operations)| drafts(&object(number), operations))
                .collect();
            let arriving: Vec<_> = arrival_order(events.len(), &keys);
            let folder = tempfile::tempdir().unwrap();
            let mut data = folder.path().join("0");
            let open = |data: &Path| SqliteStore::open(data, SqliteOptions::default()).unwrap();
            let mut running = Journal::start(open(&data), JournalSettings::default()).unwrap();
            for (part, arriving) in arriving.chunks(3).enumerate() {
                runtime.block_on(append(&running.0, arriving.iter().map(|event| events[*event].clone())));
                let there = runtime.block_on(running.0.registry(None, 1000)).unwrap();
                let next = folder.path().join((part + 1).to_string());
                copy(&data, &next);
                prop_assert_eq!(rows(&next), there.len() as u64);
                let store = open(&next);
                prop_assert_eq!(&registry(&store), &there, "after message {}", part);
                let states: Vec<_> = there.iter().map(|(_, state)| state.clone().without_confirmations()).collect();
                confirmed.set(
                    confirmed.get() + u32::from(there.iter().zip(&states).any(|((_, state), states)| state != states)),
                );
                verify_ok(&journal_file(&next));
                if keys[part % keys.len()] % 3 == 0 {
                    data = next;
                    running = Journal::start(store, JournalSettings::default()).unwrap();
                }
            }
            let there = runtime.block_on(running.0.registry(None, 1000)).unwrap();
            drop(running.0);
            running.1.join();
            prop_assert_eq!(&registry(&open(&data)), &there);
            Ok(())
        })
        .unwrap();
    assert!(confirmed.get() > 20, "{} times anything was confirmed", confirmed.get());
}

/// A reader that knows of a change finds its effect in the registry. The change is the last one of a large
/// batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_readers_see_every_acknowledged_change() {
    const AT_ONCE: u64 = 200;
    const BATCHES: u64 = 60;
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    let (journal, writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let draft = |number: u64| {
        let object = format!("http://h/objects/{}", number % AT_ONCE);
        let item = json!({ "uri": &object, "change": "UPDATE", "content": { "url": format!("http://h/{number}") } });
        let time = Timestamp::from_millis(1_700_000_000_000 + i64::try_from(number).unwrap());
        serde_json::from_value::<Draft>(json!({ "object": &object, "time": time, "items": [item] })).unwrap()
    };
    let reading = {
        let journal = journal.clone();
        let object = Uri::parse("http://h/objects/0").unwrap();
        tokio::spawn(async move {
            for reads in 0_u64.. {
                let head = journal.stored_head().await.unwrap().0;
                let state = if reads.is_multiple_of(2) {
                    journal.object(object.clone()).await.unwrap()
                } else {
                    journal.registry(None, 1).await.unwrap().pop().map(|(_, state)| state)
                };
                let content = state.and_then(|state| Some(state.content(&object)?.parse().unwrap().url.to_string()));
                let found = content.map_or(0, |url| url.rsplit('/').next().unwrap().parse::<u64>().unwrap());
                assert!(found >= head, "the registry is as of {found} when {head} can be read");
                if head == BATCHES * AT_ONCE {
                    return reads;
                }
            }
            0
        })
    };
    for batch in 0..BATCHES {
        append(&journal, (1..=AT_ONCE).map(|number| draft(batch * AT_ONCE + number))).await;
    }
    assert!(reading.await.unwrap() > 100);
    drop(journal);
    writer.join();
    assert_eq!(rows(folder.path()), AT_ONCE);
}

/// Number of changes before the first kill.
const MANY: u64 = 3_000;

fn event(number: u64) -> serde_json::Value {
    let object = format!("http://localhost/objects/{number}");
    json!({ "object": object, "items": [{ "uri": format!("{object}/item"), "change": "ADD" }] })
}

async fn post(gateway: &Gateway, number: u64) {
    let (status, answer) = gateway.post("content-change", "application/json", event(number).to_string()).await;
    assert_eq!((status, answer["changes"][0]["seq"].as_u64()), (201, Some(number)), "{answer}");
}

#[tokio::test]
async fn registry_survives_kill_9() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let store = SqliteStore::open(&data, SqliteOptions::default()).unwrap();
    let (journal, writer) = Journal::start(store, JournalSettings::default()).unwrap();
    for from in (1..MANY).step_by(1500) {
        append(&journal, (from..from + 1500).map(|number| serde_json::from_value(event(number)).unwrap())).await;
    }
    drop(journal);
    writer.join();
    let mut last = MANY;
    for posts in [1, 2, 30, 5] {
        let mut gateway = Gateway::start(&data);
        for _ in 0..posts {
            last += 1;
            post(&gateway, last).await;
        }
        gateway.kill();
        assert_eq!(rows(&data), last);
        let report = verify_ok(&journal_file(&data));
        assert_eq!((report.objects, report.changes, report.complete), (last, last, true));
    }
    let gateway = Gateway::start(&data);
    let (mut after, mut objects) = (String::new(), 0);
    loop {
        let page = gateway.json(&format!("/snapshot?limit=1000{after}")).await;
        objects += page["objects"].as_array().unwrap().len() as u64;
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(objects, last);
    assert!(gateway.stop().success());
}
