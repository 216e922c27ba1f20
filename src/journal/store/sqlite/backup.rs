//! A copy of a journal, of one moment, while the gateway runs.
//!
//! The copy is made by another process on a read-only connection, with SQLite's online backup, which
//! copies page by page and so can tell how far it is. The source is held in one read transaction: the
//! writer goes on beside it, and nothing that it writes makes the copy begin again. Meanwhile its
//! write-ahead log grows, since what the copy still reads cannot be put into the file.

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
    open::{OpenError, check_is_ours, check_length, explain},
};
use crate::{journal::private_files, model::Seq};

/// How many pages are copied between two reports of progress: 4 MiB.
const PAGES_AT_ONCE: i32 = 512;

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The journal cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is something already where the copy is to be.
    #[error("{0} is there already and is not overwritten; give another name, or remove it")]
    Exists(PathBuf),
    /// Another process makes a copy of that name.
    #[error("another process is writing {0}; wait until it is done, or give another name")]
    InUse(PathBuf),
    /// The copy cannot be written.
    #[error("{path} cannot be written: {error}")]
    Write {
        /// The copy.
        path: PathBuf,
        /// What the operating system, or SQLite, said.
        error: String,
    },
    /// What was copied is not whole.
    #[error("the copy is not whole ({0}): look at the journal with `tidings verify`")]
    Damaged(String),
}

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSummary {
    /// The oldest change; `None` when there is none.
    pub first: Option<Seq>,
    /// The newest change, 0 when there is none.
    pub head: Seq,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// Copies the journal in `folder`, which may be in use, to the new file `target`. `progress` is told
/// the pages that are done and those that there are.
///
/// The copy is written as `target` with `.partial` after its name, checked, synced and then renamed:
/// `target` is there whole or not at all.
///
/// # Errors
/// Fails if there is no journal, `target` is there, or something cannot be read or written.
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
    let source = open_to_read(&journal)?;
    let partial = Partial::begin(target)?;
    let held = copy(&journal, &source, &partial.path, progress)?;
    // Looked for again: a copy of a large journal takes a while.
    if exists(target)? {
        return Err(BackupError::Exists(target.to_owned()));
    }
    partial.finish(target)?;
    Ok(held)
}

/// A copy on its way; locked, so that two processes do not write the same.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn begin(target: &Path) -> Result<Self, BackupError> {
        let mut name = target.as_os_str().to_owned();
        name.push(".partial");
        let path = PathBuf::from(name);
        let mut options = private_files::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| cannot_write(&path, error))?;
        file.try_lock().map_err(|_| BackupError::InUse(path.clone()))?;
        // What an earlier one left, that was broken off, is of no use.
        let emptied = private_files::restrict_to_owner(&file).and_then(|()| file.set_len(0));
        emptied.map_err(|error| cannot_write(&path, error))?;
        Ok(Self { path, file })
    }

    fn finish(self, target: &Path) -> Result<(), BackupError> {
        let done =
            self.file.sync_all().and_then(|()| fs::rename(&self.path, target)).and_then(|()| sync_folder(target));
        done.map_err(|error| cannot_write(target, error))
    }
}

/// Copies a journal page by page, and looks whether what came out is whole.
pub(super) fn copy(
    journal: &Path,
    source: &Connection,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<JournalSummary, BackupError> {
    let unwritable = |error: rusqlite::Error| cannot_write(target, error);
    let unreadable = |error: rusqlite::Error| BackupError::Open(explain(journal, &error));
    // From here on the source stays as it is at this moment.
    source.execute_batch("BEGIN; SELECT count(*) FROM meta").map_err(unreadable)?;
    let mut copy = Connection::open(target).map_err(unwritable)?;
    // It is synced as a whole when it is complete.
    copy.pragma_update(None, "synchronous", "OFF").map_err(unwritable)?;
    {
        let backup = Backup::new(source, &mut copy).map_err(unwritable)?;
        loop {
            let step = backup.step(PAGES_AT_ONCE).map_err(unwritable)?;
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
    // One file, with no write-ahead log beside it: it can be carried about, and read from where
    // nothing can be written.
    copy.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).map_err(unwritable)?;
    let found: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(unwritable)?;
    if found != "ok" {
        return Err(BackupError::Damaged(found));
    }
    let damaged = |error: crate::journal::store::StoreError| BackupError::Damaged(error.to_string());
    let (first, head) = (changes::first(&copy).map_err(damaged)?, changes::head(&copy).map_err(damaged)?);
    copy.close().map_err(|(_, error)| unwritable(error))?;
    let bytes = target.metadata().map_err(|error| cannot_write(target, error))?.len();
    Ok(JournalSummary { first, head, bytes })
}

/// Opens a journal, or a backup of one, to read it while others may write.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let open = |options: &str| -> rusqlite::Result<(Connection, i64)> {
        let connection = Connection::open_with_flags(address(path, options), flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((connection, tables))
    };
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // While a write-ahead log stands beside it, the file itself need not be complete.
    let is_alone = !Path::new(&log).exists();
    let opened = match open("") {
        // To share a journal, SQLite makes a file beside it. Where that cannot be, nobody writes, and
        // there is nothing to share.
        Err(error) if is_alone && error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && path.exists() => {
            open("?immutable=1")
        }
        opened => opened,
    };
    let (connection, tables) = opened.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { path: path.to_owned(), what: "it is no SQLite file" },
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

/// A path as SQLite takes it with options (RFC 3986 section 2.1).
fn address(path: &Path, options: &str) -> String {
    let mut address = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            address.push(char::from(*byte));
        } else {
            address.push('%');
            address.push_str(&hex::encode_upper([*byte]));
        }
    }
    address + options
}

/// Puts a rename in the folder of `path` on disk.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

pub(super) fn cannot_write(path: &Path, error: impl std::fmt::Display) -> BackupError {
    BackupError::Write { path: path.to_owned(), error: error.to_string() }
}
