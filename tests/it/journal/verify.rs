//! `tidings verify` reports each error and its location: every row of the table damages a journal in one way.

use std::{fs, path::Path};

use rusqlite::Connection;
use tidings::journal::retention::Retention;

use crate::support::{
    full_journal::post_mixed_history,
    gateway::Gateway,
    journal_fixture::{OpenJournal, journal_file, run, stderr, verify_ok},
};

/// Creates and closes a journal with objects that appear and disappear and with late events; `keep` removes its
/// older changes.
async fn journal(folder: &Path, keep: Option<u64>) {
    let gateway = Gateway::start(folder);
    post_mixed_history(&gateway).await;
    assert!(gateway.stop().success());
    let opened = OpenJournal::at(folder);
    opened.append(1..=300).await;
    if keep.is_some() {
        let retention = Retention { changes: keep, ..Retention::default() };
        assert!(retention.enforce(&opened.journal, tidings::model::Timestamp::now()).await.unwrap() > 0);
    }
    opened.close();
}

#[tokio::test]
async fn verify_accepts_an_intact_journal() {
    crate::support::needs_sqlite();
    for keep in [None, Some(310), Some(20)] {
        let folder = tempfile::tempdir().unwrap();
        journal(folder.path(), keep).await;
        assert_eq!(verify_ok(&journal_file(folder.path())).complete, keep.is_none());
        let ended = run("verify", &[Path::new("--data"), folder.path()]);
        assert!(ended.status.success() && stderr(&ended).is_empty(), "{}", stderr(&ended));
        let expected = String::from_utf8(ended.stdout).unwrap();
        let compared = if keep.is_none() { "compared as a whole" } else { "as far as the retained changes allow" };
        assert!(expected.contains("journal.sqlite: ") && expected.contains(compared), "{expected}");
    }
}

