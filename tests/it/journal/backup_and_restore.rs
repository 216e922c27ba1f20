//! `tidings backup` while events arrive, `tidings restore`, and readers after a restore: no number is used
//! twice, and a reader ahead of the backup is notified.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use rusqlite::Connection;
use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::{OpenJournal, configuration, event, journal_file, post, run, stderr, verify_ok},
};

async fn status(gateway: &Gateway, path: &str) -> u16 {
    gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_during_writes_is_consistent() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Arc::new(Gateway::start(folder.path()));
    let (acknowledged, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let poster = {
        let (gateway, acknowledged, done) = (Arc::clone(&gateway), Arc::clone(&acknowledged), Arc::clone(&done));
        tokio::spawn(async move {
            for number in 1.. {
                acknowledged.store(post(&gateway, number).await, Ordering::Release);
                if done.load(Ordering::Acquire) {
                    break;
                }
            }
        })
    };
    for round in 0..5 {
        let before = acknowledged.load(Ordering::Acquire);
        while acknowledged.load(Ordering::Acquire) < before + 20 {
            tokio::task::yield_now().await;
        }
        let acknowledged_before = acknowledged.load(Ordering::Acquire);
        let file = folder.path().join(format!("backup-{round}"));
        let data = folder.path().to_owned();
        let ended = {
            let file = file.clone();
            tokio::task::spawn_blocking(move || run("backup", &[&file, Path::new("--data"), &data])).await.unwrap()
        };
        assert!(ended.status.success(), "{}", stderr(&ended));
        let report = verify_ok(&file);
        assert!(
            report.complete && report.head.0 >= acknowledged_before,
            "{report:?}, and {acknowledged_before} were acknowledged before"
        );
        let output = String::from_utf8(ended.stdout).unwrap();
        assert!(output.contains(&format!("holds the changes 1 to {} (", report.head)), "{output}");
    }
    done.store(true, Ordering::Release);
    poster.await.unwrap();
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}

/// A journal of version 16 of the file, with rows in its tables.
const VERSION_16: &str = include_str!("../../../fixtures/journal/version-16.sql");

/// Statements that make version 17 of version 16.
const CONVERT_VERSION_16: &str = include_str!("../../../src/journal/store/sqlite/convert_version_16.sql");

#[tokio::test]
async fn backup_of_an_older_version_is_verified_restored_and_served() {
    crate::support::needs_sqlite();
    let version_17 = format!("{VERSION_16} {CONVERT_VERSION_16} PRAGMA user_version = 17;");
    for version in [VERSION_16, &version_17] {
        is_verified_restored_and_served(version).await;
    }
}

async fn is_verified_restored_and_served(version: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    Connection::open(&file).unwrap().execute_batch(version).unwrap();
    let report = verify_ok(&file);
    assert!(report.complete && (report.head.0, report.objects) == (8, 6), "{report:?}");
    let ended = run("restore", &[&file, Path::new("--data"), &data]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let gateway = Gateway::start(&data);
    assert_eq!(gateway.head().await, 8);
    let sources = Connection::open(journal_file(&data)).unwrap();
    let last = |sql| sources.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(
        last("SELECT last_event FROM sources WHERE source = 's'"),
        last("SELECT max(received) FROM changes"),
        "the time of the last event comes from the changes"
    );
    assert_eq!(gateway.json("/snapshot").await["objects"].as_array().unwrap().len(), 6);
    assert!(post(&gateway, 1).await > 8);
    assert!(gateway.stop().success());
    assert_eq!(verify_ok(&journal_file(&data)).objects, 7);
}

#[test]
fn backup_and_restore_overwrite_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    let to = |file: &Path| run("backup", &[file, Path::new("--data"), &data]);
    let ended = to(&file);
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("journal.sqlite"), "{}", stderr(&ended));
    OpenJournal::at(&data).close();
    fs::write(&file, "mine").unwrap();
    let ended = to(&file);
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("exists already and is not overwritten"), "{}", stderr(&ended));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    // The file of an interrupted backup does not matter.
    fs::write(folder.path().join("other.partial"), "half").unwrap();
    assert!(to(&folder.path().join("other")).status.success());
    assert!(!folder.path().join("other.partial").exists());
    let ended = to(&folder.path().join("no such folder/backup"));
    assert!(stderr(&ended).contains("cannot write"), "{}", stderr(&ended));
}

