//! Where the journal is kept: the [`Store`] trait with its promises, and its implementations.
//!
//! To add a store: one new module here that implements the trait, and one line in the conformance
//! test, which holds every store to the promises.

mod decision;
mod event_key;
mod packed;
mod questions;
pub mod sqlite;
mod uri_set;

use std::collections::BTreeMap;

use bytes::Bytes;
use uuid::Uuid;

pub(in crate::journal) use decision::Touching;
pub use decision::{Confirmed, Decision, Seed, Touched};
pub use event_key::{EventIdentity, EventKey, event_key};
pub use packed::Packed;
pub use questions::{ItemsAsked, Known, KnownObject, Meanwhile, Questions};
pub use uri_set::UriSet;

use super::{
    quarantine::{NewQuarantined, QuarantineId, QuarantineSize, Quarantined},
    registry::ObjectState,
    seed::Walk,
    subscriptions::{DeadLetter, DeadLetterId, Stored, Write},
};
use crate::model::{Change, ChangeId, Seq, SourceName, SubscriptionName, Timestamp, Untold, Uri};

/// A durable, totally ordered journal with the registry beside it. One writer at a time appends;
/// any number read.
///
/// What every store promises, each a test that runs over every store:
/// 1. Durable on return: what [`append`](Store::append) has accepted is there after a crash.
/// 2. Who saw number n never later sees a new smaller one.
/// 3. A repeat returns the first number.
/// 4. A batch, its registry changes, its event keys and the places of its walks are stored together or not at all.
/// 5. A reader's place is its own: reading moves nothing in the store, and the same place gives
///    the same changes again. A subscription's cursor goes back only by a rewind.
/// 6. The head never runs ahead of what can be read.
pub trait Store: Send + Sync + 'static {
    /// What the writer must know before it can decide, as of a batch that has been appended: the newest, or the
    /// one before if the newest is just being written.
    ///
    /// # Errors
    /// When the storage fails.
    fn look(&self, questions: &Questions, meanwhile: Meanwhile) -> Result<Known, StoreError>;

    /// Writes what was decided, in this order and in one transaction, and gives the changes of each decision
    /// back. It may have been decided on what the store knew earlier, if what was decided in between was
    /// taken into account.
    ///
    /// # Errors
    /// When the storage fails; then nothing was written.
    fn append(&self, decisions: Vec<Decision>) -> Result<Vec<Vec<NewChange>>, StoreError>;

    /// How many items the registry knows of each of these objects, those included that are gone.
    ///
    /// # Errors
    /// When the storage fails.
    fn item_counts(&self, objects: &[Uri], meanwhile: Meanwhile) -> Result<Vec<usize>, StoreError>;

    /// Puts in order what can be put in order now, so that the next opening is quick. Nobody appends any
    /// more.
    ///
    /// # Errors
    /// When the storage fails; then opening takes longer, and nothing is lost.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether there is work to be done that nobody waits for.
    fn upkeep_is_due(&self) -> bool {
        false
    }

    /// Does such work, beside the appends.
    ///
    /// # Errors
    /// When the storage fails; then it is still to be done.
    fn upkeep(&self) -> Result<(), StoreError> {
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
    fn left_out(&self) -> Result<Vec<(Seq, Seq)>, StoreError>;

    /// How often a walk has filled in an object. It only grows.
    fn seeds(&self) -> u64;

    /// The number of the newest change.
    ///
    /// # Errors
    /// When the storage fails.
    fn head(&self) -> Result<Seq, StoreError>;

    /// Up to `limit` changes after `after`, oldest first.
    ///
    /// # Errors
    /// When the storage fails.
    fn after(&self, after: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError>;

    /// The same, and no more of them once they have `bytes` of JSON; one at least, if there is one.
    ///
    /// # Errors
    /// When the storage fails.
    fn after_within(&self, after: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError>;

    /// Up to `limit` changes before `before`, newest first.
    ///
    /// # Errors
    /// When the storage fails.
    fn before(&self, before: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.before_within(before, limit, usize::MAX)
    }

    /// The same, and no more of them once they have `bytes` of JSON; one at least, if there is one.
    ///
    /// # Errors
    /// When the storage fails.
    fn before_within(&self, before: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError>;

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
    fn walk(&self, source: &SourceName) -> Result<Option<Walk>, StoreError>;

    /// Whether the change of that number is there, or a restore made the numbering go on after it, and the first change after
    /// the restore is there: a reader at that place has missed nothing.
    ///
    /// # Errors
    /// When the storage fails.
    fn holds(&self, seq: Seq) -> Result<bool, StoreError>;

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

    /// Does a part of what must be done before [`prune`](Store::prune) with the same arguments takes no longer than an
    /// append; returns whether more of that is left.
    ///
    /// # Errors
    /// When the storage fails.
    fn prepare_to_prune(&self, _before: Seq, _at_most: usize) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Removes the oldest changes before `before`, `at_most` so many of them, and gives some of their
    /// room back; says how many went. The newest change always stays, and with it the head and the
    /// time of receipt that the next one is measured by. Registry, events and quarantine stay too.
    ///
    /// # Errors
    /// When the storage fails; then none was removed.
    fn prune(&self, before: Seq, at_most: usize) -> Result<usize, StoreError>;

    /// Keeps messages that could not be read; gives their identifiers in the same order.
    ///
    /// # Errors
    /// When the storage fails; then none was kept.
    fn quarantine(&self, messages: &[NewQuarantined]) -> Result<Vec<QuarantineId>, StoreError>;

    /// Up to `limit` messages of the quarantine before `before` (all, if `None`), newest first,
    /// without their bodies.
    ///
    /// # Errors
    /// When the storage fails.
    fn quarantined_before(&self, before: Option<QuarantineId>, limit: usize) -> Result<Vec<Quarantined>, StoreError>;

    /// One message of the quarantine, with its body.
    ///
    /// # Errors
    /// When the storage fails.
    fn quarantined(&self, id: QuarantineId) -> Result<Option<Quarantined>, StoreError>;

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
    fn subscriptions(&self) -> Result<Vec<Stored>, StoreError>;

    /// Does this to subscriptions and their dead letters, in one transaction; says for each how many
    /// it concerned.
    ///
    /// # Errors
    /// When the storage fails; then nothing was done.
    fn write_subscriptions(&self, writes: &[Write]) -> Result<Vec<u64>, StoreError>;

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
    fn incomplete(&self, source: &SourceName, after: Seq, limit: usize) -> Result<Vec<Incomplete>, StoreError>;

    /// How many such changes there are of each source that has any.
    ///
    /// # Errors
    /// When the storage fails.
    fn incomplete_counts(&self) -> Result<BTreeMap<SourceName, u64>, StoreError>;

    /// What tells this journal from every other one, for ever.
    fn identity(&self) -> Uuid;
}

/// A change to be written.
#[derive(Debug)]
pub struct NewChange {
    /// The change.
    pub change: Change,
    /// Its JSON.
    pub json: Bytes,
    /// The JSON of its [`Sight`](crate::model::Sight), where there is something to note.
    pub sight: Option<Bytes>,
    /// The event that told it; `None` where a repeat cannot be known.
    pub key: Option<EventKey>,
    /// What its repository is to be asked about it again, where it did not answer.
    pub incomplete: Option<Untold>,
}

/// A change about which its repository is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// Its number.
    pub seq: Seq,
    /// What it is to be asked.
    pub untold: Untold,
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
    /// The JSON of its [`Sight`](crate::model::Sight), where there is something to note.
    pub sight: Option<Bytes>,
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
            Self::Full | Self::ReadOnly(_) | Self::Io(_) => true,
            Self::Damaged(_) | Self::Refused(_) => false,
        }
    }
}
