//! In-flight messages of one connection, in order.
//!
//! Outcomes arrive in any order. Messages leave only from the front, so the cursor never passes an undelivered
//! change.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;

use super::{DeliveryFuture, DeliveryOutcome, Window, memory::Reservation};
use crate::{journal::subscriptions::DeadLetterId, model::Seq};

/// Content of an in-flight message.
#[derive(Debug)]
pub(super) enum Payload {
    /// Changes from the journal.
    Changes(SentChanges),
    /// A replayed dead letter.
    DeadLetter(ReplayedLetter),
}

/// A dead letter in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayedLetter {
    /// Its identifier.
    pub(super) id: DeadLetterId,
    /// Whether the change is sent again on request, and was not refused before.
    pub(super) is_repeat: bool,
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
    /// JSON of a single change, which becomes the dead letter if the receiver refuses it.
    pub(super) json: Option<Bytes>,
}

/// A message whose outcome is known, removed from the front.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) payload: Payload,
    /// Last change that is complete with this message; `None` for a dead letter.
    pub(super) through: Option<Seq>,
    pub(super) outcome: DeliveryOutcome,
    /// Bytes of the message, as given to [`InFlightWindow::push`].
    pub(super) bytes: usize,
}

/// Outcome that ends the session.
#[derive(Debug)]
pub(super) struct Interruption {
    pub(super) outcome: DeliveryOutcome,
    /// Changes of the message with this outcome, if it contains changes.
    pub(super) changes: Option<SentChanges>,
}

/// Queue of in-flight messages with bounds on their number and bytes.
pub(super) struct InFlightWindow {
    window: Window,
    entries: VecDeque<Entry>,
    /// Number of the front entry.
    front: u64,
    running: FuturesUnordered<NumberedFuture>,
    bytes: usize,
    dead_letters: usize,
    /// Whether the receiver has failed and has accepted nothing since. Then one message at a time is sent,
    /// which uses less memory than a full window.
    is_probing: bool,
}

/// Outcome of the entry with this number.
struct NumberedFuture(u64, DeliveryFuture);

impl Future for NumberedFuture {
    type Output = (u64, DeliveryOutcome);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.0;
        self.1.as_mut().poll(context).map(|outcome| (number, outcome))
    }
}

struct Entry {
    payload: Payload,
    through: Option<Seq>,
    bytes: usize,
    sent: Instant,
    outcome: Option<DeliveryOutcome>,
    _memory: Reservation,
}

impl Entry {
    fn is_dead_letter(&self) -> bool {
        matches!(self.payload, Payload::DeadLetter(_))
    }
}

