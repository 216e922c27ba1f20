//! Folders whose files do not belong together any more are refused: a file of the journal is missing, empty, damaged or
//! older than the numbers that were given. No number is given twice. Folders that only look so are opened.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rusqlite::Connection;

use crate::support::{
    gateway::{Gateway, command},
    journal_fixture::{OpenJournal, journal_file, post, run, stderr, verify_ok},
};

const COUNT: u64 = 50;

/// Creates a journal with [`COUNT`] changes whose gateway was killed.
async fn killed(folder: &Path) {
    let mut gateway = Gateway::start(folder);
    for number in 1..=COUNT {
        post(&gateway, number).await;
    }
    gateway.kill();
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("journal.sqlite-wal")
}

/// Starts a gateway that must refuse the folder; returns the reason, which `tidings check` must give too.
fn refused(folder: &Path) -> String {
    let output = |arguments: &[&str]| command().args(arguments).arg("--data").arg(folder).output().unwrap();
    let before = contents(folder);
    let served = output(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(served.status.code(), Some(1), "the journal was opened");
    assert_eq!(contents(folder), before, "the files were changed");
    stderr(&served)
}

/// Returns the contents of SQLite's files of the journal that are not empty.
fn contents(folder: &Path) -> Vec<Vec<u8>> {
    let files = ["journal.sqlite", "journal.sqlite-wal"].map(|name| fs::read(folder.join(name)).unwrap_or_default());
    files.into_iter().filter(|content| !content.is_empty()).collect()
}

fn restore(file: &Path, folder: &Path) -> Output {
    run("restore", &[file, Path::new("--force"), Path::new("--data"), folder])
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn lost_file_is_refused_and_no_number_is_given_twice() {
    crate::support::needs_sqlite();
    type Damage = fn(&Path);
    let damages: [(Damage, &str, bool); 7] = [
        (|folder| fs::write(journal_file(folder), "").unwrap(), "is missing or empty, but its write-ahead log", false),
        (
            |folder| fs::remove_file(journal_file(folder)).unwrap(),
            "is missing or empty, but its write-ahead log",
            false,
        ),
        (|folder| fs::remove_file(log_of(folder)).unwrap(), "journal.sqlite-wal was removed", true),
        (
            |folder| fs::write(log_of(folder), "").unwrap(),
            "it ends with change 0, and has given the numbers up to 50",
            true,
        ),
        (|folder| flip(&log_of(folder), 17), "has a damaged header", true),
        // The checksum of the first frame: SQLite ignores the log from there on.
        (|folder| flip(&log_of(folder), 32 + 17), "it ends with change 0, and has given the numbers up to 50", true),
        (
            |folder| {
                let journal = Connection::open(journal_file(folder)).unwrap();
                assert_eq!(journal.execute("DELETE FROM changes WHERE seq > 20", []).unwrap(), 30);
            },
            "it ends with change 20, and has given the numbers up to 50",
            true,
        ),
    ];
    for (damage, reason, has_rest) in damages {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        killed(&data).await;
        let backup = folder.path().join("backup");
        let made = run("backup", &[&backup, Path::new("--data"), &data]);
        assert!(made.status.success(), "{}", stderr(&made));
        damage(&data);
        let error = refused(&data);
        assert!(error.contains(reason) && error.contains("tidings restore FILE --force"), "{reason}: {error}");
        for name in ["verify", "backup"] {
            let file = folder.path().join("other");
            let arguments: &[&Path] =
                if name == "backup" { &[&file, Path::new("--data"), &data] } else { &[Path::new("--data"), &data] };
            let ended = run(name, arguments);
            assert_eq!(ended.status.code(), Some(1), "{reason}: {name}");
        }
        if has_rest {
            // The advice for a journal without a backup.
            assert!(error.contains(&format!("tidings restore {} --force", journal_file(&data).display())), "{error}");
            let rest = folder.path().join("rest");
            Command::new("cp").arg("-r").args([&data, &rest]).status().unwrap();
            let ended = restore(&journal_file(&rest), &rest);
            assert!(ended.status.success(), "{reason}: {}", stderr(&ended));
            let gateway = Gateway::start(&rest);
            let left = gateway.head().await;
            assert!(left < COUNT && post(&gateway, 99).await > 1000 * COUNT, "{reason}");
            assert_eq!(
                gateway.http.get(format!("{}/changes?after={COUNT}", gateway.url)).send().await.unwrap().status(),
                410
            );
        }
        let ended = restore(&backup, &data);
        assert!(ended.status.success(), "{reason}: {}", stderr(&ended));
        let gateway = Gateway::start(&data);
        assert_eq!(gateway.head().await, COUNT);
        assert!(post(&gateway, 99).await > 1000 * COUNT, "a number is given twice");
        assert!(gateway.stop().success());
        assert_eq!(verify_ok(&journal_file(&data)).changes, COUNT + 1);
    }
}

#[tokio::test]
async fn new_journal_after_a_loss_gives_no_number_twice() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path()).await;
    fs::remove_file(journal_file(folder.path())).unwrap();
    let checked = run("check", &[Path::new("--data"), folder.path()]);
    assert_eq!(checked.status.code(), Some(1));
    let error = refused(folder.path());
    assert!(
        error.contains("tidings serve --new-journal")
            && error == stderr(&checked).lines().next().unwrap().to_owned() + "\n",
        "{error}"
    );
    let gateway = Gateway::start_with(folder.path(), &["--new-journal"]);
    assert_eq!(gateway.head().await, 0);
    assert!(post(&gateway, 1).await > 1000 * COUNT);
    let late = gateway.http.get(format!("{}/changes?after={COUNT}", gateway.url)).send().await.unwrap();
    assert_eq!(late.status(), 410);
    assert!(gateway.stop().success());
    let aside = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside = aside.filter(|path| path.join("journal.sqlite-wal").exists()).count();
    assert_eq!(aside, 1, "the write-ahead log was not moved aside");
    // The flag replaces no journal.
    let gateway = Gateway::start_with(folder.path(), &["--new-journal"]);
    assert_eq!(gateway.changes().await.len(), 1);
}

