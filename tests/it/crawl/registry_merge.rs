//! Crawl results enter the registry without a change. Newer events take precedence in any order of arrival.
//! Crawl results survive a crash. An event about a fact that only a crawl has reported makes a change, because
//! subscribers were not notified of it.

use std::{path::Path, sync::Arc};

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use tidings::{
    intake::{Intake, Source},
    journal::{
        DraftOutcome, DuplicatePolicy, Journal, JournalSettings, Submission,
        acceptance::ObjectNews,
        registry::ObjectState,
        seed::{CrawlPart, CrawlProgress, RegistryDelta},
        settle::SourcePolicy,
        store::{
            ObjectUpdate, Seed, Store, StoreLimits, WriteBatch,
            sqlite::{SqliteOptions, SqliteStore},
        },
    },
    model::{CrawledItem, CrawledObject, Draft, NonEmpty, SourceName, State, Timestamp, Uri},
};
use uuid::Uuid;

use crate::{
    journal::{
        registry_crashes::{append, copy, registry},
        registry_order::{arrival_order, drafts, operation, visible_items},
    },
    support::{
        journal_fixture::{OpenJournal, journal_file, verify_ok},
        run_length::lengthened,
        tested_store::{empty_batch, every_store, write},
    },
};

pub(crate) fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

pub(crate) fn time(second: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + 1000 * second).unwrap()
}

pub(crate) fn source() -> SourceName {
    SourceName::parse("s").unwrap()
}

fn progress(part: u64) -> CrawlProgress {
    let (started, updated) = (time(0), time(1));
    CrawlProgress {
        source: source(),
        id: Uuid::nil(),
        parts: part,
        position: "after x".into(),
        objects: part,
        started,
        updated,
        finished: false,
    }
}

/// Seeds the journal with crawl results; returns for how many objects they were new.
pub(crate) async fn seed(journal: &Journal, results: Vec<CrawledObject>) -> usize {
    let policy = Arc::new(SourcePolicy { name: source(), metadata_changes: false });
    let submission =
        Submission { policy, drafts: Vec::new(), duplicate_policy: DuplicatePolicy::RememberChanges, completes: None };
    journal.seed(CrawlPart { submission, crawled: results, progress: progress(1) }).await.unwrap().updated_objects
}

/// Returns the crawl result for an object and one item, as of that second.
pub(crate) fn crawl_result(object: &str, second: i64, state: &str) -> CrawledObject {
    let item = json!({ "uri": format!("{object}/DC"), "at": time(second), "state": state,
        "content": { "url": format!("{object}/DC?{second}") } });
    let itself = json!({ "uri": object, "at": time(second) });
    let json = json!({ "object": object, "at": time(second), "parent": "http://h/parent", "types": ["http://t/"],
        "items": [itself, item] });
    serde_json::from_value(json).unwrap()
}

/// Returns the result of a crawl at the time of this registry state.
fn crawl_result_of(object: &Uri, state: &ObjectState) -> Option<CrawledObject> {
    let item = |(uri, record): (&Uri, &tidings::journal::registry::ItemRecord)| CrawledItem {
        uri: uri.clone(),
        // Date of the content; an event about the state may be newer.
        at: record.content.clock.latest().max(record.existence.clock.at).unwrap(),
        content: state.content(uri).map(|content| content.parse().unwrap()),
        state: state.state(uri).cloned(),
    };
    let items = NonEmpty::try_from(state.live_items().map(item).collect::<Vec<_>>()).ok()?;
    Some(CrawledObject { object: object.clone(), at: time(0), parent: None, types: Vec::new(), items })
}

