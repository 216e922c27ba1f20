//! Reasons why the journal in a folder could not be opened.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::{journal::store::StoreError, model::Seq};

/// Reasons why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created or used.
    #[error("the journal's folder {path} cannot be used: {error}; give another with --data or make it writable")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The disk has no room to open the journal.
    #[error(
        "the disk of the journal {path} is full; free some space, at least 1 MB, and start the gateway again: no \
         acknowledged change is lost"
    )]
    Full {
        /// The journal.
        path: PathBuf,
    },
    /// Another process has the journal open.
    #[error(
        "the journal {path} is in use by another process{pid}; stop that one, or give this one another folder with --data"
    )]
    InUse {
        /// The journal.
        path: PathBuf,
        /// Text with the id of the other process; empty if unknown.
        pid: String,
    },
    /// The file is not a journal.
    #[error("{path} is not a journal of Tidings ({what}); move it away, or give another folder with --data")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Description of the file.
        what: &'static str,
    },
    /// There is no file.
    #[error("there is no journal at {path}")]
    Absent {
        /// Path of the file.
        path: PathBuf,
    },
    /// A newer version of the gateway wrote the journal.
    #[error(
        "the journal {path} was written by a newer version of Tidings (format {version}, this version reads up to {supported}); use that version"
    )]
    Newer {
        /// The journal.
        path: PathBuf,
        /// Format version of the journal.
        version: i64,
        /// Newest format version that this gateway supports.
        supported: i64,
    },
    /// A version of the gateway from before the first release wrote the journal.
    #[error(
        "the journal {path} was written by a version of Tidings from before its first release (format {version}, this \
         version reads from {oldest}); open it once with the commit cf2c915, which converts it"
    )]
    Older {
        /// The journal.
        path: PathBuf,
        /// Format version of the journal.
        version: i64,
        /// Oldest format version that this gateway supports.
        oldest: i64,
    },
    /// The journal is damaged.
    #[error(
        "the journal {path} is damaged ({what}); restore it from a backup with `tidings restore FILE --force`, or move it \
         away and begin a new one with `tidings serve --new-journal`"
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The file of a journal is missing or empty.
    #[error(
        "the journal {path} is missing or empty, but {evidence}; nothing was changed: put the file back, or restore a \
         backup with `tidings restore FILE --force`, or begin a new journal with `tidings serve --new-journal`"
    )]
    Missing {
        /// The journal.
        path: PathBuf,
        /// Clause that says why the folder must have had a journal.
        evidence: String,
    },
    /// The write-ahead log of a journal was removed.
    #[error(
        "the write-ahead log {path}-wal was removed, and the newest changes may have been in it; nothing was changed: \
         put it back, or restore a backup with `tidings restore FILE --force`; to continue with what is left, run \
         `tidings restore {path} --force`, which gives no number twice"
    )]
    LogMissing {
        /// The journal.
        path: PathBuf,
    },
    /// The header of the write-ahead log is invalid.
    #[error(
        "the write-ahead log {path}-wal has a damaged header, and the newest changes may be in it; nothing was changed: \
         restore a backup with `tidings restore FILE --force`; to continue with the changes before the log, run \
         `tidings restore {path} --force`, which gives no number twice"
    )]
    LogDamaged {
        /// The journal.
        path: PathBuf,
    },
    /// The journal lacks changes whose numbers were given.
    #[error(
        "the journal {path} has lost changes: it ends with change {head}, and has given the numbers up to {given}; \
         nothing was changed: put its files back together, or restore a backup with `tidings restore FILE --force`; \
         to continue with what is left, run `tidings restore {path} --force`, which gives no number twice"
    )]
    ChangesLost {
        /// The journal.
        path: PathBuf,
        /// Number of the newest change in the journal.
        head: Seq,
        /// Newest number that was given.
        given: Seq,
    },
    /// A migration was interrupted.
    #[error(
        "the migration of a journal into the folder {path} has not finished; run `tidings migrate` again to resume it, \
         or remove journal.sqlite.migrating to discard it"
    )]
    HalfMigrated {
        /// The folder.
        path: PathBuf,
    },
    /// A restore was interrupted.
    #[error(
        "the restore of a backup into the journal's folder {path} was interrupted; run `tidings restore` again with --force"
    )]
    HalfRestored {
        /// The folder.
        path: PathBuf,
    },
    /// The storage failed.
    #[error("the journal {path} cannot be opened: {error}")]
    Storage {
        /// The journal.
        path: PathBuf,
        /// Error of SQLite.
        error: String,
    },
}

impl OpenError {
    /// Explains why the folder, or a file in it, cannot be used.
    pub(super) fn folder(path: &Path, error: std::io::Error) -> Self {
        let path = path.to_owned();
        if is_full(&error) { Self::Full { path } } else { Self::Folder { path, error } }
    }
}

pub(super) fn explain_store(path: &Path, error: StoreError) -> OpenError {
    let path = path.to_owned();
    match error {
        StoreError::Full => OpenError::Full { path },
        StoreError::Damaged(what) | StoreError::Refused(what) | StoreError::TooLarge(what) => {
            OpenError::Damaged { path, what }
        }
        StoreError::DamagedObject { uri, what } => OpenError::Damaged { path, what: format!("object {uri}: {what}") },
        StoreError::DamagedChange { seq, what } => OpenError::Damaged { path, what: format!("change {seq}: {what}") },
        error => OpenError::Storage { path, error: error.to_string() },
    }
}

pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            OpenError::Damaged { path, what: error.to_string() }
        }
        Some(ErrorCode::DiskFull) => OpenError::Full { path },
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseBusy
            | ErrorCode::PermissionDenied,
        ) => OpenError::Storage { path, error: error.to_string() },
        _ => OpenError::Damaged { path, what: error.to_string() },
    }
}

/// Returns whether an error says that the disk, or the part of it that this user may fill, is full.
pub(super) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
