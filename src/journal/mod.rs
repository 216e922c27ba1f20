//! The append-only, totally ordered log of changes, with the registry beside it.
//!
//! ```text
//!  intake, crawls, deliveries, admin ──Command──▶ queue of `JournalSettings::queue` commands
//!                                                     │
//!             thread journal-writer ◀─────────────────┘  up to `JournalSettings::batch` commands are one batch
//!               1 begin a transaction                    store
//!               2 prefetch keys and registry rows        batch::prefetch_keys, store::prefetch
//!               3 settle each draft                      settle::settle, visibility
//!               4 write the rows                         store
//!               5 commit (one sync of the disk)          store
//!               6 publish                                tail, then the head
//!               7 reply to the senders                   command
//!                                                     │
//!             thread journal-maintenance ◀────────────┘  checkpoints of the write-ahead log
//!
//!  views, deliveries ◀── tail (newest changes, in memory) or store (all others, on blocking threads)
//! ```
//!
//! Only the intake submits [`Draft`](crate::model::Draft)s. Readers get [`RecordedChange`]s by number, and wait on the
//! head. [`store::Store`] lists the promises of the storage.
//!
//! The files:
//!
//! * writing: `command` (commands to the writer and their replies), `writer` (the loop), `batch` (one batch),
//!   [`settle`] (one draft), `visibility` (effect of a change for the public), `bounds` (division of large purges),
//!   `writable` (whether a message can be written at present), `threads` (start and end of the two threads);
//! * facts: [`registry`], [`seed`] (facts from crawls), `raw_content` (unparsed content locations);
//! * reading: `tail`, `queries`, [`subscriptions`], [`quarantine`];
//! * storage: [`store`], [`retention`], [`private_files`], [`metrics`].

mod batch;
mod bounds;
mod command;
pub mod metrics;
pub mod private_files;
pub mod quarantine;
mod queries;
mod raw_content;
pub mod registry;
pub mod retention;
pub mod seed;
pub mod settle;
pub mod store;
pub mod subscriptions;
mod tail;
mod threads;
mod visibility;
mod writable;
mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::sync_channel,
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

pub use bounds::ChangeBounds;
pub use command::{DraftOutcome, DuplicatePolicy, Submission};
pub use raw_content::RawContentLocation;
pub use tail::{RecordedChange, TailBounds, take_within};
pub use threads::JournalThreads;

use crate::{
    model::Seq,
    supervision::{Supervisor, Worker},
};
use command::Command;
use quarantine::{NewQuarantinedMessage, QuarantineId};
use seed::{CrawlPart, CrawlPartOutcome};
use store::{Store, StoreError};
use tail::Tail;
use threads::{run_maintenance, spawn};
use writable::Writable;
use writer::Writer;

/// Initial capacity for the JSON of a change, in bytes: enough for most.
const TYPICAL_JSON_BYTES: usize = 1024;

/// Settings of the journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalSettings {
    /// Maximum number of commands in the queue of the writer.
    pub queue: usize,
    /// Maximum number of commands that the writer executes in one transaction.
    pub batch: usize,
    /// Bounds on the changes in memory.
    pub tail: TailBounds,
    /// Maximum time of a command in the queue and on its way to the disk.
    pub patience: Duration,
    /// Bounds on one change and on one object.
    pub bounds: ChangeBounds,
}

impl Default for JournalSettings {
    fn default() -> Self {
        let (tail, bounds) = (TailBounds::default(), ChangeBounds::default());
        Self { queue: 1024, batch: 512, tail, patience: Duration::from_secs(20), bounds }
    }
}

/// Handle to an open journal. Clones are handles to the same journal.
#[derive(Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    tail: Arc<Tail>,
    head: watch::Receiver<Seq>,
    first: Arc<OldestSeq>,
    commands: mpsc::Sender<Command>,
    writable: Arc<Writable>,
    patience: Duration,
    bounds: ChangeBounds,
    /// Ranges of numbers that restores have skipped: after the first number, up to the second.
    skipped_ranges: Arc<[(Seq, Seq)]>,
}

