//! The single writer: a thread that takes the orders that are waiting and has what they tell settled, and one that
//! writes what is settled in one transaction (group commit), so that throughput grows with concurrency while each waits
//! for one sync of the disk only.
//!
//! While one batch is on its way to the disk the next is settled, on what the store knew before and what the batches
//! on their way will have written ([`Promises`]). When one cannot be written, neither are those that were settled
//! on it: their senders hear of the same error, and send again.

use std::sync::Arc;

use foldhash::HashMap;
use tokio::sync::mpsc;

use super::{
    batch::{Batch, Ground, purge_keys, questions},
    bounds::ChangeBounds,
    disk::Work,
    handover::{Gone, Handover, Seen},
    item_counts::ItemCounts,
    order::{Order, Taken, sorted},
    promised::{Promised, Promises},
    store::{Decision, ItemsAsked, Known, Meanwhile, Questions, Store, StoreError},
};
use crate::model::{Timestamp, Uri};

/// From so many drafts on a batch is settled while another is written. A smaller one waits for those to
/// come until that is done, since it costs some work to ask for the sake of few.
const WORTH_SETTLING_AHEAD: usize = 128;

/// The number of further changes of a purge that one question asks for.
const PARTS_ASKED_AT_ONCE: usize = 16;

/// About so many drafts are settled at once, so that they can be written while the next are settled.
const SETTLED_AT_ONCE: usize = 256;

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    /// How many orders go into one transaction at the most.
    pub(super) batch: usize,
    /// Where what is settled goes.
    pub(super) handover: Arc<Handover>,
    /// Orders that have been taken and are not settled yet.
    pub(super) waiting: Vec<Order>,
    /// What is settled and may not be in the store yet.
    pub(super) promises: Promises,
    /// How many failures were known when all that was settled.
    pub(super) failures: u64,
    /// Bounds on one change and on one object.
    pub(super) bounds: ChangeBounds,
    /// The numbers of items of the objects that were settled last.
    pub(super) item_counts: ItemCounts,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.handover.close();
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
            let Seen { done, failures, is_idle, orders: settled } = self.handover.see()?;
            self.forget(done, failures);
            if self.settle(is_idle) {
                continue;
            }
            let room = self.batch.saturating_sub(self.waiting.len() + settled);
            if is_open && room > 0 {
                is_open = orders.blocking_recv_many(&mut self.waiting, room) > 0;
                self.waiting.retain(|order| !matches!(order, Order::Look));
            } else if !is_open && is_idle && self.waiting.is_empty() {
                return Ok(());
            } else {
                self.handover.wait(done, settled);
            }
        }
    }

    /// Forgets what the store has by now, and what it never will: what was settled on what could not be written.
    fn forget(&mut self, done: u64, failures: u64) {
        if failures != self.failures {
            self.failures = failures;
            self.promises.clear();
            self.item_counts.clear();
        }
        self.promises.forget(done);
    }

    /// Settles what is waiting, or some of it, if nothing is on its way to the disk or it is worth it; says whether.
    fn settle(&mut self, is_idle: bool) -> bool {
        let count = self.to_be_settled(is_idle);
        if count == 0 {
            return false;
        }
        let mut work = Work::new(count, sorted(self.waiting.drain(..count)));
        let meanwhile = if is_idle { Meanwhile::Idle } else { Meanwhile::Writing };
        let promised = match self.settled(&mut work.rest, meanwhile) {
            Ok((batch, promised)) => {
                work.batch = batch;
                Some(promised)
            }
            Err(error) => {
                work.rest.refuse(&error);
                None
            }
        };
        let number = self.handover.put(work, self.failures);
        if let Some(mut promised) = promised {
            for (object, count) in promised.item_counts.drain(..) {
                self.item_counts.set(object, count);
            }
            self.promises.add(number, promised);
        }
        true
    }

    /// How many of the orders that are waiting are settled now.
    fn to_be_settled(&self, is_idle: bool) -> usize {
        let drafts = || self.waiting.iter().map(Order::drafts);
        if !is_idle && drafts().sum::<usize>() < WORTH_SETTLING_AHEAD {
            return 0;
        }
        let mut before = 0;
        let is_among_the_first = |drafts: &usize| {
            let are_few = before < SETTLED_AT_ONCE;
            before += drafts;
            are_few
        };
        drafts().take_while(is_among_the_first).count()
    }

    fn settled(&mut self, taken: &mut Taken, meanwhile: Meanwhile) -> Result<(Batch, Promised), StoreError> {
        let questions = questions(&taken.submissions, &taken.seedings);
        let is_empty = taken.submissions.is_empty() && taken.seedings.is_empty();
        let mut known = if is_empty { Known::default() } else { self.store.look(&questions, meanwhile)? };
        self.promises.tell(&questions, &mut known);
        self.add_parts(taken, &mut known, meanwhile)?;
        let item_counts = self.count_items(&questions, &known, meanwhile)?;
        let (submissions, cursors) = (std::mem::take(&mut taken.submissions), std::mem::take(&mut taken.cursors));
        let seedings = std::mem::take(&mut taken.seedings);
        let ground = Ground { known, item_counts, bounds: self.bounds, now: Timestamp::now() };
        Batch::settle(submissions, seedings, cursors, ground)
    }

    /// Adds the further changes that purges were journaled as which have come again.
    fn add_parts(&self, taken: &Taken, known: &mut Known, meanwhile: Meanwhile) -> Result<(), StoreError> {
        for key in purge_keys(&taken.submissions, &taken.seedings) {
            let mut parts = 1;
            while known.seen.contains_key(&key.part(parts)) {
                let keys = (parts + 1..=parts + PARTS_ASKED_AT_ONCE).map(|part| key.part(part)).collect();
                let questions = Questions { keys, ..Questions::default() };
                let mut found = self.store.look(&questions, meanwhile)?;
                self.promises.tell(&questions, &mut found);
                known.seen.extend(found.seen);
                parts += PARTS_ASKED_AT_ONCE;
            }
        }
        Ok(())
    }

    /// The numbers of items of the objects that are known and may get more.
    fn count_items(
        &mut self,
        questions: &Questions,
        known: &Known,
        meanwhile: Meanwhile,
    ) -> Result<HashMap<Uri, usize>, StoreError> {
        let mut counts = HashMap::default();
        let mut uncounted = Vec::new();
        for (uri, asked) in &questions.objects {
            let Some(object) = known.objects.get(uri) else { continue };
            let ItemsAsked::Some(items) = asked else {
                counts.insert(uri.clone(), object.state.items.len());
                continue;
            };
            if items.as_slice().iter().all(|item| object.state.items.contains_key(item)) {
                continue;
            }
            match self.item_counts.get(uri) {
                Some(count) => drop(counts.insert(uri.clone(), count)),
                None => uncounted.push(uri.clone()),
            }
        }
        if !uncounted.is_empty() {
            let found = self.store.item_counts(&uncounted, meanwhile)?;
            counts.extend(uncounted.into_iter().zip(found));
        }
        Ok(counts)
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self { decision: Decision::nothing(Timestamp::EPOCH), outcomes: Vec::new(), seeded: Vec::new() }
    }
}
