//! Restore: replacing a journal by a backup.
//!
//! A restored journal lacks the changes after the backup, which readers may have seen. If it continued with the
//! next number, a reader with a later cursor would miss new changes under numbers that it has already processed.
//! The numbering therefore skips all numbers that the lost journal can have given: it continues at the time of the
//! restore ([`numbering`] has the arithmetic). A cursor in a skipped range is invalid in the restored journal, and its
//! reader gets an error.
//!
//! The restored journal gets a new identity, so that everything derived from the lost journal (archive pages on
//! disk) is created again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use uuid::Uuid;

use super::value::params;
use super::{
    FILE_NAME,
    backup::{BackupError, JournalSummary, PartialFile, cannot_write, copy, open_to_read, sync_folder},
    lock::{LockFile, Mark, Trace},
    open::{identity, version},
    open_error::{OpenError, explain},
    rows, schema,
};
use crate::{
    journal::{
        private_files,
        store::{StoreError, numbering},
    },
    model::{Seq, Timestamp},
};

/// Name of the incomplete copy.
const PARTIAL_NAME: &str = "journal.sqlite.partial";

/// Name of the complete copy. While a file with this name exists, the journal in the folder cannot be opened.
pub(super) const READY_NAME: &str = "journal.sqlite.restoring";

/// Reasons why a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder already has a journal.
    #[error("there is a journal in {0}; give another folder with --data, or --force to move that journal aside")]
    Exists(PathBuf),
    /// The file is not a backup.
    #[error("{0} is not a backup of Tidings; give the file that `tidings backup` wrote")]
    NoBackup(PathBuf),
    /// There is no such file.
    #[error("there is no backup at {0}")]
    Missing(PathBuf),
    /// The folder cannot be used or is in use, or the file cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The copy failed.
    #[error(transparent)]
    Copy(#[from] BackupError),
}

/// Result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreSummary {
    /// Changes and size of the restored journal.
    pub summary: JournalSummary,
    /// Number of the next change.
    pub next_seq: Seq,
    /// Folder to which the previous journal was moved.
    pub moved_aside: Option<PathBuf>,
}

/// Restores the backup `file` as the journal in `folder`. With `force`, an existing journal is moved aside. If the
/// restore is interrupted, either the existing journal is still in place, or the folder cannot be opened until the
/// restore is repeated.
///
/// # Errors
/// Fails if the file is not an intact backup, if there is a journal (without `force`) or one that is in use, or if
/// a file cannot be written.
pub fn restore(
    file: &Path,
    folder: &Path,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RestoreSummary, RestoreError> {
    let file = &std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let backup = open_to_read(file).map_err(|error| match error {
        OpenError::Foreign { path, .. } => RestoreError::NoBackup(path),
        OpenError::Absent { path } => RestoreError::Missing(path),
        other => other.into(),
    })?;
    let result: String =
        backup.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(|error| explain(file, &error))?;
    if result != "ok" {
        return Err(OpenError::Damaged { path: file.to_owned(), what: result }.into());
    }
    private_files::create_folder(folder).map_err(|error| OpenError::folder(folder, error))?;
    let journal = folder.join(FILE_NAME);
    let lock = LockFile::acquire(folder, &journal)?;
    let ready = folder.join(READY_NAME);
    let has_journal = parts(folder).iter().any(|part| part.exists()) || ready.exists();
    if has_journal && !force {
        return Err(RestoreError::Exists(folder.to_owned()));
    }

    let partial = PartialFile::create(folder.join(PARTIAL_NAME))?;
    let path = partial.path();
    let summary = copy(file, &backup, path, progress)?;
    // The lost journal may have given numbers that neither the backup nor the clock shows.
    let given = if let Trace::Marked(mark) = lock.found() { mark.head } else { Seq::ZERO };
    let (identity, next_seq) =
        continue_numbering(path, summary.head, given).map_err(|error| RestoreError::Copy(cannot_write(path, error)))?;
    // Between this rename and the last one the journal cannot be opened, because a crash in between could leave the
    // new file with the old write-ahead log, or the old file without its log.
    partial.finish(&ready)?;
    let unwritable = |error: std::io::Error| RestoreError::Copy(cannot_write(&ready, error));
    let moved_aside = move_aside(folder).map_err(unwritable)?;
    fs::rename(&ready, &journal).and_then(|()| sync_folder(&journal)).map_err(unwritable)?;
    lock.record(Mark { identity, head: summary.head });
    lock.sync();
    Ok(RestoreSummary { summary, next_seq, moved_aside })
}

/// Converts the copy to the current version, gives it a new identity, and moves its numbering past all numbers that readers
/// may have seen. Returns the identity and the number of the next change.
fn continue_numbering(path: &Path, head: Seq, given: Seq) -> Result<(Uuid, Seq), StoreError> {
    let mut connection = Connection::open(path)?;
    let version = version(&connection)?;
    schema::migrate(&mut connection, version)?;
    let transaction = connection.transaction()?;
    let (former, new) = (identity(&transaction)?, Uuid::new_v4());
    transaction.execute("UPDATE meta SET value = ? WHERE name = 'identity'", [new.as_bytes().as_slice()])?;
    let next_seq = skip_numbers(&transaction, Some(former), head, given)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    Ok((new, next_seq))
}

/// Continues the numbering of a journal, whose newest change is `head`, past `given` and past all numbers that the lost
/// part can have given. `former` is the identity under which it had those up to `head`. Returns the number of the next change.
pub(super) fn skip_numbers(
    connection: &Connection,
    former: Option<Uuid>,
    head: Seq,
    given: Seq,
) -> rusqlite::Result<Seq> {
    let given = rows::number(head.max(given).0).max(schema::floor(connection)?);
    let floor = numbering::floor_after_loss(given, Timestamp::now());
    // Two losses can end at one number, if the second one has lost all changes since the first.
    let skip = "INSERT INTO restores (head, floor, identities) VALUES (?, ?, ?) ON CONFLICT (head) DO UPDATE
        SET (floor, identities) = (excluded.floor,
            coalesce(restores.identities || ' ' || excluded.identities, restores.identities, excluded.identities))";
    let former = former.map(|former| former.to_string());
    connection.execute(skip, params![rows::number(head.0), floor, former])?;
    Ok(Seq(u64::try_from(floor).unwrap_or_default()).next())
}

/// Returns the paths of a journal's files. A crash may have left any of them.
fn parts(folder: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| folder.join(format!("{FILE_NAME}{suffix}")))
}

/// Moves the files of an existing journal to a new folder; returns the folder.
pub(super) fn move_aside(folder: &Path) -> std::io::Result<Option<PathBuf>> {
    let parts: Vec<_> = parts(folder).into_iter().filter(|part| part.exists()).collect();
    if parts.is_empty() {
        return Ok(None);
    }
    let time = Timestamp::now().datetime().format("%Y%m%dT%H%M%S%3fZ");
    let aside = folder.join(format!("replaced-{time}"));
    private_files::create_folder(&aside)?;
    for part in &parts {
        if let Some(name) = part.file_name() {
            fs::rename(part, aside.join(name))?;
        }
    }
    sync_folder(&parts[0])?;
    Ok(Some(aside))
}
