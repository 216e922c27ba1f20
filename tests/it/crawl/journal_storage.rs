//! Crawl results are not changes: the journal stores them with adjacent changes, includes them in backups, and
//! `verify` checks them.

use std::path::Path;

use serde_json::json;
use tidings::{
    journal::{
        retention::Retention,
        store::sqlite::{backup::back_up, restore::restore},
    },
    model::Timestamp,
};

use crate::{
    crawl::registry_merge::{crawl_result, seed, source, time, uri},
    journal::registry_crashes::append,
    support::journal_fixture::{OpenJournal, journal_file, run, stderr, verify_ok},
};

fn seeds_in(folder: &Path) -> i64 {
    let connection = rusqlite::Connection::open(journal_file(folder)).unwrap();
    connection.query_row("SELECT count(*) FROM seeds", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn crawl_results_expire_with_adjacent_changes_and_the_registry_stays() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let many = |from: u64| {
        (from..from + 20).map(|number| crawl_result(&format!("http://h/{number:03}"), 1, "ACTIVE")).collect()
    };
    assert_eq!(seed(&opened.journal, many(0)).await, 20);
    opened.append(1..=300).await;
    assert_eq!(seed(&opened.journal, many(100)).await, 20);
    opened.append(301..=400).await;
    opened.close();
    assert!(verify_ok(&journal_file(folder.path())).complete);
    for (keep, left) in [(150, 20), (100, 20), (99, 0)] {
        let opened = OpenJournal::at(folder.path());
        let retention = Retention { changes: Some(keep), ..Retention::default() };
        assert!(retention.enforce(&opened.journal, Timestamp::now()).await.unwrap() > 0);
        opened.close();
        assert_eq!(seeds_in(folder.path()), left, "with {keep} changes");
        assert!(!verify_ok(&journal_file(folder.path())).complete);
    }
    let opened = OpenJournal::at(folder.path());
    for number in [0, 119] {
        let object = format!("http://h/{number:03}");
        let state = opened.journal.object(uri(&object)).await.unwrap().unwrap();
        assert!(state.is_live(&uri(&format!("{object}/DC"))), "{object}");
    }
    opened.close();
}

/// Crawl results are removed a few at a time. Remaining ones are not compared with the registry, because
/// removed changes may have replaced their facts.
#[tokio::test]
async fn partly_expired_crawl_results_are_no_verification_error() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let object = |number: u64| format!("http://h/{number:04}");
    for from in (0..4000).step_by(500) {
        seed(&opened.journal, (from..from + 500).map(|number| crawl_result(&object(number), 1, "ACTIVE")).collect())
            .await;
    }
    let item = json!({ "uri": format!("{}/DC", object(3999)), "change": "DELETE" });
    let gone = json!({ "object": object(3999), "time": time(2), "items": [item] });
    append(&opened.journal, [serde_json::from_value(gone).unwrap()].into_iter()).await;
    opened.append(1..=50).await;
    let retention = Retention { changes: Some(20), ..Retention::default() };
    assert!(retention.enforce(&opened.journal, Timestamp::now()).await.unwrap() > 0);
    opened.close();
    let left = seeds_in(folder.path());
    assert!(0 < left && left < 4000, "{left}");
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn crawl_results_survive_backup_and_restore() {
    let folder = tempfile::tempdir().unwrap();
    let [data, restored, file] = ["data", "restored", "backup"].map(|name| folder.path().join(name));
    let opened = OpenJournal::at(&data);
    // The registry is seeded before the first change.
    assert_eq!(seed(&opened.journal, vec![crawl_result("http://h/1", 1, "ACTIVE")]).await, 1);
    let report = verify_ok(&journal_file(&data));
    assert_eq!((report.complete, report.objects, report.changes), (true, 1, 0));
    opened.append(1..=3).await;
    assert_eq!(seed(&opened.journal, vec![crawl_result("http://h/2", 1, "INACTIVE")]).await, 1);
    back_up(&data, &file, &mut |_, _| {}).unwrap();
    let there = opened.journal.registry(None, 100).await.unwrap();
    opened.close();
    verify_ok(&file);
    restore(&file, &restored, false, &mut |_, _| {}).unwrap();
    let opened = OpenJournal::at(&restored);
    assert_eq!(opened.journal.registry(None, 100).await.unwrap(), there);
    assert_eq!(opened.journal.crawl_progress(source()).await.unwrap().unwrap().parts, 1);
    opened.append(4..=5).await;
    assert_eq!(seed(&opened.journal, vec![crawl_result("http://h/3", 1, "ACTIVE")]).await, 1);
    let there = opened.journal.registry(None, 100).await.unwrap();
    opened.close();
    verify_ok(&journal_file(&restored));
    let opened = OpenJournal::at(&restored);
    assert_eq!(opened.journal.registry(None, 100).await.unwrap(), there);
    opened.close();
}

/// `verify` reports differences between the registry and the crawl results, and crawl results that it cannot
/// read.
#[tokio::test]
async fn verify_locates_errors_in_crawl_results() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    seed(&opened.journal, vec![crawl_result("http://h/1", 1, "ACTIVE")]).await;
    opened.append(1..=3).await;
    opened.close();
    for (sql, told) in [
        (
            "UPDATE items SET state = 'INACTIVE' WHERE uri = 'http://h/1/DC'",
            "object http://h/1, item http://h/1/DC: its state",
        ),
        (
            "UPDATE items SET unannounced = 0 WHERE uri = 'http://h/1/DC'",
            "object http://h/1, item http://h/1/DC: its state",
        ),
        (
            "UPDATE seeds SET delta = replace(delta, 'DC?1', 'DC?2')",
            "object http://h/1, item http://h/1/DC: its content",
        ),
        ("DELETE FROM seeds", "object http://h/1, item http://h/1/DC: no change contains it"),
        ("DELETE FROM items WHERE uri = 'http://h/1/DC'", "item http://h/1/DC: it is missing"),
        ("UPDATE seeds SET delta = '{'", "the seeds cannot be read"),
    ] {
        let copy = tempfile::tempdir().unwrap();
        let file = journal_file(copy.path());
        std::fs::copy(journal_file(folder.path()), &file).unwrap();
        let connection = rusqlite::Connection::open(&file).unwrap();
        assert!(connection.execute(sql, []).unwrap() > 0, "{sql}");
        connection.close().unwrap();
        let ended = run("verify", &[&file]);
        assert_eq!(ended.status.code(), Some(1), "{sql}: nothing was found");
        assert!(stderr(&ended).contains(told), "{sql}: {}", stderr(&ended));
    }
}
