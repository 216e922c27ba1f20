//! The embedded store: one SQLite file, readable with any SQLite tool.
//!
//! WAL with `synchronous=FULL`: a commit is on disk when it returns. One connection writes, a few
//! read-only ones read, and neither blocks the other.

mod append;
pub mod backup;
mod events;
mod log;
mod objects;
mod open;
mod prune;
mod quarantine;
mod read;
pub mod restore;
mod rows;
mod schema;
mod subscriptions;
mod unchanged;
pub mod verify;

use std::{
    fs::File,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use events::EventKeys;
use log::Log;
use rusqlite::Connection;
use uuid::Uuid;

pub use open::OpenError;

use super::{Decision, Known, Questions, Store, StoreError, StoredChange};
use crate::{
    journal::{
        quarantine::{NewQuarantined, QuarantineId, QuarantineSize, Quarantined},
        registry::ObjectState,
        subscriptions::{DeadLetter, DeadLetterId, Stored, Write},
    },
    model::{ChangeId, Seq, SubscriptionName, Timestamp, Uri},
};

/// The name of the journal's file in its folder.
pub const FILE_NAME: &str = "journal.sqlite";

/// How many connections read at the same time.
const READERS: usize = 4;

/// Bounds that the store keeps by itself.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Repeats are known for at least so many of the newest changes …
    pub dedupe_events: u64,
    /// … and for at least so many milliseconds.
    pub dedupe_millis: i64,
    /// How many keys of events gather in memory, at some 40 bytes each, before they go to their tree.
    pub gathered_keys: usize,
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
            gathered_keys: 64 * 1024,
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
    writing: Mutex<Writing>,
    /// Held for as long as the store is open, so that no second process writes.
    _lock: File,
}

/// The connection that writes, and what it holds in memory of the file.
struct Writing {
    connection: Connection,
    keys: EventKeys,
}

impl SqliteStore {
    fn writing(&self) -> MutexGuard<'_, Writing> {
        // A panic in the middle of a transaction rolled it back when the transaction was dropped.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading connections. Who finds none free waits for the next, so that there are never more.
struct Readers {
    idle: Mutex<Vec<Connection>>,
    freed: Condvar,
}

impl Readers {
    fn new(connections: Vec<Connection>) -> Self {
        Self { idle: Mutex::new(connections), freed: Condvar::new() }
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut idle = self.freed.wait_while(idle, |idle| idle.is_empty()).unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = idle.pop() else {
            return Err(StoreError::Io("no reading connection is left".to_owned()));
        };
        drop(idle);
        let answer = read(&connection);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.freed.notify_one();
        answer
    }
}

impl Store for SqliteStore {
    fn append(&self, questions: &Questions, decide: &mut dyn FnMut(Known) -> Decision) -> Result<Decision, StoreError> {
        self.append_batch(questions, decide)
    }

    fn upkeep_is_due(&self) -> bool {
        self.log.is_due()
    }

    fn upkeep(&self) -> Result<(), StoreError> {
        self.log.checkpoint()
    }

    fn head(&self) -> Result<Seq, StoreError> {
        self.readers.read(read::head)
    }

    fn after(&self, after: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.readers.read(|connection| read::after(connection, after, limit, usize::MAX))
    }

    fn after_within(&self, after: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.readers.read(|connection| read::after(connection, after, limit, bytes))
    }

    fn before(&self, before: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.readers.read(|connection| read::before(connection, before, limit))
    }

    fn by_id(&self, id: ChangeId) -> Result<Option<StoredChange>, StoreError> {
        self.readers.read(|connection| read::by_id(connection, id))
    }

    fn object(&self, object: &Uri) -> Result<Option<ObjectState>, StoreError> {
        self.readers.read(|connection| objects::object(connection, object))
    }

    fn registry(&self, after: Option<&Uri>, limit: usize) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
        self.readers.read(|connection| read::registry(connection, after, limit))
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

    fn prune(&self, before: Seq, at_most: usize) -> Result<usize, StoreError> {
        prune::prune(&mut self.writing().connection, before, at_most)
    }

    fn quarantine(&self, messages: &[NewQuarantined]) -> Result<Vec<QuarantineId>, StoreError> {
        quarantine::put(&mut self.writing().connection, self.bounds, messages)
    }

    fn quarantined_before(&self, before: Option<QuarantineId>, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        self.readers.read(|connection| quarantine::before(connection, before, limit))
    }

    fn quarantined(&self, id: QuarantineId) -> Result<Option<Quarantined>, StoreError> {
        self.readers.read(|connection| quarantine::get(connection, id))
    }

    fn release(&self, id: QuarantineId) -> Result<bool, StoreError> {
        quarantine::remove(&self.writing().connection, id)
    }

    fn quarantine_size(&self) -> Result<QuarantineSize, StoreError> {
        self.readers.read(quarantine::size)
    }

    fn subscriptions(&self) -> Result<Vec<Stored>, StoreError> {
        self.readers.read(subscriptions::all)
    }

    fn write_subscriptions(&self, writes: &[Write]) -> Result<Vec<u64>, StoreError> {
        subscriptions::write(&mut self.writing().connection, writes)
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

    fn identity(&self) -> Uuid {
        self.identity
    }
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
            // What is left are files that are no longer what SQLite wrote, and rows or statements
            // that do not fit the schema.
            _ => Self::Damaged(error.to_string()),
        }
    }
}
