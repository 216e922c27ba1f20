//! The single writer: one loop, one transaction a batch.
//!
//! The writer takes all waiting commands from its queue (group commit). For their drafts it opens one transaction,
//! prefetches the event keys and registry rows that the batch names, settles the drafts, writes, and commits. After
//! the commit it publishes the changes to the tail, moves the head, and replies. Throughput therefore grows with
//! the number of senders, and each sender waits for one sync of the disk. Readers see a change only after it is on
//! disk.

use std::{
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{
    acceptance::{AcceptanceClock, BatchInFlight},
    batch::{BatchContext, SettledBatch, prefetch_keys, purge_keys},
    bounds::ChangeBounds,
    command::{
        AppendGroup, BatchInput, Command, CommandBatch, QuarantineGroup, Submission, SubscriptionWrites,
        TriedSubmission, reply_to_all,
    },
    metrics,
    nodes::Term,
    publisher::Publisher,
    quarantine::QuarantineLosses,
    store::{CommitError, CommitId, NewChange, PrefetchKeys, PrefetchedRows, Store, StoreError, Transaction},
    writable::Writable,
};
use crate::{
    model::{Seq, Timestamp},
    retry::Backoff,
};

/// Number of further changes of a purge that one query looks up.
const PARTS_PER_QUERY: usize = 16;

/// Waits between attempts to find out whether a batch was committed.
const OUTCOME_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

/// A batch that is settled and written.
pub(super) struct WrittenBatch {
    pub(super) batch: SettledBatch,
    /// Number of the newest change before the batch.
    stored_head: Seq,
    /// For each append whether it was refused, because its term has ended.
    pub(super) refused: Vec<bool>,
    /// Time from the begin of the transaction until the batch was on disk.
    took: Duration,
    /// Ends when the batch is published or dropped.
    in_flight: BatchInFlight,
}

/// Result of one attempt to commit a batch.
enum Attempt {
    Committed(WrittenBatch),
    /// The batch may be committed or not.
    Unknown(WrittenBatch, CommitId, StoreError),
}

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) acceptance: Arc<AcceptanceClock>,
    /// Maximum number of commands in one batch.
    pub(super) batch: usize,
    /// Bounds on one change and on one object.
    pub(super) bounds: ChangeBounds,
    pub(super) publisher: Arc<Publisher>,
    /// Wakes the maintenance thread.
    pub(super) maintenance: SyncSender<()>,
    pub(super) writable: Arc<Writable>,
    pub(super) losses: Arc<QuarantineLosses>,
}

impl Writer {
    /// Runs until all senders of commands are dropped and the queue is empty.
    pub(super) fn run(self, mut commands: mpsc::Receiver<Command>) {
        let mut waiting = Vec::with_capacity(self.batch);
        while commands.blocking_recv_many(&mut waiting, self.batch) > 0 {
            let mut batch = CommandBatch::default();
            batch.extend(waiting.drain(..));
            if batch.needs_commit() {
                self.write_batch(&mut batch, &mut commands);
            }
            self.execute_others(batch);
            // A full channel means that the maintenance thread has a wake-up waiting already.
            let _ = self.maintenance.try_send(());
        }
    }

    /// Settles, writes and publishes drafts, crawled facts and cursors, and replies to their senders.
    fn write_batch(&self, commands: &mut CommandBatch, queue: &mut mpsc::Receiver<Command>) {
        match self.commit_batch(commands, queue) {
            // A lost duty and a failing disk concern the whole batch. Anything else may be the fault of one message.
            Err(error) if !error.is_transient() && commands.parts() > 1 => {
                self.write_one_by_one(commands, &error, queue);
            }
            written => self.reply(commands, written),
        }
    }

    /// Publishes a batch that is on disk, and replies to its senders, or replies with the error.
    pub(super) fn reply(&self, commands: &mut CommandBatch, written: Result<WrittenBatch, StoreError>) {
        match written {
            Ok(WrittenBatch {
                batch: SettledBatch { writes, outcomes, crawl_outcomes, spellings },
                stored_head,
                refused,
                took,
                in_flight,
            }) => {
                commands.reply_to_refused(&refused);
                if !outcomes.is_empty() {
                    metrics::batch(outcomes.len(), took);
                }
                // A batch of cursors alone proves nothing, because it needs less room than a message.
                if !writes.changes.is_empty() {
                    self.writable.note(&Ok(()));
                }
                spellings.publish();
                let evicted = self.publish(stored_head, writes.changes, took);
                drop(in_flight);
                commands.advance_replies.drain(..).for_each(|reply| drop(reply.send(Ok(()))));
                for (reply, outcome) in commands.seed_replies.drain(..).zip(crawl_outcomes) {
                    let _ = reply.send(Ok(outcome));
                }
                reply_to_all(std::mem::take(&mut commands.append_replies), Ok(outcomes));
                drop(evicted);
            }
            Err(error) => {
                self.writable.failed(&error);
                commands.fail_commit(&error);
            }
        }
    }

