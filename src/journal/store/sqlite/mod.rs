//! The embedded store: one SQLite file, readable with any SQLite tool.
//!
//! The store uses a write-ahead log with `synchronous=FULL`, so a commit is on disk when it returns. One connection
//! writes, a few read-only connections read, and neither blocks the other.

pub mod backup;
mod changes;
mod dedupe;
pub mod inspect;
mod lock;
mod loss;
pub(super) mod migrate;
mod open;
mod open_error;
mod open_files;
mod prune;
mod quarantine;
mod readers;
mod records;
mod registry;
pub mod restore;
mod schema;
mod seeds;
mod tables;
mod transaction;
mod value;
pub mod verify;
mod wal;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use dedupe::EventKeys;
use foldhash::HashMap;
use lock::{LockFile, Mark};
use open_files::OpenFiles;
use readers::Readers;
use rusqlite::Connection;
use uuid::Uuid;
use wal::WriteAheadLog;

pub use lock::is_in_use;
pub use open_error::OpenError;

use self::{registry::ItemCounts, transaction::SqliteTransaction};
use super::{
    ObjectSelection, QuarantineReceipt, Remedy, Store, StoreError, StoreLimits, StoredChange, Transaction, rows,
    shares::QuarantineShares,
};
use crate::{
    journal::{
        RegistryPosition,
        acceptance::{AcceptanceTime, AcceptedPage, AcceptedQuery, ObjectTimes},
        nodes::Term,
        quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize},
        registry::ObjectState,
    },
    model::{ChangeId, Seq, Timestamp, Uri},
};
use value::params;

/// Name of the journal's file in its folder.
pub const FILE_NAME: &str = "journal.sqlite";

/// Number of reading connections.
const READERS: usize = 4;

/// Maximum number of checkpoints beside the appends, before the last checkpoint, which blocks appends.
const CONCURRENT_CHECKPOINTS: usize = 3;

/// Number of pages in the write-ahead log that is small enough for the last checkpoint, which blocks appends.
const FEW_PAGES: u64 = 256;

/// Number of bytes that a probe writes: more than all pages that a message of typical size modifies.
const PROBE_BYTES: i64 = 256 * 1024;

/// Settings of the store.
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// Limits that apply to every store.
    pub limits: StoreLimits,
    /// Number of event keys in memory, at about 40 bytes each, at which they are written as a sorted run. Opening a
    /// journal reads up to as many changes.
    pub run_keys: usize,
    /// Whether a new journal is begun if the file of the journal is missing or empty, although the folder had one.
    pub begin_new: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { limits: StoreLimits::default(), run_keys: dedupe::runs::DEFAULT_KEYS, begin_new: false }
    }
}

/// A journal in an SQLite file.
pub struct SqliteStore {
    options: SqliteOptions,
    identity: Uuid,
    /// The next change has a larger number than this one and than the newest change.
    floor: Seq,
    // Fields are dropped in this order. The connection that is closed last moves the write-ahead log into the file,
    // which a read-only connection cannot do.
    readers: Readers,
    wal: WriteAheadLog,
    write_side: Mutex<WriteSide>,
    /// Size of the quarantine, which changes only while `write_side` is locked.
    quarantine_shares: Mutex<QuarantineShares>,
    /// Number of the newest seed.
    seeds: AtomicU64,
    /// Open files, which must be at their paths before each write.
    files: OpenFiles,
    /// Lock file, locked while the store is open, so that no second process writes.
    lock: Arc<LockFile>,
}

/// The writing connection, and data in memory that is updated after each commit.
struct WriteSide {
    connection: Connection,
    keys: EventKeys,
    item_counts: ItemCounts,
    /// Number of the newest seed.
    seeds: i64,
}

