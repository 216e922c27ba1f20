//! Outcomes: what has arrived moves the cursor, what was refused becomes a dead letter, and a dead letter that is
//! not taken goes back among the others.

use tokio::time::Instant;

use super::{Cut, End, Engine, Session, retry};
use crate::{
    delivery::{
        Outcome,
        flight::{Interruption, Landed, SentChanges, What},
        metrics,
        status::State,
    },
    journal::subscriptions::{DeadLetterId, NewDeadLetter, SubscriptionWrite},
    model::Seq,
    retry::Backoff,
};

/// Messages that have landed since the cursor was moved.
#[derive(Default)]
struct Tally {
    delivered: u64,
    unroutable: u64,
    through: Option<Seq>,
}

impl Engine {
    /// Takes over an outcome, and from the front everything that has one.
    pub(super) async fn settle(
        &mut self,
        session: &mut Session,
        interruption: Option<Interruption>,
        backoff: &mut Backoff,
    ) -> Result<(), Cut> {
        let mut tally = Tally::default();
        let mut has_landed = false;
        let mut trouble = None;
        while let Some(landed) = session.flight.land() {
            match self.settle_one(session, landed, &mut tally).await {
                Ok(taken) => has_landed |= taken,
                Err(cut) => {
                    trouble = Some(cut);
                    break;
                }
            }
        }
        if has_landed {
            if backoff.failures() > 0 {
                tracing::info!(subscription = %self.name, "delivered again");
            }
            backoff.reset();
            session.letters_backoff.reset();
            self.status.recovered();
            self.status.set(State::Running);
        }
        self.report(&tally);
        match (trouble, interruption) {
            (Some(cut), _) => Err(cut),
            (None, Some(Interruption { outcome, changes })) => Err(self.interrupted(outcome, changes)),
            (None, None) => Ok(()),
        }
    }

    /// Settles one message; says whether the receiver is done with it.
    async fn settle_one(&mut self, session: &mut Session, landed: Landed, tally: &mut Tally) -> Result<bool, Cut> {
        let Landed { what, through, outcome, bytes } = landed;
        let mut has_landed = true;
        match (outcome, what) {
            (Outcome::Refused { .. }, What::Changes(changes)) if changes.count > 1 => {
                self.batching.alone = (changes.first, changes.last);
                return Err(Cut::Smaller);
            }
            (Outcome::TooLarge { .. }, What::Changes(changes)) if changes.count > 1 => {
                self.batching.bytes = bytes.min(self.batching.bytes) / 2;
                return Err(Cut::Smaller);
            }
            (Outcome::TooLarge { reason }, What::Changes(_)) => return Err(retry(reason)),
            (Outcome::Refused { reason }, What::Changes(changes)) => {
                self.report(&std::mem::take(tally));
                self.park(&changes, &reason).await?;
            }
            (Outcome::Unroutable, What::Changes(changes)) => tally.unroutable += changes.count,
            (_, What::Changes(changes)) => tally.delivered += changes.count,
            (outcome, What::Letter(id)) => has_landed = self.settle_letter(session, id, outcome).await?,
        }
        tally.through = through.or(tally.through);
        Ok(has_landed)
    }

    /// Ends the session by an outcome. Changes that failed together go alone the next time, since one of them may be
    /// the cause.
    fn interrupted(&mut self, outcome: Outcome, changes: Option<SentChanges>) -> Cut {
        if let Some(changes) = changes.filter(|changes| changes.count > 1) {
            self.batching.alone = (changes.first, changes.last);
        }
        match outcome {
            Outcome::Gone { reason } => Cut::End(End::Gone(reason)),
            Outcome::Retry { reason, after } => Cut::Retry { reason, after },
            other => retry(format!("{other:?}")),
        }
    }

    fn report(&mut self, tally: &Tally) {
        let Tally { delivered, unroutable, through } = *tally;
        if delivered > 0 {
            self.status.delivered(delivered);
            metrics::delivered(&self.name, "delivered", delivered);
        }
        if unroutable > 0 {
            self.status.unroutable(unroutable);
            metrics::delivered(&self.name, "unroutable", unroutable);
        }
        if let Some(seq) = through {
            self.done_with(seq, delivered + unroutable);
        }
    }

    pub(super) fn done_with(&mut self, seq: Seq, confirmed: u64) {
        self.cursor = seq;
        self.status.moved(seq);
        self.cursors.advance(&self.name, seq, confirmed);
        self.delivery.settled_through(seq);
    }

    async fn park(&mut self, changes: &SentChanges, reason: &str) -> Result<(), Cut> {
        let seq = changes.first;
        if self.status.snapshot().dead_letters >= self.most_dead_letters {
            return Err(retry(format!(
                "it refused change {seq} ({reason}), and there is no room for another dead letter; replay or drop some"
            )));
        }
        let json = changes.json.clone().unwrap_or_default();
        let letter = NewDeadLetter { seq, reason: reason.to_owned(), json };
        let parked =
            self.journal.write_subscriptions(vec![SubscriptionWrite::AddDeadLetter(self.name.clone(), letter)]).await;
        parked.map_err(retry)?;
        tracing::warn!(subscription = %self.name, seq = seq.0, reason, "refused for good: a dead letter");
        metrics::delivered(&self.name, "refused", 1);
        self.status.dead_letters(|count| count + 1);
        self.cursor = seq;
        self.status.moved(seq);
        Ok(())
    }

    /// Settles a dead letter that was sent again; says whether the receiver is done with it.
    pub(super) async fn settle_letter(
        &mut self,
        session: &mut Session,
        id: DeadLetterId,
        outcome: Outcome,
    ) -> Result<bool, Cut> {
        let name = self.name.clone();
        match outcome {
            Outcome::Delivered | Outcome::Unroutable => {
                let gone = self
                    .journal
                    .write_subscriptions(vec![SubscriptionWrite::DropDeadLetters(name, Some(id))])
                    .await
                    .map_err(retry)?;
                self.status.dead_letters(|count| count.saturating_sub(gone.iter().sum()));
                self.status.delivered(1);
                metrics::delivered(&self.name, "delivered", 1);
                Ok(true)
            }
            Outcome::Refused { reason } => {
                self.put_back(id, reason).await?;
                metrics::delivered(&self.name, "refused", 1);
                Ok(true)
            }
            Outcome::Retry { reason, .. } | Outcome::TooLarge { reason } | Outcome::Gone { reason } => {
                tracing::warn!(subscription = %self.name, id = id.0, reason, "a replayed dead letter was not taken");
                self.put_back(id, reason).await?;
                metrics::delivered(&self.name, "retried", 1);
                // Other dead letters wait for a while, so that they take no time from changes.
                session.letters.clear();
                session.look_for_letters = true;
                session.letters_after = Some(Instant::now() + session.letters_backoff.next_wait());
                Ok(false)
            }
        }
    }

    /// Puts a replayed letter back among the dead letters; somebody has to replay it again.
    async fn put_back(&mut self, id: DeadLetterId, reason: String) -> Result<(), Cut> {
        let write = SubscriptionWrite::DeadLetterRefused(self.name.clone(), id, reason);
        self.journal.write_subscriptions(vec![write]).await.map(|_| ()).map_err(retry)
    }
}
