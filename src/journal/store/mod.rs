//! Storage of the journal: the [`Store`] trait with its promises, and its implementations.
//!
//! A new store needs one module here that implements the trait, and one line in the conformance test, which checks the
//! promises for every store.

mod commit;
mod error;
mod event_key;
mod limits;
mod location;
pub mod migrate;
mod numbering;
mod page;
pub mod postgres;
mod prefetch;
mod public_items;
mod record;
mod records;
mod rows;
mod shares;
pub mod sqlite;
mod state;
mod tables;
mod uri_set;
mod verify;
mod write_batch;

use std::{sync::Arc, time::Duration};

use foldhash::HashMap;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use commit::{CommitError, CommitId};
pub use error::{Remedy, StoreError};
pub use event_key::{EventIdentity, EventKey, event_key};
pub use limits::StoreLimits;
pub use location::{StoreContent, StoreLocation};
pub(super) use numbering::time_of_loss;
pub use postgres::{ConnectionOptions, InvalidPostgresUrl, PostgresUrl};
pub use prefetch::{FirstChange, ItemSelection, ObjectSelection, PrefetchKeys, PrefetchedObject, PrefetchedRows};
pub use record::{IncompleteChange, NewChange, QuarantineReceipt, StoredChange};
pub use records::{
    CrawlStore, DeadLetterStore, DueStore, HarvestStore, IncompleteStore, IngestStore, ListedRecordStore, OrderStore,
    QuarantineStore, Records, RestoreStore, SeedStore, SegmentStore, SourceStore, SubscriptionStore,
};
// The store in a folder, which the commands copy, restore and verify.
pub use sqlite::{
    FILE_NAME,
    backup::{BackupError, JournalSummary, back_up},
    is_in_use,
    restore::{RestoreError, RestoreSummary, restore},
    verify::verify,
};
pub use state::{JournalState, StateWatch};
pub use uri_set::UriSet;
pub use verify::Report;
pub use write_batch::{ObjectUpdate, Seed, WriteBatch};

use self::{
    postgres::{PostgresOpenError, PostgresOptions, PostgresStore},
    sqlite::{SqliteOptions, SqliteStore},
};
use super::{
    RegistryPosition,
    acceptance::{AcceptanceTime, AcceptedPage, AcceptedQuery, ObjectTimes},
    nodes::{NodeTable, Term, Wake},
    quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize},
    registry::ObjectState,
};
use crate::model::{ChangeId, Seq, Timestamp, Uri};

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Limits that apply to every store.
    pub limits: StoreLimits,
    /// Settings of a connection to a database.
    pub connection: ConnectionOptions,
    /// Whether a new journal is begun in a folder whose journal is missing.
    pub begin_new: bool,
}

