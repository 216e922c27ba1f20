//! Backup: a consistent copy of a journal while the gateway runs.
//!
//! Another process makes the copy on a read-only connection, with SQLite's online backup, which copies page by page
//! and reports its progress. One read transaction keeps the source consistent, so the writer can continue without
//! restarting the copy. Meanwhile the write-ahead log grows, because the pages that the copy still reads cannot be
//! moved into the file.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags,
    backup::{Backup, StepResult},
};

use super::{
    FILE_NAME, changes,
    lock::read_trace,
    loss::{beside, check_files, check_head},
    open::{check_is_ours, check_length},
    open_error::{OpenError, explain},
};
use crate::{
    journal::private_files,
    model::{Seq, Timestamp},
};

/// Number of pages that are copied between two reports of progress: 4 MiB.
const PAGES_PER_STEP: i32 = 512;

/// Reasons why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The journal cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The target exists already.
    #[error("{0} exists already and is not overwritten; give another name, or remove it")]
    Exists(PathBuf),
    /// Another process makes a copy with this name.
    #[error("another process is writing {0}; wait until it is done, or give another name")]
    InUse(PathBuf),
    /// The copy cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The copy.
        path: PathBuf,
        /// Error of the operating system or of SQLite.
        error: String,
    },
    /// The copy is damaged.
    #[error("the copy is damaged ({0}); check the journal with `tidings verify`")]
    Damaged(String),
}

/// Range of changes and size of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSummary {
    /// Number of the oldest change; `None` if there is none.
    pub first: Option<Seq>,
    /// Number of the newest change; 0 if there is none.
    pub head: Seq,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

/// Copies the journal in `folder`, which may be in use, to the new file `target`. Calls `progress` with the number
/// of copied pages and of all pages.
///
/// The copy is written to `target` with the suffix `.partial`, checked, synced and then renamed, so that `target`
/// is always complete.
///
/// # Errors
/// Fails if there is no journal, if `target` exists, or if a file cannot be read or written.
pub fn back_up(
    folder: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<JournalSummary, BackupError> {
    let exists = |path: &Path| path.try_exists().map_err(|error| cannot_write(path, error));
    if exists(target)? {
        return Err(BackupError::Exists(target.to_owned()));
    }
    let journal = folder.join(FILE_NAME);
    let source = open_complete(&journal)?;
    let partial = PartialFile::create(beside(target, ".partial"))?;
    let summary = copy(&journal, &source, partial.path(), progress)?;
    // Checked again, because the copy of a large journal takes a while.
    if exists(target)? {
        return Err(BackupError::Exists(target.to_owned()));
    }
    partial.finish(target)?;
    // Only for people, so a folder that cannot be written is no failure of the backup.
    let _ = private_files::options().write(true).create(true).truncate(true).open(folder.join(LAST_BACKUP)).and_then(
        |mark| {
            private_files::restrict_to_owner(&mark)?;
            mark.set_modified(std::time::SystemTime::now())
        },
    );
    Ok(summary)
}

/// Returns the time of the last backup of the journal in a folder, if there was one.
#[must_use]
pub fn last_backup(folder: &Path) -> Option<Timestamp> {
    let modified = fs::metadata(folder.join(LAST_BACKUP)).ok()?.modified().ok()?;
    Some(Timestamp::from_datetime(modified.into()))
}

/// Empty file in the folder of a journal, whose time is that of the last backup.
const LAST_BACKUP: &str = "last-backup";

/// An unfinished copy. It is locked, so that two processes cannot write the same file. Dropping it removes the copy and
/// the files that SQLite has created beside it.
pub(super) struct PartialFile {
    path: PathBuf,
    file: File,
    is_finished: bool,
}

impl PartialFile {
    pub(super) fn create(path: PathBuf) -> Result<Self, BackupError> {
        let mut options = private_files::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| cannot_write(&path, error))?;
        file.try_lock().map_err(|_| BackupError::InUse(path.clone()))?;
        // Discards the rest of an earlier copy that was interrupted.
        remove_all(&path, &SUFFIXES[1..]);
        let truncated = private_files::restrict_to_owner(&file).and_then(|()| file.set_len(0));
        let partial = Self { path, file, is_finished: false };
        truncated.map_err(|error| cannot_write(&partial.path, error))?;
        Ok(partial)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the copy and gives it its name.
    pub(super) fn finish(mut self, target: &Path) -> Result<(), BackupError> {
        let renamed = self.file.sync_all().and_then(|()| fs::rename(&self.path, target));
        renamed.map_err(|error| cannot_write(target, error))?;
        self.is_finished = true;
        sync_folder(target).map_err(|error| cannot_write(target, error))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_finished {
            remove_all(&self.path, &SUFFIXES);
        }
    }
}

/// Suffixes of the files that SQLite uses for a file; the first is the file itself.
const SUFFIXES: [&str; 4] = ["", "-journal", "-wal", "-shm"];

fn remove_all(path: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        let path = beside(path, suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "cannot remove an unfinished copy");
            }
            _ => {}
        }
    }
}