impl SqliteStore {
    /// Locks the writing connection, and checks that it writes to the files at their paths.
    fn write_side(&self) -> Result<MutexGuard<'_, WriteSide>, StoreError> {
        let side = self.lock_write_side();
        self.files.check()?;
        Ok(side)
    }

    fn lock_write_side(&self) -> MutexGuard<'_, WriteSide> {
        // A panic in the middle of a transaction rolled it back when the transaction was dropped.
        self.write_side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the number of the newest change to the mark, after its commit and before anybody sees the change.
    fn mark(&self, head: Seq) {
        self.lock.record(Mark { identity: self.identity, head });
    }

    fn quarantine_shares_mut(&self) -> MutexGuard<'_, QuarantineShares> {
        self.quarantine_shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.lock.sync();
        // SQLite removes the log by its path, which may be that of another journal now.
        if self.files.check().is_err() {
            let kept = open::keep_log(&self.lock_write_side().connection, true).and_then(|()| self.wal.keep_file());
            if let Err(error) = kept {
                tracing::warn!(%error, "cannot leave the write-ahead log at its path alone");
            }
        }
    }
}

impl Store for SqliteStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(SqliteTransaction::begin(self)?))
    }

    fn check_in_place(&self) -> Result<(), StoreError> {
        self.files.check()
    }

    fn maintain(&self) -> Result<(), StoreError> {
        self.lock.sync_if_due();
        // The difference is logged by the check, and a checkpoint helps nobody.
        if self.files.check().is_err() || !self.wal.is_checkpoint_due() {
            return Ok(());
        }
        for _ in 0..CONCURRENT_CHECKPOINTS {
            self.wal.checkpoint()?;
            if self.wal.pages_since_checkpoint() < FEW_PAGES {
                break;
            }
        }
        // SQLite overwrites the log from its beginning only after a complete checkpoint, and overwriting is faster than
        // extending the file. The lock blocks appends during the last checkpoint, which has few pages to move.
        let _write_side = self.lock_write_side();
        self.wal.checkpoint()
    }

    fn probe(&self) -> Result<(), StoreError> {
        probe(&self.write_side()?.connection)
    }

    fn head(&self) -> Result<Seq, StoreError> {
        self.readers.read(changes::head)
    }

    fn skipped_ranges(&self) -> Result<Vec<(Seq, Seq)>, StoreError> {
        self.readers.read(changes::skipped_ranges)
    }

    fn seed_count(&self) -> u64 {
        self.seeds.load(Ordering::Acquire)
    }

    fn after(&self, after: Seq, limit: usize, bytes: usize) -> Result<Option<Vec<StoredChange>>, StoreError> {
        self.readers.read(|connection| changes::after(connection, after, limit, bytes))
    }

    fn before(&self, before: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.readers.read(|connection| changes::before(connection, before, limit, bytes))
    }

    fn before_restore(&self, seq: Seq) -> Result<Option<Seq>, StoreError> {
        self.readers.read(|connection| changes::before_restore(connection, seq))
    }

    fn by_id(&self, id: ChangeId) -> Result<Option<StoredChange>, StoreError> {
        self.readers.read(|connection| changes::by_id(connection, id))
    }

    fn object(&self, object: &Uri) -> Result<Option<ObjectState>, StoreError> {
        self.readers.read(|connection| registry::object(connection, object))
    }

    fn objects(&self, selected: &ObjectSelection) -> Result<HashMap<Uri, ObjectState>, StoreError> {
        self.readers.read(|connection| registry::objects(connection, selected))
    }

    fn registry(&self, from: &RegistryPosition, limit: usize) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
        self.readers.read(|connection| registry::page(connection, from, limit))
    }

    fn accepted(&self, query: &AcceptedQuery) -> Result<AcceptedPage, StoreError> {
        self.readers.read(|connection| registry::page_by_acceptance(connection, query))
    }

    fn object_times(&self, object: &Uri) -> Result<Option<ObjectTimes>, StoreError> {
        self.readers.read(|connection| registry::object_times(connection, object))
    }

    fn newest_acceptance(&self) -> Result<AcceptanceTime, StoreError> {
        self.readers.read(registry::newest_acceptance)
    }

    fn token_key(&self) -> Result<[u8; 16], StoreError> {
        self.readers.read(open::token_key)
    }

    fn first(&self) -> Result<Option<Seq>, StoreError> {
        self.readers.read(changes::first)
    }

    fn first_since(&self, time: Timestamp) -> Result<Option<Seq>, StoreError> {
        self.readers.read(|connection| changes::first_since(connection, time))
    }

    fn first_of_newest(&self, count: u64) -> Result<Option<Seq>, StoreError> {
        self.readers.read(|connection| changes::first_of_newest(connection, count))
    }

    fn prune(&self, before: Seq, at_most: usize, _: Option<Term>) -> Result<usize, StoreError> {
        self.prune_changes(before, at_most)
    }

    fn quarantine(&self, messages: &[NewQuarantinedMessage], _: Option<Term>) -> Result<QuarantineReceipt, StoreError> {
        let mut side = self.write_side()?;
        quarantine::put(&mut side.connection, self.options.limits, &mut self.quarantine_shares_mut(), messages)
    }

    fn release(&self, id: QuarantineId) -> Result<bool, StoreError> {
        let side = self.write_side()?;
        quarantine::remove(&side.connection, &mut self.quarantine_shares_mut(), id)
    }

    fn quarantine_size(&self) -> Result<QuarantineSize, StoreError> {
        Ok(self.quarantine_shares_mut().total())
    }

    fn identity(&self) -> Uuid {
        self.identity
    }
}

