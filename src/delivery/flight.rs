//! What is on its way to a receiver, in order. Outcomes come in any order; what is done with is taken
//! from the front alone, so that the cursor passes nothing that has not arrived.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;

use super::{Outcome, Pending, Window, memory::Reservation};
use crate::{journal::subscriptions::DeadLetterId, model::Seq};

/// What a message on its way is.
#[derive(Debug)]
pub(super) enum What {
    /// Changes of the journal.
    Changes(SentChanges),
    /// A dead letter that is sent again.
    Letter(DeadLetterId),
}

/// Changes of an in-flight message. Their encodings are not retained.
#[derive(Clone, Debug)]
pub(super) struct SentChanges {
    /// Number of the first change.
    pub(super) first: Seq,
    /// Number of the last change.
    pub(super) last: Seq,
    /// Number of changes.
    pub(super) count: u64,
    /// JSON of a change that went alone, which becomes a dead letter if the receiver refuses it.
    pub(super) json: Option<Bytes>,
}

/// A message that has its outcome, taken from the front.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) what: What,
    /// All changes up to this one are done with, once this message is; of a dead letter, none are.
    pub(super) through: Option<Seq>,
    pub(super) outcome: Outcome,
    /// Bytes of the message, as [`Flight::push`] was given them.
    pub(super) bytes: usize,
}

/// Outcome that ends the session.
#[derive(Debug)]
pub(super) struct Interruption {
    pub(super) outcome: Outcome,
    /// Changes of the message that has this outcome, if it has any.
    pub(super) changes: Option<SentChanges>,
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
    _memory: Reservation,
}

impl Entry {
    fn is_letter(&self) -> bool {
        matches!(self.what, What::Letter(_))
    }
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

    /// Whether the receiver has failed and has taken nothing since.
    pub(super) fn is_probing(&self) -> bool {
        self.probing
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
        changes: SentChanges,
        through: Seq,
        bytes: usize,
        memory: Reservation,
        pending: Pending,
    ) {
        self.add(What::Changes(changes), Some(through), bytes, memory, pending);
    }

    /// A dead letter was sent.
    pub(super) fn push_letter(&mut self, id: DeadLetterId, bytes: usize, memory: Reservation, pending: Pending) {
        self.letters += 1;
        self.add(What::Letter(id), None, bytes, memory, pending);
    }

    /// A change was passed over; says whether nothing before it is on its way, so that it is done with.
    pub(super) fn pass(&mut self, seq: Seq) -> bool {
        // A dead letter at the back takes no cursor with it, so the change before it does.
        match self.entries.iter_mut().rev().find(|entry| !entry.is_letter()) {
            Some(last) => {
                last.through = Some(seq);
                false
            }
            None => true,
        }
    }

    fn add(&mut self, what: What, through: Option<Seq>, bytes: usize, memory: Reservation, pending: Pending) {
        self.running.push(Awaited(self.front + self.entries.len() as u64, pending));
        self.bytes += bytes;
        self.entries.push_back(Entry { what, through, bytes, sent: Instant::now(), outcome: None, _memory: memory });
    }

    /// Waits for the next outcome, and takes all that are there; for ever, if nothing is on its way. One
    /// that ends the session (retry, gone) comes back at once, since what is behind it must be sent again
    /// in any case. A dead letter that is not taken ends no session.
    pub(super) async fn next(&mut self) -> Option<Interruption> {
        // The one at the front was sent before all that have no outcome: one alarm is enough.
        let Some(front) = self.entries.front() else { return std::future::pending().await };
        let patience = self.window.patience;
        let late = tokio::time::sleep_until(front.sent + patience);
        tokio::select! {
            biased;
            cut = std::future::poll_fn(|context| self.take_outcomes(context)) => cut,
            () = late => {
                let reason = format!("the receiver confirmed nothing within {} seconds", patience.as_secs());
                self.note(self.front, Outcome::Retry { reason, after: None })
            }
        }
    }

    /// Outcomes come in crowds, as one confirmation may be for many: what is done for each crowd is not
    /// done for each message.
    fn take_outcomes(&mut self, context: &mut Context<'_>) -> Poll<Option<Interruption>> {
        let mut some = false;
        while let Poll::Ready(Some((number, outcome))) = self.running.poll_next_unpin(context) {
            if let Some(interruption) = self.note(number, outcome) {
                return Poll::Ready(Some(interruption));
            }
            some = true;
        }
        if some { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Notes the outcome of the entry of that number, or gives it back if it ends the session.
    fn note(&mut self, number: u64, outcome: Outcome) -> Option<Interruption> {
        let at = number.checked_sub(self.front).and_then(|at| usize::try_from(at).ok());
        // An entry that was given up before its outcome came is no longer there.
        let entry = at.and_then(|at| self.entries.get_mut(at))?;
        match (&outcome, &entry.what) {
            (Outcome::Gone { .. }, What::Letter(_)) => Some(Interruption { outcome, changes: None }),
            (Outcome::Retry { .. } | Outcome::Gone { .. }, What::Changes(changes)) => {
                Some(Interruption { outcome, changes: Some(changes.clone()) })
            }
            _ => {
                entry.outcome.get_or_insert(outcome);
                None
            }
        }
    }

    /// Takes the message at the front, if it has its outcome.
    pub(super) fn land(&mut self) -> Option<Landed> {
        self.entries.front()?.outcome.as_ref()?;
        let Entry { what, through, bytes, outcome, .. } = self.entries.pop_front()?;
        let outcome = outcome?;
        self.front += 1;
        self.bytes -= bytes;
        if matches!(what, What::Letter(_)) {
            self.letters -= 1;
        }
        if !matches!(outcome, Outcome::Retry { .. } | Outcome::TooLarge { .. }) {
            self.probing = false;
        }
        Some(Landed { what, through, outcome, bytes })
    }
}
