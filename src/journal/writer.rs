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

use tokio::sync::{mpsc, watch};

use super::{
    OldestSeq,
    batch::{BatchContext, SettledBatch, prefetch_keys, purge_keys},
    bounds::ChangeBounds,
    command::{Command, CommandBatch, reply_to_all},
    metrics,
    store::{NewChange, PrefetchKeys, PrefetchedRows, Store, StoreError, Transaction},
    tail::{RecordedChange, Tail},
    writable::Writable,
};
use crate::model::{Seq, Timestamp};

/// Number of further changes of a purge that one query looks up.
const PARTS_PER_QUERY: usize = 16;

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    /// Maximum number of commands in one batch.
    pub(super) batch: usize,
    /// Bounds on one change and on one object.
    pub(super) bounds: ChangeBounds,
    pub(super) tail: Arc<Tail>,
    pub(super) head: watch::Sender<Seq>,
    pub(super) first: Arc<OldestSeq>,
    /// Wakes the maintenance thread.
    pub(super) maintenance: SyncSender<()>,
    pub(super) writable: Arc<Writable>,
}

impl Writer {
    /// Runs until all senders of commands are dropped and the queue is empty.
    pub(super) fn run(self, mut commands: mpsc::Receiver<Command>) {
        let mut waiting = Vec::with_capacity(self.batch);
        while commands.blocking_recv_many(&mut waiting, self.batch) > 0 {
            let mut batch = CommandBatch::group(waiting.drain(..));
            if batch.needs_commit() {
                self.write_batch(&mut batch);
            }
            self.execute_others(batch);
            // A full channel means that the maintenance thread has a wake-up waiting already.
            let _ = self.maintenance.try_send(());
        }
    }

    /// Settles, writes and publishes drafts, crawled facts and cursors, and replies to their senders.
    fn write_batch(&self, commands: &mut CommandBatch) {
        let began = Instant::now();
        match self.commit_batch(commands) {
            Ok(SettledBatch { writes, outcomes, crawl_outcomes }) => {
                let took = began.elapsed();
                if !outcomes.is_empty() {
                    metrics::batch(outcomes.len(), took);
                }
                // A batch of cursors alone proves nothing, because it needs less room than a message.
                if !writes.changes.is_empty() {
                    self.writable.note(&Ok(()));
                }
                let evicted = self.publish(writes.changes, took);
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

    fn commit_batch(&self, commands: &mut CommandBatch) -> Result<SettledBatch, StoreError> {
        let mut transaction = self.store.begin()?;
        let keys = prefetch_keys(&commands.submissions, &commands.crawl_parts);
        let mut prefetched = transaction.prefetch(&keys)?;
        self.prefetch_purge_parts(&mut *transaction, commands, &mut prefetched)?;
        let context = BatchContext { prefetched, bounds: self.bounds, now: Timestamp::now() };
        let submissions = std::mem::take(&mut commands.submissions);
        let crawl_parts = std::mem::take(&mut commands.crawl_parts);
        let cursors = std::mem::take(&mut commands.cursors);
        let batch = SettledBatch::build(submissions, crawl_parts, cursors, context)?;
        transaction.write(&batch.writes)?;
        transaction.commit()?;
        Ok(batch)
    }

    /// Looks up the further changes of repeated purges, because the gateway divides a large purge into several changes.
    fn prefetch_purge_parts(
        &self,
        transaction: &mut dyn Transaction,
        commands: &CommandBatch,
        prefetched: &mut PrefetchedRows,
    ) -> Result<(), StoreError> {
        for key in purge_keys(&commands.submissions, &commands.crawl_parts) {
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
    fn publish(&self, changes: Vec<NewChange>, took: Duration) -> Vec<Arc<RecordedChange>> {
        let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) else { return Vec::new() };
        let (oldest, newest) = (oldest.change.seq, newest.change.seq);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let count = changes.len();
        tracing::debug!(changes = count, first_seq = oldest.0, last_seq = newest.0, took_us, "a batch is on disk");
        if self.first.get().is_none() {
            self.first.set(oldest);
        }
        let new = changes.into_iter().map(|new| Arc::new(RecordedChange::new(new.change, new.json, new.visibility)));
        let evicted = self.tail.extend(new);
        self.head.send_replace(newest);
        metrics::head(newest);
        evicted
    }

    /// Executes the commands that have transactions of their own.
    fn execute_others(&self, commands: CommandBatch) {
        let CommandBatch { messages, quarantine_replies, releases, subscription_writes, prunes, probes, .. } = commands;
        // After the cursors, because a cursor must not undo a rewind that was sent later.
        for (writes, reply) in subscription_writes {
            let written = self.store.write_subscriptions(&writes);
            let _ = written.as_ref().inspect_err(|error| self.writable.failed(error));
            let _ = reply.send(written);
        }
        let quarantine_changes = !messages.is_empty() || !releases.is_empty();
        if !messages.is_empty() {
            let receipt = self.store.quarantine(&messages);
            self.writable.note(&receipt);
            metrics::dropped(receipt.as_ref().map_or(0, |receipt| receipt.dropped));
            reply_to_all(quarantine_replies, receipt.map(|receipt| receipt.ids));
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
        for (before, at_most, reply) in prunes {
            let _ = reply.send(self.prune(before, at_most));
        }
    }

    fn prune(&self, before: Seq, at_most: usize) -> Result<usize, StoreError> {
        let removed = self.store.prune(before, at_most)?;
        if removed > 0
            && let Some(first) = self.store.first()?
        {
            self.first.set(first);
            self.tail.drop_before(first);
        }
        Ok(removed)
    }
}
