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
//!             thread journal-follower ── changes of other nodes ──▶ publish
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
//!   `publisher` (committed changes for the readers of this node), `writable` (whether a message can be written at
//!   present), `outages` (log of failed reads and writes), `threads` (start and end of the threads);
//! * facts: [`registry`], [`acceptance`] (times of its facts), [`seed`] (facts from crawls), [`harvest`] (positions and runs), [`sources`] (times of events), [`due`] (announced dates), [`order`] (strictly increasing times), [`segments`] (spans in files), `raw_content` (unparsed content locations);
//! * reading: `tail`, `queries`, [`subscriptions`], [`quarantine`];
//! * several nodes: [`nodes`];
//! * storage: [`store`], [`retention`], [`private_files`], [`metrics`].

pub mod acceptance;
mod batch;
mod bounds;
mod command;
pub mod due;
mod error;
pub mod harvest;
pub mod ingest;
pub mod list;
mod losses;
pub mod metrics;
pub mod nodes;
pub mod order;
mod outages;
pub mod private_files;
mod publisher;
pub mod quarantine;
mod queries;
mod raw_content;
mod refusals;
pub mod registry;
mod registry_position;
pub mod retention;
pub mod seed;
pub mod segments;
mod settings;
pub mod settle;
pub mod sources;
pub mod store;
pub mod subscriptions;
mod tail;
mod threads;
mod visibility;
mod writable;
mod writer;

use std::{
    sync::{Arc, mpsc::sync_channel},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use bounds::ChangeBounds;
pub use command::{DraftOutcome, DuplicatePolicy, Submission, TriedSubmission};
pub use error::JournalError;
pub use queries::BlockingQueries;
pub use raw_content::RawContentLocation;
pub use registry_position::RegistryPosition;
pub use settings::JournalSettings;
pub use tail::{ChangeArrival, ChangeOutline, RecordedChange, TailBounds, take_within};
pub use threads::JournalThreads;

use crate::{
    model::Seq,
    supervision::{Supervisor, Worker},
};
use acceptance::AcceptanceClock;
use command::Command;
use harvest::Progress;
use nodes::{NodeTable, Term, Wake};
use outages::Outages;
use publisher::{JournalFacts, Publisher};
use quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineLosses};
use seed::{CrawlPart, CrawlPartOutcome};
use store::{Store, StoreError};
use tail::Tail;
use threads::{run_follower, run_maintenance, spawn};
use writable::Writable;
use writer::Writer;

/// Initial capacity for the JSON of a change, in bytes: enough for most.
const TYPICAL_JSON_BYTES: usize = 1024;

/// Maximum time of a probe in the queue and on its way to the disk.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// Handle to an open journal. Clones are handles to the same journal.
#[derive(Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    tail: Arc<Tail>,
    head: watch::Receiver<Seq>,
    facts: Arc<JournalFacts>,
    commands: mpsc::Sender<Command>,
    writable: Arc<Writable>,
    outages: Arc<Outages>,
    losses: Arc<QuarantineLosses>,
    acceptance: Arc<AcceptanceClock>,
    patience: Duration,
    bounds: ChangeBounds,
    /// Term of the duty that this handle writes for.
    term: Option<Term>,
}

impl Journal {
    /// Fills the tail from an open store and starts the writer.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or a thread cannot be started.
    pub fn start(store: impl Store, settings: JournalSettings) -> Result<(Self, JournalThreads), StoreError> {
        Self::start_supervised(Arc::new(store), settings, &Supervisor::default())
    }

    /// Starts the journal as [`Journal::start`] does, and reports a thread that panics to `supervisor`.
    ///
    /// # Errors
    /// As [`Journal::start`].
    pub fn start_supervised(
        store: Arc<dyn Store>,
        settings: JournalSettings,
        supervisor: &Supervisor,
    ) -> Result<(Self, JournalThreads), StoreError> {
        let head = store.head()?;
        let tail = Arc::new(Tail::load(&*store, head, settings.tail)?);
        metrics::register();
        metrics::head(head);
        metrics::quarantined(store.quarantine_size()?);
        let facts = Arc::new(JournalFacts::new(store.identity(), store.first()?, store.skipped_ranges()?));
        let (head_sender, head) = watch::channel(head);
        let publisher = Publisher::new(Arc::clone(&store), Arc::clone(&tail), head_sender, Arc::clone(&facts));
        let publisher = Arc::new(publisher);
        let (commands, queue) = mpsc::channel(settings.queue);
        let (maintenance, wake_ups) = sync_channel(1);
        let writable = Arc::new(Writable::default());
        let losses = Arc::new(QuarantineLosses::default());
        let acceptance = Arc::new(AcceptanceClock::default());
        let writer = Writer {
            store: Arc::clone(&store),
            acceptance: Arc::clone(&acceptance),
            batch: settings.batch,
            bounds: settings.bounds,
            publisher: Arc::clone(&publisher),
            maintenance,
            writable: Arc::clone(&writable),
            losses: Arc::clone(&losses),
        };
        // The follower ends with the writer.
        let writer_ended = CancellationToken::new();
        let guard = writer_ended.clone().drop_guard();
        let run_writer = move || {
            let _guard = guard;
            writer.run(queue);
        };
        let maintained = Arc::clone(&store);
        let mut threads = vec![
            spawn(Worker::JournalWriter, supervisor, run_writer)?,
            spawn(Worker::JournalMaintenance, supervisor, move || run_maintenance(&*maintained, &wake_ups))?,
        ];
        if store.is_shared() {
            let followed = Arc::clone(&store);
            let follow = move || run_follower(&*followed, &publisher, &writer_ended);
            threads.push(spawn(Worker::JournalFollower, supervisor, follow)?);
        }
        let JournalSettings { patience, bounds, .. } = settings;
        let outages = Arc::default();
        let journal = Self {
            store,
            tail,
            head,
            facts,
            commands,
            writable,
            outages,
            losses,
            acceptance,
            patience,
            bounds,
            term: None,
        };
        Ok((journal, JournalThreads(threads)))
    }

