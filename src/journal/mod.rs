//! The append-only, totally ordered log of changes, with the registry beside it.
//!
//! ```text
//!  intake, walks, engines, admin ──Order──▶ queue of `Settings::queue` orders
//!                                               │
//!             thread journal-writer ◀───────────┘  up to `Settings::batch` orders are one batch
//!               1 begin a transaction              store
//!               2 look up keys and registry rows   batch::questions
//!               3 settle each draft                settle::settle, sight
//!               4 write the decision               store
//!               5 commit (one sync of the disk)
//!               6 publish                          tail, then the head
//!               7 answer the senders
//!                                               │
//!             thread journal-upkeep ◀───────────┘  checkpoints of the write-ahead log
//!
//!  views, deliveries ◀── tail (newest changes, in memory) or store (all others, on blocking threads)
//! ```
//!
//! [`Draft`](crate::model::Draft)s come in through the intake alone. Readers get [`Recorded`] changes by number and wait on the
//! head. The promises of the storage stand at [`store::Store`].
//!
//! The files:
//!
//! * the way in: `order` (requests to the writer), `writer` (the loop), `batch` (one batch), [`settle`] (one draft), `sight`
//!   (visibility to the public), `bounds`, `writable` (whether a message can be written at present);
//! * the facts: [`registry`], [`seed`] (facts that crawls found), `kept` (locations of content);
//! * the way out: `tail`, `reading`, [`subscriptions`], [`quarantine`];
//! * storage: [`store`], [`retention`], [`private_files`], [`metrics`].

mod batch;
mod bounds;
mod kept;
pub mod metrics;
mod order;
pub mod private_files;
pub mod quarantine;
mod reading;
pub mod registry;
pub mod retention;
pub mod seed;
pub mod settle;
mod sight;
pub mod store;
pub mod subscriptions;
mod tail;
mod writable;
mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

pub use bounds::ChangeBounds;
pub use kept::KeptContent;
pub use order::{KnownKey, Outcome, Submission};
pub use tail::{Recorded, TailBounds, first_of};

use crate::{
    model::Seq,
    supervision::{Supervisor, Worker},
};
use order::Order;
use quarantine::{NewQuarantined, QuarantineId};
use seed::{Seeded, Seeding};
use store::{Store, StoreError};
use tail::Tail;
use writable::Writable;
use writer::Writer;

/// Room for the JSON of most changes, in bytes.
const USUAL_JSON: usize = 1024;

/// How the journal works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many orders may wait for the writer.
    pub queue: usize,
    /// How many orders the writer takes into one transaction at the most.
    pub batch: usize,
    /// How much of the newest changes stays in memory.
    pub tail: TailBounds,
    /// How long an order may wait, for its turn and for the disk.
    pub patience: Duration,
    /// Bounds on one change and on one object.
    pub bounds: ChangeBounds,
}

impl Default for Settings {
    fn default() -> Self {
        let (tail, bounds) = (TailBounds::default(), ChangeBounds::default());
        Self { queue: 1024, batch: 512, tail, patience: Duration::from_secs(20), bounds }
    }
}

/// A journal that is open. Clones are handles to the same one.
#[derive(Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    tail: Arc<Tail>,
    head: watch::Receiver<Seq>,
    first: Arc<First>,
    orders: mpsc::Sender<Order>,
    writable: Arc<Writable>,
    patience: Duration,
    bounds: ChangeBounds,
    /// The runs of numbers that restores have left out.
    left_out: Arc<[(Seq, Seq)]>,
}

/// The journal's threads. They end when every [`Journal`] has been dropped and every order is
/// done.
#[must_use = "the journal is closed properly by joining its writer"]
pub struct WriterThread([JoinHandle<()>; 2]);

