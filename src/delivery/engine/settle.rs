//! Processes outcomes: delivered messages advance the cursor, refused ones become dead letters, and failed
//! replays return to the dead letters.

use tokio::time::Instant;

use super::{Engine, Exit, Session, SessionEnd, retry, stuck};
use crate::{
    delivery::{
        DeliveryOutcome,
        in_flight::{Completed, Interruption, Payload, ReplayedLetter, SentChanges},
        metrics,
        status::SubscriptionState,
    },
    journal::subscriptions::{NewDeadLetter, SubscriptionWrite},
    model::Seq,
    retry::Backoff,
};

/// Outcomes since the cursor was last moved.
#[derive(Default)]
struct OutcomeCounts {
    delivered: u64,
    unroutable: u64,
    through: Option<Seq>,
}

impl Engine {
    /// Processes all completed messages at the front of the window, then an interruption, if there is one.
    pub(super) async fn settle(
        &mut self,
        session: &mut Session,
        interruption: Option<Interruption>,
        backoff: &mut Backoff,
    ) -> Result<(), SessionEnd> {
        let mut counts = OutcomeCounts::default();
        let mut has_completed = false;
        let mut trouble = None;
        while let Some(completed) = session.in_flight.pop_completed() {
            match self.settle_one(session, completed, &mut counts).await {
                Ok(is_settled) => has_completed |= is_settled,
                Err(end) => {
                    trouble = Some(end);
                    break;
                }
            }
        }
        if has_completed {
            if backoff.failures() > 0 {
                tracing::info!(subscription = %self.name, "delivery works again");
            }
            backoff.reset();
            session.dead_letters_backoff.reset();
            self.status.reset_failures();
            self.status.set(SubscriptionState::Running);
        }
        self.report(&counts);
        match (trouble, interruption) {
            (Some(end), _) => Err(end),
            (None, Some(Interruption { outcome, changes })) => Err(self.interrupted(outcome, changes)),
            (None, None) => Ok(()),
        }
    }

    /// Processes one completed message. Returns whether the receiver has settled it.
    async fn settle_one(
        &mut self,
        session: &mut Session,
        completed: Completed,
        counts: &mut OutcomeCounts,
    ) -> Result<bool, SessionEnd> {
        let Completed { payload, through, outcome, bytes } = completed;
        let mut has_completed = true;
        match (outcome, payload) {
            (DeliveryOutcome::Refused { .. }, Payload::Changes(changes)) if changes.count > 1 => {
                self.batching.unbatched = (changes.first, changes.last);
                return Err(SessionEnd::SmallerBatches);
            }
            (DeliveryOutcome::TooLarge { .. }, Payload::Changes(changes)) if changes.count > 1 => {
                self.batching.bytes = bytes.min(self.batching.bytes) / 2;
                return Err(SessionEnd::SmallerBatches);
            }
            (DeliveryOutcome::TooLarge { reason }, Payload::Changes(changes)) => {
                return Err(stuck(changes.first, reason));
            }
            (DeliveryOutcome::Refused { reason }, Payload::Changes(changes)) => {
                self.report(&std::mem::take(counts));
                self.dead_letter(&changes, &reason).await?;
            }
            (DeliveryOutcome::Unroutable, Payload::Changes(changes)) => counts.unroutable += changes.count,
            (_, Payload::Changes(changes)) => counts.delivered += changes.count,
            (outcome, Payload::DeadLetter(letter)) => {
                has_completed = self.settle_dead_letter(session, letter, outcome).await?;
            }
        }
        counts.through = through.or(counts.through);
        Ok(has_completed)
    }

    /// Ends the session because of an outcome. The changes of a failed batch are sent one by one next time,
    /// because any of them may be the cause.
    fn interrupted(&mut self, outcome: DeliveryOutcome, changes: Option<SentChanges>) -> SessionEnd {
        let stuck_at = changes.as_ref().map(|changes| changes.first);
        if let Some(changes) = changes.filter(|changes| changes.count > 1) {
            self.batching.unbatched = (changes.first, changes.last);
        }
        match outcome.because(self.delivery.block()) {
            DeliveryOutcome::Gone { reason } => SessionEnd::Exit(Exit::Gone(reason)),
            DeliveryOutcome::Retry { reason, after } => SessionEnd::Retry { reason, after, stuck_at },
            other => retry(format!("{other:?}")),
        }
    }

