//! The delivery loop, one for each subscription: read after the cursor, filter, format, deliver, wait
//! for the confirmation, move the cursor.
//!
//! A session is one connection to the receiver. Within it messages are sent in order, as many at once
//! as the delivery's window has, and nothing but what is in the window is held: the rest is in the
//! journal. Whatever goes wrong ends the session; the next begins after the cursor, with the first
//! change that was not confirmed. So a receiver may get a message again, under the same identifier,
//! and never gets a later one without the earlier. After a failure one message goes alone, until it is taken.
//!
//! What a receiver refuses for good becomes a dead letter, in the same transaction that moves the
//! cursor past it. A subscription has room for so many of them; when they are all taken, it waits and
//! tries again, since to lose one would be to lose a change.

mod send;

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Delivery, Outcome,
    backoff::Backoff,
    cursors::Cursors,
    flight::{Flight, Landed, What},
    metrics,
    status::{State, Status},
};
use crate::{
    format::FormatKind,
    journal::{
        Journal, JournalError, Recorded,
        subscriptions::{DeadLetter, DeadLetterId, NewDeadLetter, Write},
    },
    model::{Filter, Seq, SubscriptionName},
};

/// How many changes are read at once, and about how many bytes of them.
const PAGE: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// The longest that a receiver may ask to be left alone.
const LONGEST_AFTER: Duration = Duration::from_secs(60 * 60);

/// How long things may take. A test has less patience.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The wait after the first failure.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
    /// How long connecting, and the sending of one message, may take.
    pub patience: Duration,
    /// How long what is on its way may take to be confirmed when the subscription is stopped, and how
    /// long the connection may then take to close.
    pub drain: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            patience: Duration::from_secs(30),
            drain: Duration::from_secs(3),
        }
    }
}

/// The engine of one subscription.
pub(super) struct Engine {
    pub(super) name: SubscriptionName,
    pub(super) journal: Journal,
    pub(super) filter: Filter,
    pub(super) format: &'static FormatKind,
    pub(super) most_dead_letters: u64,
    /// After how long a time of failures it pauses.
    pub(super) pause_after: Option<Duration>,
    /// Up to this change messages have one change each: one of several was refused, and which of them is not known.
    pub(super) alone_through: Seq,
    pub(super) delivery: Box<dyn Delivery>,
    pub(super) cursor: Seq,
    pub(super) cursors: Cursors,
    pub(super) status: Arc<Status>,
    /// Somebody wants dead letters to be sent again.
    pub(super) replays: Arc<Notify>,
    pub(super) stop: CancellationToken,
    pub(super) tuning: Tuning,
}

/// Why a subscription's engine came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// It was told to stop.
    Stopped,
    /// The receiver wants no more, for this reason.
    Gone(String),
    /// The receiver has failed for so long that it waits for somebody to resume it, for this reason.
    Paused(String),
    /// What comes next is no longer kept.
    FellBehind(JournalError),
}

/// Why a session ended.
enum Cut {
    End(End),
    Retry {
        reason: String,
        after: Option<Duration>,
    },
    /// A message of several changes was refused: they are sent again at once, one by one.
    Alone,
}

type Reading = Pin<Box<dyn Future<Output = Result<Vec<Arc<Recorded>>, JournalError>> + Send>>;