/// Writes a value of [`PROBE_BYTES`] and removes it, in two transactions, because a value that is inserted and
/// removed in one transaction is never written.
fn probe(connection: &Connection) -> Result<(), StoreError> {
    let insert = "INSERT OR REPLACE INTO meta (name, value) VALUES ('probe', zeroblob(?))";
    connection.prepare_cached(insert)?.execute(params![PROBE_BYTES])?;
    connection.prepare_cached("DELETE FROM meta WHERE name = 'probe'")?.execute([])?;
    Ok(())
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
                Self::ReadOnly(error.to_string(), Remedy::Folder)
            }
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OutOfMemory,
            ) => Self::Io(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Unavailable(error.to_string()),
            Some(ErrorCode::TooBig) => Self::TooLarge(error.to_string()),
            Some(
                ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::ParameterOutOfRange
                | ErrorCode::OperationAborted
                | ErrorCode::OperationInterrupted
                | ErrorCode::SchemaChanged
                | ErrorCode::ApiMisuse,
            ) => Self::Refused(error.to_string()),
            // The remaining errors concern damaged files, and rows or statements that do not fit the schema.
            _ => Self::Damaged(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, SqliteOptions, SqliteStore, Store, StoreError};

    #[test]
    fn maintenance_moves_a_long_log_into_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
        let write = |mebibytes: i64| {
            let side = store.write_side().unwrap();
            side.connection.execute("CREATE TABLE IF NOT EXISTS t (x)", []).unwrap();
            side.connection.execute("INSERT INTO t VALUES (randomblob(?))", [mebibytes << 20]).unwrap();
        };
        write(1);
        store.maintain().unwrap();
        assert!(store.wal.pages_since_checkpoint() > 100, "a short log stays");
        write(33);
        store.maintain().unwrap();
        assert_eq!(store.wal.pages_since_checkpoint(), 0);
    }

    #[test]
    fn an_error_of_one_batch_is_not_reported_as_damage() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (x PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES (1)").unwrap();
        let constraint = connection.execute("INSERT INTO t VALUES (1)", []).unwrap_err();
        let too_big = connection.execute("INSERT INTO t VALUES (zeroblob(2000000000))", []).unwrap_err();
        for error in [constraint, too_big] {
            let error = StoreError::from(error);
            let is_refused = matches!(error, StoreError::Refused(_) | StoreError::TooLarge(_));
            assert!(is_refused && !error.is_transient(), "{error:?}");
            assert!(!error.to_string().contains("backup"), "{error}");
        }
        let no_number = connection.query_row("SELECT 'x'", [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert!(matches!(StoreError::from(no_number), StoreError::Damaged(_)));
    }
}