#[tokio::test]
async fn journal_that_was_removed_after_a_clean_stop_is_missed() {
    crate::support::needs_sqlite();
    for (name, is_missed) in [("journal.sqlite", true), ("journal.lock", false)] {
        let folder = tempfile::tempdir().unwrap();
        let opened = OpenJournal::at(folder.path());
        opened.append(1..=3).await;
        opened.close();
        fs::remove_file(folder.path().join(name)).unwrap();
        if is_missed {
            let error = refused(folder.path());
            assert!(error.contains("journal.lock says that it has given the numbers up to 3"), "{error}");
        } else {
            assert_eq!(Gateway::start(folder.path()).head().await, 3);
        }
    }
    // Only the archive pages are left.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("pages")).unwrap();
    let error = refused(folder.path());
    assert!(error.contains("its archive pages in pages/ are there"), "{error}");
}

#[tokio::test]
async fn complete_folder_is_opened() {
    crate::support::needs_sqlite();
    // An outside program has moved the log into the file after a kill, and removed it.
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path()).await;
    let outside = Connection::open(journal_file(folder.path())).unwrap();
    outside.query_row("SELECT count(*) FROM changes", [], |row| row.get::<_, i64>(0)).unwrap();
    drop(outside);
    assert!(!log_of(folder.path()).exists());
    let gateway = Gateway::start(folder.path());
    assert_eq!(post(&gateway, COUNT + 1).await, COUNT + 1);
    drop(gateway);

    // The lock file of an earlier version has a process id only; after a kill, and after a clean stop.
    for is_killed in [true, false] {
        let mut gateway = Gateway::start(folder.path());
        let head = gateway.head().await;
        if is_killed {
            gateway.kill();
        } else {
            assert!(gateway.stop().success());
        };
        fs::write(folder.path().join("journal.lock"), "4711").unwrap();
        let gateway = Gateway::start(folder.path());
        assert_eq!(post(&gateway, head + 1).await, head + 1);
    }

    // A copy of the folder, and a copy of the file alone.
    assert!(Gateway::start(folder.path()).stop().success());
    let copies = tempfile::tempdir().unwrap();
    let (all, alone) = (copies.path().join("all"), copies.path().join("alone"));
    assert!(Command::new("cp").arg("-r").args([folder.path(), &all]).status().unwrap().success());
    fs::create_dir(&alone).unwrap();
    fs::copy(journal_file(folder.path()), journal_file(&alone)).unwrap();
    for copy in [all, alone] {
        assert_eq!(Gateway::start(&copy).head().await, COUNT + 3);
    }
}
