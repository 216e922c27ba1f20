//! Opening a journal, with checks that the file is an intact journal.

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
    migrate::MIGRATING_NAME,
    readers::Readers,
    restore::READY_NAME,
    rows, schema, seeds,
    wal::{CHECKPOINT_IN_COMMIT, WriteAheadLog},
};
use crate::journal::{private_files, store::StoreError};

/// Maximum size of a journal that is checked completely when it is opened, which takes a fraction of a second. A larger
/// journal is only checked for damage that is quickly detected.
const FULL_CHECK_BYTES: u64 = 32 * 1024 * 1024;

/// Maximum time to wait for another process to release the journal.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

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
    /// The journal is damaged.
    #[error("the journal {path} is damaged ({what}); restore it from a backup, or move it away to begin a new one")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Description of the damage.
        what: String,
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

impl SqliteStore {
    /// Opens the journal in `folder`, or creates a new one.
    ///
    /// # Errors
    /// Fails without changes if the folder cannot be used, or the file is foreign, newer, damaged or in use.
    pub fn open(folder: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = folder.join(FILE_NAME);
        private_files::create_folder(folder).map_err(|error| OpenError::Folder { path: folder.to_owned(), error })?;
        let lock = lock(folder, &path)?;
        check_is_complete(folder)?;
        create(&path)?;
        let flags =
            OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_FULL_MUTEX).union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let mut writer = Connection::open_with_flags(&path, flags).map_err(|error| explain(&path, &error))?;
        check_is_ours(&path, &writer)?;
        let version = version(&writer).map_err(|error| explain(&path, &error))?;
        configure(&writer, version == 0).map_err(|error| explain(&path, &error))?;
        schema::migrate(&mut writer, version).map_err(|error| explain_store(&path, error))?;
        check_is_intact(&path, &writer)?;
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
                "every user of this machine can read the journal, which contains secrets of subscribers; \
                 remove that permission, for example with chmod -R go= on the folder"
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

/// Checks that no restore and no migration into a folder is unfinished.
pub(super) fn check_is_complete(folder: &Path) -> Result<(), OpenError> {
    if folder.join(READY_NAME).exists() {
        return Err(OpenError::HalfRestored { path: folder.to_owned() });
    }
    if folder.join(MIGRATING_NAME).exists() {
        return Err(OpenError::HalfMigrated { path: folder.to_owned() });
    }
    Ok(())
}

/// Creates an empty file for a new journal before SQLite does, because SQLite would make the file readable for
/// everybody. SQLite copies the permissions of the journal to the files beside it.
pub(super) fn create(path: &Path) -> Result<(), OpenError> {
    match private_files::options().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::Folder { path: path.parent().unwrap_or(path).to_owned(), error }),
    }
}

/// Locks the lock file, and writes the process id to it. The operating system releases the lock when the process ends.
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
            let is_read = file.rewind().and_then(|()| file.read_to_string(&mut pid)).is_ok();
            let pid = if is_read && !pid.trim().is_empty() { format!(" (pid {})", pid.trim()) } else { String::new() };
            Err(OpenError::InUse { path: journal.to_owned(), pid })
        }
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

/// Tries for [`LOCK_PATIENCE`], because a gateway that is stopping, or a starting process that inherited the file
/// handle, may release the lock at any moment.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_PATIENCE / 50),
            outcome => return outcome,
        }
    }
}

/// Checks, before anything is written, that the file is a journal of a supported version.
pub(super) fn check_is_ours(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let foreign = |what| OpenError::Foreign { path: path.to_owned(), what };
    let read = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let tables = match read("SELECT count(*) FROM sqlite_schema") {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            return Err(foreign("it is not an SQLite file, or its header is damaged"));
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
    let supported = schema::current_version();
    if version > supported {
        return Err(OpenError::Newer { path: path.to_owned(), version, supported });
    }
    Ok(())
}

pub(super) fn configure(connection: &Connection, is_new: bool) -> rusqlite::Result<()> {
    if is_new {
        // Only a new file can get these settings. With pages of 8 KiB a row of 2 kB needs no overflow pages, and
        // incremental vacuum returns free space in small steps. Setting the latter on an existing file would
        // rewrite the header, which would then no longer show that the file was truncated.
        connection.pragma_update(None, "page_size", 8192)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_IN_COMMIT)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // The gateway maintains the references itself, and `verify` checks them; SQLite's check would cost a search per
    // row.
    connection.pragma_update(None, "foreign_keys", false)?;
    use_stable_plans(connection)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Makes query plans stable. Otherwise SQLite would plan a join again for each new value of a parameter.
fn use_stable_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

pub(super) fn read_write(path: &Path) -> rusqlite::Result<Connection> {
    // Only one thread at a time uses a connection, so SQLite's own locks are not needed.
    let flags = OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_FULL_MUTEX);
    Connection::open_with_flags(path, flags.union(OpenFlags::SQLITE_OPEN_NO_MUTEX))
}

pub(super) fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags)?;
    // A larger cache per connection does not make reads faster, because the operating system caches the file.
    connection.pragma_update(None, "cache_size", -1024)?;
    use_stable_plans(&connection)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

/// Checks for damage: a truncated file, invalid pages, an unreadable newest change.
fn check_is_intact(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let explain = |error: rusqlite::Error| explain(path, &error);
    // After a crash the write-ahead log may have pages that the file lacks, so a checkpoint moves them into the
    // file first. While another process reads, the log stays (`busy`), and the length of the file proves nothing.
    let is_busy: bool =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(explain)?;
    if !is_busy {
        check_length(path, connection)?;
    }
    let length = path.metadata().map_err(|error| explain_io(path, &error))?.len();
    if length <= FULL_CHECK_BYTES {
        let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
        if result != "ok" {
            return Err(damaged(result));
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

/// Checks that the file has the length that its header declares. SQLite reads the header, and `metadata` reads the
/// length without opening the file. The process must not open the file itself, because closing *any* descriptor of
/// a file cancels all POSIX locks of the process on it, including SQLite's ("How To Corrupt An SQLite Database
/// File", section 2.2).
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
            what: format!("the file has only {length} of {expected} bytes"),
        });
    }
    Ok(())
}

fn explain_io(path: &Path, error: &std::io::Error) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), what: error.to_string() }
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

pub(super) fn identity(connection: &Connection) -> rusqlite::Result<Uuid> {
    connection.query_row("SELECT value FROM meta WHERE name = 'identity'", [], |row| {
        let bytes: Vec<u8> = row.get(0)?;
        Uuid::from_slice(&bytes)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(error)))
    })
}

pub(super) fn explain_store(path: &Path, error: StoreError) -> OpenError {
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