/// Copies a journal page by page, and checks the copy.
pub(super) fn copy(
    journal: &Path,
    source: &Connection,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<JournalSummary, BackupError> {
    let unwritable = |error: rusqlite::Error| cannot_write(target, error);
    let unreadable = |error: rusqlite::Error| BackupError::Open(explain(journal, &error));
    // From here on, a read transaction keeps the source consistent.
    source.execute_batch("BEGIN; SELECT count(*) FROM meta").map_err(unreadable)?;
    let mut copy = Connection::open(target).map_err(unwritable)?;
    // The file is synced once, when it is complete.
    copy.pragma_update(None, "synchronous", "OFF").map_err(unwritable)?;
    {
        let backup = Backup::new(source, &mut copy).map_err(unwritable)?;
        loop {
            let step = backup.step(PAGES_PER_STEP).map_err(unwritable)?;
            let (left, pages) = (backup.progress().remaining, backup.progress().pagecount);
            progress(u64::try_from(pages - left).unwrap_or(0), u64::try_from(pages).unwrap_or(0));
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                busy => return Err(cannot_write(target, format!("the copy is busy ({busy:?})"))),
            }
        }
    }
    source.execute_batch("COMMIT").map_err(unreadable)?;
    // Without a write-ahead log the copy is a single file, and can be read on a read-only file system.
    copy.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).map_err(unwritable)?;
    let result: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(unwritable)?;
    if result != "ok" {
        return Err(BackupError::Damaged(result));
    }
    let damaged = |error: crate::journal::store::StoreError| BackupError::Damaged(error.to_string());
    let (first, head) = (changes::first(&copy).map_err(damaged)?, changes::head(&copy).map_err(damaged)?);
    copy.close().map_err(|(_, error)| unwritable(error))?;
    let bytes = target.metadata().map_err(|error| cannot_write(target, error))?.len();
    Ok(JournalSummary { first, head, bytes })
}

/// Opens a journal in its folder for reading, as [`open_to_read`] does, and checks that it has lost nothing.
fn open_complete(journal: &Path) -> Result<Connection, OpenError> {
    let folder = journal.parent().unwrap_or(journal);
    // Before the journal, whose newest change is then at least as new.
    let trace = read_trace(folder).map_err(|error| OpenError::Folder { path: folder.to_owned(), error })?;
    check_files(folder, trace)?;
    let connection = open_to_read(journal)?;
    check_head(journal, &connection, trace)?;
    Ok(connection)
}

/// Opens a journal or a backup for reading, while other processes may write.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let open = |options: &str| -> rusqlite::Result<(Connection, i64)> {
        let connection = Connection::open_with_flags(file_uri(path, options), flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((connection, tables))
    };
    if let Err(error) = fs::metadata(path)
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return Err(OpenError::Absent { path: path.to_owned() });
    }
    // With a write-ahead log beside it, the file itself may be incomplete.
    let is_alone = !beside(path, "-wal").exists();
    let opened = match open("") {
        // SQLite creates a file beside a journal for sharing it. On a read-only file system this fails, but there
        // nobody writes either.
        Err(error) if is_alone && error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && path.exists() => {
            open("?immutable=1")
        }
        opened => opened,
    };
    let (connection, tables) = opened.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { path: path.to_owned(), what: "it is not an SQLite file" },
        _ => explain(path, &error),
    })?;
    if tables == 0 {
        return Err(OpenError::Foreign { path: path.to_owned(), what: "it is empty" });
    }
    check_is_ours(path, &connection)?;
    if is_alone {
        check_length(path, &connection)?;
    }
    Ok(connection)
}

/// Returns the file URI of a path with options for SQLite, percent-encoded (RFC 3986 section 2.1).
fn file_uri(path: &Path, options: &str) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            uri.push('%');
            uri.push_str(&hex::encode_upper([*byte]));
        }
    }
    uri + options
}

/// Syncs the folder of `path`, so that a rename in it is durable.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

pub(super) fn cannot_write(path: &Path, error: impl std::fmt::Display) -> BackupError {
    BackupError::Write { path: path.to_owned(), error: error.to_string() }
}
