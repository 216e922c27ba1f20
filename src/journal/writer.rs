//! The single writer: a thread that takes what is waiting, has it settled, and appends it in one transaction (group
//! commit), so that throughput grows with concurrency while each waits for one sync of the disk only.
//!
//! Drafts come from [`super::Journal::append`]; changes go to the store, then to the tail, then the
//! head is moved, then the answers are sent: nobody hears of a change before it is on disk.
//!
//! While one batch is written, a second thread settles the next, on what the store knew before and what the
//! batch on its way will have written ([`Batch::tell`]). Only the writer asks the store, so there is one
//! connection that reads and writes, and its pages stay in memory. When a batch cannot be written, neither is the next,
//! which was settled on it: its senders hear of the same error, and send again.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, watch};

use super::{
    First,
    batch::{Batch, questions},
    metrics,
    order::{Order, Submission, Taken, answer_all, sorted},
    store::{Known, NewChange, Store, StoreError},
    tail::{Recorded, Tail},
};
use crate::model::{Seq, SubscriptionName, Timestamp};

/// From so many drafts on a batch is settled while another is written. A smaller one waits for those to
/// come until that is done, since each transaction costs the same once more.
const WORTH_SETTLING_AHEAD: usize = 128;

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) tail: Arc<Tail>,
    pub(super) head: watch::Sender<Seq>,
    pub(super) first: Arc<First>,
    pub(super) batch: usize,
    /// The thread that settles.
    pub(super) settler: Settler,
    /// Wakes who does the store's upkeep.
    pub(super) upkeep: SyncSender<()>,
}

/// What is to be settled.
pub(super) struct ToSettle {
    submissions: Vec<Submission>,
    cursors: Vec<(SubscriptionName, Seq)>,
    known: Known,
}

/// The way to the thread that settles, and back.
pub(super) struct Settler {
    pub(super) there: SyncSender<ToSettle>,
    pub(super) back: Receiver<Batch>,
}

/// Orders that were taken together, with the batch of those that are to be settled.
struct Work {
    batch: Batch,
    rest: Taken,
    began: Instant,
}

/// Settles what it is sent, until the writer has gone.
pub(super) fn settle_all(to_settle: &Receiver<ToSettle>, settled: &SyncSender<Batch>) {
    while let Ok(work) = to_settle.recv() {
        if settled.send(work.settle()).is_err() {
            break;
        }
    }
}

impl ToSettle {
    fn settle(self) -> Batch {
        Batch::settle(self.submissions, self.cursors, self.known, Timestamp::now())
    }
}

impl Writer {
    /// Works until all senders of orders are gone and all orders are done.
    pub(super) fn run(self, mut orders: mpsc::Receiver<Order>) {
        let mut waiting = Vec::with_capacity(self.batch);
        let mut next = None;
        loop {
            next = match next {
                Some(work) => self.write_and_settle(work, &mut waiting, &mut orders),
                None if waiting.is_empty() && orders.blocking_recv_many(&mut waiting, self.batch) == 0 => break,
                None => {
                    self.take_more(&mut waiting, &mut orders);
                    self.settled(&mut waiting)
                }
            };
        }
        if let Err(error) = self.store.close() {
            tracing::warn!(%error, "the journal could not be put in order; the next start takes a little longer");
        }
    }

    /// Takes what has come by now.
    fn take_more(&self, waiting: &mut Vec<Order>, orders: &mut mpsc::Receiver<Order>) {
        while waiting.len() < self.batch
            && let Ok(order) = orders.try_recv()
        {
            waiting.push(order);
        }
    }

    /// Settles what is waiting, with nothing on its way.
    fn settled(&self, waiting: &mut Vec<Order>) -> Option<Work> {
        let began = Instant::now();
        let mut rest = sorted(waiting.drain(..));
        match self.to_settle(&mut rest, None) {
            Ok(to_settle) => Some(Work { batch: to_settle.settle(), rest, began }),
            Err(error) => {
                self.refuse(&mut rest, &error);
                self.execute(rest);
                None
            }
        }
    }

