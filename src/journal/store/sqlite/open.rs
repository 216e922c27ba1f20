//! Opening a journal, and refusing to open what is not one.

use std::{
    fs::{File, TryLockError},
    io::{ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{Mutex, atomic::AtomicU64},
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use uuid::Uuid;

use super::{
    FILE_NAME, ItemCounts, READERS, SqliteOptions, SqliteStore, WriteSide,
    dedupe::EventKeys,
    readers::Readers,
    rows, schema, seeds,
    wal::{CHECKPOINT_IN_COMMIT, WriteAheadLog},
};
use crate::journal::{private_files, store::StoreError};

/// A journal up to this size is checked from end to end when it is opened, which takes a fraction
/// of a second; a larger one is checked where damage shows at once.
const FULL_CHECK_BYTES: u64 = 32 * 1024 * 1024;

/// How long another holder of the journal is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be made or used.
    #[error("the journal's folder {path} cannot be used: {error}; give another with --data or make it writable")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// Another process has it open.
    #[error(
        "the journal {path} is in use by another process{pid}; stop that one, or give this one another folder with --data"
    )]
    InUse {
        /// The journal.
        path: PathBuf,
        /// The other process, if it could be told.
        pid: String,
    },
    /// The file is something else.
    #[error("{path} is not a journal of Tidings ({what}); move it away, or give another folder with --data")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// A newer version wrote it.
    #[error(
        "the journal {path} was written by a newer version of Tidings (format {found}, this version reads up to {known}); use that version"
    )]
    Newer {
        /// The journal.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// The file is broken.
    #[error("the journal {path} is damaged ({what}); restore it from a backup, or move it away to begin a new one")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A restore was broken off.
    #[error(
        "restoring a backup into the journal's folder {path} was broken off; run `tidings restore` again with --force"
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
        /// What SQLite said.
        error: String,
    },
}

impl SqliteStore {
    /// Opens the journal in `folder`, or makes a new one there.
    ///
    /// # Errors
    /// Fails if the folder cannot be used, or the file is foreign, newer, damaged or in use: nothing is
    /// changed then.
    pub fn open(folder: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = folder.join(FILE_NAME);
        private_files::create_folder(folder).map_err(|error| OpenError::Folder { path: folder.to_owned(), error })?;
        let lock = lock(folder, &path)?;
        if folder.join(super::restore::READY_NAME).exists() {
            return Err(OpenError::HalfRestored { path: folder.to_owned() });
        }
        create(&path)?;
        let flags =
            OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_FULL_MUTEX).union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let mut writer = Connection::open_with_flags(&path, flags).map_err(|error| explain(&path, &error))?;
        check_is_ours(&path, &writer)?;
        let version = version(&writer).map_err(|error| explain(&path, &error))?;
        configure(&writer, version == 0).map_err(|error| explain(&path, &error))?;
        schema::migrate(&mut writer, version).map_err(|error| explain_store(&path, error))?;
        check_is_whole(&path, &writer)?;
        let identity = identity(&writer).map_err(|error| explain(&path, &error))?;
        let floor = schema::floor(&writer).map_err(|error| explain(&path, &error))?;
        let damaged = |error: StoreError| OpenError::Damaged { path: path.clone(), what: error.to_string() };
        let keys = EventKeys::load(&writer, options).map_err(damaged)?;
        let seeds = seeds::newest(&writer).map_err(|error| explain(&path, &error))?;
        let wal = read_write(&path).and_then(|connection| WriteAheadLog::new(connection, &mut writer));
        let wal = wal.map_err(|error| explain(&path, &error))?;
        let quarantine_size = super::quarantine::size(&writer).map_err(damaged)?;
        let readers = (0..READERS).map(|_| reader(&path)).collect::<rusqlite::Result<_>>();
        let readers = Readers::new(readers.map_err(|error| explain(&path, &error))?);
        if private_files::is_readable_by_everybody(folder, &path) {
            tracing::warn!(
                folder = %folder.display(),
                "every user of this machine can read the journal, which holds secrets of subscribers; \
                 take that permission away, as with chmod -R go= on the folder"
            );
        }
        Ok(Self {
            options,
            identity,
            floor: rows::seq(floor).unwrap_or_default(),
            wal,
            write_side: Mutex::new(WriteSide { connection: writer, keys, item_counts: ItemCounts::default(), seeds }),
            quarantine_size: Mutex::new(quarantine_size),
            seeds: AtomicU64::new(seeds.unsigned_abs()),
            readers,
            _lock: lock,
        })
    }
}

/// Creates an empty file for the journal where there is none, before SQLite does: SQLite would let everybody read the file.
/// SQLite gives the files beside the journal the permissions of the journal.
fn create(path: &Path) -> Result<(), OpenError> {
    match private_files::options().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::Folder { path: path.parent().unwrap_or(path).to_owned(), error }),
    }
}

/// Takes the lock file, which says who holds it. The lock goes with the process, however it ends.
pub(super) fn lock(folder: &Path, journal: &Path) -> Result<File, OpenError> {
    let unusable = |error| OpenError::Folder { path: folder.to_owned(), error };
    let mut options = private_files::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(folder.join("journal.lock")).map_err(unusable)?;
    match try_lock(&file) {
        Ok(()) => {
            file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(unusable)?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let told = file.rewind().and_then(|()| file.read_to_string(&mut pid)).is_ok() && !pid.trim().is_empty();
            let pid = if told { format!(" (pid {})", pid.trim()) } else { String::new() };
            Err(OpenError::InUse { path: journal.to_owned(), pid })
        }
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

/// Tries for [`LOCK_PATIENCE`]: a gateway that has just been told to stop, or a copy of the handle
/// on its way into a process being started, may let go any moment.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_PATIENCE / 50),
            outcome => return outcome,
        }
    }
}

