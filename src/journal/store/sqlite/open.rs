//! Opening a journal, with checks that the file is an intact journal.

use std::{
    io::ErrorKind,
    path::Path,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use uuid::Uuid;

use super::{
    FILE_NAME, ItemCounts, READERS, SqliteOptions, SqliteStore, WriteSide, changes,
    dedupe::EventKeys,
    lock::{LockFile, Mark, Trace},
    loss::{check_files, check_head},
    migrate::MIGRATING_NAME,
    open_error::{OpenError, explain, explain_store},
    open_files::OpenFiles,
    readers::Readers,
    restore::{READY_NAME, move_aside, skip_numbers},
    rows, schema, seeds,
    wal::{CHECKPOINT_IN_COMMIT, WriteAheadLog},
};
use crate::{
    journal::{private_files, store::StoreError},
    model::Seq,
};

/// Maximum size of a journal that is checked completely when it is opened, which takes a fraction of a second. A larger
/// journal is only checked for damage that is quickly detected.
const FULL_CHECK_BYTES: u64 = 32 * 1024 * 1024;

impl SqliteStore {
    /// Opens the journal in `folder`, or creates a new one.
    ///
    /// # Errors
    /// Fails without changes if the folder cannot be used, or the file is foreign, newer, damaged or in use.
    pub fn open(folder: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = folder.join(FILE_NAME);
        private_files::create_folder(folder).map_err(|error| OpenError::folder(folder, error))?;
        let lock = Arc::new(LockFile::acquire(folder, &path)?);
        Self::open_locked(folder, &path, Arc::clone(&lock), options).map_err(|error| match error {
            // SQLite calls a write that finds no room an input/output error in some cases.
            OpenError::Storage { path, .. } if lock.is_disk_full() => OpenError::Full { path },
            error => error,
        })
    }

    fn open_locked(folder: &Path, path: &Path, lock: Arc<LockFile>, options: SqliteOptions) -> Result<Self, OpenError> {
        check_is_complete(folder)?;
        let replaced = replace_missing(folder, &lock, options.begin_new)?;
        create(path)?;
        let mut writer = open_writer(path).or_else(|error| match error {
            OpenError::Storage { .. } | OpenError::Full { .. } if lock.give_up_reserve() => open_writer(path),
            error => Err(error),
        })?;
        if !replaced {
            check_head(path, &writer, lock.found())?;
        }
        keep_log(&writer, false).map_err(|error| explain(path, &error))?;
        let version = version(&writer).map_err(|error| explain(path, &error))?;
        configure(&writer, version == 0).map_err(|error| explain(path, &error))?;
        schema::migrate(&mut writer, version).map_err(|error| explain_store(path, error))?;
        if replaced {
            begin_after_loss(&writer, lock.found()).map_err(|error| explain(path, &error))?;
        }
        check_is_intact(path, &writer)?;
        let identity = identity(&writer).map_err(|error| explain(path, &error))?;
        let floor = schema::floor(&writer).map_err(|error| explain(path, &error))?;
        let failed = |error: StoreError| explain_store(path, error);
        let keys = EventKeys::load(&writer, options).map_err(failed)?;
        let seeds = seeds::newest(&writer).map_err(|error| explain(path, &error))?;
        let wal = read_write(path).and_then(|connection| WriteAheadLog::new(folder, connection, &mut writer));
        let wal = wal.map_err(|error| explain(path, &error))?;
        let quarantine_shares = super::quarantine::shares(&writer).map_err(failed)?;
        let readers = (0..READERS).map(|_| reader(path)).collect::<rusqlite::Result<_>>();
        let readers = Readers::new(readers.map_err(|error| explain(path, &error))?);
        let files = OpenFiles::record(folder, path, &lock).map_err(|error| explain_io(path, &error))?;
        let head = changes::head(&writer).map_err(failed)?;
        lock.record(Mark { identity, head });
        lock.sync();
        if private_files::is_readable_by_everybody(folder, path) {
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
            quarantine_shares: Mutex::new(quarantine_shares),
            seeds: AtomicU64::new(seeds.unsigned_abs()),
            readers,
            files,
            lock,
        })
    }
}

/// Opens the writing connection and reads the header. If the journal is then refused, its log stays, so that its files
/// can be put back together.
fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let writer = read_write(path).map_err(|error| explain(path, &error))?;
    keep_log(&writer, true).map_err(|error| explain(path, &error))?;
    check_is_ours(path, &writer)?;
    Ok(writer)
}

/// Checks that no file of the journal is missing. With `begin_new`, moves the rest of an incomplete journal aside, and
/// returns `true`.
fn replace_missing(folder: &Path, lock: &LockFile, begin_new: bool) -> Result<bool, OpenError> {
    match check_files(folder, lock.found()) {
        Err(OpenError::Missing { .. }) if begin_new => {
            let aside = move_aside(folder).map_err(|error| OpenError::folder(folder, error))?;
            let aside = aside.map(|aside| aside.display().to_string());
            tracing::warn!(folder = %folder.display(), aside, "beginning a new journal instead of the missing one");
            Ok(true)
        }
        checked => checked.map(|()| false),
    }
}

/// Moves the numbering of a new journal past all numbers of the missing one, because readers may have seen them.
fn begin_after_loss(connection: &Connection, found: Trace) -> rusqlite::Result<()> {
    let given = if let Trace::Marked(mark) = found { mark.head } else { Seq::ZERO };
    skip_numbers(connection, None, Seq::ZERO, given).map(drop)
}

/// Sets whether a connection that is closed last leaves the write-ahead log as it is. Otherwise it moves the log into the
/// file and removes it.
pub(super) fn keep_log(connection: &Connection, keeps: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps).map(drop)
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
        Err(error) => Err(OpenError::folder(path.parent().unwrap_or(path), error)),
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
    check_version(path, version)
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
    // file first. While another process reads, the log stays (`busy`), and the length of the file proves nothing. The
    // log also stays on a full disk, where a journal can be read.
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)) {
        Ok(false) => check_length(path, connection)?,
        Ok(true) => {}
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            tracing::warn!("the disk of the journal is full: the journal can be read, and not written");
        }
        Err(error) => return Err(explain(error)),
    }
    let length = path.metadata().map_err(|error| explain_io(path, &error))?.len();
    if length <= FULL_CHECK_BYTES {
        let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
        if result != "ok" {
            return Err(damaged(result));
        }
    }
    let newest =
        changes::before(connection, Seq(u64::MAX), 1, usize::MAX).map_err(|error| damaged(error.to_string()))?;
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

/// Checks that this program can open a journal of this version.
pub(super) fn check_version(path: &Path, version: i64) -> Result<(), OpenError> {
    let path = path.to_owned();
    match version {
        schema::OLDEST_VERSION..=schema::VERSION => Ok(()),
        version if version > schema::VERSION => Err(OpenError::Newer { path, version, supported: schema::VERSION }),
        version => Err(OpenError::Older { path, version, oldest: schema::OLDEST_VERSION }),
    }
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

/// Returns the key of the tokens that readers of the registry get.
pub(super) fn token_key(connection: &Connection) -> Result<[u8; 16], StoreError> {
    Ok(connection.query_row("SELECT value FROM meta WHERE name = 'token_key'", [], |row| row.get(0))?)
}