#[tokio::test]
async fn verify_accepts_intact_subscription_and_quarantine_rows() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path(), None).await;
    let connection = Connection::open(journal_file(folder.path())).unwrap();
    connection
        .execute_batch(
            "INSERT INTO subscriptions SELECT 's', 'api', '', max(seq), 0, NULL, NULL, NULL FROM changes;
             INSERT INTO dead_letters SELECT 1, 's', seq, 0, '', 1, 0, json FROM changes WHERE seq = 9;
             INSERT INTO incomplete_changes SELECT seq, 's', 'items', json FROM changes WHERE seq = 9;
             INSERT INTO crawls VALUES ('s', '01900000-0000-7000-8000-000000000001', 1, '', 0, 0, 0, 0);
             INSERT INTO quarantine VALUES (1, 0, 's', NULL, '[]', '', '', 2, x'0102')",
        )
        .unwrap();
    connection.close().unwrap();
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn verify_locates_each_error_in_a_file() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path(), None).await;
    let pruned = tempfile::tempdir().unwrap();
    journal(pruned.path(), Some(30)).await;
    // Journals in which the error is found: the complete and the pruned one. A pruned journal stores event keys
    // in runs.
    const BOTH: [bool; 2] = [true, true];
    const COMPLETE: [bool; 2] = [true, false];
    const PRUNED: [bool; 2] = [false, true];
    for (sql, expected, [in_complete, in_pruned]) in [
        (
            "UPDATE changes SET json = replace(json, 'xxxxx', 'xxxxy') WHERE seq = NEWEST",
            "change NEWEST is damaged: its checksum is wrong",
            BOTH,
        ),
        ("UPDATE changes SET json = substr(json, 1, 100) WHERE seq = NEWEST", "change NEWEST cannot be read", BOTH),
        ("DELETE FROM changes WHERE seq = NEWEST - 3", "are missing", BOTH),
        ("DELETE FROM changes WHERE seq = NEWEST - 3", "the key of an event refers to change", PRUNED),
        ("UPDATE changes SET id = randomblob(16) WHERE seq = NEWEST", "but its row has another id", BOTH),
        ("UPDATE changes SET received = received + 1 WHERE seq = NEWEST", "but its row has another time", BOTH),
        ("UPDATE changes SET received = 5 WHERE seq = NEWEST", "was received before", BOTH),
        ("UPDATE changes SET seq = 9999 WHERE seq = NEWEST", "has the number NEWEST", BOTH),
        ("UPDATE key_runs SET keys = keys - 1", "are damaged", PRUNED),
        ("UPDATE key_parts SET keys = CAST(substr(keys, 25) || substr(keys, 1, 24) AS BLOB)", "are damaged", PRUNED),
        ("UPDATE key_parts SET keys = substr(keys, 5)", "is truncated", PRUNED),
        ("DELETE FROM key_parts", "a repeat of the event of change NEWEST would not be detected", PRUNED),
        ("UPDATE items SET existence = 1 - existence", "its existence", BOTH),
        ("UPDATE items SET existence_at = existence_at - 1", "its existence", BOTH),
        ("UPDATE items SET content = NULL, state = 'LOST'", "its state", BOTH),
        // An item without any retained change.
        (
            "UPDATE items SET content = '{\"url\":' WHERE object = (SELECT object FROM objects WHERE uri LIKE '%/0')",
            "cannot parse a content location",
            BOTH,
        ),
        ("DELETE FROM items", "it is missing", BOTH),
        ("DELETE FROM items; DELETE FROM objects", "the registry lacks the object", BOTH),
        ("DELETE FROM objects WHERE uri LIKE '%/1'", "refers to a missing row", BOTH),
        ("UPDATE objects SET parent = 'http://h/', parent_at = 1", "its parent", COMPLETE),
        ("UPDATE objects SET purged_at = 1 WHERE purged_at IS NOT NULL", "its time of purge", COMPLETE),
        ("UPDATE objects SET source = 'other'", "its source", COMPLETE),
        (
            "INSERT INTO objects (uri, types, accepted) VALUES ('http://h/', '[\"http://t/\"]', 0)",
            "its types",
            COMPLETE,
        ),
        ("UPDATE objects SET uri = 'no uri' WHERE uri LIKE '%/1'", "whose URI is invalid", BOTH),
        ("UPDATE objects SET types = '' WHERE uri LIKE '%/1'", "the registry, object http", BOTH),
        (
            "INSERT INTO subscriptions VALUES ('s', 'api', '', NEWEST + 1, 0, NULL, NULL, NULL)",
            "the cursor of the subscription s is",
            COMPLETE,
        ),
        (
            "INSERT INTO subscriptions VALUES ('s', 'me', '', 0, 0, NULL, NULL, NULL)",
            "unknown creator of a subscription: me",
            COMPLETE,
        ),
        ("INSERT INTO dead_letters VALUES (7, 's', 1, 0, '', 1, 0, '{')", "the dead letter 7 cannot be read", COMPLETE),
        (
            "INSERT INTO dead_letters SELECT 7, 's', seq + 1, 0, '', 1, 0, json FROM changes WHERE seq = NEWEST",
            "the dead letter 7 is a copy of change",
            COMPLETE,
        ),
        (
            "INSERT INTO incomplete_changes SELECT seq - 1, 's', 'items', json FROM changes WHERE seq = NEWEST",
            "but its JSON has the number NEWEST",
            COMPLETE,
        ),
        (
            "INSERT INTO incomplete_changes SELECT seq, 's', 'much', json FROM changes WHERE seq = NEWEST",
            "invalid values: missing facts \"much\", source \"s\"",
            COMPLETE,
        ),
        (
            "INSERT INTO crawls VALUES ('s', 'no UUID', 1, '', 0, 0, 0, 0)",
            "the crawl of the repository of \"s\"",
            COMPLETE,
        ),
        (
            "INSERT INTO quarantine VALUES (9, 0, 's', NULL, '[]', '', '', 5, x'0102')",
            "the message 9 of the quarantine has 2 bytes, but its row says 5",
            COMPLETE,
        ),
        (
            "INSERT INTO quarantine VALUES (9, 0, 's', NULL, '[', '', '', 2, x'0102')",
            "the message 9 of the quarantine: ",
            COMPLETE,
        ),
    ] {
        for (folder, _) in [(&folder, in_complete), (&pruned, in_pruned)].into_iter().filter(|(_, applies)| *applies) {
            let copy = tempfile::tempdir().unwrap();
            let file = journal_file(copy.path());
            fs::copy(journal_file(folder.path()), &file).unwrap();
            let connection = Connection::open(&file).unwrap();
            let newest: i64 = connection.query_row("SELECT max(seq) FROM changes", [], |row| row.get(0)).unwrap();
            let newest = newest.to_string();
            connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
            connection.execute_batch(&sql.replace("NEWEST", &newest)).unwrap();
            connection.close().unwrap();
            let ended = run("verify", &[&file]);
            assert_eq!(ended.status.code(), Some(1), "{sql}: nothing was found");
            assert!(stderr(&ended).contains(&expected.replace("NEWEST", &newest)), "{sql}: {}", stderr(&ended));
            assert!(stderr(&ended).contains("problem"), "{sql}: {}", stderr(&ended));
        }
    }
}

#[tokio::test]
async fn verify_detects_a_flipped_bit_that_is_never_served() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path(), None).await;
    let file = journal_file(folder.path());
    let mut bytes = fs::read(&file).unwrap();
    // The bit is in the text of one change, where SQLite does not notice it.
    let text = br#""uri":"http://localhost/objects/0/items/200"#;
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    // Split pages still contain a copy in their free space.
    places.iter().for_each(|at| bytes[at + text.len() - 1] ^= 1);
    fs::write(&file, bytes).unwrap();
    let ended = run("verify", &[&file]);
    let named = stderr(&ended);
    let seq = named
        .split_once("tidings: change ")
        .and_then(|(_, rest)| rest.split_once(" is damaged: its checksum is wrong"));
    let seq: u64 = seq.unwrap_or_else(|| panic!("{named}")).0.parse().unwrap();
    let config = crate::support::journal_fixture::configuration(folder.path(), "[journal]\ntail_changes = 5");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    for (after, status) in [(seq - 2, 200), (seq - 1, 500), (seq, 200)] {
        let answer = gateway.http.get(format!("{}/changes?after={after}&limit=1", gateway.url)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{after}");
    }
}
