//! What is on its way to a receiver, in order. Outcomes come in any order; what is done with is taken
//! from the front alone, so that the cursor passes nothing that has not arrived.

use std::{collections::VecDeque, pin::Pin, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{Outcome, Pending, Window};
use crate::{
    journal::{
        Recorded,
        subscriptions::{DeadLetter, DeadLetterId},
    },
    model::Seq,
};

/// What a message on its way is.
#[derive(Debug)]
pub(super) enum What {
    /// A change of the journal, as it is sent.
    Change(Arc<Recorded>),
    /// A dead letter that is sent again.
    Letter(DeadLetterId),
}

/// A message that has its outcome, taken from the front.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) what: What,
    /// All changes up to this one are done with, once this message is; of a dead letter, none are.
    pub(super) through: Option<Seq>,
    pub(super) outcome: Outcome,
}

/// What is on its way.
pub(super) struct Flight {
    window: Window,
    entries: VecDeque<Entry>,
    /// The number of the entry at the front.
    front: u64,
    running: FuturesUnordered<Awaited>,
    bytes: usize,
    letters: usize,
}

/// The outcome of the entry of that number.
type Awaited = Pin<Box<dyn Future<Output = (u64, Outcome)> + Send>>;

struct Entry {
    what: What,
    through: Option<Seq>,
    bytes: usize,
    outcome: Option<Outcome>,
}

impl Flight {
    pub(super) fn new(window: Window) -> Self {
        let running = FuturesUnordered::new();
        Self { window, entries: VecDeque::new(), front: 0, running, bytes: 0, letters: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < self.window.messages.max(1) && (self.entries.is_empty() || self.bytes < self.window.bytes)
    }

    /// Whether dead letters are on their way.
    pub(super) fn has_letters(&self) -> bool {
        self.letters > 0
    }

    /// A change was sent.
    pub(super) fn push(&mut self, change: Arc<Recorded>, bytes: usize, pending: Pending) {
        let (through, bytes) = (change.seq(), bytes.saturating_add(change.json().len()));
        self.add(Entry { what: What::Change(change), through: Some(through), bytes, outcome: None }, pending);
    }

    /// A dead letter was sent.
    pub(super) fn push_letter(&mut self, letter: &DeadLetter, bytes: usize, pending: Pending) {
        self.letters += 1;
        self.add(Entry { what: What::Letter(letter.id), through: None, bytes, outcome: None }, pending);
    }

    /// A change was passed over; says whether nothing before it is on its way, so that it is done with.
    pub(super) fn pass(&mut self, seq: Seq) -> bool {
        match self.entries.back_mut() {
            Some(last) => {
                last.through = Some(seq);
                false
            }
            None => true,
        }
    }

    fn add(&mut self, entry: Entry, pending: Pending) {
        let number = self.front + self.entries.len() as u64;
        let patience = self.window.patience;
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
        self.running.push(Box::pin(async move {
            let outcome = tokio::time::timeout(patience, pending).await;
            let reason = || format!("the receiver confirmed nothing within {} seconds", patience.as_secs());
            (number, outcome.unwrap_or_else(|_| Outcome::Retry { reason: reason(), after: None }))
        }));
    }

    /// Waits for the next outcome; for ever, if nothing is on its way. One that ends the session
    /// (retry, gone) comes back at once, since what is behind it must be sent again in any case.
    pub(super) async fn next(&mut self) -> Option<Outcome> {
        let Some((number, outcome)) = self.running.next().await else { return std::future::pending().await };
        if matches!(outcome, Outcome::Retry { .. } | Outcome::Gone { .. }) {
            return Some(outcome);
        }
        let at = number.checked_sub(self.front).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
            entry.outcome = Some(outcome);
        }
        None
    }

    /// Takes the message at the front, if it has its outcome.
    pub(super) fn land(&mut self) -> Option<Landed> {
        self.entries.front()?.outcome.as_ref()?;
        let Entry { what, through, bytes, outcome } = self.entries.pop_front()?;
        self.front += 1;
        self.bytes -= bytes;
        if matches!(what, What::Letter(_)) {
            self.letters -= 1;
        }
        Some(Landed { what, through, outcome: outcome? })
    }
}