/// For random histories of an object: a crawl takes place at some time, and its result arrives before, between
/// or after the events, which arrive in any order. The registry ends as without the crawl.
#[test]
fn crawl_result_at_any_time_among_events_gives_the_same_registry() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let config = ProptestConfig { cases: lengthened(60), failure_persistence: None, ..ProptestConfig::default() };
    let cases = (
        prop::collection::vec(operation(), 1..20),
        prop::collection::vec(any::<u64>(), 48),
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
    );
    let number = std::cell::Cell::new(0);
    TestRunner::new(config)
        .run(&cases, |(operations, keys, moment, turn)| {
            number.set(number.get() + 1);
            let object = |name: &str| uri(&format!("http://h/{name}/{}", number.get()));
            let (whole, partly, seeded) = (object("whole"), object("partly"), object("seeded"));
            let events = drafts(&whole, &operations);
            prop_assume!(!events.is_empty());
            let state =
                |object: &Uri| runtime.block_on(opened.journal.object(object.clone())).unwrap().unwrap_or_default();
            let send = |drafts: Vec<Draft>| runtime.block_on(append(&opened.journal, drafts.into_iter()));
            send(events.clone());
            let walked = moment.index(events.len()) + 1;
            send(drafts(&partly, &operations).into_iter().take(walked).collect());
            let crawl_result = crawl_result_of(&partly, &state(&partly)).map(|crawl_result| {
                serde_json::from_str::<CrawledObject>(
                    &serde_json::to_string(&crawl_result).unwrap().replace("/partly/", "/seeded/"),
                )
                .unwrap()
            });
            let events = drafts(&seeded, &operations);
            let mut arriving: Vec<_> =
                arrival_order(events.len(), &keys).into_iter().map(|event| vec![events[event].clone()]).collect();
            let turn = turn.index(arriving.len() + 1);
            let rest = arriving.split_off(turn);
            arriving.into_iter().for_each(&send);
            if let Some(crawl_result) = crawl_result {
                runtime.block_on(seed(&opened.journal, vec![crawl_result]));
            }
            rest.into_iter().for_each(&send);
            let visible_facts = |object: &Uri, name: &str| {
                let items = visible_items(&state(object));
                let details = |(uri, facts): (Uri, _)| format!("{uri} {facts:?}").replace(name, "/x/");
                items.into_iter().map(details).collect::<Vec<_>>()
            };
            prop_assert_eq!(visible_facts(&seeded, "/seeded/"), visible_facts(&whole, "/whole/"));
            Ok(())
        })
        .unwrap();
    opened.close();
    verify_ok(&journal_file(folder.path()));
}

/// Copies and opens the files after each message, as after a crash, and compares the registry.
#[test]
fn crawl_result_survives_a_crash_after_any_message() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config =
        ProptestConfig { cases: lengthened(30), max_shrink_iters: 50, failure_persistence: None, ..Default::default() };
    let cases =
        (prop::collection::vec(prop::collection::vec(operation(), 1..10), 4), prop::collection::vec(any::<u64>(), 48));
    let seeds = std::cell::Cell::new(0);
    TestRunner::new(config)
        .run(&cases, |(operations, keys)| {
            let object = |number| uri(&format!("http://h/objects/{number}"));
            let events: Vec<_> = operations
                .iter()
                .enumerate()
                .flat_map(|(number, operations)| drafts(&object(number), operations))
                .collect();
            let folder = tempfile::tempdir().unwrap();
            let mut data = folder.path().join("0");
            let open = |data: &Path| SqliteStore::open(data, SqliteOptions::default()).unwrap();
            let mut running = Journal::start(open(&data), JournalSettings::default()).unwrap();
            for (part, arriving) in arrival_order(events.len(), &keys).chunks(3).enumerate() {
                runtime.block_on(append(&running.0, arriving.iter().map(|event| events[*event].clone())));
                let key = keys[part % keys.len()];
                let item = |at| format!("http://h/objects/{at}/datastreams/D{}/content", key % 4);
                let results = [key % 4, key % 7].map(|at| {
                    let mut crawl_result =
                        crawl_result(&format!("http://h/objects/{at}"), (key % 13) as i64 - 2, "INACTIVE");
                    let mut items = crawl_result.items.into_vec();
                    items[1].uri = uri(&item(at));
                    crawl_result.items = NonEmpty::try_from(items).unwrap();
                    crawl_result
                });
                seeds.set(seeds.get() + runtime.block_on(seed(&running.0, results.into())));
                let there = runtime.block_on(running.0.registry(None, 1000)).unwrap();
                let next = folder.path().join((part + 1).to_string());
                copy(&data, &next);
                let store = open(&next);
                prop_assert_eq!(&registry(&store), &there, "after message {}", part);
                verify_ok(&journal_file(&next));
                if key % 3 == 0 {
                    data = next;
                    running = Journal::start(store, JournalSettings::default()).unwrap();
                }
            }
            let there = runtime.block_on(running.0.registry(None, 1000)).unwrap();
            drop(running.0);
            running.1.join();
            prop_assert_eq!(&registry(&open(&data)), &there);
            verify_ok(&journal_file(&data));
            Ok(())
        })
        .unwrap();
    assert!(seeds.get() > 100, "{} times anything was news", seeds.get());
}