/// Looks before anything is written.
pub(super) fn check_is_ours(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let foreign = |what| OpenError::Foreign { path: path.to_owned(), what };
    let read = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let tables = match read("SELECT count(*) FROM sqlite_schema") {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            return Err(foreign("it is no SQLite file, or its beginning is destroyed"));
        }
        tables => tables.map_err(|error| explain(path, &error))?,
    };
    let application = read("PRAGMA application_id").map_err(|error| explain(path, &error))?;
    let version = version(connection).map_err(|error| explain(path, &error))?;
    if tables == 0 && application == 0 && version == 0 {
        return Ok(());
    }
    if application != i64::from(schema::APPLICATION_ID) {
        return Err(foreign("it is an SQLite file of another program"));
    }
    let known = schema::current_version();
    if version > known {
        return Err(OpenError::Newer { path: path.to_owned(), found: version, known });
    }
    Ok(())
}

fn configure(connection: &Connection, is_new: bool) -> rusqlite::Result<()> {
    if is_new {
        // What is settled when the file is made: 8 KiB keeps a 2 kB row off overflow pages, and room
        // can be given back a little at a time. Asked of a file that is there, the latter would write
        // to it, and its header would no longer tell that it was cut short.
        connection.pragma_update(None, "page_size", 8192)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_IN_COMMIT)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // What refers to what is ours to keep, and `verify` looks; each row would cost one more search.
    connection.pragma_update(None, "foreign_keys", false)?;
    plan_once(connection)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Has a statement keep its plan: SQLite would look at what is bound to a parameter of a join, and plan anew for the next.
fn plan_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn read_write(path: &Path) -> rusqlite::Result<Connection> {
    // Each connection is used by one thread at a time, so it needs no locks of its own.
    let flags = OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_FULL_MUTEX);
    Connection::open_with_flags(path, flags.union(OpenFlags::SQLITE_OPEN_NO_MUTEX))
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags)?;
    // The system has the file in memory; to have more of it here, once for each connection, makes reading no faster.
    connection.pragma_update(None, "cache_size", -1024)?;
    plan_once(&connection)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

/// Looks for damage: a file cut short, pages that make no sense, a newest change that cannot be read.
fn check_is_whole(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let explain = |error: rusqlite::Error| explain(path, &error);
    // After a crash the write-ahead log may hold pages that the file lacks, so the log is moved into the file first.
    // While another process reads, the log stays (`busy`), and the length of the file proves nothing.
    let is_busy: bool =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(explain)?;
    if !is_busy {
        check_length(path, connection)?;
    }
    let length = path.metadata().map_err(|error| explain_io(path, &error))?.len();
    if length <= FULL_CHECK_BYTES {
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
        if found != "ok" {
            return Err(damaged(found));
        }
    }
    let newest = super::changes::before(connection, crate::model::Seq(u64::MAX), 1, usize::MAX)
        .map_err(|error| damaged(error.to_string()))?;
    if let Some(newest) = newest.first() {
        serde_json::from_slice::<crate::model::Change>(&newest.json)
            .map_err(|error| damaged(format!("change {} cannot be read: {error}", newest.seq)))?;
    }
    Ok(())
}

/// Checks that the file is as long as its header says. SQLite reads the header, and `metadata` asks for the length without
/// opening the file: the process must not open the file by itself, because closing *any* descriptor of a file cancels all
/// POSIX locks that the process holds on it, SQLite's among them ("How To Corrupt An SQLite Database File", section 2.2).
pub(super) fn check_length(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let read = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let expected = read("PRAGMA page_size")
        .and_then(|size| Ok(size * read("PRAGMA page_count")?))
        .map_err(|error| explain(path, &error))?;
    let length = path.metadata().map_err(|error| explain_io(path, &error))?.len();
    let expected = u64::try_from(expected).unwrap_or_default();
    if length < expected {
        return Err(OpenError::Damaged {
            path: path.to_owned(),
            what: format!("the file has {length} bytes of {expected}"),
        });
    }
    Ok(())
}

fn explain_io(path: &Path, error: &std::io::Error) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), what: error.to_string() }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn identity(connection: &Connection) -> rusqlite::Result<Uuid> {
    connection.query_row("SELECT value FROM meta WHERE name = 'identity'", [], |row| {
        let bytes: Vec<u8> = row.get(0)?;
        Uuid::from_slice(&bytes)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(error)))
    })
}

fn explain_store(path: &Path, error: StoreError) -> OpenError {
    let path = path.to_owned();
    match error {
        StoreError::Damaged(what) | StoreError::Refused(what) => OpenError::Damaged { path, what },
        error => OpenError::Storage { path, error: error.to_string() },
    }
}

pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            OpenError::Damaged { path, what: error.to_string() }
        }
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseBusy
            | ErrorCode::PermissionDenied,
        ) => OpenError::Storage { path, error: error.to_string() },
        _ => OpenError::Damaged { path, what: error.to_string() },
    }
}
