//! A backup in the place of a journal.
//!
//! A restored journal lacks what came after the backup, and readers may have seen it. If it went on
//! at the next number, a reader whose place is past that would miss other changes under numbers that it
//! knows. So the numbering leaves out everything that the lost journal can have given: it goes on at
//! the time of the restore, [`NUMBERS_PER_MILLISECOND`] numbers for every millisecond since 1970. No journal
//! gives that many, so no number of any journal of this descent is ever used twice, however often one
//! backup is restored. A place in between is none of the restored journal's, and its reader is told so.
//!
//! The restored journal is another one than the lost, so it has an identity of its own, and whatever
//! was made from the lost one (archive pages on disk) is made again.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::{
    FILE_NAME,
    backup::{BackupError, JournalSummary, cannot_write, copy, open_to_read, sync_folder},
    open::{OpenError, explain, lock},
    rows, schema,
};
use crate::{
    journal::private_files,
    model::{Seq, Timestamp},
};

/// More changes than any journal takes in a millisecond, all the while. As many as a page of the archived
/// feed has, so that no page has numbers from before a restore and after it.
const NUMBERS_PER_MILLISECOND: i64 = 100;

/// The copy while it is being made.
const PARTIAL_NAME: &str = "journal.sqlite.partial";

/// The copy when it is complete. While it is there, the folder has no journal that can be opened.
pub(super) const READY_NAME: &str = "journal.sqlite.restoring";

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is a journal already.
    #[error("there is a journal in {0}; give another folder with --data, or --force to move that journal aside")]
    Exists(PathBuf),
    /// The folder is in use or cannot be used, or the backup is none.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The copy failed.
    #[error(transparent)]
    Copy(#[from] BackupError),
}

/// What is there after a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreSummary {
    /// What the journal holds.
    pub summary: JournalSummary,
    /// The number that the next change will have.
    pub next_seq: Seq,
    /// Where the journal is that was there before.
    pub moved_aside: Option<PathBuf>,
}

/// Makes the backup `file` the journal in `folder`. A journal that is there is moved aside if `force`
/// says so; where restoring is broken off, it is either still there, or the folder is refused until
/// restoring is done again.
///
/// # Errors
/// Fails if the backup is none or not whole, when there is a journal (without `force`), or one that is in
/// use, or when something cannot be written.
pub fn restore(
    file: &Path,
    folder: &Path,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RestoreSummary, RestoreError> {
    let backup = open_to_read(file)?;
    let found: String =
        backup.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(|error| explain(file, &error))?;
    if found != "ok" {
        return Err(OpenError::Damaged { path: file.to_owned(), what: found }.into());
    }
    private_files::create_folder(folder).map_err(|error| OpenError::Folder { path: folder.to_owned(), error })?;
    let journal = folder.join(FILE_NAME);
    let _lock = lock(folder, &journal)?;
    let ready = folder.join(READY_NAME);
    let there = parts(folder).iter().any(|part| part.exists()) || ready.exists();
    if there && !force {
        return Err(RestoreError::Exists(folder.to_owned()));
    }

    let partial = folder.join(PARTIAL_NAME);
    let unwritable = |error: std::io::Error| RestoreError::Copy(cannot_write(&partial, error));
    // Closed before SQLite opens it: closing it later would cancel SQLite's locks.
    drop(private_files::create_file(&partial).map_err(unwritable)?);
    let held = copy(file, &backup, &partial, progress)?;
    let next = begin_anew(&partial, held.head).map_err(|error| RestoreError::Copy(cannot_write(&partial, error)))?;
    File::open(&partial).and_then(|file| file.sync_all()).map_err(unwritable)?;
    // From this rename to the last one the folder is refused by whoever opens it: a crash between them
    // must not leave the new file with the old write-ahead log, or the old file without its own.
    fs::rename(&partial, &ready).and_then(|()| sync_folder(&ready)).map_err(unwritable)?;
    let aside = move_aside(folder).map_err(unwritable)?;
    fs::rename(&ready, &journal).and_then(|()| sync_folder(&journal)).map_err(unwritable)?;
    Ok(RestoreSummary { summary: held, next_seq: next, moved_aside: aside })
}

/// Gives the copy an identity of its own, and numbers that nobody has seen.
fn begin_anew(path: &Path, head: Seq) -> rusqlite::Result<Seq> {
    let mut connection = Connection::open(path)?;
    let transaction = connection.transaction()?;
    let identity = Uuid::new_v4();
    transaction.execute("UPDATE meta SET value = ? WHERE name = 'identity'", [identity.as_bytes().as_slice()])?;
    let clock = Timestamp::now().millis().saturating_mul(NUMBERS_PER_MILLISECOND);
    // A clock that was set back must not lead back either.
    let given = rows::number(head.0).max(schema::floor(&transaction)?);
    let floor = clock.max((given / NUMBERS_PER_MILLISECOND + 2).saturating_mul(NUMBERS_PER_MILLISECOND));
    transaction.execute("INSERT OR REPLACE INTO restores VALUES (?, ?)", params![rows::number(head.0), floor])?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(Seq(u64::try_from(floor).unwrap_or_default()).next())
}

/// The files of a journal: a crash may have left any of them.
fn parts(folder: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| folder.join(format!("{FILE_NAME}{suffix}")))
}

/// Moves the files of the journal that is there into a folder of their own.
fn move_aside(folder: &Path) -> std::io::Result<Option<PathBuf>> {
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
