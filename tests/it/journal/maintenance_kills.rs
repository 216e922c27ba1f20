//! `kill -9` during retention, backup, restore and the creation of a journal: no acknowledged and retained
//! change is lost, and the next attempt completes the interrupted work.

use std::{path::Path, process::Stdio, time::Instant};

use tidings::journal::retention::Retention;

use crate::support::{
    gateway::{Gateway, PATIENCE, command},
    journal_fixture::{OpenJournal, configuration, journal_file, post, run, stderr, verify_ok},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_during_retention_loses_nothing() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    for first in (0..4).map(|round| 1 + round * 2000) {
        opened.append(first..first + 2000).await;
    }
    opened.close();
    let config = configuration(folder.path(), "[journal]\nkeep_changes = 100");
    let (mut last, mut broken_off) = (8000, 0);
    for _ in 0..10 {
        let before = first_retained(folder.path());
        if before == last - 99 {
            break;
        }
        let mut gateway = Gateway::start_with(folder.path(), &["--config", &config]);
        for _ in 0..3 {
            last += 1;
            assert_eq!(post(&gateway, last).await, last);
        }
        wait_until_removed(&gateway, before - 1).await;
        gateway.kill();
        let report = verify_ok(&journal_file(folder.path()));
        assert_eq!((report.head.0, report.objects), (last, 100));
        let first = report.first.unwrap().0;
        assert!(before < first && first <= last - 99, "{before}, then {first} of {last}");
        broken_off += u32::from(first < last - 99);
    }
    assert!(broken_off > 0, "no kill happened during the operation");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    wait_until_removed(&gateway, last - 101).await;
}

/// Waits until retention has removed the change after `place`.
async fn wait_until_removed(gateway: &Gateway, place: u64) {
    let began = Instant::now();
    let url = format!("{}/changes?after={place}&limit=1", gateway.url);
    while gateway.http.get(&url).send().await.unwrap().status() != 410 {
        assert!(began.elapsed() < PATIENCE, "{place} does not go");
    }
}

fn first_retained(folder: &Path) -> u64 {
    verify_ok(&journal_file(folder)).first.unwrap().0
}

/// Starts a command, waits until the file has that many bytes, and kills the command. Returns true if it was
/// killed before its end.
fn kill_command_at(name: &str, arguments: &[&Path], file: &Path, bytes: u64) -> bool {
    let mut child = command().arg(name).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() && file.metadata().map_or(0, |file| file.len()) < bytes {
        std::thread::yield_now();
    }
    let running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    running
}

#[tokio::test]
async fn kill_during_backup_and_restore_loses_nothing() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, other) = (folder.path().join("data"), folder.path().join("other"));
    let opened = OpenJournal::at(&data);
    opened.append(1..=6000).await;
    opened.close();
    let size = journal_file(&data).metadata().unwrap().len();
    let mut gateway = Gateway::start(&data);
    let mut in_the_middle = 0;
    for part in 0..8 {
        let file = folder.path().join(format!("backup-{part}"));
        let partial = folder.path().join(format!("backup-{part}.partial"));
        in_the_middle +=
            u32::from(kill_command_at("backup", &[&file, Path::new("--data"), &data], &partial, size * part / 8 + 1));
        post(&gateway, 7000 + part).await;
        if !file.exists() {
            let ended = run("backup", &[&file, Path::new("--data"), &data]);
            assert!(ended.status.success(), "{}", stderr(&ended));
        }
        assert!(verify_ok(&file).changes >= 6000 && !partial.exists());
    }
    assert!(in_the_middle > 0, "no kill happened during a backup");

    // The gateway is killed during a backup of its journal.
    let file = folder.path().join("backup");
    let mut backup = command();
    let mut backup = backup.arg("backup").arg(&file).arg("--data").arg(&data).stdout(Stdio::null()).spawn().unwrap();
    gateway.kill();
    assert!(backup.wait().unwrap().success());
    assert_eq!(verify_ok(&file).changes, 6008);
    assert_eq!(Gateway::start(&data).changes().await.len(), 6008);

    let mut in_the_middle = 0;
    for part in 0..8 {
        let arguments = [file.as_path(), Path::new("--data"), &other, Path::new("--force")];
        let partial = other.join("journal.sqlite.partial");
        in_the_middle += u32::from(kill_command_at("restore", &arguments, &partial, size * part / 8 + 1));
        let ended = run("restore", &arguments);
        assert!(ended.status.success(), "{}", stderr(&ended));
        assert_eq!(verify_ok(&journal_file(&other)).changes, 6008);
        OpenJournal::at(&other).close();
    }
    assert!(in_the_middle > 0, "no kill happened during a restore");
}

#[tokio::test]
async fn kill_during_creation_and_migration_loses_nothing() {
    crate::support::needs_sqlite();
    let mut unfinished = 0;
    for round in 0..30u64 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = command();
        child.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Each round writes slightly more before the kill.
        let began = Instant::now();
        while !journal_file(folder.path()).exists() || written(folder.path()) < round * 3_000 {
            assert!(began.elapsed() < PATIENCE, "the command writes nothing more");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let connection = rusqlite::Connection::open(journal_file(folder.path())).unwrap();
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        unfinished += u32::from(version == 0);
        drop(connection);
        let gateway = Gateway::start(folder.path());
        assert_eq!(post(&gateway, 1).await, 1);
        assert!(gateway.stop().success());
        assert!(verify_ok(&journal_file(folder.path())).complete);
        assert_creation_settings(folder.path()).await;
    }
    assert!(unfinished > 0, "no kill happened before the journal was created");
}

/// Returns the size of the journal's files in bytes.
fn written(folder: &Path) -> u64 {
    let files = [journal_file(folder), folder.join("journal.sqlite-wal")];
    files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Checks the settings that a journal can only get at its creation, even an interrupted one.
async fn assert_creation_settings(folder: &Path) {
    let connection = rusqlite::Connection::open(journal_file(folder)).unwrap();
    let setting =
        |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((setting("page_size"), setting("auto_vacuum")), (8192, 2));
    let opened = OpenJournal::at(folder);
    Retention { changes: Some(1), ..Retention::default() }
        .enforce(&opened.journal, tidings::model::Timestamp::now())
        .await
        .unwrap();
    opened.close();
}