#[tokio::test]
async fn restore_reuses_no_number_and_notifies_readers() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    let restore = |more: &[&Path]| run("restore", &[&[file.as_path(), Path::new("--data"), &data], more].concat());
    let gateway = Gateway::start(&data);
    for number in 1..=20 {
        post(&gateway, number).await;
    }
    assert!(run("backup", &[&file, Path::new("--data"), &data]).status.success());
    for number in 21..=30 {
        post(&gateway, number).await;
    }
    let lost: BTreeSet<_> = gateway.changes().await.iter().map(|change| change["seq"].as_u64().unwrap()).collect();

    let ended = restore(&[Path::new("--force")]);
    assert!(stderr(&ended).contains("in use by another process"), "{}", stderr(&ended));
    assert!(gateway.stop().success());
    let ended = restore(&[]);
    assert!(stderr(&ended).contains("or --force to move that journal aside"), "{}", stderr(&ended));

    let mut numbers = lost;
    for round in 1..=2 {
        // A second restore of the same backup discards the changes since the first one.
        let ended = restore(&[Path::new("--force")]);
        assert!(ended.status.success(), "{}", stderr(&ended));
        let gateway = Gateway::start(&data);
        for (after, expected) in [(0, 200), (19, 200), (20, 200), (21, 410), (30, 410), (31, 410)] {
            assert_eq!(status(&gateway, &format!("/changes?after={after}")).await, expected, "{after}");
        }
        let snapshot = gateway.json("/snapshot").await;
        assert_eq!(snapshot["head"], 20);
        // A lost event that is sent again is not a duplicate.
        let first = post(&gateway, 21).await;
        assert!(first > *numbers.last().unwrap(), "{first} was given before");
        assert_eq!(post(&gateway, 22).await, first + 1);
        numbers.extend([first, first + 1]);
        for after in [21, 30, first - 2] {
            assert_eq!(status(&gateway, &format!("/changes?after={after}")).await, 410, "{after}");
        }
        let page = gateway.json("/changes?after=20").await;
        let numbers: Vec<_> = page["changes"].as_array().unwrap().iter().map(|change| change["seq"].as_u64()).collect();
        assert_eq!(numbers, [Some(first), Some(first + 1)]);
        assert_eq!(gateway.changes().await.len(), 22, "round {round}");
        assert!(gateway.stop().success());
        let report = verify_ok(&journal_file(&data));
        assert_eq!((report.changes, report.complete), (22, true));
    }
    // A gateway that runs long enough makes a folder of segments, too.
    let aside = fs::read_dir(&data).unwrap().map(|entry| journal_file(&entry.unwrap().path()));
    let aside: Vec<_> = aside.filter(|file| file.exists()).map(|file| verify_ok(&file).changes).collect();
    assert_eq!(aside.iter().sum::<u64>(), 30 + 22, "{aside:?}");
}

/// A reader at the beginning has missed nothing if the backup was empty.
#[tokio::test]
async fn restore_of_an_empty_backup_keeps_cursor_zero_valid() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    assert!(Gateway::start(&data).stop().success());
    assert!(run("backup", &[&file, Path::new("--data"), &data]).status.success());
    assert!(run("restore", &[&file, Path::new("--data"), &data, Path::new("--force")]).status.success());
    let config = configuration(folder.path(), "[journal]\nkeep_changes = 3\ntail_changes = 2");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    let first = post(&gateway, 1).await;
    assert!(first > 1000);
    post(&gateway, 2).await;
    for place in [0, first - 1, first] {
        assert_eq!(status(&gateway, &format!("/changes?after={place}")).await, 200, "{place}");
    }
    assert_eq!(gateway.changes().await.len(), 2);
    for place in [1, 7] {
        assert_eq!(status(&gateway, &format!("/changes?after={place}")).await, 410, "{place}");
    }
    // Once retention has removed the first change, the reader has missed it.
    for number in 3..=5 {
        post(&gateway, number).await;
    }
    let began = Instant::now();
    while status(&gateway, "/changes?after=0").await != 410 {
        assert!(began.elapsed() < PATIENCE, "the first change is never removed");
    }
}

#[tokio::test]
async fn restore_moves_a_crashed_journal_aside_with_its_wal() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    let mut gateway = Gateway::start(&data);
    post(&gateway, 1).await;
    assert!(run("backup", &[&file, Path::new("--data"), &data]).status.success());
    post(&gateway, 2).await;
    gateway.kill();
    let log = data.join("journal.sqlite-wal");
    assert!(log.metadata().unwrap().len() > 0);
    let ended = run("restore", &[&file, Path::new("--data"), &data, Path::new("--force")]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert!(!log.exists(), "the old write-ahead log is beside the new file");
    let output = String::from_utf8(ended.stdout).unwrap();
    let (_, aside) = output.trim_end().split_once("the previous journal is in ").unwrap();
    assert_eq!(verify_ok(&journal_file(Path::new(aside))).changes, 2);
    assert_eq!(verify_ok(&journal_file(&data)).changes, 1);
}

#[test]
fn restore_resumes_after_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    OpenJournal::at(&data).close();
    assert!(run("backup", &[&file, Path::new("--data"), &data]).status.success());
    // State after a crash within a restore: the copy exists, and the old journal may be incomplete.
    fs::copy(&file, data.join("journal.sqlite.restoring")).unwrap();
    let ended = run("serve", &[Path::new("--listen"), Path::new("127.0.0.1:0"), Path::new("--data"), &data]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("run `tidings restore` again with --force"), "{}", stderr(&ended));
    let ended = run("restore", &[&file, Path::new("--data"), &data, Path::new("--force")]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    OpenJournal::at(&data).close();
}

#[tokio::test]
async fn restore_replaces_a_truncated_journal() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    let opened = OpenJournal::at(&data);
    opened.append(1..=2000).await;
    opened.close();
    assert!(run("backup", &[&file, Path::new("--data"), &data]).status.success());
    for (path, command) in [(journal_file(&data), "serve"), (file.clone(), "restore")] {
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let ended = match command {
            "serve" => run(command, &[Path::new("--listen"), Path::new("127.0.0.1:0"), Path::new("--data"), &data]),
            _ => run(command, &[&path, Path::new("--data"), &data, Path::new("--force")]),
        };
        assert_eq!(ended.status.code(), Some(1), "{command}");
        let output = stderr(&ended);
        assert!(output.contains("is damaged") && output.contains("restore it from a backup"), "{output}");
        let ended = run("verify", &[&path]);
        assert!(ended.status.code() == Some(1) && stderr(&ended).contains("is damaged"), "{}", stderr(&ended));
        if command == "restore" {
            fs::write(&path, &whole).unwrap();
        }
    }
    assert!(run("restore", &[&file, Path::new("--data"), &data, Path::new("--force")]).status.success());
    let gateway = Gateway::start(&data);
    assert_eq!(gateway.changes().await.len(), 2000);
    let repeat = gateway.post("content-change", "application/json", event(1).to_string()).await;
    assert_ne!(repeat.1["outcome"], Value::Null);
}