    /// Returns a handle that writes for a duty: each write fails with [`StoreError::DutyLost`] and has no effect once
    /// the term has ended. `None` is a handle without a duty.
    #[must_use]
    pub fn under(&self, term: Option<Term>) -> Self {
        Self { term, ..self.clone() }
    }

    /// Opens the tables of the nodes that share this journal; `None` if the store is for one node. The tables call
    /// `wake` when another node has changed something.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub fn node_table(&self, lease: Duration, wake: Wake) -> Result<Option<Box<dyn NodeTable>>, StoreError> {
        self.store.node_table(lease, wake)
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

    /// Settles the drafts of one message as [`Journal::append`] does, and writes nothing.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn try_append(&self, submission: Submission) -> Result<TriedSubmission, JournalError> {
        self.send(|reply| Command::Try(submission, reply)).await
    }

    /// Settles and appends the drafts of several messages, in order and in one transaction: either all changes are
    /// on disk, or none is. The outcomes are in the same order.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn append_all(&self, submissions: Vec<Submission>) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        let began = Instant::now();
        let outcomes =
            self.send(|reply| Command::Append { submissions, term: self.term, progress: None, reply }).await?;
        metrics::appended(began.elapsed());
        Ok(outcomes)
    }

    /// Appends as [`Journal::append_all`] does, but waits without a time limit, for a source that repeats a failed batch
    /// by itself: the repeat of a batch that is written later would make second changes of messages without event keys.
    ///
    /// # Errors
    /// Fails if nothing was written, or the gateway is stopping.
    pub async fn append_batch(&self, submissions: Vec<Submission>) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        self.append_patiently(submissions, None).await
    }

    async fn append_patiently(
        &self,
        submissions: Vec<Submission>,
        progress: Option<Progress>,
    ) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        let began = Instant::now();
        let append = |reply| Command::Append { submissions, term: self.term, progress, reply };
        let mut appending = std::pin::pin!(self.execute(append));
        let outcomes = match tokio::time::timeout(self.patience, &mut appending).await {
            Ok(outcomes) => outcomes,
            Err(_) => {
                let seconds = self.patience.as_secs();
                tracing::warn!(
                    seconds,
                    "the journal has not written a batch of a source in time; still waiting for it"
                );
                appending.await
            }
        };
        let outcomes = self.outages.wrote(outcomes)?;
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
        self.send(|reply| Command::Quarantine(messages, self.term, reply)).await
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
        head.saturating_sub(cursor).saturating_sub(self.facts.skipped_ranges().iter().map(length).sum())
    }

    /// Returns how often a crawl has updated an object of the registry without a change. The number only grows.
    #[must_use]
    pub fn seed_count(&self) -> u64 {
        self.store.seed_count()
    }

    /// Returns the number of the oldest available change; of the next change, while there is none.
    #[must_use]
    pub fn first(&self) -> Seq {
        self.facts.first().unwrap_or(Seq::ZERO.next())
    }

    /// Removes at most `at_most` of the oldest changes before `before`; returns the number of removed changes. The
    /// newest change always stays.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn prune(&self, before: Seq, at_most: usize) -> Result<usize, JournalError> {
        self.send(|reply| Command::Prune { before, at_most, term: self.term, reply }).await
    }

    /// Returns a receiver that is notified whenever the head moves.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Seq> {
        self.head.clone()
    }

    /// Returns the unique identifier of this journal. A restored journal has a new one.
    #[must_use]
    pub fn identity(&self) -> Uuid {
        self.facts.identity()
    }

    /// Returns the newest error while the journal cannot be read or written.
    #[must_use]
    pub fn outage(&self) -> Option<String> {
        self.outages.error()
    }

    /// Returns whether the writer is alive and its queue has room.
    #[must_use]
    pub fn accepts_commands(&self) -> bool {
        !self.commands.is_closed() && self.commands.capacity() > 0
    }

    /// Checks that a message of typical size can be written. The writer only tries before the first message and after a
    /// failed write; otherwise the last message is proof enough, as long as its files are in place.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn check_writable(&self) -> Result<(), JournalError> {
        let store = Arc::clone(&self.store);
        let check = tokio::task::spawn_blocking(move || store.check_in_place());
        if let Err(error) = check.await.map_err(|_| JournalError::Closed)? {
            return self.outages.read(Err(error.into()));
        }
        // Files in their place do not prove that the journal can be read, so they end no outage.
        if self.writable.is_proven() {
            return Ok(());
        }
        // Monitors and load balancers wait a few seconds, and ask again.
        let probed = tokio::time::timeout(PROBE_PATIENCE, self.execute(Command::Probe)).await;
        self.outages.wrote(probed.unwrap_or(Err(JournalError::Busy(PROBE_PATIENCE))))
    }

    /// Sends a command to the writer and waits for the reply, at most for the patience of the journal.
    async fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, JournalError> {
        let executed = tokio::time::timeout(self.patience, self.execute(command)).await;
        self.outages.wrote(executed.unwrap_or(Err(JournalError::Busy(self.patience))))
    }

    async fn execute<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, JournalError> {
        let (sender, reply) = oneshot::channel();
        self.commands.send(command(sender)).await.map_err(|_| JournalError::Closed)?;
        reply.await.map_err(|_| JournalError::Closed)?.map_err(JournalError::from)
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
