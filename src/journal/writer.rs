//! The single writer: one loop, one transaction a batch.
//!
//! The writer takes all requests that wait (group commit), and for their drafts does the following in one transaction: it
//! begins, looks up the event keys and registry rows that the batch names, settles the drafts, writes and commits. Then it
//! publishes the changes to the tail, moves the head, and answers. So throughput grows with the number of senders, and each
//! sender waits for one sync of the disk. A reader hears of a change after it is on disk, never before.

use std::{
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, watch};

use super::{
    First,
    batch::{Batch, Ground, purge_keys, questions},
    bounds::ChangeBounds,
    metrics,
    order::{Order, Taken, answer_all, sorted},
    store::{Known, NewChange, Questions, Store, StoreError, Transaction},
    tail::{Recorded, Tail},
    writable::Writable,
};
use crate::model::{Seq, Timestamp};

/// Number of further changes of a purge that one question asks for.
const PARTS_ASKED_AT_ONCE: usize = 16;

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    /// Most orders in one transaction.
    pub(super) batch: usize,
    /// Bounds on one change and on one object.
    pub(super) bounds: ChangeBounds,
    pub(super) tail: Arc<Tail>,
    pub(super) head: watch::Sender<Seq>,
    pub(super) first: Arc<First>,
    /// Wakes the thread that does the store's upkeep.
    pub(super) upkeep: SyncSender<()>,
    pub(super) writable: Arc<Writable>,
}

impl Writer {
    /// Works until all senders of orders are gone and all orders are done.
    pub(super) fn run(self, mut orders: mpsc::Receiver<Order>) {
        let mut waiting = Vec::with_capacity(self.batch);
        while orders.blocking_recv_many(&mut waiting, self.batch) > 0 {
            let mut taken = sorted(waiting.drain(..));
            if taken.has_batch() {
                self.write_batch(&mut taken);
            }
            self.execute(taken);
            // Where the thread is busy, it looks again by itself.
            let _ = self.upkeep.try_send(());
        }
    }

    /// Settles, writes and publishes the drafts, crawled facts and cursors of these orders, and answers their senders.
    fn write_batch(&self, taken: &mut Taken) {
        let began = Instant::now();
        match self.commit_batch(taken) {
            Ok(Batch { decision, outcomes, seeded }) => {
                let took = began.elapsed();
                if !outcomes.is_empty() {
                    metrics::batch(outcomes.len(), took);
                }
                // Cursors by themselves take less room than a message, and prove nothing.
                if !decision.changes.is_empty() {
                    self.writable.note(&Ok(()));
                }
                let dropped = self.publish(decision.changes, took);
                taken.advancers.drain(..).for_each(|advancer| drop(advancer.send(Ok(()))));
                for (seeder, seeded) in taken.seeders.drain(..).zip(seeded) {
                    let _ = seeder.send(Ok(seeded));
                }
                answer_all(std::mem::take(&mut taken.submitters), Ok(outcomes));
                drop(dropped);
            }
            Err(error) => {
                self.writable.failed(&error);
                taken.refuse(&error);
            }
        }
    }

    fn commit_batch(&self, taken: &mut Taken) -> Result<Batch, StoreError> {
        let mut transaction = self.store.begin()?;
        let questions = questions(&taken.submissions, &taken.seedings);
        let mut known = transaction.look_up(&questions)?;
        self.add_parts(&mut *transaction, taken, &mut known)?;
        let ground = Ground { known, bounds: self.bounds, now: Timestamp::now() };
        let (submissions, seedings) = (std::mem::take(&mut taken.submissions), std::mem::take(&mut taken.seedings));
        let batch = Batch::settle(submissions, seedings, std::mem::take(&mut taken.cursors), ground)?;
        transaction.write(&batch.decision)?;
        transaction.commit()?;
        Ok(batch)
    }

    /// Looks up the further changes of purges that are repeated: the gateway divides a large purge into several changes.
    fn add_parts(&self, transaction: &mut dyn Transaction, taken: &Taken, known: &mut Known) -> Result<(), StoreError> {
        for key in purge_keys(&taken.submissions, &taken.seedings) {
            let mut parts = 1;
            while known.seen.contains_key(&key.part(parts)) {
                let keys = (parts + 1..=parts + PARTS_ASKED_AT_ONCE).map(|part| key.part(part)).collect();
                let found = transaction.look_up(&Questions { keys, ..Questions::default() })?;
                known.seen.extend(found.seen);
                parts += PARTS_ASKED_AT_ONCE;
            }
        }
        Ok(())
    }

    /// Shows committed changes to readers; gives the changes that have left the tail, so that they are freed after the answers.
    fn publish(&self, changes: Vec<NewChange>, took: Duration) -> Vec<Arc<Recorded>> {
        let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) else { return Vec::new() };
        let (oldest, newest) = (oldest.change.seq, newest.change.seq);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let count = changes.len();
        tracing::debug!(changes = count, first_seq = oldest.0, last_seq = newest.0, took_us, "a batch is on disk");
        if self.first.get().is_none() {
            self.first.set(oldest);
        }
        let new = changes.into_iter().map(|new| Arc::new(Recorded::new(new.change, new.json, new.sight)));
        let dropped = self.tail.extend(new);
        self.head.send_replace(newest);
        metrics::head(newest);
        dropped
    }

    /// Carries out the orders that have transactions of their own.
    fn execute(&self, taken: Taken) {
        let Taken { messages, senders, releases, writes, prunes, probes, .. } = taken;
        // After the cursors, so that none undoes a rewind that was ordered later.
        for (what, answer) in writes {
            let written = self.store.write_subscriptions(&what);
            let _ = written.as_ref().inspect_err(|error| self.writable.failed(error));
            let _ = answer.send(written);
        }
        let quarantine_changes = !messages.is_empty() || !releases.is_empty();
        if !messages.is_empty() {
            let kept = self.store.quarantine(&messages);
            self.writable.note(&kept);
            metrics::dropped(kept.as_ref().map_or(0, |kept| kept.dropped));
            answer_all(senders, kept.map(|kept| kept.ids));
        }
        for (id, answer) in releases {
            let _ = answer.send(self.store.release(id));
        }
        if !probes.is_empty() {
            let written = self.store.probe();
            self.writable.note(&written);
            for answer in probes {
                let _ = answer.send(written.clone());
            }
        }
        if quarantine_changes {
            // The senders have their answers; if this fails, the gauges are old for a while.
            let _ = self.store.quarantine_size().map(metrics::quarantined);
        }
        // Last: whoever waits for an answer does not wait for this.
        for (before, at_most, answer) in prunes {
            let _ = answer.send(self.prune(before, at_most));
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
