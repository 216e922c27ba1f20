//! What is on its way to a receiver, in order. Outcomes come in any order; what is done with is taken
//! from the front alone, so that the cursor passes nothing that has not arrived.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;

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
    /// A change of the journal, as it is sent, and those that are in the same message behind it.
    Changes(Arc<Recorded>, Vec<Arc<Recorded>>),
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
    /// The receiver has failed, and has taken nothing since: one message shows whether it is well again, and
    /// costs everybody else less than a window of them.
    probing: bool,
}

/// Waits for the outcome of the entry of that number.
struct Awaited(u64, Pending);

impl Future for Awaited {
    type Output = (u64, Outcome);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.0;
        self.1.as_mut().poll(context).map(|outcome| (number, outcome))
    }
}

struct Entry {
    what: What,
    through: Option<Seq>,
    bytes: usize,
    sent: Instant,
    outcome: Option<Outcome>,
}

impl Flight {
    /// With `probing` one message goes alone, until the receiver has taken one.
    pub(super) fn new(window: Window, probing: bool) -> Self {
        let running = FuturesUnordered::new();
        Self { window, entries: VecDeque::new(), front: 0, running, bytes: 0, letters: 0, probing }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        let messages = if self.probing { 1 } else { self.window.messages.max(1) };
        self.entries.len() < messages && (self.entries.is_empty() || self.bytes < self.window.bytes)
    }

    /// Whether dead letters are on their way.
    pub(super) fn has_letters(&self) -> bool {
        self.letters > 0
    }

    /// A message was sent, with which all changes up to `through` are done with.
    pub(super) fn push(
        &mut self,
        first: Arc<Recorded>,
        more: Vec<Arc<Recorded>>,
        through: Seq,
        bytes: usize,
        pending: Pending,
    ) {
        let held: usize = std::iter::once(&first).chain(&more).map(|change| change.json().len()).sum();
        self.add(What::Changes(first, more), Some(through), bytes.saturating_add(held), pending);
    }

    /// A dead letter was sent.
    pub(super) fn push_letter(&mut self, letter: &DeadLetter, bytes: usize, pending: Pending) {
        self.letters += 1;
        self.add(What::Letter(letter.id), None, bytes, pending);
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

    fn add(&mut self, what: What, through: Option<Seq>, bytes: usize, pending: Pending) {
        self.running.push(Awaited(self.front + self.entries.len() as u64, pending));
        self.bytes += bytes;
        self.entries.push_back(Entry { what, through, bytes, sent: Instant::now(), outcome: None });
    }

    /// Waits for the next outcome, and takes all that are there; for ever, if nothing is on its way. One
    /// that ends the session (retry, gone) comes back at once, since what is behind it must be sent again
    /// in any case.
    pub(super) async fn next(&mut self) -> Option<Outcome> {
        // The one at the front was sent before all that have no outcome: one alarm is enough.
        let Some(front) = self.entries.front() else { return std::future::pending().await };
        let patience = self.window.patience;
        let late = tokio::time::sleep_until(front.sent + patience);
        tokio::select! {
            biased;
            cut = std::future::poll_fn(|context| self.take_outcomes(context)) => cut,
            () = late => {
                let reason = format!("the receiver confirmed nothing within {} seconds", patience.as_secs());
                Some(Outcome::Retry { reason, after: None })
            }
        }
    }

    /// Outcomes come in crowds, as one confirmation may be for many: what is done for each crowd is not
    /// done for each message.
    fn take_outcomes(&mut self, context: &mut Context<'_>) -> Poll<Option<Outcome>> {
        let mut some = false;
        while let Poll::Ready(Some((number, outcome))) = self.running.poll_next_unpin(context) {
            if matches!(outcome, Outcome::Retry { .. } | Outcome::Gone { .. }) {
                return Poll::Ready(Some(outcome));
            }
            let at = number.checked_sub(self.front).and_then(|at| usize::try_from(at).ok());
            if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
                entry.outcome = Some(outcome);
            }
            some = true;
        }
        if some { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Takes the message at the front, if it has its outcome.
    pub(super) fn land(&mut self) -> Option<Landed> {
        self.entries.front()?.outcome.as_ref()?;
        let Entry { what, through, bytes, outcome, .. } = self.entries.pop_front()?;
        self.front += 1;
        self.bytes -= bytes;
        self.probing = false;
        if matches!(what, What::Letter(_)) {
            self.letters -= 1;
        }
        Some(Landed { what, through, outcome: outcome? })
    }
}
