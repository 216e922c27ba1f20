//! Journals and events for the tests of retention, backup and repair.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use tidings::{
    journal::{
        DraftOutcome, DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission, TailBounds,
        settle::SourcePolicy,
        store::{
            EventIdentity, Report, Store, event_key,
            sqlite::{FILE_NAME, SqliteOptions, SqliteStore, verify::verify},
        },
    },
    model::{Draft, SourceName},
};

use crate::support::gateway::{Gateway, command};

/// Journal that is open in the process of the test.
pub(crate) struct OpenJournal {
    pub(crate) journal: Journal,
    writer: JournalThreads,
}

impl OpenJournal {
    pub(crate) fn at(folder: &Path) -> Self {
        Self::of(SqliteStore::open(folder, SqliteOptions::default()).unwrap())
    }

    /// Starts the journal of a store.
    pub(crate) fn of(store: impl Store) -> Self {
        let (journal, writer) = Journal::start(
            store,
            JournalSettings { tail: TailBounds { changes: 10, ..TailBounds::default() }, ..JournalSettings::default() },
        )
        .unwrap();
        Self { journal, writer }
    }

    /// Appends the events with these numbers.
    pub(crate) async fn append(&self, events: impl IntoIterator<Item = u64>) -> Vec<DraftOutcome> {
        let name = SourceName::parse("s").unwrap();
        let drafts = events.into_iter().map(|number| {
            let key = event_key(&name, EventIdentity::Id(&number.to_string()), 0);
            let draft: Draft = serde_json::from_value(event(number)).unwrap();
            (Some(key), draft)
        });
        let submission = Submission {
            drafts: drafts.collect(),
            policy: SourcePolicy { name: name.clone(), metadata_changes: false }.into(),
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: None,
        };
        self.journal.append(submission).await.unwrap()
    }

    /// Appends changes in the JSON of drafts as one batch, which have the same time of receipt.
    pub(crate) async fn append_batch(&self, drafts: impl IntoIterator<Item = Value>) {
        let drafts = drafts.into_iter().map(|draft| (None, serde_json::from_value(draft).unwrap())).collect();
        let policy =
            SourcePolicy { name: SourceName::parse("content-change").unwrap(), metadata_changes: false }.into();
        let duplicate_policy = DuplicatePolicy::RememberChanges;
        let submission = Submission { drafts, policy, duplicate_policy, completes: None };
        self.journal.append(submission).await.unwrap();
    }

    pub(crate) fn close(self) {
        drop(self.journal);
        self.writer.join();
    }
}

/// Returns the event with that number: it adds an item of about one kilobyte to one of a hundred objects.
pub(crate) fn event(number: u64) -> Value {
    let object = format!("http://localhost/objects/{}", number % 100);
    let item = format!("{object}/items/{number}");
    let items = json!([{ "uri": item, "change": "ADD" }]);
    json!({ "sourceEventId": format!("event {number}"), "object": object, "description": "x".repeat(600), "items": items })
}

/// Posts an event, which must be accepted; returns the number of its change.
pub(crate) async fn post(gateway: &Gateway, number: u64) -> u64 {
    let (status, answer) = gateway.post("content-change", "application/json", event(number).to_string()).await;
    assert!(status == 201 || status == 200, "{status}: {answer}");
    answer["changes"][0]["seq"].as_u64().unwrap()
}

/// Writes a configuration file with these lines into a folder and returns its path.
pub(crate) fn configuration(folder: &Path, lines: &str) -> String {
    let path = folder.join("tidings.toml");
    fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs a command of the program to its end.
pub(crate) fn run(name: &str, arguments: &[&Path]) -> Output {
    command().arg(name).args(arguments).output().unwrap()
}

/// Copies files of a journal into a folder in a separate process. If this process opened and closed a file of
/// its open journal, SQLite's locks on that file would be released.
pub(crate) fn copy_files(files: impl IntoIterator<Item = PathBuf>, folder: &Path) {
    let copied = Command::new("cp").arg("--").args(files).arg(folder).status().unwrap();
    assert!(copied.success());
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn journal_file(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}

/// Verifies a journal, which must have no errors.
pub(crate) fn verify_ok(file: &Path) -> Report {
    let report = verify(file, &mut |_, _| {}).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    report
}
