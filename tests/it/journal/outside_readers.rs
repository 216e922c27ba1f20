//! Other programs may open the journal's file with any SQLite tool, and must not remove the write-ahead log.
//!
//! SQLite holds POSIX locks on the file, and the operating system releases all of a process's locks on a file
//! as soon as the process closes any descriptor of that file. A process without locks looks absent: the next
//! program that closes its connection takes itself for the last one, and deletes the write-ahead log.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use rusqlite::Connection;
use tidings::journal::store::sqlite::{SqliteOptions, SqliteStore, backup::back_up};

use crate::support::{
    gateway::Gateway,
    journal_fixture::{OpenJournal, journal_file, post, verify_ok},
};

/// First and last byte of SQLite's shared lock (SQLite file format, `PENDING_BYTE` + 2, 510 bytes).
const SHARED_LOCK: (u64, u64) = (0x4000_0002, 0x4000_01ff);

/// Reads the journal with another program's SQLite, which opens it for reading and writing and closes it again.
fn read_from_outside(journal: &Path) -> u64 {
    const SCRIPT: &str = "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); \
        print(connection.execute('SELECT count(*) FROM changes').fetchone()[0]); connection.close()";
    let ended = Command::new("python3").args(["-c", SCRIPT]).arg(journal).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap().trim().parse().unwrap()
}

/// Returns true if the process has the shared lock on the file, according to the kernel's list of locks.
fn holds_shared_lock(process: u32, file: &Path) -> bool {
    let inode = file.metadata().unwrap().ino().to_string();
    fs::read_to_string("/proc/locks").unwrap().lines().any(|line| {
        // "1: POSIX  ADVISORY  READ 4242 fe:00:1234 1073741826 1073742335"
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, "POSIX", _, "READ", pid, place, first, last] = fields[..] else { return false };
        let range = (first.parse().unwrap_or(0), last.parse().unwrap_or(0));
        pid == process.to_string() && place.rsplit(':').next() == Some(&inode) && range == SHARED_LOCK
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_writer_loses_no_acknowledged_change() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_file(folder.path());
    let mut gateway = Gateway::start(folder.path());
    let mut head = 0;
    for round in 0..6 {
        for _ in 0..20 {
            head = post(&gateway, head + 1).await;
        }
        assert_eq!(read_from_outside(&journal), head, "round {round}");
        assert!(folder.path().join("journal.sqlite-wal").exists(), "the outside reader deleted the write-ahead log");
    }
    for _ in 0..20 {
        head = post(&gateway, head + 1).await;
    }
    gateway.kill();
    let gateway = Gateway::start(folder.path());
    assert_eq!(gateway.changes().await.len() as u64, head);
    assert_eq!(post(&gateway, head + 1).await, head + 1);
    assert!(gateway.stop().success());
    verify_ok(&journal);
}

#[tokio::test]
async fn gateway_holds_its_lock_on_the_journal() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_file(folder.path());
    for start in ["with a new journal", "with an old one"] {
        let gateway = Gateway::start(folder.path());
        post(&gateway, 1).await;
        assert!(holds_shared_lock(gateway.id(), &journal), "the gateway has no lock on its journal {start}");
        assert!(gateway.stop().success());
    }
}

#[tokio::test]
async fn backup_holds_its_lock_on_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    opened.append(1..=50).await;
    opened.close();
    let journal = journal_file(folder.path());
    assert!(!folder.path().join("journal.sqlite-wal").exists(), "no other process has the journal open");
    let mut reports = 0;
    back_up(folder.path(), &folder.path().join("copy"), &mut |_, _| {
        reports += 1;
        assert!(holds_shared_lock(std::process::id(), &journal));
    })
    .unwrap();
    assert!(reports > 0);
}

#[test]
fn journal_opens_while_another_program_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let open = || SqliteStore::open(folder.path(), SqliteOptions::default());
    drop(open().unwrap());
    let reader = Connection::open(journal_file(folder.path())).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM changes").unwrap();
    drop(open().unwrap());
}
