//! Storage of the journal: the [`Store`] trait with its promises, and its implementations.
//!
//! To add a store: one new module here that implements the trait, and one line in the conformance
//! test, which holds every store to the promises.

mod event_key;
mod limits;
mod prefetch;
pub mod sqlite;
mod uri_set;
mod write_batch;

use std::collections::BTreeMap;

use bytes::Bytes;
use uuid::Uuid;

pub use event_key::{EventIdentity, EventKey, event_key};
pub use limits::StoreLimits;
pub use prefetch::{ItemSelection, PrefetchKeys, PrefetchedObject, PrefetchedRows};
pub use uri_set::UriSet;
pub use write_batch::{ObjectUpdate, Seed, WriteBatch};

use super::{
    quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize, QuarantinedMessage},
    registry::ObjectState,
    seed::CrawlProgress,
    subscriptions::{DeadLetter, DeadLetterId, SubscriptionRecord, SubscriptionWrite},
};
use crate::model::{Change, ChangeId, MissingFacts, Seq, SourceName, SubscriptionName, Timestamp, Uri};

/// A durable, totally ordered journal with the registry beside it. One thread writes; any number of threads read.
///
/// The promises of every store, each held by a test that runs over every store:
/// 1. Durable on return: after [`Transaction::commit`] has returned, a crash loses nothing of the batch.
/// 2. A reader who saw number n never later sees a new smaller one.
/// 3. A repeat of an event within the window of [`StoreLimits`] returns the number of its first change.
/// 4. A batch, its registry rows, its event keys and the progress of its crawls are stored together or not at all.
/// 5. A cursor moves back only by a rewind; reading moves nothing.
/// 6. The head never runs ahead of what can be read.
///
/// The number of a change is a primary key, so a second writer that took the same number would fail and store nothing.
/// After a restore from a backup the numbering leaves out every number that the lost journal may have given.
/// URIs are in order of their octets.
pub trait Store: Send + Sync + 'static {
    /// Begins the transaction of a batch. The store has one such transaction at a time; dropping it rolls it back.
    ///
    /// # Errors
    /// When the storage fails.
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError>;

    /// Does work that no batch waits for, if any is due. The journal calls it after batches, on a thread of its own.
    ///
    /// # Errors
    /// When the storage fails; then the work is due again later.
    fn maintain(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes as much as a message of usual size needs, and removes it again.
    ///
    /// # Errors
    /// When the storage fails.
    fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The runs of numbers that restores from a backup have left out: those after the first number, up to the second.
    ///
    /// # Errors
    /// When the storage fails.
    fn skipped_ranges(&self) -> Result<Vec<(Seq, Seq)>, StoreError>;

    /// How often a walk has filled in an object. It only grows.
    fn seed_count(&self) -> u64;

    /// The number of the newest change.
    ///
    /// # Errors
    /// When the storage fails.
    fn head(&self) -> Result<Seq, StoreError>;

    /// Up to `limit` changes after `after`, oldest first, as of one moment; it ends early once the changes have `bytes` of
    /// JSON, and has at least one change if there is one. `None` where `after` is no place of this journal: the changes
    /// after it are not all kept, or the journal never gave that number.
    ///
    /// # Errors
    /// When the storage fails.
    fn after(&self, after: Seq, limit: usize, bytes: usize) -> Result<Option<Vec<StoredChange>>, StoreError>;

    /// Up to `limit` changes before `before`, newest first; it ends early once the changes have `bytes` of JSON, and has at
    /// least one change if there is one.
    ///
    /// # Errors
    /// When the storage fails.
    fn before(&self, before: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError>;

    /// The newest number before `seq`, where a restore left out the numbers between them, and else `None`. It is 0 where
    /// the restored journal had no change.
    ///
    /// # Errors
    /// When the storage fails.
    fn before_restore(&self, seq: Seq) -> Result<Option<Seq>, StoreError>;

    /// The change with that identifier.
    ///
    /// # Errors
    /// When the storage fails.
    fn by_id(&self, id: ChangeId) -> Result<Option<StoredChange>, StoreError>;

    /// All that the registry knows of one object.
    ///
    /// # Errors
    /// When the storage fails.
    fn object(&self, object: &Uri) -> Result<Option<ObjectState>, StoreError>;

    /// Up to `limit` objects after `after`, in order of their URIs, as of one moment. A page may end
    /// early where objects have very many items; it is empty only when none is left.
    ///
    /// # Errors
    /// When the storage fails.
    fn registry(&self, after: Option<&Uri>, limit: usize) -> Result<Vec<(Uri, ObjectState)>, StoreError>;

    /// How far the newest walk through the repository of a source is; `None` when there has been none.
    ///
    /// # Errors
    /// When the storage fails.
    fn crawl_progress(&self, source: &SourceName) -> Result<Option<CrawlProgress>, StoreError>;

    /// The number of the oldest change that is kept; `None` when there is no change yet.
    ///
    /// # Errors
    /// When the storage fails.
    fn first(&self) -> Result<Option<Seq>, StoreError>;

    /// The number of the oldest change that was received at `time` or later; `None` when all are older.
    ///
    /// # Errors
    /// When the storage fails.
    fn first_since(&self, time: Timestamp) -> Result<Option<Seq>, StoreError>;

    /// The number at which the newest `count` changes begin, one at least; `None` when there is no change.
    /// It is before the oldest change when there are fewer.
    ///
    /// # Errors
    /// When the storage fails.
    fn first_of_newest(&self, count: u64) -> Result<Option<Seq>, StoreError>;

    /// Removes the oldest changes before `before`, `at_most` so many of them, and gives some of their
    /// room back; says how many went. The newest change always stays, and with it the head and the
    /// time of receipt that the next one is measured by. Registry, events and quarantine stay too.
    ///
    /// # Errors
    /// When the storage fails; then none was removed.
    fn prune(&self, before: Seq, at_most: usize) -> Result<usize, StoreError>;

    /// Keeps messages that could not be read, and drops the oldest beyond the limits.
    ///
    /// # Errors
    /// When the storage fails; then none was kept.
    fn quarantine(&self, messages: &[NewQuarantinedMessage]) -> Result<QuarantineReceipt, StoreError>;

    /// Up to `limit` messages of the quarantine before `before` (all, if `None`), newest first,
    /// without their bodies.
    ///
    /// # Errors
    /// When the storage fails.
    fn quarantined_before(
        &self,
        before: Option<QuarantineId>,
        limit: usize,
    ) -> Result<Vec<QuarantinedMessage>, StoreError>;

    /// One message of the quarantine, with its body.
    ///
    /// # Errors
    /// When the storage fails.
    fn quarantined(&self, id: QuarantineId) -> Result<Option<QuarantinedMessage>, StoreError>;

    /// Removes a message from the quarantine; says whether it was there.
    ///
    /// # Errors
    /// When the storage fails.
    fn release(&self, id: QuarantineId) -> Result<bool, StoreError>;

    /// How much the quarantine holds.
    ///
    /// # Errors
    /// When the storage fails.
    fn quarantine_size(&self) -> Result<QuarantineSize, StoreError>;

    /// Every subscription, by name.
    ///
    /// # Errors
    /// When the storage fails.
    fn subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError>;

    /// Does this to subscriptions and their dead letters, in one transaction; says for each how many
    /// it concerned.
    ///
    /// # Errors
    /// When the storage fails; then nothing was done.
    fn write_subscriptions(&self, writes: &[SubscriptionWrite]) -> Result<Vec<u64>, StoreError>;

    /// Up to `limit` dead letters of a subscription before `before` (all, if `None`), newest first.
    ///
    /// # Errors
    /// When the storage fails.
    fn dead_letters(
        &self,
        subscription: &SubscriptionName,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;

    /// One dead letter of a subscription.
    ///
    /// # Errors
    /// When the storage fails.
    fn dead_letter(&self, subscription: &SubscriptionName, id: DeadLetterId) -> Result<Option<DeadLetter>, StoreError>;

    /// Up to `limit` dead letters of a subscription after `after` that are to be sent again, oldest first.
    ///
    /// # Errors
    /// When the storage fails.
    fn replays(
        &self,
        subscription: &SubscriptionName,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;

    /// Up to `limit` changes of a source after `after` about which its repository is to be asked again, oldest first.
    ///
    /// # Errors
    /// When the storage fails.
    fn incomplete(&self, source: &SourceName, after: Seq, limit: usize) -> Result<Vec<IncompleteChange>, StoreError>;

    /// How many such changes there are of each source that has any.
    ///
    /// # Errors
    /// When the storage fails.
    fn incomplete_counts(&self) -> Result<BTreeMap<SourceName, u64>, StoreError>;

    /// What tells this journal from every other one, for ever.
    fn identity(&self) -> Uuid;
}

/// The transaction of one batch: the writer looks up, settles, writes and commits. Dropping it rolls it back.
pub trait Transaction {
    /// Answers questions, as of this transaction.
    ///
    /// # Errors
    /// When the storage fails.
    fn prefetch(&mut self, questions: &PrefetchKeys) -> Result<PrefetchedRows, StoreError>;

    /// Writes the rows of a batch. A transaction has one such call.
    ///
    /// # Errors
    /// When the storage fails; then the transaction cannot be committed.
    fn write(&mut self, decision: &WriteBatch) -> Result<(), StoreError>;

    /// Commits; on return the batch is durable.
    ///
    /// # Errors
    /// When the storage fails; then nothing was written.
    fn commit(self: Box<Self>) -> Result<(), StoreError>;
}

/// Result of an insertion into the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineReceipt {
    /// Identifiers of the messages, in their order.
    pub ids: Vec<QuarantineId>,
    /// Number of older messages that were dropped to hold the limits.
    pub dropped: u64,
}

/// A change to be written.
#[derive(Debug)]
pub struct NewChange {
    /// The change.
    pub change: Change,
    /// Its JSON.
    pub json: Bytes,
    /// The JSON of its [`VisibilityNotes`](crate::model::Sight), where there is something to note.
    pub visibility: Option<Bytes>,
    /// The event that told it; `None` where a repeat cannot be known.
    pub key: Option<EventKey>,
    /// What its repository is to be asked about it again, where it did not answer.
    pub incomplete: Option<MissingFacts>,
}

/// A change about which its repository is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteChange {
    /// Its number.
    pub seq: Seq,
    /// What it is to be asked.
    pub missing: MissingFacts,
    /// The change's JSON. It stands here by itself, since the change may have been removed.
    pub json: Bytes,
}

/// A change as the store has it: its number and its JSON, which is not parsed until it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChange {
    /// Its number.
    pub seq: Seq,
    /// Its JSON.
    pub json: Bytes,
    /// The JSON of its [`VisibilityNotes`](crate::model::Sight), where there is something to note.
    pub visibility: Option<Bytes>,
}

/// Why a store could not do as it was told.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room to write.
    #[error("the disk is full; free some room where the journal is kept, and the gateway goes on by itself")]
    Full,
    /// The journal may not be written.
    #[error("the journal cannot be written ({0}); check its folder's permissions and mount")]
    ReadOnly(String),
    /// The operating system failed to read or write.
    #[error("the journal cannot be read or written ({0}); check the disk, and whether it is still mounted for writing")]
    Io(String),
    /// The storage does not answer in time, or somebody else holds it.
    #[error("the journal's storage is not available ({0}); the gateway tries again by itself")]
    Unavailable(String),
    /// What is stored does not make sense.
    #[error("the journal is damaged ({0}); stop the gateway and restore the journal from a backup")]
    Damaged(String),
    /// The store refuses this call alone: a value is too large for it, or contradicts what is stored.
    #[error(
        "the journal refused what was to be written ({0}), and is itself intact; send less in one message, and report this if it goes on"
    )]
    Refused(String),
}

impl StoreError {
    /// Whether the same call may succeed later, without anybody mending the journal.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Full | Self::ReadOnly(_) | Self::Io(_) | Self::Unavailable(_) => true,
            Self::Damaged(_) | Self::Refused(_) => false,
        }
    }
}