#[tokio::test]
async fn crawl_result_that_is_already_known_counts_as_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let object = "http://h/1";
    assert_eq!(seed(&opened.journal, vec![crawl_result(object, 5, "ACTIVE")]).await, 1);
    assert_eq!(
        seed(&opened.journal, vec![crawl_result(object, 5, "ACTIVE"), crawl_result(object, 4, "INACTIVE")]).await,
        0
    );
    let state = opened.journal.object(uri(object)).await.unwrap().unwrap();
    let item = uri("http://h/1/DC");
    assert_eq!(state.state(&item), Some(&State::ACTIVE));
    assert_eq!(state.content(&item).unwrap().parse().unwrap().url.as_str(), "http://h/1/DC?5");
    assert_eq!((state.parent().unwrap().as_str(), state.types().len()), ("http://h/parent", 1));
    assert_eq!(opened.journal.head().0, 0, "a change was made of it");
    let progress = opened.journal.crawl_progress(source()).await.unwrap().unwrap();
    assert_eq!((progress.parts, &*progress.position), (1, "after x"));
    assert_eq!(opened.journal.crawl_progress(SourceName::parse("other").unwrap()).await.unwrap(), None);
    opened.close();
}

/// Fedora 3 preserves the dates of an export when it is ingested again.
#[tokio::test]
async fn crawl_finds_an_object_ingested_again_with_older_dates() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let object = "http://h/1";
    let event = |second: i64, items: Value| -> Draft {
        serde_json::from_value(json!({ "object": object, "time": time(second), "items": items })).unwrap()
    };
    let purge =
        serde_json::from_value(json!({ "object": object, "time": time(5), "items": [], "purge": true })).unwrap();
    append(&opened.journal, [event(1, json!([{ "uri": object, "change": "ADD" }])), purge].into_iter()).await;
    let live = async || {
        let state = opened.journal.object(uri(object)).await.unwrap().unwrap();
        state.live_items().map(|(item, _)| item.to_string()).collect::<Vec<_>>()
    };
    // A crawl before the purge adds nothing.
    assert_eq!(seed(&opened.journal, vec![crawl_result(object, 2, "ACTIVE")]).await, 0);
    assert!(live().await.is_empty());
    append(&opened.journal, [event(8, json!([{ "uri": object, "change": "ADD" }]))].into_iter()).await;
    assert_eq!(seed(&opened.journal, vec![crawl_result(object, 2, "ACTIVE")]).await, 1);
    assert_eq!(live().await, ["http://h/1", "http://h/1/DC"]);
    // An item that was deleted after the crawl stays deleted.
    append(&opened.journal, [event(9, json!([{ "uri": "http://h/1/DC", "change": "DELETE" }]))].into_iter()).await;
    assert_eq!(seed(&opened.journal, vec![crawl_result(object, 2, "ACTIVE")]).await, 0);
    opened.close();
    verify_ok(&journal_file(folder.path()));
}

