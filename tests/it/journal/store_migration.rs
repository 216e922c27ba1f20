//! `tidings migrate` moves a journal with all that it holds to PostgreSQL and back, resumes after kill -9, and never
//! mixes two journals.

use std::{
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Instant,
};

use tidings::{
    journal::{
        RegistryPosition,
        harvest::ListedCounts,
        quarantine::NewQuarantinedMessage,
        store::{
            EventIdentity, EventKey, PostgresUrl, PrefetchKeys, Store, event_key,
            postgres::{PostgresOpenError, PostgresStore},
            sqlite::{SqliteOptions, SqliteStore},
        },
    },
    model::{Seq, SourceName, SubscriptionName, Text, Timestamp},
};

use crate::support::{
    full_journal::{assert_same_rows, dump, full_journal},
    gateway::{Gateway, PATIENCE, command, free_address},
    journal_fixture::{OpenJournal, journal_file, run, stderr, verify_ok},
    postgres::{self, connection as url},
    tested_store::append,
};

/// Function in the database that sleeps as soon as a transaction has read a row, and a view that calls it.
const STALL_READERS: &str = "
    CREATE FUNCTION stall() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN
        IF EXISTS (SELECT FROM pg_cursors WHERE name = 'read_changes') THEN PERFORM pg_sleep(600); END IF;
        RETURN true;
    END $$;
    ALTER TABLE crawls RENAME TO real_crawls;
    CREATE VIEW crawls AS SELECT * FROM real_crawls WHERE stall();";

const STALL_WRITERS: &str = "
    CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
    CREATE TRIGGER stall BEFORE INSERT ON crawls FOR EACH ROW EXECUTE FUNCTION stall();";

