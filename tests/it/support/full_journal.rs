//! A journal that has rows in every table, and its contents as text.

use std::path::Path;

use rusqlite::{Connection, types::ValueRef};
use tidings::{
    journal::{
        retention::Retention,
        store::sqlite::{backup::back_up, restore::restore},
    },
    model::Timestamp,
};

use super::{
    fedora3_messages::Call,
    gateway::Gateway,
    journal_fixture::{OpenJournal, journal_file, verify_ok},
};
use crate::crawl::registry_merge::{crawl_result, seed};

/// Rows that events alone do not make. The newest identifiers ever given are larger than those of the rows.
const ROWS: &str = "
    INSERT INTO subscriptions SELECT 'pushed', 'api', '{\"secret\":\"s\"}', max(seq) - 5, 1, 'gone', 'the token ops', 7 FROM changes;
    INSERT INTO subscriptions SELECT 'other', 'config', '', min(seq), 0, NULL, NULL, NULL FROM changes;
    INSERT INTO dead_letters (subscription, seq, refused, reason, attempts, replay, json)
        SELECT 'pushed', seq, 5, 'refused', 2, seq % 2, json FROM changes;
    DELETE FROM dead_letters WHERE id > 150;
    INSERT INTO incomplete_changes SELECT seq, 's', 'items', json FROM changes WHERE seq % 7 = 0;
    INSERT INTO order_times SELECT seq, received + 1 FROM changes WHERE seq % 9 = 0;
    INSERT INTO segments VALUES (1, 10000, '{\"changes\":9}'), (10001, 20000, '{\"changes\":1}');
    INSERT INTO harvests VALUES ('s', '{}', 7, '{\"url\":\"u\"}', 1, 9), ('t', '', NULL, NULL, 0, NULL);
    INSERT INTO harvest_runs VALUES ('01900000-0000-7000-8000-000000000001', 's', 1, 2, 'failed', 'r', 3, 4, 5, 6, 7);
    INSERT INTO harvest_runs VALUES ('01900000-0000-7000-8000-000000000002', 's', 8, 9, 'running', NULL, 0, 0, 0, 0, 0);
    -- More than a page of rows of one source.
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 5000)
        INSERT INTO harvest_records SELECT 's', 'oai:' || n, n, '' FROM numbers;
    INSERT INTO harvest_records VALUES ('t', 'oai:1', 3, '7-1');
    INSERT INTO ingest_jobs VALUES
        ('s', 'http://h/1', '01900000-0000-7000-8000-000000000003', '{\"a\":1}', 'waiting', 7, 2, 'timeout', 'm', 5, 6, 'h'),
        ('t', 'http://h/1', '01900000-0000-7000-8000-000000000004', '{}', 'archived', NULL, 0, NULL, NULL, 8, 9, '10.5281');
    INSERT INTO results SELECT 'http://h/1', max(seq), 5, '{\"hit\":true,\"platform_name\":\"p\"}' FROM changes;
    INSERT INTO quarantine VALUES (3, 0, 's', NULL, '[[\"h\",\"v\"]]', 'a' || char(0) || 'b', 'r', 3, x'0102FF');
    INSERT INTO quarantine VALUES (9, 5, 's', 'text/plain', '[]', '', '', 0, x'');
    DELETE FROM quarantine WHERE id = 9;
    WITH RECURSIVE numbers (number) AS (SELECT 4 UNION ALL SELECT number + 1 FROM numbers WHERE number < 5000)
        INSERT INTO unchanged SELECT number, randomblob(16), 7 FROM numbers;
";

