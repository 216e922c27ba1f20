//! The embedded store: one SQLite file, readable with any SQLite tool.
//!
//! WAL with `synchronous=FULL`: a commit is on disk when it returns. One connection writes, a few
//! read-only ones read, and neither blocks the other.

mod append;
pub mod backup;
mod confirmations;
mod events;
mod gathered;
mod held;
mod incomplete;
pub mod inspect;
mod key_filter;
mod log;
mod numbers;
mod objects;
mod open;
mod prune;
mod quarantine;
mod read;
mod readers;
mod registry;
pub mod restore;
mod rows;
mod runs;
mod schema;
mod seeds;
mod shared;
mod subscriptions;
mod together;
mod unchanged;
pub mod verify;

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use events::EventKeys;
use log::Log;
use numbers::Numbers;
use readers::Readers;
use rusqlite::Connection;
use shared::SharedGathered;
use uuid::Uuid;

pub use open::OpenError;

use super::{Decision, Incomplete, Known, Meanwhile, NewChange, Questions, Store, StoreError, StoredChange};
use crate::{
    journal::{
        quarantine::{NewQuarantined, QuarantineId, QuarantineSize, Quarantined},
        registry::ObjectState,
        seed::Walk,
        subscriptions::{DeadLetter, DeadLetterId, Stored, Write},
    },
    model::{ChangeId, Seq, SourceName, SubscriptionName, Timestamp, Uri},
};

/// The name of the journal's file in its folder.
pub const FILE_NAME: &str = "journal.sqlite";

/// How many connections read at the same time.
const READERS: usize = 4;

/// How often the write-ahead log is moved beside the appends before the rest is moved with nobody appending, …
const PASSES: usize = 3;

/// … unless the rest is fewer pages than these.
const FEW_PAGES: u64 = 256;

/// Number of bytes that a probe writes: more than the pages that a message of usual size touches have.
const PROBE_BYTES: i64 = 256 * 1024;

/// Bounds that the store keeps by itself.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Repeats are known for at least so many of the newest changes …
    pub dedupe_events: u64,
    /// … and for at least so many milliseconds.
    pub dedupe_millis: i64,
    /// How many keys of events gather in memory, at some 40 bytes each, before they are written as a run. The changes of as
    /// many are read when a journal is opened.
    pub gathered_keys: usize,
    /// How many bytes of the registry gather in memory, about, before they go to its tables; half as many may
    /// gather again while they do.
    pub gathered_bytes: usize,
    /// Of how many changes they are at the most: as many, and half as many again, are read when a
    /// journal is opened that was not closed.
    pub gathered_changes: usize,
    /// How many messages the quarantine holds at most; the oldest go first.
    pub quarantine_entries: u64,
    /// How many bytes of bodies the quarantine holds at most; the oldest go first.
    pub quarantine_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            dedupe_events: 1_000_000,
            dedupe_millis: 30 * 24 * 60 * 60 * 1000,
            gathered_keys: runs::USUAL,
            gathered_bytes: 16 * 1024 * 1024,
            gathered_changes: 64 * 1024,
            quarantine_entries: 10_000,
            quarantine_bytes: 256 * 1024 * 1024,
        }
    }
}

/// A journal in an SQLite file.
pub struct SqliteStore {
    bounds: Bounds,
    identity: Uuid,
    /// Changes are numbered after this one, or after the newest.
    floor: Seq,
    // Fields are dropped in this order. Whoever closes last empties the write-ahead log into the file,
    // which a reader may not.
    readers: Readers,
    log: Log,
    /// What is asked while `writing` is busy.
    looking: Mutex<Connection>,
    /// Under which numbers objects were found that were asked for.
    numbers: Mutex<Numbers>,
    writing: Mutex<Connection>,
    /// Size of the quarantine, which changes only while `writing` is held.
    quarantined: Mutex<QuarantineSize>,
    /// What is in memory of the file. Both change only while `writing` is held.
    keys: RwLock<EventKeys>,
    gathered: SharedGathered,
    /// Held for as long as the store is open, so that no second process writes.
    _lock: File,
}

