//! Opening a journal of an older version migrates it. `kill -9` at any moment of the migration loses nothing:
//! the next attempt finds the journal intact, at one version or another.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use serde_json::Value;

use crate::support::{
    gateway::{Gateway, command},
    journal_fixture::{OpenJournal, configuration, event, journal_file, post, verify_ok},
};

/// Gives the tables of a new journal the names of version 16, the oldest one.
const VERSION_16: &str = "
    ALTER TABLE changes RENAME COLUMN visibility TO sight;
    ALTER TABLE items RENAME COLUMN initial_state TO begins_in;
    ALTER TABLE items RENAME COLUMN initial_state_at TO begins_in_at;
    ALTER TABLE items RENAME COLUMN initial_state_confirmed TO begins_in_confirmed;
    ALTER TABLE items RENAME COLUMN unannounced TO unheard;
    DROP INDEX objects_by_acceptance;
    DROP INDEX objects_by_publication;
    ALTER TABLE objects DROP COLUMN accepted;
    ALTER TABLE objects DROP COLUMN published;
    DELETE FROM meta WHERE name = 'token_key';
    DROP INDEX items_by_date;
    DROP INDEX items_denied;
    ALTER TABLE items DROP COLUMN visible_from;
    ALTER TABLE items DROP COLUMN visible_until;
    ALTER TABLE items DROP COLUMN came;
    ALTER TABLE items DROP COLUMN denied;
    ALTER TABLE seeds RENAME COLUMN delta TO filled;
    ALTER TABLE quarantine RENAME COLUMN location TO place;
    ALTER TABLE subscriptions RENAME COLUMN made_by TO origin;
    ALTER TABLE incomplete_changes RENAME TO incomplete;
    ALTER TABLE incomplete RENAME COLUMN missing TO untold;
    DROP INDEX incomplete_changes_by_source;
    CREATE INDEX incomplete_by_source ON incomplete (source, seq);
    DROP TABLE crawls;
    CREATE TABLE walks (
        source TEXT PRIMARY KEY, id BLOB NOT NULL, part INTEGER NOT NULL, place TEXT NOT NULL, objects INTEGER NOT NULL,
        began INTEGER NOT NULL, moved INTEGER NOT NULL, done INTEGER NOT NULL
    ) WITHOUT ROWID;
    DROP TABLE sources;
    ALTER TABLE restores DROP COLUMN identities;
    DROP TABLE order_times;
    DROP TABLE segments;
    DROP INDEX quarantine_by_source;
    DROP INDEX ingest_jobs_by_state;
    ALTER TABLE subscriptions DROP COLUMN paused_by;
    ALTER TABLE subscriptions DROP COLUMN delivered;
    PRAGMA user_version = 16;
";

/// Number of changes in the old journal.
const CHANGES: u64 = 3000;

/// Creates a journal of version 16 in `old` with the content of the journal in `new`.
fn create_version_16(new: &Path, old: &Path) {
    copy(new, old);
    let connection = Connection::open(journal_file(old)).unwrap();
    connection.execute_batch(&format!("BEGIN; {VERSION_16} COMMIT;")).unwrap();
}

fn version(folder: &Path) -> i64 {
    let connection = Connection::open(journal_file(folder)).unwrap();
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// Returns the journal version of the program.
fn current_version() -> i64 {
    let folder = tempfile::tempdir().unwrap();
    OpenJournal::at(folder.path()).close();
    version(folder.path())
}

/// Returns the number of objects for each source.
fn objects_by_source(folder: &Path) -> Vec<(Option<String>, u32)> {
    let connection = Connection::open(journal_file(folder)).unwrap();
    let mut statement = connection.prepare("SELECT source, count(*) FROM objects GROUP BY source").unwrap();
    let counts = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    counts.collect::<Result<_, _>>().unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::copy(journal_file(from), journal_file(to)).unwrap();
}

/// Starts the program and kills it after `time`, or as soon as it listens. Returns whether it was killed before
/// it listened, and the elapsed time.
fn kill_after(time: Duration, folder: &Path) -> (bool, Duration) {
    let output = folder.join("told");
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder);
    let mut child = serve.stdout(File::create(&output).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    let listens = || fs::metadata(&output).unwrap().len() > 0;
    let began = Instant::now();
    while began.elapsed() < time && !listens() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    (!listens(), began.elapsed())
}

/// Sends an event that is in the journal; returns the status and the number in the response.
async fn resend(gateway: &Gateway, number: u64) -> (u16, u64) {
    let post = gateway.http.post(format!("{}/hooks/s", gateway.url)).header("idempotency-key", number.to_string());
    // The key is the only identifier with which the event was appended.
    let mut body = event(number);
    body.as_object_mut().unwrap().remove("sourceEventId");
    let answer = post.body(body.to_string()).send().await.unwrap();
    let status = answer.status().as_u16();
    let output: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    (status, output["changes"][0]["seq"].as_u64().unwrap_or_default())
}

#[tokio::test]
async fn migration_survives_any_number_of_kills() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let [new, old] = ["new", "old"].map(|name| folder.path().join(name));
    let opened = OpenJournal::at(&new);
    opened.append(1..=CHANGES).await;
    opened.close();
    create_version_16(&new, &old);
    let current = current_version();
    // Source under whose name the journal was filled.
    let config = configuration(folder.path(), "[sources.s]\ntransport = \"http\"\ndialect = \"content-change\"");

    // The duration of an undisturbed migration determines the times of the kills.
    let alone = folder.path().join("alone");
    copy(&old, &alone);
    let (_, opening) = kill_after(Duration::from_secs(30), &alone);
    let expected: Vec<Value> = Gateway::start(&alone).changes().await;
    assert_eq!(expected.len() as u64, CHANGES);

    let (mut broken_off, mut unfinished) = (0, 0);
    for round in 0..24_u32 {
        let data = folder.path().join(format!("round-{round}"));
        copy(&old, &data);
        // Two kills in sequence on the same file.
        for part in [round, round / 2 + 12] {
            let (in_the_middle, _) = kill_after(opening * part / 24, &data);
            let found = version(&data);
            assert!((16..=current).contains(&found), "version {found}");
            broken_off += u32::from(in_the_middle);
            unfinished += u32::from(found < current);
        }
        let gateway = Gateway::start_with(&data, &["--config", &config]);
        assert_eq!(gateway.changes().await, expected, "round {round}");
        // The events are recognized as duplicates, and the numbering continues.
        for number in [1, CHANGES / 2, CHANGES] {
            assert_eq!(resend(&gateway, number).await, (200, number));
        }
        assert_eq!(post(&gateway, CHANGES + 1).await, CHANGES + 1);
        assert!(gateway.stop().success());
        assert_eq!(version(&data), current);
        assert_eq!(objects_by_source(&data), [(Some("s".to_owned()), 100)]);
        assert_eq!(verify_ok(&journal_file(&data)).changes, CHANGES + 1);
        fs::remove_dir_all(data).unwrap();
    }
    assert!(broken_off > 0, "no kill happened before the gateway listened");
    // With a single version there is no migration.
    assert!(current == 1 || unfinished > 0, "no kill happened before the end of the migration");
}
