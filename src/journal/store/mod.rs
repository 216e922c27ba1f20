//! Storage of the journal: the [`Store`] trait with its promises, and its implementations.
//!
//! A new store needs one module here that implements the trait, and one line in the conformance test, which checks the
//! promises for every store.

mod event_key;
mod limits;
mod prefetch;
pub mod sqlite;
mod uri_set;
mod write_batch;

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use uuid::Uuid;

pub use event_key::{EventIdentity, EventKey, event_key};
pub use limits::StoreLimits;
pub use prefetch::{ItemSelection, PrefetchKeys, PrefetchedObject, PrefetchedRows};
// The store that the gateway opens, and that the commands copy, restore and verify. Only this module names it.
pub use sqlite::{
    FILE_NAME, OpenError,
    backup::{BackupError, JournalSummary, back_up},
    inspect::{FolderContent, inspect},
    restore::{RestoreError, RestoreSummary, restore},
    verify::{Report, verify},
};
pub use uri_set::UriSet;
pub use write_batch::{ObjectUpdate, Seed, WriteBatch};

use self::sqlite::{SqliteOptions, SqliteStore};
use super::{
    quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize, QuarantinedMessage},
    registry::ObjectState,
    seed::CrawlProgress,
    subscriptions::{DeadLetter, DeadLetterId, SubscriptionRecord, SubscriptionWrite},
};
use crate::model::{Change, ChangeId, MissingFacts, Seq, SourceName, SubscriptionName, Timestamp, Uri};

/// Opens the store of a journal in a folder, and creates it if the folder has none.
///
/// # Errors
/// Fails if the folder contains something else, or the journal is damaged, newer or in use.
pub fn open(folder: &Path, limits: StoreLimits) -> Result<impl Store + use<>, OpenError> {
    SqliteStore::open(folder, SqliteOptions { limits, ..SqliteOptions::default() })
}