impl InFlightWindow {
    /// Creates an empty window. With `is_probing`, one message at a time is sent until the receiver accepts
    /// one.
    pub(super) fn new(window: Window, is_probing: bool) -> Self {
        let running = FuturesUnordered::new();
        Self { window, entries: VecDeque::new(), front: 0, running, bytes: 0, dead_letters: 0, is_probing }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether the receiver has failed and has accepted nothing since.
    pub(super) fn is_probing(&self) -> bool {
        self.is_probing
    }

    pub(super) fn has_room(&self) -> bool {
        let messages = if self.is_probing { 1 } else { self.window.messages.max(1) };
        self.entries.len() < messages && (self.entries.is_empty() || self.bytes < self.window.bytes)
    }

    /// Returns whether dead letters are in flight.
    pub(super) fn has_dead_letters(&self) -> bool {
        self.dead_letters > 0
    }

    /// Adds a sent message. When it is complete, all changes up to `through` are complete.
    pub(super) fn push(
        &mut self,
        changes: SentChanges,
        through: Seq,
        bytes: usize,
        memory: Reservation,
        pending: DeliveryFuture,
    ) {
        self.add(Payload::Changes(changes), Some(through), bytes, memory, pending);
    }

    /// Adds a replayed dead letter.
    pub(super) fn push_dead_letter(
        &mut self,
        letter: ReplayedLetter,
        bytes: usize,
        memory: Reservation,
        pending: DeliveryFuture,
    ) {
        self.dead_letters += 1;
        self.add(Payload::DeadLetter(letter), None, bytes, memory, pending);
    }

    /// Skips a change that the filter does not select. Returns true if no message before it is in flight, so
    /// that the cursor may pass it.
    pub(super) fn skip(&mut self, seq: Seq) -> bool {
        // A dead letter does not move the cursor, so the last message with changes does.
        match self.entries.iter_mut().rev().find(|entry| !entry.is_dead_letter()) {
            Some(last) => {
                last.through = Some(seq);
                false
            }
            None => true,
        }
    }

    fn add(
        &mut self,
        payload: Payload,
        through: Option<Seq>,
        bytes: usize,
        memory: Reservation,
        pending: DeliveryFuture,
    ) {
        self.running.push(NumberedFuture(self.front + self.entries.len() as u64, pending));
        self.bytes += bytes;
        self.entries.push_back(Entry { payload, through, bytes, sent: Instant::now(), outcome: None, _memory: memory });
    }

    /// Waits for the next outcome and records all outcomes that are available; waits forever if nothing is in
    /// flight.
    ///
    /// Returns immediately if an outcome ends the session (retry, gone), because all later messages must then
    /// be sent again. A failed dead letter does not end the session.
    pub(super) async fn next(&mut self) -> Option<Interruption> {
        // The front message was sent before all others without an outcome, so one timer is enough.
        let Some(front) = self.entries.front() else { return std::future::pending().await };
        let timeout = self.window.outcome_timeout;
        let late = tokio::time::sleep_until(front.sent + timeout);
        tokio::select! {
            biased;
            interruption = std::future::poll_fn(|context| self.poll_outcomes(context)) => interruption,
            () = late => {
                let reason = format!("the receiver confirmed nothing within {} seconds", timeout.as_secs());
                self.record_outcome(self.front, DeliveryOutcome::Retry { reason, after: None })
            }
        }
    }

    /// Records all available outcomes. One confirmation may cover many messages, so the engine processes them
    /// together.
    fn poll_outcomes(&mut self, context: &mut Context<'_>) -> Poll<Option<Interruption>> {
        let mut some = false;
        while let Poll::Ready(Some((number, outcome))) = self.running.poll_next_unpin(context) {
            if let Some(interruption) = self.record_outcome(number, outcome) {
                return Poll::Ready(Some(interruption));
            }
            some = true;
        }
        if some { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Records the outcome of an entry, or returns it if it ends the session.
    fn record_outcome(&mut self, number: u64, outcome: DeliveryOutcome) -> Option<Interruption> {
        let at = number.checked_sub(self.front).and_then(|at| usize::try_from(at).ok());
        // The entry is absent if the message timed out before its outcome arrived.
        let entry = at.and_then(|at| self.entries.get_mut(at))?;
        match (&outcome, &entry.payload) {
            (DeliveryOutcome::Gone { .. }, Payload::DeadLetter(_)) => Some(Interruption { outcome, changes: None }),
            (DeliveryOutcome::Retry { .. } | DeliveryOutcome::Gone { .. }, Payload::Changes(changes)) => {
                Some(Interruption { outcome, changes: Some(changes.clone()) })
            }
            _ => {
                entry.outcome.get_or_insert(outcome);
                None
            }
        }
    }

    /// Removes the front message if its outcome is known.
    pub(super) fn pop_completed(&mut self) -> Option<Completed> {
        self.entries.front()?.outcome.as_ref()?;
        let Entry { payload, through, bytes, outcome, .. } = self.entries.pop_front()?;
        let outcome = outcome?;
        self.front += 1;
        self.bytes -= bytes;
        if matches!(payload, Payload::DeadLetter(_)) {
            self.dead_letters -= 1;
        }
        if !matches!(outcome, DeliveryOutcome::Retry { .. } | DeliveryOutcome::TooLarge { .. }) {
            self.is_probing = false;
        }
        Some(Completed { payload, through, outcome, bytes })
    }
}
