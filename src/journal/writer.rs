//! The single writer: a thread that takes the orders that are waiting and has what they tell settled, and one that
//! writes what is settled in one transaction (group commit), so that throughput grows with concurrency while each waits
//! for one sync of the disk only.
//!
//! While one batch is on its way to the disk the next is settled, on what the store knew before and what the batches
//! on their way will have written ([`Promised`]). When one cannot be written, neither are those that were settled
//! on it: their senders hear of the same error, and send again.

use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, TryRecvError},
};

use tokio::sync::mpsc;

use super::{
    batch::{Batch, Promised, questions},
    disk::{Done, Work},
    order::{Order, Taken, sorted},
    store::{Decision, Known, Meanwhile, Store, StoreError},
};
use crate::model::Timestamp;

/// From so many drafts on a batch is settled while another is written. A smaller one waits for those to
/// come until that is done, since it costs some work to ask for the sake of few.
const WORTH_SETTLING_AHEAD: usize = 128;

/// About so many drafts are settled while nothing is written. The others are when these are on their way.
const SETTLED_AT_ONCE: usize = 256;

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    /// How many orders go into one transaction at the most.
    pub(super) batch: usize,
    /// The thread that writes, and what has become of what it was given.
    pub(super) disk: SyncSender<Vec<Work>>,
    pub(super) done: Receiver<Done>,
    /// Orders that have been taken and are not settled yet.
    pub(super) waiting: Vec<Order>,
    /// What is on its way to the disk.
    pub(super) on_disk: Option<Vec<Promised>>,
    /// What is settled and goes next.
    pub(super) next: Next,
}

/// What is settled and not on its way yet.
#[derive(Default)]
pub(super) struct Next {
    works: Vec<Work>,
    promised: Vec<Promised>,
    orders: usize,
}

/// The thread that writes has gone, by a fault of ours: what it had acknowledged is on disk.
struct Gone;

impl Next {
    /// Whether something else is to be done after what is settled, before more is.
    fn is_complete(&self) -> bool {
        self.works.last().is_some_and(|work| work.rest.has_more())
    }
}

impl Writer {
    /// Works until all senders of orders are gone and all orders are done.
    pub(super) fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        if self.work(&mut orders).is_err() {
            return;
        }
        if let Err(error) = self.store.close() {
            tracing::warn!(%error, "the journal could not be put in order; the next start takes a little longer");
        }
    }

    fn work(&mut self, orders: &mut mpsc::Receiver<Order>) -> Result<(), Gone> {
        let mut is_open = true;
        loop {
            self.see_what_is_done(false)?;
            self.hand_over()?;
            while self.settle() {
                self.see_what_is_done(false)?;
                self.hand_over()?;
            }
            let room = self.batch.saturating_sub(self.waiting.len() + self.next.orders);
            if is_open && room > 0 && !self.next.is_complete() {
                is_open = orders.blocking_recv_many(&mut self.waiting, room) > 0;
                self.waiting.retain(|order| !matches!(order, Order::Look));
            } else if self.on_disk.is_some() {
                self.see_what_is_done(true)?;
            } else if !is_open && self.waiting.is_empty() && self.next.works.is_empty() {
                return Ok(());
            }
        }
    }

    /// Settles what is waiting, or some of it, if nothing is on its way to the disk or it is worth it; says whether.
    fn settle(&mut self) -> bool {
        let count = self.to_be_settled();
        if count == 0 {
            return false;
        }
        self.next.orders += count;
        let mut work = Work::new(sorted(self.waiting.drain(..count)));
        match self.settled(&mut work.rest) {
            Ok((batch, promised)) => {
                work.batch = batch;
                self.next.promised.push(promised);
            }
            Err(error) => work.rest.refuse(&error),
        }
        self.next.works.push(work);
        true
    }

    /// How many of the orders that are waiting are settled now.
    fn to_be_settled(&self) -> usize {
        if self.next.is_complete() {
            return 0;
        }
        let drafts = || self.waiting.iter().map(Order::drafts);
        if self.on_disk.is_some() {
            return if drafts().sum::<usize>() < WORTH_SETTLING_AHEAD { 0 } else { self.waiting.len() };
        }
        let mut before = 0;
        let is_among_the_first = |drafts: &usize| {
            let are_few = before < SETTLED_AT_ONCE;
            before += drafts;
            are_few
        };
        drafts().take_while(is_among_the_first).count()
    }

    fn settled(&self, taken: &mut Taken) -> Result<(Batch, Promised), StoreError> {
        let questions = questions(&taken.submissions);
        let meanwhile = if self.on_disk.is_some() { Meanwhile::Writing } else { Meanwhile::Idle };
        let is_empty = taken.submissions.is_empty();
        let mut known = if is_empty { Known::default() } else { self.store.look(&questions, meanwhile)? };
        for promised in self.on_disk.iter().flatten().chain(&self.next.promised) {
            promised.tell(&questions, &mut known);
        }
        let (submissions, cursors) = (std::mem::take(&mut taken.submissions), std::mem::take(&mut taken.cursors));
        Ok(Batch::settle(submissions, cursors, known, Timestamp::now()))
    }

    /// Gives what is settled to the thread that writes, if that has nothing to do.
    fn hand_over(&mut self) -> Result<(), Gone> {
        if self.on_disk.is_some() || self.next.works.is_empty() {
            return Ok(());
        }
        let Next { works, promised, .. } = std::mem::take(&mut self.next);
        self.on_disk = Some(promised);
        self.disk.send(works).map_err(|_| Gone)
    }

    /// Looks whether what was on its way is written, or waits until it is.
    fn see_what_is_done(&mut self, wait: bool) -> Result<(), Gone> {
        if self.on_disk.is_none() {
            return Ok(());
        }
        let done = if wait { self.done.recv().map_err(|_| TryRecvError::Disconnected) } else { self.done.try_recv() };
        match done {
            Ok(Done { written, old }) => {
                self.on_disk = None;
                if let Err(error) = written {
                    self.next.promised.clear();
                    for work in &mut self.next.works {
                        work.rest.refuse(&error);
                        work.batch = Batch::default();
                    }
                }
                // What has left the tail is freed here, where nobody waits for an answer.
                drop(old);
                Ok(())
            }
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Disconnected) => Err(Gone),
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        let received = Timestamp::EPOCH;
        let (changes, unchanged, objects) = (Vec::new(), Vec::new(), Arc::default());
        let (cursors, completed) = (Vec::new(), Vec::new());
        let decision = Decision { changes, unchanged, received, objects, cursors, completed };
        Self { decision, outcomes: Vec::new() }
    }
}