/// A durable, totally ordered journal with the registry beside it. One thread writes; any number of threads read.
///
/// Every store keeps these promises, each checked by a test that runs with every store:
/// 1. Durable on return: after [`Transaction::commit`] has returned, a crash loses nothing of the batch.
/// 2. A reader who saw number n never later sees a new smaller one.
/// 3. A repeat of an event within the window of [`StoreLimits`] returns the number of its first change.
/// 4. A batch, its registry rows, its event keys and the progress of its crawls are stored together or not at all.
/// 5. A cursor moves back only by a rewind; reading moves nothing.
/// 6. The head never runs ahead of the changes that can be read.
///
/// The number of a change is a primary key, so a second writer that used the same number would fail and store nothing.
/// After a restore from a backup the numbering skips every number that the lost journal may have given.
/// URIs are in order of their octets.
pub trait Store: Send + Sync + 'static {
    /// Begins the transaction of a batch. The store has one such transaction at a time; dropping it rolls it back.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError>;

    /// Runs background maintenance if it is due. The journal calls this method after batches, on a separate thread.
    ///
    /// # Errors
    /// Fails if the storage fails; the maintenance is then due again later.
    fn maintain(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes as much as a message of typical size needs, and removes it again.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the ranges of numbers that restores from a backup have skipped: after the first number, up to the
    /// second.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn skipped_ranges(&self) -> Result<Vec<(Seq, Seq)>, StoreError>;

    /// Returns how often a crawl has updated an object without a change. The number only grows.
    fn seed_count(&self) -> u64;

    /// Returns the number of the newest change.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn head(&self) -> Result<Seq, StoreError>;

    /// Returns up to `limit` changes after `after`, oldest first, from one consistent snapshot. The page ends early
    /// once the changes have `bytes` of JSON, and has at least one change if there is one. `None` if `after` is not
    /// a valid cursor: changes after it have been removed, or the journal never gave that number.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn after(&self, after: Seq, limit: usize, bytes: usize) -> Result<Option<Vec<StoredChange>>, StoreError>;

    /// Returns up to `limit` changes before `before`, newest first. The page ends early once the changes have
    /// `bytes` of JSON, and has at least one change if there is one.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn before(&self, before: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError>;

    /// Returns the newest number before `seq` if a restore skipped the numbers between the two, and otherwise
    /// `None`. The number is 0 if the restored journal had no change.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn before_restore(&self, seq: Seq) -> Result<Option<Seq>, StoreError>;

    /// Returns the change with this identifier.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn by_id(&self, id: ChangeId) -> Result<Option<StoredChange>, StoreError>;

    /// Returns the state of one object with all its items.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn object(&self, object: &Uri) -> Result<Option<ObjectState>, StoreError>;

    /// Returns up to `limit` objects after `after`, in order of their URIs, from one consistent snapshot. A page
    /// may end early if objects have very many items; it is empty only if no object is left.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn registry(&self, after: Option<&Uri>, limit: usize) -> Result<Vec<(Uri, ObjectState)>, StoreError>;

    /// Returns the progress of the newest crawl of a source's repository; `None` if there has been none.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn crawl_progress(&self, source: &SourceName) -> Result<Option<CrawlProgress>, StoreError>;

    /// Returns the number of the oldest available change; `None` if there is no change yet.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn first(&self) -> Result<Option<Seq>, StoreError>;

    /// Returns the number of the oldest change received at `time` or later; `None` if all changes are older.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn first_since(&self, time: Timestamp) -> Result<Option<Seq>, StoreError>;

    /// Returns the number of the first of the newest `count` changes (at least one); `None` if there is no change.
    /// If there are fewer changes, the number precedes the oldest change.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn first_of_newest(&self, count: u64) -> Result<Option<Seq>, StoreError>;

    /// Removes at most `at_most` of the oldest changes before `before`, and returns some of their space to the file
    /// system; returns the number of removed changes. The newest change always stays, because the head and the next
    /// time of receipt depend on it. Registry, event keys and quarantine stay too.
    ///
    /// # Errors
    /// Fails if the storage fails; then none was removed.
    fn prune(&self, before: Seq, at_most: usize) -> Result<usize, StoreError>;

    /// Stores unreadable messages, and drops the oldest messages beyond the limits.
    ///
    /// # Errors
    /// Fails if the storage fails; then no message was stored.
    fn quarantine(&self, messages: &[NewQuarantinedMessage]) -> Result<QuarantineReceipt, StoreError>;

    /// Returns up to `limit` messages of the quarantine before `before` (from the newest if `None`), newest first,
    /// without their bodies.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn quarantined_before(
        &self,
        before: Option<QuarantineId>,
        limit: usize,
    ) -> Result<Vec<QuarantinedMessage>, StoreError>;

    /// Returns one message of the quarantine with its body.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn quarantined(&self, id: QuarantineId) -> Result<Option<QuarantinedMessage>, StoreError>;

    /// Removes a message from the quarantine; returns whether the quarantine had it.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn release(&self, id: QuarantineId) -> Result<bool, StoreError>;

    /// Returns the size of the quarantine.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn quarantine_size(&self) -> Result<QuarantineSize, StoreError>;

    /// Returns all subscriptions, in order of their names.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError>;

    /// Modifies subscriptions and their dead letters in one transaction; returns the number of affected rows of each
    /// modification.
    ///
    /// # Errors
    /// Fails if the storage fails; then nothing was modified.
    fn write_subscriptions(&self, writes: &[SubscriptionWrite]) -> Result<Vec<u64>, StoreError>;

    /// Returns up to `limit` dead letters of a subscription before `before` (from the newest if `None`), newest first.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn dead_letters(
        &self,
        subscription: &SubscriptionName,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;

    /// Returns one dead letter of a subscription.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn dead_letter(&self, subscription: &SubscriptionName, id: DeadLetterId) -> Result<Option<DeadLetter>, StoreError>;

    /// Returns up to `limit` dead letters of a subscription after `after` that wait for another attempt, oldest first.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn replays(
        &self,
        subscription: &SubscriptionName,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;

    /// Returns up to `limit` changes of a source after `after` whose lookup must be repeated, oldest first.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn incomplete(&self, source: &SourceName, after: Seq, limit: usize) -> Result<Vec<IncompleteChange>, StoreError>;

    /// Returns the number of changes whose lookup must be repeated, for each source that has any.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn incomplete_counts(&self) -> Result<BTreeMap<SourceName, u64>, StoreError>;

    /// Returns the unique identifier of this journal. A restored journal has a new one.
    fn identity(&self) -> Uuid;
}