/// Why the journal did not do as it was told.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too much is waiting for the writer, or the disk takes too long.
    #[error("the journal is busy: nothing was written within {} seconds; try again", .0.as_secs())]
    Busy(Duration),
    /// A reader's place has fallen off the end of what is kept, or is none that this journal has given.
    #[error("changes after {after} are not all kept: the oldest that is has the number {first}")]
    Gone {
        /// The place.
        after: Seq,
        /// The number of the oldest change that is kept, or of the first one that will be.
        first: Seq,
    },
    /// The gateway is stopping.
    #[error("the gateway is stopping; try again when it is back")]
    Closed,
}

impl JournalError {
    /// Whether the same call may succeed later, without anybody mending the journal.
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
    /// Starts the writer over a store that is open, and fills the tail.
    ///
    /// # Errors
    /// When the store cannot be read, or no thread can be started.
    pub fn start(store: impl Store, settings: Settings) -> Result<(Self, WriterThread), StoreError> {
        Self::start_supervised(store, settings, &Supervisor::default())
    }

    /// Starts the journal as [`Journal::start`] does; `supervisor` hears of a thread that panics.
    ///
    /// # Errors
    /// As [`Journal::start`].
    pub fn start_supervised(
        store: impl Store,
        settings: Settings,
        supervisor: &Supervisor,
    ) -> Result<(Self, WriterThread), StoreError> {
        let store: Arc<dyn Store> = Arc::new(store);
        let head = store.head()?;
        let tail = Arc::new(Tail::of(&*store, head, settings.tail)?);
        metrics::head(head);
        metrics::quarantined(store.quarantine_size()?);
        let first = Arc::new(First::new(store.first()?));
        let left_out = store.left_out()?.into();
        let (moved, head) = watch::channel(head);
        let (orders, waiting) = mpsc::channel(settings.queue);
        let (upkeep, due) = sync_channel(1);
        let writable = Arc::new(Writable::default());
        let writer = Writer {
            store: Arc::clone(&store),
            batch: settings.batch,
            bounds: settings.bounds,
            tail: Arc::clone(&tail),
            head: moved,
            first: Arc::clone(&first),
            upkeep,
            writable: Arc::clone(&writable),
        };
        let kept_up = Arc::clone(&store);
        let threads = [
            thread(Worker::JournalWriter, supervisor, move || writer.run(waiting))?,
            thread(Worker::JournalUpkeep, supervisor, move || keep_up(&*kept_up, &due))?,
        ];
        let Settings { patience, bounds, .. } = settings;
        Ok((Self { store, tail, head, first, orders, writable, patience, bounds, left_out }, WriterThread(threads)))
    }

    /// The bounds on one change and on one object.
    #[must_use]
    pub fn bounds(&self) -> ChangeBounds {
        self.bounds
    }

    /// Settles and appends what one message told, as a whole. On return it is on disk.
    ///
    /// # Errors
    /// When it could not be written, or not in time. Then it may still be written later: the same
    /// message can be sent again and makes no second change.
    pub async fn append(&self, submission: Submission) -> Result<Vec<Outcome>, JournalError> {
        Ok(self.append_all(vec![submission]).await?.pop().unwrap_or_default())
    }

