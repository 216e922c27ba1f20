//! Files that are not a journal, and journals that are newer, damaged or in use, are refused with one sentence
//! of advice, and the file is left unchanged.

use std::{fs, path::Path};

use tidings::{
    journal::{
        DuplicatePolicy, Journal, JournalSettings, Submission,
        settle::SourcePolicy,
        store::{
            EventIdentity, Store, event_key,
            sqlite::{FILE_NAME, SqliteOptions, SqliteStore},
        },
    },
    model::{Draft, SourceName},
};

fn refusal(folder: &Path) -> String {
    match SqliteStore::open(folder, SqliteOptions::default()) {
        Ok(_) => panic!("the journal was opened"),
        Err(error) => error.to_string(),
    }
}

/// Creates and closes a journal with that many changes.
fn journal_with(folder: &Path, changes: usize) {
    let store = SqliteStore::open(folder, SqliteOptions::default()).unwrap();
    let (journal, writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let source = SourceName::parse("s").unwrap();
    let drafts = (0..changes).map(|number| {
        let uri = format!("http://localhost/objects/{number}");
        let draft = serde_json::json!({ "object": uri, "items": [{ "uri": uri, "change": "ADD" }] });
        let draft: Draft = serde_json::from_value(draft).unwrap();
        (Some(event_key(&source, EventIdentity::Id(&uri), 0)), draft)
    });
    let policy = SourcePolicy { name: source.clone(), metadata_changes: false };
    let submission = Submission {
        policy: policy.into(),
        drafts: drafts.collect(),
        duplicate_policy: DuplicatePolicy::RememberChanges,
        completes: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(journal.append(submission)).unwrap().len(), changes);
    drop(journal);
    writer.join();
}

#[test]
fn open_accepts_an_existing_journal() {
    let folder = tempfile::tempdir().unwrap();
    journal_with(folder.path(), 3);
    let first = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap().identity();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    assert_eq!(store.head().unwrap().0, 3);
    assert_eq!(store.identity(), first);
}

#[test]
fn open_refuses_a_journal_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let _held = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    let refusal = refusal(folder.path());
    assert!(refusal.contains(&format!("in use by another process (pid {})", std::process::id())), "{refusal}");
}

#[test]
fn open_refuses_a_newer_version() {
    let folder = tempfile::tempdir().unwrap();
    journal_with(folder.path(), 1);
    let file = folder.path().join(FILE_NAME);
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let refusal = refusal(folder.path());
    assert!(refusal.contains("newer version of Tidings (format 99"), "{refusal}");
    assert!(refusal.contains(file.to_str().unwrap()), "{refusal}");
}

#[test]
fn open_refuses_a_version_from_before_the_first_release() {
    let folder = tempfile::tempdir().unwrap();
    journal_with(folder.path(), 1);
    let file = folder.path().join(FILE_NAME);
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 15).unwrap();
    let refusal = refusal(folder.path());
    assert!(refusal.contains("before its first release (format 15, this version reads from 16)"), "{refusal}");
    assert!(refusal.contains(file.to_str().unwrap()), "{refusal}");
}

#[test]
fn open_refuses_another_programs_database() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE_NAME);
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    let before = fs::read(&file).unwrap();
    let refusal = refusal(folder.path());
    assert!(refusal.contains("not a journal of Tidings (it is an SQLite file of another program)"), "{refusal}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn open_refuses_a_file_that_is_not_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let text = "Dear diary, ".repeat(1000);
    fs::write(folder.path().join(FILE_NAME), &text).unwrap();
    let refusal = refusal(folder.path());
    assert!(refusal.contains("it is not an SQLite file"), "{refusal}");
    assert_eq!(fs::read_to_string(folder.path().join(FILE_NAME)).unwrap(), text);
}

#[test]
fn open_refuses_a_truncated_file() {
    let folder = tempfile::tempdir().unwrap();
    journal_with(folder.path(), 2000);
    let file = fs::OpenOptions::new().write(true).open(folder.path().join(FILE_NAME)).unwrap();
    let length = file.metadata().unwrap().len();
    for cut in [length - 1, length / 2, 10_000] {
        file.set_len(cut).unwrap();
        let refusal = refusal(folder.path());
        assert!(refusal.contains("is damaged") && refusal.contains("restore it from a backup"), "{cut}: {refusal}");
    }
}

#[test]
fn open_refuses_a_corrupt_page() {
    let folder = tempfile::tempdir().unwrap();
    journal_with(folder.path(), 2000);
    let path = folder.path().join(FILE_NAME);
    let whole = fs::read(&path).unwrap();
    for page in 1..whole.len() / 8192 {
        let mut broken = whole.clone();
        // More than the entries of the roots of tables and indexes in the map of pages, which nothing reads.
        broken[page * 8192..page * 8192 + 1000].fill(0xA5);
        fs::write(&path, broken).unwrap();
        let refusal = refusal(folder.path());
        assert!(refusal.contains("is damaged"), "page {page}: {refusal}");
    }
    fs::write(&path, whole).unwrap();
    assert!(SqliteStore::open(folder.path(), SqliteOptions::default()).is_ok());
}

#[test]
fn open_refuses_a_file_as_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    fs::write(&file, "").unwrap();
    let refusal = refusal(&file);
    assert!(refusal.contains("folder") && refusal.contains("--data"), "{refusal}");
}