/// Reasons why the journal could not execute a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The writer did not execute the command in time: its queue is full, or the disk is slow.
    #[error("the journal is busy: nothing was written within {} seconds; try again", .0.as_secs())]
    Busy(Duration),
    /// Retention has removed changes after a reader's cursor, or the journal never gave that number.
    #[error("changes after {after} are no longer available: the oldest available change has the number {first}")]
    Gone {
        /// The reader's cursor.
        after: Seq,
        /// Number of the oldest available change; of the next change, while there is none.
        first: Seq,
    },
    /// The gateway is stopping.
    #[error("the gateway is stopping; try again after its restart")]
    Closed,
}

impl JournalError {
    /// Returns whether the same call may succeed later, without a repair of the journal.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Busy(_) | Self::Closed => true,
            Self::Gone { .. } => false,
        }
    }
}

impl Journal {
    /// Fills the tail from an open store and starts the writer.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or a thread cannot be started.
    pub fn start(store: impl Store, settings: JournalSettings) -> Result<(Self, JournalThreads), StoreError> {
        Self::start_supervised(store, settings, &Supervisor::default())
    }

    /// Starts the journal as [`Journal::start`] does, and reports a thread that panics to `supervisor`.
    ///
    /// # Errors
    /// As [`Journal::start`].
    pub fn start_supervised(
        store: impl Store,
        settings: JournalSettings,
        supervisor: &Supervisor,
    ) -> Result<(Self, JournalThreads), StoreError> {
        let store: Arc<dyn Store> = Arc::new(store);
        let head = store.head()?;
        let tail = Arc::new(Tail::load(&*store, head, settings.tail)?);
        metrics::head(head);
        metrics::quarantined(store.quarantine_size()?);
        let first = Arc::new(OldestSeq::new(store.first()?));
        let skipped_ranges = store.skipped_ranges()?.into();
        let (head_sender, head) = watch::channel(head);
        let (commands, queue) = mpsc::channel(settings.queue);
        let (maintenance, wake_ups) = sync_channel(1);
        let writable = Arc::new(Writable::default());
        let writer = Writer {
            store: Arc::clone(&store),
            batch: settings.batch,
            bounds: settings.bounds,
            tail: Arc::clone(&tail),
            head: head_sender,
            first: Arc::clone(&first),
            maintenance,
            writable: Arc::clone(&writable),
        };
        let maintained = Arc::clone(&store);
        let threads = [
            spawn(Worker::JournalWriter, supervisor, move || writer.run(queue))?,
            spawn(Worker::JournalMaintenance, supervisor, move || run_maintenance(&*maintained, &wake_ups))?,
        ];
        let JournalSettings { patience, bounds, .. } = settings;
        let journal = Self { store, tail, head, first, commands, writable, patience, bounds, skipped_ranges };
        Ok((journal, JournalThreads(threads)))
    }

    /// Returns the bounds on one change and on one object.
    #[must_use]
    pub fn bounds(&self) -> ChangeBounds {
        self.bounds
    }

    /// Settles and appends the drafts of one message, all or none. On return the changes are on disk.
    ///
    /// # Errors
    /// Fails if the changes could not be written, or not in time. They may still be written later; the sender can
    /// repeat the message, because a repeat makes no second change.
    pub async fn append(&self, submission: Submission) -> Result<Vec<DraftOutcome>, JournalError> {
        Ok(self.append_all(vec![submission]).await?.pop().unwrap_or_default())
    }