impl Engine {
    /// Works until it is stopped, or there is nothing more that it could do.
    pub(super) async fn run(mut self) -> End {
        let mut backoff = Backoff::new(self.tuning.first_wait, self.tuning.longest_wait);
        let mut last = String::new();
        let mut failing_since = Instant::now();
        loop {
            self.status.set(State::Connecting);
            let cut = self.session(&mut backoff).await;
            let _ = timeout(self.tuning.drain, self.delivery.close()).await;
            let (reason, after) = match cut {
                Cut::End(end) => return end,
                Cut::Alone => continue,
                Cut::Retry { reason, after } => (reason, after),
            };
            if backoff.failures() == 0 {
                failing_since = Instant::now();
            }
            let wait = backoff.next().max(after.unwrap_or_default().min(LONGEST_AFTER));
            metrics::delivered(&self.name, "retried", 1);
            self.status.retrying(&reason, wait, backoff.failures());
            let again_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            // One line for the same trouble, however long it lasts.
            if backoff.failures() > 1 && reason == last {
                tracing::debug!(subscription = %self.name, reason, again_ms, "still not delivered");
            } else {
                tracing::warn!(subscription = %self.name, reason, again_ms, "not delivered; trying again");
            }
            let until_pause = self.pause_after.map(|limit| limit.saturating_sub(failing_since.elapsed()));
            let pauses = until_pause.filter(|left| *left <= wait);
            tokio::select! {
                () = tokio::time::sleep(pauses.unwrap_or(wait)) => {}
                () = self.stop.cancelled() => return End::Stopped,
            }
            if pauses.is_some() {
                let seconds = self.pause_after.unwrap_or_default().as_secs();
                return End::Paused(format!(
                    "paused, since it has failed for {seconds} seconds; the last time: {reason}"
                ));
            }
            last = reason;
        }
    }

    async fn session(&mut self, backoff: &mut Backoff) -> Cut {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => return Cut::End(End::Stopped),
            connected = timeout(self.tuning.patience, self.delivery.connect()) => match connected {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return retry(error),
                Err(_) => return retry(format!("no connection within {} seconds", self.tuning.patience.as_secs())),
            },
        }
        self.status.set(State::Running);
        if backoff.failures() == 0 {
            tracing::info!(subscription = %self.name, after = self.cursor.0, "ready to deliver");
        }
        let mut session = Session {
            flight: Flight::new(self.delivery.window(), backoff.failures() > 0),
            waiting: VecDeque::new(),
            letters: VecDeque::new(),
            look_for_letters: true,
            read: self.cursor,
            reading: None,
        };
        loop {
            if let Err(cut) = self.send_on(&mut session).await {
                return cut;
            }
            let wants_page = session.waiting.is_empty() && session.flight.has_room();
            let Session { flight, reading, read, .. } = &mut session;
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return self.drain(session, backoff).await,
                outcome = flight.next() => outcome,
                page = page(reading, &self.journal, *read), if wants_page => match page {
                    Ok(page) => {
                        session.waiting.extend(page);
                        // A page from memory needs no wait, and others want this thread too.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Err(error @ JournalError::Gone { .. }) if flight.is_empty() => {
                        return Cut::End(End::FellBehind(error));
                    }
                    Err(error) => return retry(error),
                },
                () = self.replays.notified() => {
                    session.look_for_letters = true;
                    continue;
                }
                error = self.delivery.failed() => return retry(error),
            };
            if let Err(cut) = self.settle(&mut session.flight, outcome, backoff).await {
                return cut;
            }
        }
    }

    /// Takes over an outcome, and from the front everything that has one.
    async fn settle(&mut self, flight: &mut Flight, cut: Option<Outcome>, backoff: &mut Backoff) -> Result<(), Cut> {
        let (mut delivered, mut unroutable, mut through) = (0, 0, None);
        let mut trouble = None;
        while let Some(Landed { what, through: to, outcome }) = flight.land() {
            match (&outcome, what) {
                (Outcome::Refused { .. }, What::Changes(_, more)) if !more.is_empty() => {
                    self.alone_through = to.unwrap_or_default();
                    trouble = Some(Cut::Alone);
                    break;
                }
                (Outcome::Refused { reason }, What::Changes(change, _)) => {
                    self.report(delivered, unroutable, through.take());
                    (delivered, unroutable) = (0, 0);
                    if let Err(error) = self.park(&change, reason).await {
                        trouble = Some(error);
                        break;
                    }
                }
                (Outcome::Unroutable, What::Changes(_, more)) => unroutable += 1 + more.len() as u64,
                (_, What::Changes(_, more)) => delivered += 1 + more.len() as u64,
                (_, What::Letter(id)) => {
                    if let Err(error) = self.settle_letter(id, &outcome).await {
                        trouble = Some(error);
                        break;
                    }
                }
            }
            through = to.or(through);
        }
        if delivered > 0 {
            if backoff.failures() > 0 {
                tracing::info!(subscription = %self.name, "delivered again");
            }
            backoff.reset();
        }
        self.report(delivered, unroutable, through);
        match (trouble, cut) {
            (Some(cut), _) => Err(cut),
            (None, Some(Outcome::Gone { reason })) => Err(Cut::End(End::Gone(reason))),
            (None, Some(Outcome::Retry { reason, after })) => Err(Cut::Retry { reason, after }),
            (None, _) => Ok(()),
        }
    }

    fn report(&mut self, delivered: u64, unroutable: u64, through: Option<Seq>) {
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

    fn done_with(&mut self, seq: Seq, confirmed: u64) {
        self.cursor = seq;
        self.status.moved(seq);
        self.cursors.advance(&self.name, seq, confirmed);
    }

    async fn park(&mut self, change: &Recorded, reason: &str) -> Result<(), Cut> {
        if self.status.snapshot().dead_letters >= self.most_dead_letters {
            return Err(retry(format!(
                "it refused change {} ({reason}), and there is no room for another dead letter; replay or drop some",
                change.seq()
            )));
        }
        let letter = NewDeadLetter { seq: change.seq(), reason: reason.to_owned(), json: change.json().clone() };
        let parked = self.journal.write_subscriptions(vec![Write::Park(self.name.clone(), letter)]).await;
        parked.map_err(retry)?;
        tracing::warn!(subscription = %self.name, seq = change.seq().0, reason, "refused for good: a dead letter");
        metrics::delivered(&self.name, "refused", 1);
        self.status.dead_letters(|count| count + 1);
        self.cursor = change.seq();
        self.status.moved(change.seq());
        Ok(())
    }

    async fn settle_letter(&mut self, id: DeadLetterId, outcome: &Outcome) -> Result<(), Cut> {
        let name = self.name.clone();
        match outcome {
            Outcome::Refused { reason } => {
                let write = Write::RefusedAgain(name, id, reason.clone());
                self.journal.write_subscriptions(vec![write]).await.map_err(retry)?;
                metrics::delivered(&self.name, "refused", 1);
            }
            _ => {
                let gone = self.journal.write_subscriptions(vec![Write::Drop(name, Some(id))]).await.map_err(retry)?;
                self.status.dead_letters(|count| count.saturating_sub(gone.iter().sum()));
                self.status.delivered(1);
                metrics::delivered(&self.name, "delivered", 1);
            }
        }
        Ok(())
    }

    /// Waits, for a while, until what is on its way is confirmed, and sends nothing more.
    async fn drain(&mut self, mut session: Session, backoff: &mut Backoff) -> Cut {
        let until = tokio::time::Instant::now() + self.tuning.drain;
        while !session.flight.is_empty() {
            let Ok(outcome) = tokio::time::timeout_at(until, session.flight.next()).await else { break };
            if self.settle(&mut session.flight, outcome, backoff).await.is_err() {
                break;
            }
        }
        Cut::End(End::Stopped)
    }
}

