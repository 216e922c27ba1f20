//! A journal for the unit tests of the views.

use std::{path::Path, sync::Arc};

use serde_json::{Value, json};

use crate::{
    journal::{
        DuplicatePolicy, Journal, JournalSettings, Submission, TailBounds,
        settle::SourcePolicy,
        store::sqlite::{SqliteOptions, SqliteStore},
    },
    model::{Draft, SourceName},
};

/// Draft with one small item.
pub(crate) fn small_draft() -> Value {
    json!({ "object": "http://h/1", "items": [{ "uri": "http://h/1", "change": "ADD" }] })
}

/// Creates a journal that contains `draft` as `changes` changes. The newest `in_memory` of them are in its tail.
pub(crate) async fn journal_of(draft: Value, changes: usize, in_memory: usize, folder: &Path) -> Journal {
    let store = SqliteStore::open(folder, SqliteOptions::default()).unwrap();
    let tail = TailBounds { changes: in_memory, ..TailBounds::default() };
    let (journal, _threads) = Journal::start(store, JournalSettings { tail, ..JournalSettings::default() }).unwrap();
    append(&journal, draft, changes).await;
    journal
}

/// Appends `draft` as `changes` changes.
pub(crate) async fn append(journal: &Journal, draft: Value, changes: usize) {
    let draft: Draft = serde_json::from_value(draft).unwrap();
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    let drafts = vec![(None, draft); changes];
    let submission = Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None };
    journal.append(submission).await.unwrap();
}