    /// Settles and commits a batch. If the outcome of a commit is unknown, finds it out before anything else, and
    /// settles the batch again if it was not committed. So no draft is written twice, with or without an event key.
    pub(super) fn commit_batch(
        &self,
        commands: &mut CommandBatch,
        queue: &mut mpsc::Receiver<Command>,
    ) -> Result<WrittenBatch, StoreError> {
        let began = Instant::now();
        loop {
            let (batch, commit, error) = match self.try_batch(commands, queue)? {
                Attempt::Committed(batch) => return Ok(WrittenBatch { took: began.elapsed(), ..batch }),
                Attempt::Unknown(batch, commit, error) => (batch, commit, error),
            };
            tracing::warn!(%error, "the outcome of a commit is unknown; asking the journal's database for it");
            let was_committed = self.find_outcome(commit, queue)?;
            tracing::info!(was_committed, "the outcome of the commit is known");
            if was_committed {
                return Ok(WrittenBatch { took: began.elapsed(), ..batch });
            }
        }
    }

    fn try_batch(
        &self,
        commands: &mut CommandBatch,
        queue: &mut mpsc::Receiver<Command>,
    ) -> Result<Attempt, StoreError> {
        let mut transaction = self.store.begin()?;
        // The store may have waited for the batches of other nodes. Commands that have arrived meanwhile join this batch,
        // because each batch of any node makes all others wait.
        while !commands.is_closed
            && commands.len() < self.batch
            && let Ok(command) = queue.try_recv()
        {
            commands.extend([command]);
        }
        // The commands are needed again if the outcome of the commit is unknown, or the storage refuses the batch.
        let batch = self.settle_and_write(&mut *transaction, commands.input.clone())?;
        match transaction.commit() {
            Ok(()) => Ok(Attempt::Committed(batch)),
            Err(CommitError::Failed(error)) => Err(error),
            Err(CommitError::Unknown(commit, error)) => Ok(Attempt::Unknown(batch, commit, error)),
        }
    }

    /// Settles a batch and writes it in a transaction.
    pub(super) fn settle_and_write(
        &self,
        transaction: &mut dyn Transaction,
        input: BatchInput,
    ) -> Result<WrittenBatch, StoreError> {
        let settled = self.settle(transaction, input)?;
        transaction.write(&settled.batch.writes)?;
        Ok(settled)
    }

    /// Settles a submission and writes nothing.
    fn try_submission(&self, submission: Submission) -> Result<TriedSubmission, StoreError> {
        let append = AppendGroup { submissions: 1, term: None, progress: None };
        let input = BatchInput { submissions: vec![submission], appends: vec![append], ..BatchInput::default() };
        // The transaction is rolled back.
        let WrittenBatch { batch, .. } = self.settle(&mut *self.store.begin()?, input)?;
        let changes = batch.writes.changes.into_iter().map(|new| new.change).collect();
        Ok(TriedSubmission { outcomes: batch.outcomes.into_iter().flatten().collect(), changes })
    }

    /// Settles a batch against the rows of a transaction.
    fn settle(&self, transaction: &mut dyn Transaction, mut input: BatchInput) -> Result<WrittenBatch, StoreError> {
        let keys = prefetch_keys(&input.submissions, &input.crawl_parts);
        let mut prefetched = transaction.prefetch(&PrefetchKeys { terms: input.terms(), ..keys })?;
        let refused = input.refuse(&prefetched.stale_terms);
        self.prefetch_purge_parts(transaction, &input, &mut prefetched)?;
        let stored_head = prefetched.stored_head;
        // Before the clock is read, so that no reader is promised a later time.
        let in_flight = self.acceptance.begin();
        let now = prefetched.now.unwrap_or_else(Timestamp::now);
        let earliest = self.acceptance.earliest();
        let context = BatchContext { prefetched, bounds: self.bounds, now, earliest };
        let BatchInput { submissions, appends, crawl_parts, cursors } = input;
        let batch = SettledBatch::build(submissions, appends, crawl_parts, cursors, context)?;
        Ok(WrittenBatch { batch, stored_head, refused, took: Duration::ZERO, in_flight })
    }