/// What a session holds.
struct Session {
    flight: Flight,
    /// Changes that were read and not sent, at most a page of them.
    waiting: VecDeque<Arc<Recorded>>,
    letters: VecDeque<DeadLetter>,
    look_for_letters: bool,
    /// The number of the last change that was taken from what waits.
    read: Seq,
    reading: Option<Reading>,
}

/// The next page. What was begun to be read goes on when this is asked again.
async fn page(
    reading: &mut Option<Reading>,
    journal: &Journal,
    after: Seq,
) -> Result<Vec<Arc<Recorded>>, JournalError> {
    let page = reading.get_or_insert_with(|| Box::pin(next_page(journal.clone(), after))).await;
    *reading = None;
    page
}

/// The changes after `after`, as soon as there are some.
async fn next_page(journal: Journal, after: Seq) -> Result<Vec<Arc<Recorded>>, JournalError> {
    let mut head = journal.watch();
    loop {
        head.borrow_and_update();
        let page = journal.after_within(after, PAGE, PAGE_BYTES).await?;
        if !page.is_empty() {
            return Ok(page);
        }
        head.changed().await.map_err(|_| JournalError::Closed)?;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn retry(reason: impl ToString) -> Cut {
    Cut::Retry { reason: reason.to_string(), after: None }
}

#[cfg(test)]
mod tests;