    fn report(&mut self, counts: &OutcomeCounts) {
        let OutcomeCounts { delivered, unroutable, through } = *counts;
        if delivered > 0 {
            self.status.count_delivered(delivered);
            metrics::count_deliveries(&self.name, "delivered", delivered);
        }
        if unroutable > 0 {
            self.status.count_unroutable(unroutable);
            metrics::count_deliveries(&self.name, "unroutable", unroutable);
        }
        if let Some(seq) = through {
            self.advance_cursor(seq, delivered + unroutable);
        }
    }

    pub(super) fn advance_cursor(&mut self, seq: Seq, confirmed: u64) {
        self.cursor = seq;
        self.status.set_cursor(seq);
        self.cursors.advance(&self.name, seq, confirmed, self.tenure.term());
        self.delivery.settled_through(seq);
    }

    async fn dead_letter(&mut self, changes: &SentChanges, reason: &str) -> Result<(), SessionEnd> {
        let seq = changes.first;
        if self.status.snapshot().dead_letters >= self.max_dead_letters {
            let full = format!(
                "it refused change {seq} ({reason}), and there is no room for another dead letter; replay or drop some"
            );
            return Err(stuck(seq, full));
        }
        let json = changes.json.clone().unwrap_or_default();
        let letter = NewDeadLetter { seq, reason: reason.into(), json };
        let written =
            self.journal.write_subscriptions(vec![SubscriptionWrite::AddDeadLetter(self.name.clone(), letter)]).await;
        written.map_err(retry)?;
        tracing::warn!(subscription = %self.name, seq = seq.0, reason, "permanently refused; stored as a dead letter");
        metrics::count_deliveries(&self.name, "refused", 1);
        self.status.update_dead_letters(|count| count + 1);
        self.cursor = seq;
        self.status.set_cursor(seq);
        Ok(())
    }

    /// Processes the outcome of a replayed dead letter. Returns whether the receiver has settled it.
    pub(super) async fn settle_dead_letter(
        &mut self,
        session: &mut Session,
        letter: ReplayedLetter,
        outcome: DeliveryOutcome,
    ) -> Result<bool, SessionEnd> {
        let (name, ReplayedLetter { id, is_repeat }) = (self.name.clone(), letter);
        match outcome {
            DeliveryOutcome::Delivered | DeliveryOutcome::Unroutable => {
                if matches!(outcome, DeliveryOutcome::Unroutable) {
                    self.status.count_unroutable(1);
                }
                let gone = self
                    .journal
                    .write_subscriptions(vec![SubscriptionWrite::DropDeadLetters(name, Some(id))])
                    .await
                    .map_err(retry)?;
                if !is_repeat {
                    self.status.update_dead_letters(|count| count.saturating_sub(gone.iter().sum()));
                }
                self.status.count_delivered(1);
                metrics::count_deliveries(&self.name, "delivered", 1);
                Ok(true)
            }
            DeliveryOutcome::Refused { reason } => {
                self.return_dead_letter(letter, reason).await?;
                metrics::count_deliveries(&self.name, "refused", 1);
                Ok(true)
            }
            DeliveryOutcome::Retry { reason, .. }
            | DeliveryOutcome::TooLarge { reason }
            | DeliveryOutcome::Gone { reason } => {
                tracing::warn!(subscription = %self.name, id = id.0, reason, "a replayed dead letter was not delivered");
                self.return_dead_letter(letter, reason).await?;
                metrics::count_deliveries(&self.name, "retried", 1);
                // Other dead letters wait for a while, so that failing replays do not delay changes.
                session.dead_letters.clear();
                session.check_dead_letters = true;
                session.dead_letters_after = Some(Instant::now() + session.dead_letters_backoff.next_wait());
                Ok(false)
            }
        }
    }

    /// Returns a replayed message to the dead letters, where it waits for another replay request.
    async fn return_dead_letter(&mut self, letter: ReplayedLetter, reason: String) -> Result<(), SessionEnd> {
        let write = SubscriptionWrite::DeadLetterRefused(self.name.clone(), letter.id, reason.into());
        self.journal.write_subscriptions(vec![write]).await.map_err(retry)?;
        self.status.update_dead_letters(|count| count + u64::from(letter.is_repeat));
        Ok(())
    }
}