/// Reasons why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The journal is in a folder.
    #[error(transparent)]
    Folder(#[from] sqlite::OpenError),
    /// The journal is in a database.
    #[error(transparent)]
    Postgres(#[from] PostgresOpenError),
}

/// Opens the store of a journal, and creates the journal if the location has none. The call blocks.
///
/// # Errors
/// Fails if the location contains something else or is not available, or the journal is damaged, newer or in use.
pub fn open(location: &StoreLocation, options: OpenOptions) -> Result<Arc<dyn Store>, OpenError> {
    let OpenOptions { limits, connection, begin_new } = options;
    Ok(match location {
        StoreLocation::Folder(folder) => {
            Arc::new(SqliteStore::open(folder, SqliteOptions { limits, begin_new, ..SqliteOptions::default() })?)
        }
        StoreLocation::Postgres(url) => {
            let options = PostgresOptions { limits, connection, trim_keys: PostgresOptions::TRIM_KEYS };
            Arc::new(PostgresStore::open(url, options)?)
        }
    })
}

/// Checks whether a journal can be opened or created, without writing anything. The call blocks.
///
/// # Errors
/// Fails if opening would fail. Does not detect damage in a journal.
pub fn inspect(location: &StoreLocation, connection: &ConnectionOptions) -> Result<StoreContent, OpenError> {
    Ok(match location {
        StoreLocation::Folder(folder) => sqlite::inspect::inspect(folder)?,
        StoreLocation::Postgres(url) => PostgresStore::inspect(url, connection)?,
    })
}

/// A durable, totally ordered journal with the registry beside it. One thread writes; any number of threads read.
/// Several nodes may share a store ([`Store::is_shared`]), each with one thread that writes.
///
/// Every store keeps these promises, each checked by a test that runs with every store:
/// 1. Durable on return: after [`Transaction::commit`] has returned, a crash loses nothing of the batch.
/// 2. A reader who saw number n never later sees a new smaller one.
/// 3. A repeat of an event within the window of [`StoreLimits`] returns the number of its first change.
/// 4. A batch, its registry rows, its event keys and the progress of its crawls and harvests are stored together or
///    not at all.
/// 5. A cursor moves back only by a rewind; reading moves nothing. No cursor is above the head, or in a range that a
///    restore has skipped.
/// 6. The head never runs ahead of the changes that can be read.
/// 7. A node that has lost a duty can write nothing for it: a call with a term that has ended fails with
///    [`StoreError::DutyLost`] and writes nothing. A store for one node ignores terms.
///
/// The number of a change is a primary key, so a second writer that used the same number would fail and store nothing.
/// After a restore from a backup the numbering skips every number that the lost journal may have given.
/// URIs are in order of their octets.
pub trait Store:
    SubscriptionStore
    + DeadLetterStore
    + DueStore
    + SeedStore
    + HarvestStore
    + SourceStore
    + ListedRecordStore
    + OrderStore
    + RestoreStore
    + SegmentStore
    + IngestStore
    + CrawlStore
    + IncompleteStore
    + QuarantineStore
    + Send
    + Sync
    + 'static
{
    /// Begins the transaction of a batch. The store has one such transaction at a time; dropping it rolls it back.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError>;

    /// Returns whether a batch was committed whose commit had an unknown outcome. The outcome is final when the method
    /// returns. The writer calls it before it begins another transaction.
    ///
    /// # Errors
    /// Fails if the storage fails; the outcome is then still unknown. Fails always in a store that knows the outcome
    /// of every commit.
    fn was_committed(&self, commit: CommitId) -> Result<bool, StoreError> {
        Err(StoreError::Refused(format!("the store has no record of the commit {commit}")))
    }

    /// Returns the time by the clock that gives the times of receipt.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(Timestamp::now())
    }

    /// Returns whether other nodes may write to the same journal.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns a watch on the writes of other nodes, which ends its waits when `stop` is cancelled; `None` if no other
    /// node can write to the journal.
    fn watch(&self, _stop: CancellationToken) -> Option<Box<dyn StateWatch + '_>> {
        None
    }

    /// Checks that the files that the store has open are those at their paths.
    ///
    /// # Errors
    /// [`StoreError::Displaced`] if a file was removed or replaced; all writes fail with the same error.
    fn check_in_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Runs background maintenance if it is due. The journal calls this method after batches and each second, on a
    /// separate thread.
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

    /// Returns where a reader continues who has everything up to `seq`: after `seq` itself, or after the newest change
    /// before it that a restore or a failover has not lost. The numbers between the two are lost.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn surviving(&self, seq: Seq) -> Result<Seq, StoreError> {
        // First the head: a node that skips numbers after it stores their range before the next change.
        let head = self.head()?;
        let ranges = self.skipped_ranges()?;
        let range = ranges.into_iter().find(|(before, floor)| *before < seq && seq <= *floor);
        Ok(range.map_or(seq.min(head), |(before, _)| before))
    }

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

    /// Returns the state of several objects, each with the selected items, from one consistent snapshot. Objects that
    /// the registry does not have are absent.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn objects(&self, selected: &ObjectSelection) -> Result<HashMap<Uri, ObjectState>, StoreError>;

    /// Returns up to `limit` objects from a position on, in order of their URIs, from one consistent snapshot. A page
    /// may end early if objects have very many items; it is empty only if no object is left.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn registry(&self, from: &RegistryPosition, limit: usize) -> Result<Vec<(Uri, ObjectState)>, StoreError>;

    /// Returns a page of objects in the order of their times of acceptance, from one consistent snapshot.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn accepted(&self, query: &AcceptedQuery) -> Result<AcceptedPage, StoreError>;

    /// Returns the times of acceptance of an object; `None` if the registry does not have it.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn object_times(&self, object: &Uri) -> Result<Option<ObjectTimes>, StoreError>;

    /// Returns the newest time of acceptance that a batch has given to objects.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn newest_acceptance(&self) -> Result<AcceptanceTime, StoreError>;

    /// Returns the secret key of the tokens that readers of the registry get. All nodes have the same; another journal has
    /// another one.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn token_key(&self) -> Result<[u8; 16], StoreError>;

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
    fn prune(&self, before: Seq, at_most: usize, term: Option<Term>) -> Result<usize, StoreError>;

    /// Stores unreadable messages, and drops the oldest messages beyond the limits.
    ///
    /// # Errors
    /// Fails if the storage fails; then no message was stored.
    fn quarantine(
        &self,
        messages: &[NewQuarantinedMessage],
        term: Option<Term>,
    ) -> Result<QuarantineReceipt, StoreError>;

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

    /// Returns the unique identifier of this journal. A restored journal has a new one, and so has one whose database
    /// server was replaced by its standby.
    fn identity(&self) -> Uuid;

    /// Opens the tables of the nodes that share this journal, over a connection of their own; `None` if the store is
    /// for one node. The tables call `wake` when another node has changed something.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    fn node_table(&self, _lease: Duration, _wake: Wake) -> Result<Option<Box<dyn NodeTable>>, StoreError> {
        Ok(None)
    }
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
    /// Fails if the storage fails. The error says whether nothing was written, or the outcome is unknown.
    fn commit(self: Box<Self>) -> Result<(), CommitError>;
}