    /// Writes a batch, while the next is settled if that is large enough.
    fn write_and_settle(
        &self,
        work: Work,
        waiting: &mut Vec<Order>,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Option<Work> {
        self.take_more(waiting, orders);
        if waiting.iter().map(Order::drafts).sum::<usize>() < WORTH_SETTLING_AHEAD {
            // Whether it can be written or not, nothing was settled on it.
            let _ = self.write(work);
            return None;
        }
        let began = Instant::now();
        let mut rest = sorted(waiting.drain(..));
        let sent = self.to_settle(&mut rest, Some(&work.batch)).and_then(|to_settle| {
            self.settler.there.send(to_settle).map_err(|_| StoreError::Io("no thread settles".to_owned()))
        });
        let written = self.write(work);
        let settled =
            sent.and_then(|()| self.settler.back.recv().map_err(|_| StoreError::Io("no thread settles".to_owned())));
        match written.and(settled) {
            Ok(batch) => Some(Work { batch, rest, began }),
            Err(error) => {
                self.refuse(&mut rest, &error);
                self.execute(rest);
                None
            }
        }
    }

    /// Takes what is to be settled out of the orders, with what must be known for it.
    fn to_settle(&self, taken: &mut Taken, before: Option<&Batch>) -> Result<ToSettle, StoreError> {
        let questions = questions(&taken.submissions);
        let mut known = if taken.submissions.is_empty() { Known::default() } else { self.store.look(&questions)? };
        if let Some(before) = before {
            before.tell(&questions, &mut known);
        }
        let submissions = std::mem::take(&mut taken.submissions);
        Ok(ToSettle { submissions, cursors: std::mem::take(&mut taken.cursors), known })
    }

    /// Tells those who wait for a batch that it is not written.
    fn refuse(&self, taken: &mut Taken, error: &StoreError) {
        (taken.submissions, taken.cursors) = Default::default();
        for advancer in taken.advancers.drain(..) {
            let _ = advancer.send(Err(error.clone()));
        }
        answer_all(std::mem::take(&mut taken.submitters), Err(error.clone()));
    }

    /// Writes a batch and does what else was ordered with it.
    fn write(&self, work: Work) -> Result<(), StoreError> {
        let Work { batch: Batch { decision, outcomes, .. }, mut rest, began } = work;
        let events = outcomes.len();
        let written = if decision.is_empty() { Ok(Vec::new()) } else { self.store.append(decision) };
        // What has left the tail is freed when everybody has been answered.
        let mut old = Vec::new();
        let written = match written {
            Ok(changes) => {
                let took = began.elapsed();
                if events > 0 {
                    metrics::batch(events, took);
                }
                self.show(changes, took, &mut old);
                for advancer in rest.advancers.drain(..) {
                    let _ = advancer.send(Ok(()));
                }
                answer_all(std::mem::take(&mut rest.submitters), Ok(outcomes));
                Ok(())
            }
            Err(error) => {
                self.refuse(&mut rest, &error);
                Err(error)
            }
        };
        self.execute(rest);
        if self.store.upkeep_is_due() {
            // One who is at it already finds what is due now when he is done.
            let _ = self.upkeep.try_send(());
        }
        written
    }

    /// Does what is not settled.
    fn execute(&self, taken: Taken) {
        let Taken { messages, senders, releases, writes, prunes, .. } = taken;
        // After the cursors, so that none undoes a rewind that was ordered later.
        for (what, answer) in writes {
            let _ = answer.send(self.store.write_subscriptions(&what));
        }
        let quarantine_changes = !messages.is_empty() || !releases.is_empty();
        if !messages.is_empty() {
            answer_all(senders, self.store.quarantine(&messages));
        }
        for (id, answer) in releases {
            let _ = answer.send(self.store.release(id));
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

    /// Shows what is on disk to those who read.
    fn show(&self, changes: Vec<NewChange>, took: Duration, old: &mut Vec<Arc<Recorded>>) {
        let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) else { return };
        let (oldest, newest) = (oldest.change.seq, newest.change.seq);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let count = changes.len();
        tracing::debug!(changes = count, first_seq = oldest.0, last_seq = newest.0, took_us, "a batch is on disk");
        if self.first.get().is_none() {
            self.first.set(oldest);
        }
        let new = changes.into_iter().map(|new| Arc::new(Recorded::new(new.change, new.json, new.sight)));
        *old = self.tail.extend(new);
        self.head.send_replace(newest);
        metrics::head(newest);
    }
}