    /// Settles and appends the drafts of several messages, in order and in one transaction: either all changes are
    /// on disk, or none is. The outcomes are in the same order.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn append_all(&self, submissions: Vec<Submission>) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        let began = Instant::now();
        let outcomes = self.send(|reply| Command::Append(submissions, reply)).await?;
        metrics::appended(began.elapsed());
        Ok(outcomes)
    }

    /// Writes one part of a crawl: its facts and the progress of the crawl, in one transaction.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn seed(&self, part: CrawlPart) -> Result<CrawlPartOutcome, JournalError> {
        self.send(|reply| Command::Seed(Box::new(part), reply)).await
    }

    /// Stores messages that no dialect could read, all or none. Returns their identifiers in the same order.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn quarantine_all(
        &self,
        messages: Vec<NewQuarantinedMessage>,
    ) -> Result<Vec<QuarantineId>, JournalError> {
        self.send(|reply| Command::Quarantine(messages, reply)).await
    }

    /// Removes a message from the quarantine; returns whether the quarantine had it.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn release(&self, id: QuarantineId) -> Result<bool, JournalError> {
        self.send(|reply| Command::Release(id, reply)).await
    }

    /// Returns the number of the newest change.
    #[must_use]
    pub fn head(&self) -> Seq {
        *self.head.borrow()
    }

    /// Returns the number of changes after `cursor`, including those that retention has removed.
    #[must_use]
    pub fn count_after(&self, cursor: Seq) -> u64 {
        let (cursor, head) = (cursor.0, self.head().0);
        let length = |(from, to): &(Seq, Seq)| to.0.min(head).saturating_sub(from.0.max(cursor));
        head.saturating_sub(cursor).saturating_sub(self.skipped_ranges.iter().map(length).sum())
    }

    /// Returns how often a crawl has updated an object of the registry without a change. The number only grows.
    #[must_use]
    pub fn seed_count(&self) -> u64 {
        self.store.seed_count()
    }

    /// Returns the number of the oldest available change; of the next change, while there is none.
    #[must_use]
    pub fn first(&self) -> Seq {
        self.first.get().unwrap_or(Seq::ZERO.next())
    }

    /// Removes at most `at_most` of the oldest changes before `before`; returns the number of removed changes. The
    /// newest change always stays.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn prune(&self, before: Seq, at_most: usize) -> Result<usize, JournalError> {
        self.send(|reply| Command::Prune { before, at_most, reply }).await
    }

    /// Returns a receiver that is notified whenever the head moves.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Seq> {
        self.head.clone()
    }

    /// Returns the unique identifier of this journal. A restored journal has a new one.
    #[must_use]
    pub fn identity(&self) -> Uuid {
        self.store.identity()
    }

    /// Returns whether the writer is alive and its queue has room.
    #[must_use]
    pub fn accepts_commands(&self) -> bool {
        !self.commands.is_closed() && self.commands.capacity() > 0
    }

    /// Checks that a message of typical size can be written. The writer only tries before the first message and after a
    /// failed write; otherwise the last message is proof enough.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn check_writable(&self) -> Result<(), JournalError> {
        if self.writable.is_proven() {
            return Ok(());
        }
        self.send(Command::Probe).await
    }

    /// Sends a command to the writer and waits for the reply.
    async fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, JournalError> {
        let (sender, reply) = oneshot::channel();
        let executed = async {
            self.commands.send(command(sender)).await.map_err(|_| JournalError::Closed)?;
            reply.await.map_err(|_| JournalError::Closed)?.map_err(JournalError::from)
        };
        let executed = tokio::time::timeout(self.patience, executed).await;
        executed.unwrap_or(Err(JournalError::Busy(self.patience))).inspect_err(metrics::failed)
    }
}

/// Number of the oldest available change; 0 for none, because no change has the number 0.
#[derive(Debug)]
struct OldestSeq(AtomicU64);

impl OldestSeq {
    fn new(first: Option<Seq>) -> Self {
        Self(AtomicU64::new(first.map_or(0, |first| first.0)))
    }

    fn get(&self) -> Option<Seq> {
        Some(Seq(self.0.load(Ordering::Acquire))).filter(|first| *first != Seq::ZERO)
    }

    fn set(&self, first: Seq) {
        self.0.store(first.0, Ordering::Release);
    }
}

fn json_of(value: &impl serde::Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(TYPICAL_JSON_BYTES);
    write_json(&mut json, value);
    json
}

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn write_json(json: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(json, value).expect("the model has a JSON shape for every value");
}