/// Tables with the columns that identify their rows. The keys of events are in runs or in the rows of changes.
const DUMPED: [&str; 20] = [
    "SELECT * FROM restores ORDER BY head",
    "SELECT seq, id, received, checksum, json, visibility FROM changes ORDER BY seq",
    "SELECT * FROM unchanged ORDER BY number",
    "SELECT uri, parent, parent_at, parent_confirmed, types, types_at, types_confirmed, purged_at, purged_confirmed,
            source, accepted, published
     FROM objects ORDER BY uri",
    "SELECT o.uri, i.uri, existence, existence_at, existence_confirmed, content, content_at, content_confirmed, state,
            state_at, state_confirmed, initial_state, initial_state_at, initial_state_confirmed, unannounced,
            visible_from, visible_until, came, denied
     FROM objects o JOIN items i USING (object) ORDER BY o.uri, i.uri",
    "SELECT * FROM seeds ORDER BY number",
    "SELECT * FROM crawls ORDER BY source",
    "SELECT * FROM sources ORDER BY source",
    "SELECT * FROM order_times ORDER BY seq",
    "SELECT * FROM segments ORDER BY first",
    "SELECT * FROM harvests ORDER BY source",
    "SELECT * FROM harvest_runs ORDER BY id",
    "SELECT * FROM harvest_records ORDER BY source, identifier",
    "SELECT * FROM ingest_jobs ORDER BY source, dataset",
    "SELECT * FROM results ORDER BY object",
    "SELECT * FROM incomplete_changes ORDER BY seq",
    "SELECT id, received, source, content_type, headers, location, reason, size, body
     FROM quarantine ORDER BY id",
    "SELECT * FROM subscriptions ORDER BY name",
    "SELECT * FROM dead_letters ORDER BY id",
    "SELECT name, seq FROM sqlite_sequence UNION ALL SELECT name, value FROM meta
        WHERE name <> 'token_key' ORDER BY name",
];

/// Posts forty messages about five objects that appear and disappear. Some events arrive long after they happened.
pub(crate) async fn post_mixed_history(gateway: &Gateway) {
    for number in 1..=40 {
        let pid = format!("demo:{}", number % 5);
        let (method, parameters): (_, &[_]) = match number % 8 {
            0 => ("purgeObject", &[]),
            1 => ("modifyObject", &[("state", "I")]),
            2 => ("setDatastreamState", &[("dsID", "DC"), ("dsState", "I")]),
            _ => ("addDatastream", &[("dsID", "DC"), ("dsState", "A")]),
        };
        let returned = (method == "addDatastream").then_some("DC");
        let number = if number % 6 == 0 { number - 5 + 1000 * (number % 2) } else { number * 3 };
        let call = Call { number, method, pid: &pid, parameters, returned };
        let (status, answer) = gateway.post("fedora3", "application/atom+xml", call.message()).await;
        assert!(status < 300, "{answer}");
    }
}

/// Creates and closes a journal that has rows in every table, restored ranges, and keys of removed changes. Some tables
/// have more rows than a page of a migration.
pub(crate) async fn full_journal(folder: &Path) {
    let gateway = Gateway::start(folder);
    post_mixed_history(&gateway).await;
    let (status, _) = gateway.post("fedora3", "application/atom+xml", "no message").await;
    assert!((400..500).contains(&status), "{status}");
    assert!(gateway.stop().success());
    let opened = OpenJournal::at(folder);
    opened.append(1..=3000).await;
    seed(&opened.journal, (0..1500).map(|number| crawl_result(&format!("http://h/{number}"), 1, "ACTIVE")).collect())
        .await;
    let retention = Retention { changes: Some(180), ..Retention::default() };
    assert!(retention.enforce(&opened.journal, Timestamp::now()).await.unwrap() > 0);
    opened.append(3001..=3010).await;
    opened.close();
    let backup = folder.join("backup");
    back_up(folder, &backup, &mut |_, _| {}).unwrap();
    restore(&backup, folder, true, &mut |_, _| {}).unwrap();
    let opened = OpenJournal::at(folder);
    opened.append(3011..=3020).await;
    opened.close();
    Connection::open(journal_file(folder)).unwrap().execute_batch(ROWS).unwrap();
    verify_ok(&journal_file(folder));
}

/// Returns all rows of a closed journal except the event keys, one text for each row.
pub(crate) fn dump(folder: &Path) -> Vec<String> {
    let connection = Connection::open(journal_file(folder)).unwrap();
    let mut rows = Vec::new();
    for sql in DUMPED {
        let before = rows.len();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut result = statement.query([]).unwrap();
        while let Some(row) = result.next().unwrap() {
            let cell = |index| match row.get_ref(index).unwrap() {
                // A migration replaces each NUL, which PostgreSQL cannot store.
                ValueRef::Text(text) => String::from_utf8_lossy(text).replace('\0', "\u{FFFD}"),
                value => format!("{value:?}"),
            };
            rows.push((0..columns).map(cell).collect::<Vec<_>>().join("|"));
        }
        assert!(rows.len() > before, "no rows: {sql}");
    }
    rows
}

/// Compares two results of [`dump`].
pub(crate) fn assert_same_rows(one: &[String], other: &[String]) {
    let different = one.iter().zip(other).find(|(one, other)| one != other);
    assert!(different.is_none() && one.len() == other.len(), "{} and {} rows: {different:#?}", one.len(), other.len());
}