    /// The same for several messages, in their order and in one transaction: either all are on disk, or
    /// none is. The outcomes are in the same order.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn append_all(&self, submissions: Vec<Submission>) -> Result<Vec<Vec<Outcome>>, JournalError> {
        let began = Instant::now();
        let outcomes = self.order(|answer| Order::Append(submissions, answer)).await?;
        metrics::appended(began.elapsed());
        Ok(outcomes)
    }

    /// Writes a part of a walk through a repository: what it found, and how far it is, in one transaction.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn seed(&self, seeding: Seeding) -> Result<Seeded, JournalError> {
        self.order(|answer| Order::Seed(Box::new(seeding), answer)).await
    }

    /// Keeps messages that no dialect could read, all or none; their identifiers are in the same order.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn quarantine_all(&self, messages: Vec<NewQuarantined>) -> Result<Vec<QuarantineId>, JournalError> {
        self.order(|answer| Order::Quarantine(messages, answer)).await
    }

    /// Removes a message from the quarantine; says whether it was there.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn release(&self, id: QuarantineId) -> Result<bool, JournalError> {
        self.order(|answer| Order::Release(id, answer)).await
    }

    /// The number of the newest change.
    #[must_use]
    pub fn head(&self) -> Seq {
        *self.head.borrow()
    }

    /// How many changes come after `cursor`, including those that retention has removed.
    #[must_use]
    pub fn count_after(&self, cursor: Seq) -> u64 {
        let (cursor, head) = (cursor.0, self.head().0);
        let length = |(from, to): &(Seq, Seq)| to.0.min(head).saturating_sub(from.0.max(cursor));
        head.saturating_sub(cursor).saturating_sub(self.left_out.iter().map(length).sum())
    }

    /// How often a walk has filled in an object of the registry without a change. It only grows.
    #[must_use]
    pub fn seeds(&self) -> u64 {
        self.store.seeds()
    }

    /// The number of the oldest change that is kept; of the first that will be, while there is none.
    /// What is before it is gone.
    #[must_use]
    pub fn first(&self) -> Seq {
        self.first.get().unwrap_or(Seq::ZERO.next())
    }

    /// Removes the oldest changes before `before`, `at_most` so many of them; says how many went. The newest change always
    /// stays.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn prune(&self, before: Seq, at_most: usize) -> Result<usize, JournalError> {
        self.order(|answer| Order::Prune { before, at_most, answer }).await
    }

    /// Tells whenever the head moves.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Seq> {
        self.head.clone()
    }

    /// What tells this journal from every other one, for ever.
    #[must_use]
    pub fn identity(&self) -> Uuid {
        self.store.identity()
    }

    /// Whether orders are taken: the writer is there, and its queue is not full.
    #[must_use]
    pub fn takes_orders(&self) -> bool {
        !self.orders.is_closed() && self.orders.capacity() > 0
    }

    /// Checks that a message of usual size can be written. After a message was written nothing is done; before the first
    /// one, and after a write that failed, the writer tries.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn check_writable(&self) -> Result<(), JournalError> {
        if self.writable.is_proven() {
            return Ok(());
        }
        self.order(Order::Probe).await
    }

    async fn order<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Order,
    ) -> Result<T, JournalError> {
        let (answer, answered) = oneshot::channel();
        let done = async {
            self.orders.send(order(answer)).await.map_err(|_| JournalError::Closed)?;
            answered.await.map_err(|_| JournalError::Closed)?.map_err(JournalError::from)
        };
        let done = tokio::time::timeout(self.patience, done).await;
        done.unwrap_or(Err(JournalError::Busy(self.patience))).inspect_err(metrics::failed)
    }
}

/// The number of the oldest change that is kept. 0 stands for none: there is no change 0.
#[derive(Debug)]
struct First(AtomicU64);

impl First {
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

impl WriterThread {
    /// Waits until every order is done and the journal is closed.
    pub fn join(self) {
        // A writer that panicked has nothing more to write; what it had acknowledged is on disk.
        for thread in self.0 {
            let _ = thread.join();
        }
    }
}

fn json_of(value: &impl serde::Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(USUAL_JSON);
    write_json(&mut json, value);
    json
}

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn write_json(json: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(json, value).expect("the model has a JSON shape for every value");
}

/// Starts a thread of the journal. The supervisor hears of a panic alone: the threads return when the journal is closed, and
/// when another of them has panicked.
fn thread(
    worker: Worker,
    supervisor: &Supervisor,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    let supervisor = supervisor.clone();
    let supervised = move || {
        let _guard = supervisor.guard(worker, None);
        work();
    };
    let spawned = std::thread::Builder::new().name(worker.name().to_owned()).spawn(supervised);
    spawned.map_err(|error| StoreError::Io(format!("cannot start the thread {}: {error}", worker.name())))
}

/// Does the store's upkeep after batches, until the writer has gone.
fn keep_up(store: &dyn Store, due: &Receiver<()>) {
    while due.recv().is_ok() {
        if let Err(error) = store.upkeep() {
            tracing::warn!(%error, "the journal's upkeep failed; it is tried again");
        }
    }
}
