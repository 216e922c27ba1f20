//! The thread that writes what is settled, and answers: changes go to the store, then to the tail, then the head is moved,
//! then the answers are sent. Nobody hears of a change before it is on disk.

use std::{
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, watch};

use super::{
    First, Pruned,
    batch::Batch,
    handover::Handover,
    metrics,
    order::{Order, Taken, answer_all},
    store::{NewChange, Store, StoreError},
    tail::{Recorded, Tail},
    writable::Writable,
};
use crate::model::Seq;

pub(super) struct Disk {
    pub(super) store: Arc<dyn Store>,
    pub(super) tail: Arc<Tail>,
    pub(super) head: watch::Sender<Seq>,
    pub(super) first: Arc<First>,
    /// Where what is settled comes from.
    pub(super) handover: Arc<Handover>,
    /// Wakes who waits for orders, as something was written. It does not keep the journal open.
    pub(super) orders: mpsc::WeakSender<Order>,
    /// Who does what nobody waits for.
    pub(super) upkeep: SyncSender<Chore>,
    pub(super) writable: Arc<Writable>,
}

/// What is to be done that nobody waits for.
pub(super) enum Chore {
    /// The store's upkeep, if it is still due.
    Upkeep,
    /// To free changes that have left the tail.
    Free(Vec<Arc<Recorded>>),
}

/// Orders that were taken together, with the batch of those that are settled.
pub(super) struct Work {
    pub(super) batch: Batch,
    pub(super) rest: Taken,
    /// How many orders they are.
    pub(super) orders: usize,
    began: Instant,
}

impl Work {
    pub(super) fn new(orders: usize, rest: Taken) -> Self {
        Self { batch: Batch::default(), rest, orders, began: Instant::now() }
    }

    /// Tells those who wait for something settled that it is not written. What else is to be done is done.
    pub(super) fn refuse(&mut self, error: &StoreError) {
        self.rest.refuse(error);
        self.batch = Batch::default();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.handover.leave();
    }
}

impl Disk {
    /// Writes what is settled, until nothing more comes.
    pub(super) fn run(self) {
        while let Some(works) = self.handover.take() {
            let count = works.len();
            let written = self.write(works);
            let (written, old) = written.map_or_else(|error| (Err(error), Vec::new()), |old| (Ok(()), old));
            self.handover.done(count, written);
            if let Some(orders) = self.orders.upgrade() {
                // Where there is no room, there are orders that wake as well.
                let _ = orders.try_send(Order::Look);
            }
            // Where there is no room, it is freed here.
            let _ = self.upkeep.try_send(Chore::Free(old));
            if self.store.upkeep_is_due() {
                // Where there is no room, it is still due the next time.
                let _ = self.upkeep.try_send(Chore::Upkeep);
            }
        }
    }

    /// Gives what has left the tail.
    fn write(&self, works: Vec<Work>) -> Result<Vec<Arc<Recorded>>, StoreError> {
        let mut decisions = Vec::with_capacity(works.len());
        let mut answers = Vec::with_capacity(works.len());
        for Work { batch: Batch { decision, outcomes, seeded }, rest, began, .. } in works {
            decisions.push(decision);
            answers.push((outcomes, seeded, rest, began));
        }
        let is_empty = decisions.iter().all(super::store::Decision::is_empty);
        // Cursors by themselves take less room than a message, and prove nothing.
        let is_small = decisions.iter().all(|decision| decision.changes.is_empty());
        let written = if is_empty { Ok(Vec::new()) } else { self.store.append(decisions) };
        match &written {
            Err(error) => self.writable.failed(error),
            written if !is_small => self.writable.note(written),
            Ok(_) => {}
        }
        let mut rests = Vec::with_capacity(answers.len());
        let written = match written {
            Ok(changes) => {
                let mut changes = changes.into_iter();
                let mut old = Vec::new();
                for (outcomes, seeded, mut rest, began) in answers {
                    let took = began.elapsed();
                    if !outcomes.is_empty() {
                        metrics::batch(outcomes.len(), took);
                    }
                    old.extend(self.show(changes.next().unwrap_or_default(), took));
                    for advancer in rest.advancers.drain(..) {
                        let _ = advancer.send(Ok(()));
                    }
                    for (seeder, seeded) in rest.seeders.drain(..).zip(seeded) {
                        let _ = seeder.send(Ok(seeded));
                    }
                    answer_all(std::mem::take(&mut rest.submitters), Ok(outcomes));
                    rests.push(rest);
                }
                Ok(old)
            }
            Err(error) => {
                for (_, _, mut rest, _) in answers {
                    rest.refuse(&error);
                    rests.push(rest);
                }
                Err(error)
            }
        };
        rests.into_iter().for_each(|rest| self.execute(rest));
        written
    }

    /// Does what is not settled.
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
            answer_all(senders, kept);
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
            // Who asked has been answered; if this fails, the numbers are old for a while.
            let _ = self.store.quarantine_size().map(metrics::quarantined);
        }
        // Last: whoever waits for an answer does not wait for this.
        for (before, at_most, answer) in prunes {
            let _ = answer.send(self.prune(before, at_most));
        }
    }

    fn prune(&self, before: Seq, at_most: usize) -> Result<Pruned, StoreError> {
        if self.store.prepare_to_prune(before, at_most)? {
            return Ok(Pruned::Preparing);
        }
        let removed = self.store.prune(before, at_most)?;
        if removed > 0
            && let Some(first) = self.store.first()?
        {
            self.first.set(first);
            self.tail.drop_before(first);
        }
        Ok(Pruned::Removed(removed))
    }

    /// Shows what is on disk to those who read; gives what has left the tail.
    fn show(&self, changes: Vec<NewChange>, took: Duration) -> Vec<Arc<Recorded>> {
        let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) else { return Vec::new() };
        let (oldest, newest) = (oldest.change.seq, newest.change.seq);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let count = changes.len();
        tracing::debug!(changes = count, first_seq = oldest.0, last_seq = newest.0, took_us, "a batch is on disk");
        if self.first.get().is_none() {
            self.first.set(oldest);
        }
        let new = changes.into_iter().map(|new| Arc::new(Recorded::new(new.change, new.json, new.sight)));
        let old = self.tail.extend(new);
        self.head.send_replace(newest);
        metrics::head(newest);
        old
    }
}