/// The transaction of one batch: the writer prefetches, settles, writes and commits. Dropping it rolls it back.
pub trait Transaction {
    /// Reads the rows with these keys, as of this transaction.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn prefetch(&mut self, keys: &PrefetchKeys) -> Result<PrefetchedRows, StoreError>;

    /// Writes the rows of a batch. A transaction has one such call.
    ///
    /// # Errors
    /// Fails if the storage fails; then the transaction cannot be committed.
    fn write(&mut self, batch: &WriteBatch) -> Result<(), StoreError>;

    /// Commits; on return the batch is durable.
    ///
    /// # Errors
    /// Fails if the storage fails; then nothing was written.
    fn commit(self: Box<Self>) -> Result<(), StoreError>;
}

/// Result of an insertion into the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineReceipt {
    /// Identifiers of the messages, in their order.
    pub ids: Vec<QuarantineId>,
    /// Number of older messages that were dropped because of the limits.
    pub dropped: u64,
}

/// A change to write.
#[derive(Debug)]
pub struct NewChange {
    /// The change.
    pub change: Change,
    /// JSON of the change.
    pub json: Bytes,
    /// JSON of the [`VisibilityNotes`](crate::model::VisibilityNotes), if there are any.
    pub visibility: Option<Bytes>,
    /// Key of the event; `None` if repeats of the event cannot be detected.
    pub key: Option<EventKey>,
    /// Facts to look up again, if the repository did not answer completely.
    pub incomplete: Option<MissingFacts>,
}

/// A change whose lookup must be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteChange {
    /// Number of the change.
    pub seq: Seq,
    /// Facts to look up.
    pub missing: MissingFacts,
    /// JSON of the change. The row contains it, because retention may have removed the change itself.
    pub json: Bytes,
}

/// A change as the store returns it, with unparsed JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChange {
    /// Number of the change.
    pub seq: Seq,
    /// JSON of the change.
    pub json: Bytes,
    /// JSON of the [`VisibilityNotes`](crate::model::VisibilityNotes), if there are any.
    pub visibility: Option<Bytes>,
}

/// Reasons why a store could not execute a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("the disk is full; free some space on the disk of the journal, and the gateway resumes automatically")]
    Full,
    /// The journal is read-only.
    #[error("the journal cannot be written ({0}); check its folder's permissions and mount")]
    ReadOnly(String),
    /// The operating system failed to read or write.
    #[error("the journal cannot be read or written ({0}); check the disk, and whether it is still mounted for writing")]
    Io(String),
    /// The storage does not respond in time, or another process has locked it.
    #[error("the journal's storage is not available ({0}); the gateway retries automatically")]
    Unavailable(String),
    /// The stored data is invalid.
    #[error("the journal is damaged ({0}); stop the gateway and restore the journal from a backup")]
    Damaged(String),
    /// The store refuses only this call, because a value is too large or contradicts the stored data.
    #[error(
        "the journal refused a batch ({0}), and is itself intact; send less in one message, and report this error if it persists"
    )]
    Refused(String),
}

impl StoreError {
    /// Returns whether the same call may succeed later, without a repair of the journal.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Full | Self::ReadOnly(_) | Self::Io(_) | Self::Unavailable(_) => true,
            Self::Damaged(_) | Self::Refused(_) => false,
        }
    }
}