/// Starts the command `tidings migrate`.
fn start(from: &str, to: &str) -> Child {
    let mut migrate = command();
    migrate.args(["migrate", "--from", from, "--to", to]).stdin(Stdio::null());
    migrate.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn migrate(from: &str, to: &str) -> Output {
    start(from, to).wait_with_output().unwrap()
}

/// Runs the command, which must succeed; returns its output.
fn migrate_successfully(from: &str, to: &str) -> String {
    let ended = migrate(from, to);
    assert!(ended.status.success(), "{}", stderr(&ended));
    String::from_utf8(ended.stdout).unwrap()
}

fn refused(from: &str, to: &str) -> String {
    let ended = migrate(from, to);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    stderr(&ended)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn open_database(folder: &Path) -> PostgresStore {
    postgres::open(folder, postgres::options())
}

/// Checks that no gateway opens the half-finished migration in the database of a folder.
fn assert_is_half_migrated(folder: &Path) {
    let url = PostgresUrl::parse(&url(folder)).unwrap();
    let opened = PostgresStore::open(&url, postgres::options()).map(|_| ());
    assert!(matches!(opened, Err(PostgresOpenError::HalfMigrated { .. })), "{opened:?}");
}

/// Verifies the journal in the database of a folder, which must have no errors.
fn verify_database_ok(folder: &Path) {
    let findings = postgres::findings(folder);
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Waits until a migration hangs in a function of the database, and kills it.
fn kill_when_stalled(mut migration: Child, database: &Path) {
    let sleeping = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let began = Instant::now();
    while postgres::query(database, sleeping) != "1" {
        assert!(began.elapsed() < PATIENCE, "{:?}", migration.try_wait());
        std::thread::yield_now();
    }
    migration.kill().unwrap();
    migration.wait().unwrap();
    let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'PgSleep'";
    postgres::query(database, end);
}

/// Compares what two stores return.
fn assert_same_answers(one: &dyn Store, other: &dyn Store) {
    assert_eq!(one.identity(), other.identity());
    assert_eq!(one.head().unwrap(), other.head().unwrap());
    assert_eq!(one.first().unwrap(), other.first().unwrap());
    assert_eq!(one.seed_count(), other.seed_count());
    assert_eq!(one.skipped_ranges().unwrap(), other.skipped_ranges().unwrap());
    let newest = |store: &dyn Store| store.before(Seq(u64::MAX), 1000, usize::MAX).unwrap();
    assert_eq!(newest(one), newest(other));
    let all = RegistryPosition::Beginning;
    assert_eq!(one.registry(&all, 1000).unwrap(), other.registry(&all, 1000).unwrap());
    assert_eq!(one.quarantine_size().unwrap(), other.quarantine_size().unwrap());
    assert_eq!(one.subscriptions().unwrap(), other.subscriptions().unwrap());
    let name = SubscriptionName::parse("pushed").unwrap();
    assert_eq!(one.dead_letters(&name, None, 1000).unwrap(), other.dead_letters(&name, None, 1000).unwrap());
    assert_eq!(one.replays(&name, None, 1000).unwrap(), other.replays(&name, None, 1000).unwrap());
    assert!(!one.replays(&name, None, 1000).unwrap().is_empty());
    assert_eq!(one.incomplete_counts().unwrap(), other.incomplete_counts().unwrap());
    let source = SourceName::parse("s").unwrap();
    assert_eq!(one.crawl_progress(&source).unwrap(), other.crawl_progress(&source).unwrap());
    assert_eq!(one.harvest(&source).unwrap(), other.harvest(&source).unwrap());
    let runs = one.harvest_runs(&source, None, 10).unwrap();
    assert_eq!(runs, other.harvest_runs(&source, None, 10).unwrap());
    assert_eq!(runs.len(), 2);
    let since = Timestamp::from_millis(4000).unwrap();
    assert_eq!(one.listed_counts(&source, since).unwrap(), ListedCounts { all: 5000, missing: 3999 });
    assert_eq!(other.listed_counts(&source, since).unwrap(), one.listed_counts(&source, since).unwrap());
    let missing = |store: &dyn Store| store.missing_records(&source, since, "", 5000).unwrap();
    assert_eq!(missing(one), missing(other));
}

#[tokio::test]
async fn everything_moves_to_postgresql_and_back() {
    let [source, database, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    full_journal(source.path()).await;
    let (before, head) = (dump(source.path()), verify_ok(&journal_file(source.path())).head);
    let url = url(database.path());
    let report = migrate_successfully(text(source.path()), &url);
    assert!(report.contains(&format!("its newest change is {head}")) && !report.contains("tidings@"), "{report}");
    for table in [
        "changes",
        "event_keys",
        "items",
        "quarantine",
        "dead_letters",
        "harvest_runs",
        "harvest_records",
        "ingest_jobs",
        "results",
        "restores",
        "seeds",
        "unchanged",
    ] {
        let line = report.lines().find(|line| line.starts_with(&format!("{table}: "))).unwrap();
        let (in_source, in_target) = line.split_once(" in the source; ").unwrap();
        let in_source = in_source.split_once(": ").unwrap().1;
        assert!(in_target.starts_with(in_source) && !in_source.starts_with("0 "), "{line}");
    }
    assert_same_rows(&dump(source.path()), &before);
    verify_database_ok(database.path());
    {
        let sqlite = SqliteStore::open(source.path(), SqliteOptions::default()).unwrap();
        assert_same_answers(&sqlite, &open_database(database.path()));
    }
    migrate_successfully(&url, text(back.path()));
    verify_ok(&journal_file(back.path()));
    assert_same_rows(&dump(back.path()), &before);
}

/// Starts a gateway at an address, with its journal in the folder, or in the database of the folder.
fn serve(data: &Path, is_database: bool, address: &str) -> Gateway {
    let mut serve = command();
    serve.stderr(Stdio::null());
    if is_database {
        serve.env("TIDINGS_JOURNAL__STORE", url(data));
    }
    Gateway::start_as(serve, data, &["--listen", address])
}

/// Returns the status, the validator and the body of a resource.
async fn resource(gateway: &Gateway, path: &str) -> (u16, Option<String>, String) {
    let response = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
    let etag = response.headers().get("etag").map(|etag| etag.to_str().unwrap().to_owned());
    // Older versions stored NUL in SQLite. It is not shown, and a migration replaces it, because PostgreSQL cannot store it.
    (response.status().as_u16(), etag, response.text().await.unwrap().replace('\u{FFFD}', ""))
}

#[tokio::test]
async fn readers_do_not_notice_a_migration() {
    crate::support::needs_sqlite();
    let [source, database, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    full_journal(source.path()).await;
    let report = verify_ok(&journal_file(source.path()));
    let cursors = [report.first.unwrap().0, report.head.0 - 3, report.head.0 - 1000];
    let (address, url) = (free_address(), url(database.path()));
    let mut paths = cursors.map(|cursor| format!("/changes?after={cursor}")).to_vec();
    paths.extend(["/feed", "/snapshot", "/quarantine"].map(str::to_owned));
    let mut seen = Vec::new();
    for (folder, is_database) in [(&source, false), (&database, true), (&back, false)] {
        match (folder.path(), is_database) {
            (_, true) => drop(migrate_successfully(text(source.path()), &url)),
            (to, false) if to == back.path() => drop(migrate_successfully(&url, text(to))),
            _ => {}
        }
        let gateway = serve(folder.path(), is_database, &address);
        let mut resources = Vec::new();
        for path in &paths {
            resources.push((path, resource(&gateway, path).await));
        }
        let statuses: Vec<_> = resources.iter().map(|(_, (status, ..))| *status).collect();
        assert_eq!(statuses, [200, 200, 410, 200, 200, 200], "a cursor within a skipped range is refused");
        assert!(resources[3].1.1.is_some(), "the feed has no validator");
        assert!(gateway.stop().success());
        seen.push(resources);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[tokio::test]
async fn commands_use_the_database_of_the_configuration() {
    let [source, database, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let opened = OpenJournal::at(source.path());
    opened.append(1..=20).await;
    opened.close();
    let url = url(database.path());
    let run = |arguments: &[&str]| command().env("TIDINGS_JOURNAL__STORE", &url).args(arguments).output().unwrap();
    assert_eq!(run(&["migrate"]).status.code(), Some(2));
    let moved = run(&["migrate", "--from", text(source.path())]);
    assert!(moved.status.success(), "{}", stderr(&moved));
    let verified = run(&["verify"]);
    let report = String::from_utf8(verified.stdout.clone()).unwrap();
    assert!(verified.status.success() && report.contains("20 changes (1 to 20)"), "{verified:?}");
    let moved = run(&["migrate", "--to", text(back.path())]);
    assert!(moved.status.success(), "{}", stderr(&moved));
    assert_same_changes(source.path(), back.path());
    for arguments in [["backup", "file"], ["restore", "file"]] {
        let refused = run(&arguments);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains("pg_dump") && stderr(&refused).contains("docs/postgresql.md"), "{refused:?}");
    }
}

/// Checks that two folders have the same changes.
fn assert_same_changes(one: &Path, other: &Path) {
    let changes = |folder: &Path| {
        let store = SqliteStore::open(folder, SqliteOptions::default()).unwrap();
        store.after(Seq(0), 1000, usize::MAX).unwrap().unwrap()
    };
    assert_eq!(changes(one), changes(other));
}

#[tokio::test]
async fn a_migrated_journal_detects_duplicates_and_reuses_no_identifier() {
    let [source, database, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    full_journal(source.path()).await;
    let head = verify_ok(&journal_file(source.path())).head;
    // A key of a change that retention has removed, of one that was in a run, and of one that was in no run.
    let repeats = [1, 2990, 3015];
    let firsts = |store: &dyn Store| {
        let mut transaction = store.begin().unwrap();
        let keys = repeats.map(fixture_key).to_vec();
        let known = transaction.prefetch(&PrefetchKeys { keys, ..PrefetchKeys::default() }).unwrap().first_changes;
        repeats.map(|event| known[&fixture_key(event)].0)
    };
    let expected = firsts(&SqliteStore::open(source.path(), SqliteOptions::default()).unwrap());
    migrate_successfully(text(source.path()), &url(database.path()));
    migrate_successfully(&url(database.path()), text(back.path()));
    let message = NewQuarantinedMessage {
        source: SourceName::parse("s").unwrap(),
        received: Timestamp::EPOCH,
        content_type: None,
        headers: Vec::new(),
        body: "x".into(),
        location: Text::default(),
        reason: Text::default(),
    };
    let (database, back) = (open_database(database.path()), SqliteStore::open(back.path(), SqliteOptions::default()));
    for store in [&database as &dyn Store, &back.unwrap()] {
        assert_eq!(firsts(store), expected);
        assert_eq!(store.quarantine(std::slice::from_ref(&message), None).unwrap().ids[0].0, 10);
        assert_eq!(append(store, &[1_000_000]).unwrap(), [head.next()]);
    }
}

/// Returns the key of an event of the fixture.
fn fixture_key(event: u64) -> EventKey {
    event_key(&SourceName::parse("s").unwrap(), EventIdentity::Id(&event.to_string()), 0)
}

#[tokio::test]
async fn a_killed_migration_resumes_after_its_last_page() {
    let [source, database, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    full_journal(source.path()).await;
    let before = dump(source.path());
    let url = url(database.path());
    // The tables exist before the migration, so that one of them can stall it.
    drop(open_database(database.path()));
    postgres::query(database.path(), STALL_WRITERS);
    kill_when_stalled(start(text(source.path()), &url), database.path());
    postgres::query(database.path(), "DROP TRIGGER stall ON crawls; DROP FUNCTION stall()");
    assert_is_half_migrated(database.path());
    let copied_by = || postgres::query(database.path(), "SELECT min(xmin::text) FROM changes");
    let first = copied_by();
    migrate_successfully(text(source.path()), &url);
    assert_eq!(copied_by(), first, "the changes were copied again");
    verify_database_ok(database.path());

    postgres::query(database.path(), STALL_READERS);
    kill_when_stalled(start(&url, text(back.path())), database.path());
    postgres::query(database.path(), "DROP VIEW crawls; ALTER TABLE real_crawls RENAME TO crawls");
    let arguments = [Path::new("--listen"), Path::new("127.0.0.1:0"), Path::new("--data"), back.path()];
    for command in ["serve", "check"] {
        let refused = run(command, if command == "serve" { &arguments } else { &arguments[2..] });
        assert!(!refused.status.success());
        assert!(stderr(&refused).contains("run `tidings migrate` again"), "{}", stderr(&refused));
    }
    migrate_successfully(&url, text(back.path()));
    assert_same_rows(&dump(back.path()), &before);
    verify_ok(&journal_file(back.path()));
}

#[tokio::test]
async fn a_journal_in_use_does_not_move() {
    crate::support::needs_sqlite();
    let [source, database, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let gateway = Gateway::start(source.path());
    let error = refused(text(source.path()), &url(database.path()));
    assert!(error.contains("in use by another process"), "{error}");
    assert!(gateway.stop().success());
    let node = open_database(database.path());
    append(&node, &[1]).unwrap();
    for (from, to) in [(text(source.path()), &*url(database.path())), (&*url(database.path()), text(back.path()))] {
        let error = refused(from, to);
        assert!(error.contains("in use by tidings/test"), "{error}");
    }
    drop(node);
    let begin = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidings/test' AND datname = current_database()";
    let began = Instant::now();
    while postgres::query(database.path(), begin) != "0" {
        assert!(began.elapsed() < PATIENCE);
    }
    migrate_successfully(&url(database.path()), text(back.path()));
}

#[tokio::test]
async fn two_journals_are_never_mixed() {
    let [one, other, database, third] = [(); 4].map(|()| tempfile::tempdir().unwrap());
    for folder in [&one, &other] {
        let opened = OpenJournal::at(folder.path());
        opened.append(1..=20).await;
        opened.close();
    }
    let url = url(database.path());
    let empty = refused(text(third.path()), &url);
    assert!(empty.contains("there is no journal in"), "{empty}");
    assert!(refused(&url, text(third.path())).contains("there is no journal in the database"));

    // A half-finished migration of one journal.
    drop(open_database(database.path()));
    postgres::query(database.path(), &STALL_WRITERS.replace("crawls", "items"));
    kill_when_stalled(start(text(one.path()), &url), database.path());
    postgres::query(database.path(), "DROP TRIGGER stall ON items");
    assert!(refused(text(other.path()), &url).contains("half-finished migration of another journal"));
    assert!(refused(&url, text(third.path())).contains("has not finished"));
    let opened = OpenJournal::at(one.path());
    opened.append(21..=22).await;
    opened.close();
    assert!(refused(text(one.path()), &url).contains("the journal has changed since that migration began"));

    postgres::query(database.path(), "DROP SCHEMA tidings CASCADE");
    migrate_successfully(text(one.path()), &url);
    for from in [&one, &other] {
        assert!(refused(text(from.path()), &url).contains("already; give an empty folder or database"));
    }
    let error = refused(&url, text(other.path()));
    assert!(error.contains("there is a journal in") && error.contains("give an empty folder"), "{error}");
    // Nothing was written by the attempts.
    verify_database_ok(database.path());
    assert_eq!(postgres::query(database.path(), "SELECT count(*) FROM changes"), "22");
}

#[tokio::test]
async fn an_incomplete_copy_is_never_finished() {
    let [source, database] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    full_journal(source.path()).await;
    drop(open_database(database.path()));
    let lose =
        "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.reason = ''; RETURN NEW; END $$;
        CREATE TRIGGER lose BEFORE INSERT ON dead_letters FOR EACH ROW EXECUTE FUNCTION lose()";
    postgres::query(database.path(), lose);
    let error = refused(text(source.path()), &url(database.path()));
    assert!(error.contains("the copy of the table dead_letters differs from the source"), "{error}");
    assert_is_half_migrated(database.path());
}

#[test]
fn a_password_reaches_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_tidings"))
        .args(["migrate", "--from", "postgres://u:sec%72et@127.0.0.1:1/d", "--to", text(folder.path())])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("cannot connect") && !format!("{ended:?}").contains("sec"), "{ended:?}");
}