/// A crawl may see a change of state before its event arrives.
#[tokio::test]
async fn crawled_state_is_announced_by_the_next_event() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let object = "http://h/1";
    seed(&opened.journal, vec![crawl_result(object, 1, "INACTIVE")]).await;
    let event = |second: i64, change: Value| -> Draft {
        let mut item = json!({ "uri": "http://h/1/DC" });
        item.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(json!({ "object": object, "time": time(second), "items": [item] })).unwrap()
    };
    let outcome = |draft| {
        let journal = opened.journal.clone();
        async move {
            let policy = Arc::new(SourcePolicy { name: source(), metadata_changes: false });
            let submission = Submission {
                policy,
                drafts: vec![(None, draft)],
                duplicate_policy: DuplicatePolicy::RememberChanges,
                completes: None,
            };
            journal.append(submission).await.unwrap().pop().unwrap()
        }
    };
    let hidden = || event(2, json!({ "stateAfter": "INACTIVE" }));
    assert!(matches!(outcome(hidden()).await, DraftOutcome::Accepted { .. }));
    let changes = opened.journal.after(tidings::model::Seq::ZERO, 9).await.unwrap();
    let public = changes[0].public().unwrap().expect("the change is a deletion for the public");
    assert_eq!(serde_json::from_slice::<Value>(public.json()).unwrap()["items"][0]["change"], "DELETE");
    // After that change, the same event is a duplicate.
    assert!(matches!(outcome(hidden()).await, DraftOutcome::Unchanged));
    // A crawl result that equals an announced fact counts as announced.
    seed(&opened.journal, vec![crawl_result(object, 3, "INACTIVE")]).await;
    assert!(matches!(outcome(event(4, json!({ "stateAfter": "INACTIVE" }))).await, DraftOutcome::Unchanged));
    opened.close();
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn crawl_with_changes_announces_only_unknown_facts_once() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let intake = Intake::new(opened.journal.clone());
    let kind = tidings::format::dialect("content-change").unwrap();
    let fedora = Source::new(source(), kind, Value::Null, false, tidings::format::Limits::default()).unwrap();
    let emit = async |crawl_result: CrawledObject| {
        let seeded = intake.seed(&fedora, vec![crawl_result], true, progress(1)).await.unwrap();
        assert_eq!(seeded.updated_objects, 0);
        seeded.outcomes
    };
    let object = |number: u64| format!("http://h/{number}");
    assert!(matches!(emit(crawl_result(&object(1), 5, "ACTIVE")).await[..], [DraftOutcome::Accepted { .. }]));
    assert!(matches!(emit(crawl_result(&object(1), 5, "ACTIVE")).await[..], [DraftOutcome::Duplicate { .. }]));
    let changes = opened.journal.after(tidings::model::Seq::ZERO, 9).await.unwrap();
    let changes = serde_json::to_value(changes[0].change().unwrap()).unwrap();
    assert_eq!(changes["items"][1]["change"], "ADD", "{changes}");
    assert_eq!((&changes["items"][1]["stateAfter"], &changes["parent"]), (&json!("ACTIVE"), &json!("http://h/parent")));
    // Seeded facts are known, and so are facts older than those of the registry.
    seed(&opened.journal, vec![crawl_result(&object(2), 5, "ACTIVE")]).await;
    assert_eq!(emit(crawl_result(&object(2), 5, "ACTIVE")).await, [DraftOutcome::Unchanged]);
    assert_eq!(emit(crawl_result(&object(1), 4, "INACTIVE")).await, [DraftOutcome::Unchanged]);
    // Newer content and a newer state make changes.
    assert!(matches!(emit(crawl_result(&object(2), 6, "INACTIVE")).await[..], [DraftOutcome::Accepted { .. }]));
    let changes = opened.journal.after(tidings::model::Seq(1), 9).await.unwrap();
    let changes = serde_json::to_value(changes[0].change().unwrap()).unwrap();
    let item = &changes["items"][0];
    assert_eq!(
        (&item["change"], &item["stateBefore"], &item["stateAfter"]),
        (&json!("UPDATE"), &json!("ACTIVE"), &json!("INACTIVE"))
    );
    // An object deleted since then is not reported as present.
    let gone =
        json!({ "object": object(2), "time": time(7), "items": [{ "uri": "http://h/2/DC", "change": "DELETE" }] });
    append(&opened.journal, [serde_json::from_value(gone).unwrap()].into_iter()).await;
    assert_eq!(emit(crawl_result(&object(2), 6, "ACTIVE")).await, [DraftOutcome::Unchanged]);
    drop((intake, fedora));
    opened.close();
    verify_ok(&journal_file(folder.path()));
}

/// Promise 4 of the store: the crawl result, the registry and the crawl's position are written together or not
/// at all.
#[test]
fn promise_4_crawl_parts_are_atomic() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let decision = |second, part| {
            let crawl_result = crawl_result("http://h/1", second, "ACTIVE");
            let delta = RegistryDelta::from_crawl(&source(), &crawl_result, time(100), &ObjectState::default());
            let mut state = ObjectState::default();
            state.apply_delta(&delta);
            let items = state.items.keys().cloned().collect();
            let uri = crawl_result.object.clone();
            let touched = ObjectUpdate {
                uri,
                object_changed: true,
                news: ObjectNews::Public,
                state,
                changed_items: items,
                item_count: None,
            };
            let seeds = vec![Seed { object: crawl_result.object, delta }];
            WriteBatch { objects: [touched].into(), seeds, crawls: vec![progress(part)], ..empty_batch() }
        };
        assert_eq!(store.crawl_progress(&source()).unwrap(), None);
        write(&*store, &decision(1, 1)).unwrap();
        // A failing write in the same transaction discards the whole part.
        assert!(write(&*store, &broken_by_its_changes(decision(5, 2))).is_err());
        let snapshot_of = |store: &dyn Store| {
            let state = store.object(&uri("http://h/1")).unwrap().unwrap();
            let content = state.content(&uri("http://h/1/DC")).unwrap().parse().unwrap().url.to_string();
            (content, store.crawl_progress(&source()).unwrap().unwrap().parts)
        };
        let expected = ("http://h/1/DC?1".to_owned(), 1);
        assert_eq!(snapshot_of(&*store), expected);
        drop(store);
        let store = open(folder, StoreLimits::default());
        assert_eq!(snapshot_of(&*store), expected);
        write(&*store, &decision(5, 2)).unwrap();
        assert_eq!(snapshot_of(&*store), ("http://h/1/DC?5".to_owned(), 2));
    });
}

/// Returns the decision with two changes of the same number.
fn broken_by_its_changes(mut decision: WriteBatch) -> WriteBatch {
    decision.changes = [1, 2].map(|event| crate::support::tested_store::change(tidings::model::Seq(1), event)).into();
    decision
}