impl SqliteStore {
    fn writing(&self) -> MutexGuard<'_, Connection> {
        // A panic in the middle of a transaction rolled it back when the transaction was dropped.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quarantined_mut(&self) -> MutexGuard<'_, QuarantineSize> {
        self.quarantined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys(&self) -> RwLockReadGuard<'_, EventKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys_mut(&self) -> RwLockWriteGuard<'_, EventKeys> {
        self.keys.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for SqliteStore {
    fn look(&self, questions: &Questions, meanwhile: Meanwhile) -> Result<Known, StoreError> {
        self.look_up(questions, meanwhile)
    }

    fn item_counts(&self, objects: &[Uri], meanwhile: Meanwhile) -> Result<Vec<usize>, StoreError> {
        self.count_items(objects, meanwhile)
    }

    fn append(&self, decisions: Vec<Decision>) -> Result<Vec<Vec<NewChange>>, StoreError> {
        self.append_batches(decisions)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.move_all(&mut self.writing(), None)
    }

    fn upkeep_is_due(&self) -> bool {
        self.log.is_due()
    }

    fn upkeep(&self) -> Result<(), StoreError> {
        for _ in 0..PASSES {
            self.log.checkpoint()?;
            if self.log.grown() < FEW_PAGES {
                break;
            }
        }
        // Only a log that has been moved as a whole begins again in its old place, which is faster to write than
        // a new one. What came meanwhile is little, and nobody adds to it for as long as it takes.
        let _writing = self.writing();
        self.log.checkpoint()
    }

    fn probe(&self) -> Result<(), StoreError> {
        probe(&self.writing())
    }

    fn head(&self) -> Result<Seq, StoreError> {
        self.readers.read(read::head)
    }

    fn left_out(&self) -> Result<Vec<(Seq, Seq)>, StoreError> {
        self.readers.read(read::left_out)
    }

    fn seeds(&self) -> u64 {
        self.gathered.read().newest().seed.unsigned_abs()
    }

    fn after(&self, after: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.readers.read(|connection| read::after(connection, after, limit, usize::MAX))
    }

    fn after_within(&self, after: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.readers.read(|connection| read::after(connection, after, limit, bytes))
    }

    fn before_within(&self, before: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.readers.read(|connection| read::before(connection, before, limit, bytes))
    }

    fn before_restore(&self, seq: Seq) -> Result<Option<Seq>, StoreError> {
        self.readers.read(|connection| read::before_restore(connection, seq))
    }

    fn by_id(&self, id: ChangeId) -> Result<Option<StoredChange>, StoreError> {
        self.readers.read(|connection| read::by_id(connection, id))
    }

    fn object(&self, object: &Uri) -> Result<Option<ObjectState>, StoreError> {
        self.readers.read(|connection| registry::object(connection, &self.gathered, object))
    }

    fn registry(&self, after: Option<&Uri>, limit: usize) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
        self.readers.read(|connection| registry::page(connection, &self.gathered, after, limit))
    }

    fn walk(&self, source: &SourceName) -> Result<Option<Walk>, StoreError> {
        self.readers.read(|connection| seeds::walk(connection, source))
    }

    fn holds(&self, seq: Seq) -> Result<bool, StoreError> {
        self.readers.read(|connection| read::holds(connection, seq))
    }

    fn first(&self) -> Result<Option<Seq>, StoreError> {
        self.readers.read(read::first)
    }

    fn first_since(&self, time: Timestamp) -> Result<Option<Seq>, StoreError> {
        self.readers.read(|connection| read::first_since(connection, time))
    }

    fn first_of_newest(&self, count: u64) -> Result<Option<Seq>, StoreError> {
        self.readers.read(|connection| read::first_of_newest(connection, count))
    }

    fn prepare_to_prune(&self, before: Seq, at_most: usize) -> Result<bool, StoreError> {
        SqliteStore::prepare_to_prune(self, before, at_most)
    }

    fn prune(&self, before: Seq, at_most: usize) -> Result<usize, StoreError> {
        self.prune_changes(before, at_most)
    }

    fn quarantine(&self, messages: &[NewQuarantined]) -> Result<Vec<QuarantineId>, StoreError> {
        let mut writing = self.writing();
        quarantine::put(&mut writing, self.bounds, &mut self.quarantined_mut(), messages)
    }

    fn quarantined_before(&self, before: Option<QuarantineId>, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        self.readers.read(|connection| quarantine::before(connection, before, limit))
    }

    fn quarantined(&self, id: QuarantineId) -> Result<Option<Quarantined>, StoreError> {
        self.readers.read(|connection| quarantine::get(connection, id))
    }

    fn release(&self, id: QuarantineId) -> Result<bool, StoreError> {
        let writing = self.writing();
        quarantine::remove(&writing, &mut self.quarantined_mut(), id)
    }

    fn quarantine_size(&self) -> Result<QuarantineSize, StoreError> {
        Ok(*self.quarantined_mut())
    }

    fn subscriptions(&self) -> Result<Vec<Stored>, StoreError> {
        self.readers.read(subscriptions::all)
    }

    fn write_subscriptions(&self, writes: &[Write]) -> Result<Vec<u64>, StoreError> {
        subscriptions::write(&mut self.writing(), writes)
    }

    fn dead_letters(
        &self,
        subscription: &SubscriptionName,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        self.readers.read(|connection| subscriptions::letters_before(connection, subscription, before, limit))
    }

    fn dead_letter(&self, subscription: &SubscriptionName, id: DeadLetterId) -> Result<Option<DeadLetter>, StoreError> {
        self.readers.read(|connection| subscriptions::letter(connection, subscription, id))
    }

    fn replays(
        &self,
        subscription: &SubscriptionName,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        self.readers.read(|connection| subscriptions::replays(connection, subscription, after, limit))
    }

    fn incomplete(&self, source: &SourceName, after: Seq, limit: usize) -> Result<Vec<Incomplete>, StoreError> {
        self.readers.read(|connection| incomplete::after(connection, source, after, limit))
    }

    fn incomplete_counts(&self) -> Result<BTreeMap<SourceName, u64>, StoreError> {
        self.readers.read(incomplete::counts)
    }

    fn identity(&self) -> Uuid {
        self.identity
    }
}

/// Writes a value of [`PROBE_BYTES`] and removes it, each in a transaction of its own: what one transaction inserts and
/// removes would never be written.
fn probe(connection: &Connection) -> Result<(), StoreError> {
    let insert = "INSERT OR REPLACE INTO meta (name, value) VALUES ('probe', zeroblob(?))";
    connection.prepare_cached(insert)?.execute([PROBE_BYTES])?;
    connection.prepare_cached("DELETE FROM meta WHERE name = 'probe'")?.execute([])?;
    Ok(())
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
                Self::ReadOnly(error.to_string())
            }
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OutOfMemory,
            ) => Self::Io(error.to_string()),
            Some(
                ErrorCode::TooBig
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::ParameterOutOfRange
                | ErrorCode::OperationAborted
                | ErrorCode::OperationInterrupted
                | ErrorCode::SchemaChanged
                | ErrorCode::ApiMisuse,
            ) => Self::Refused(error.to_string()),
            // What is left are files that are no longer what SQLite wrote, and rows or statements
            // that do not fit the schema.
            _ => Self::Damaged(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, StoreError};

    #[test]
    fn error_of_one_batch_does_not_call_the_journal_damaged() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (x PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES (1)").unwrap();
        let constraint = connection.execute("INSERT INTO t VALUES (1)", []).unwrap_err();
        let too_big = connection.execute("INSERT INTO t VALUES (zeroblob(2000000000))", []).unwrap_err();
        for error in [constraint, too_big] {
            let error = StoreError::from(error);
            assert!(matches!(error, StoreError::Refused(_)) && !error.is_transient(), "{error:?}");
            assert!(!error.to_string().contains("backup"), "{error}");
        }
        let no_number = connection.query_row("SELECT 'x'", [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert!(matches!(StoreError::from(no_number), StoreError::Damaged(_)));
    }
}