    /// Finds out whether a batch was committed. Ends with an error only when the gateway has stopped and nobody waits
    /// for the batch, or the journal is damaged.
    fn find_outcome(&self, commit: CommitId, queue: &mpsc::Receiver<Command>) -> Result<bool, StoreError> {
        let mut backoff = OUTCOME_BACKOFF;
        loop {
            match self.store.was_committed(commit) {
                Err(error) if error.is_transient() && !queue.is_closed() => {
                    self.writable.failed(&error);
                    std::thread::sleep(backoff.next_wait());
                }
                outcome => return outcome,
            }
        }
    }

    /// Looks up the further changes of repeated purges, because the gateway divides a large purge into several changes.
    fn prefetch_purge_parts(
        &self,
        transaction: &mut dyn Transaction,
        input: &BatchInput,
        prefetched: &mut PrefetchedRows,
    ) -> Result<(), StoreError> {
        for key in purge_keys(&input.submissions, &input.crawl_parts) {
            let mut parts = 1;
            while prefetched.first_changes.contains_key(&key.part(parts)) {
                let keys = (parts + 1..=parts + PARTS_PER_QUERY).map(|part| key.part(part)).collect();
                let more = transaction.prefetch(&PrefetchKeys { keys, ..PrefetchKeys::default() })?;
                prefetched.first_changes.extend(more.first_changes);
                parts += PARTS_PER_QUERY;
            }
        }
        Ok(())
    }

    /// Publishes committed changes to readers. Returns the changes evicted from the tail, so that the caller can
    /// free them after it has replied.
    fn publish(&self, stored_head: Seq, changes: Vec<NewChange>, took: Duration) -> Vec<Arc<super::RecordedChange>> {
        if let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) {
            let (first_seq, last_seq) = (oldest.change.seq.0, newest.change.seq.0);
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(changes = changes.len(), first_seq, last_seq, took_us, "a batch is on disk");
        }
        self.publisher.publish(stored_head, changes)
    }

    /// Executes the commands that have transactions of their own.
    fn execute_others(&self, commands: CommandBatch) {
        let CommandBatch {
            quarantines,
            releases,
            subscription_writes,
            harvest_writes,
            span_writes,
            prunes,
            probes,
            trials,
            ..
        } = commands;
        for (submission, reply) in trials {
            let _ = reply.send(self.try_submission(submission));
        }
        // After the cursors, because a cursor must not undo a rewind that was sent later.
        for SubscriptionWrites { writes, term, reply } in subscription_writes {
            let written = self.store.write_subscriptions(&writes, term);
            let _ = written.as_ref().inspect_err(|error| self.writable.failed(error));
            let _ = reply.send(written);
        }
        for (source, write, reply) in harvest_writes {
            let _ = reply.send(self.store.write_harvest(&source, &write));
        }
        for (write, term, reply) in span_writes {
            let _ = reply.send(self.store.write_span(&write, term));
        }
        let quarantine_changes = !quarantines.is_empty() || !releases.is_empty();
        for QuarantineGroup { term, messages, replies } in quarantines {
            let receipt = self.store.quarantine(&messages, term);
            self.writable.note(&receipt);
            let dropped = receipt.as_ref().map_or(0, |receipt| receipt.dropped);
            metrics::dropped(dropped);
            if dropped > 0
                && let Ok(size) = self.store.quarantine_size()
            {
                self.losses.add(dropped, size.messages);
            }
            reply_to_all(replies, receipt.map(|receipt| receipt.ids));
        }
        for (id, reply) in releases {
            let _ = reply.send(self.store.release(id));
        }
        if !probes.is_empty() {
            let written = self.store.probe();
            self.writable.note(&written);
            for reply in probes {
                let _ = reply.send(written.clone());
            }
        }
        if quarantine_changes {
            // The senders have their replies; if this fails, the gauges stay outdated until the next command.
            let _ = self.store.quarantine_size().map(metrics::quarantined);
        }
        // Last, so that no other reply waits for a removal.
        for (before, at_most, term, reply) in prunes {
            let _ = reply.send(self.prune(before, at_most, term));
        }
    }

    fn prune(&self, before: Seq, at_most: usize, term: Option<Term>) -> Result<usize, StoreError> {
        let removed = self.store.prune(before, at_most, term)?;
        if removed > 0
            && let Some(first) = self.store.first()?
        {
            self.publisher.remove_before(first);
        }
        Ok(removed)
    }
}
