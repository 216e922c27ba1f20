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

mod page;
mod send;
mod settle;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use self::send::Session;
use super::{
    Delivery,
    cursors::Cursors,
    flight::Flight,
    memory::MemoryBudget,
    metrics,
    status::{State, Status},
};
use crate::{
    format::FormatKind,
    journal::{Journal, JournalError},
    model::{Filter, Seq, SubscriptionName},
    retry::Backoff,
};

/// The longest that a receiver may ask to be left alone.
const LONGEST_AFTER: Duration = Duration::from_secs(60 * 60);

/// Time for which a session keeps a page of the journal while its receiver takes nothing. The page is read again.
const PAGE_HELD: Duration = Duration::from_secs(1);

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
    /// Time after which a connection that had nothing to deliver counts as success, and failures before it no longer count.
    pub stable: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            patience: Duration::from_secs(30),
            drain: Duration::from_secs(3),
            stable: Duration::from_secs(60),
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
    /// Memory that all engines share.
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) batching: Batching,
    pub(super) delivery: Box<dyn Delivery>,
    pub(super) cursor: Seq,
    pub(super) cursors: Cursors,
    pub(super) status: Arc<Status>,
    /// Somebody wants dead letters to be sent again.
    pub(super) replays: Arc<Notify>,
    pub(super) stop: CancellationToken,
    pub(super) tuning: Tuning,
}

/// Bounds on messages of several changes, learnt from the receiver's answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batching {
    /// Changes from the first of these numbers to the second go alone, because a message with all of them failed and
    /// the receiver did not say which of them is at fault.
    alone: (Seq, Seq),
    /// Maximum number of bytes, halved whenever the receiver found a message too large.
    bytes: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { alone: (Seq::ZERO, Seq::ZERO), bytes: usize::MAX }
    }
}

impl Batching {
    /// Whether a change goes alone.
    fn is_alone(&self, seq: Seq) -> bool {
        (self.alone.0..=self.alone.1).contains(&seq)
    }
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
    /// A message of several changes was refused or found too large: they are sent again at once, in smaller messages.
    Smaller,
}

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
                Cut::Smaller => continue,
                Cut::Retry { reason, after } => (reason, after),
            };
            if backoff.failures() == 0 {
                failing_since = Instant::now();
            }
            let wait = backoff.next_wait().max(after.unwrap_or_default().min(LONGEST_AFTER));
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
        if backoff.failures() == 0 {
            self.status.set(State::Running);
            tracing::info!(subscription = %self.name, after = self.cursor.0, "ready to deliver");
        }
        let flight = Flight::new(self.delivery.window(), backoff.failures() > 0);
        let letters_backoff = Backoff::new(self.tuning.first_wait, self.tuning.longest_wait);
        let mut session = Session::new(flight, self.cursor, letters_backoff);
        loop {
            if let Err(cut) = self.send_on(&mut session).await {
                return cut;
            }
            let is_idle = session.is_idle() && self.cursor >= self.journal.head();
            let (idle_since, failures) = (session.idle_since(is_idle), backoff.failures());
            if is_idle {
                session.reserved = None;
                if failures > 0 {
                    // It is connected, and there is nothing that would show more.
                    self.status.set(State::Running);
                }
            }
            let (wants_page, batch) = (session.wants_page(), self.delivery.window().changes);
            let (is_stuck, letters_after) = (session.is_stuck(), session.letters_after);
            let Session { flight, reading, reserving, read, .. } = &mut session;
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return self.drain(session, backoff).await,
                outcome = flight.next() => outcome,
                reserved = send::reserved(reserving) => {
                    session.reserved = reserved;
                    continue;
                }
                page = page::next(reading, &self.journal, &self.memory, *read, batch), if wants_page => match page {
                    Ok(page) => {
                        session.add_page(page);
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
                () = tokio::time::sleep(PAGE_HELD), if is_stuck => {
                    session.forget_page();
                    continue;
                }
                () = until(letters_after) => {
                    session.letters_after = None;
                    continue;
                }
                () = until(idle_since.map(|since| since + self.tuning.stable)), if failures > 0 => {
                    backoff.reset();
                    self.status.recovered();
                    continue;
                }
            };
            if let Err(cut) = self.settle(&mut session, outcome, backoff).await {
                return cut;
            }
        }
    }

    /// Waits, for a while, until what is on its way is confirmed, and sends nothing more.
    async fn drain(&mut self, mut session: Session, backoff: &mut Backoff) -> Cut {
        let until = tokio::time::Instant::now() + self.tuning.drain;
        while !session.flight.is_empty() {
            let Ok(outcome) = tokio::time::timeout_at(until, session.flight.next()).await else { break };
            if self.settle(&mut session, outcome, backoff).await.is_err() {
                break;
            }
        }
        Cut::End(End::Stopped)
    }
}

/// Waits until that time; for ever without one.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn retry(reason: impl ToString) -> Cut {
    Cut::Retry { reason: reason.to_string(), after: None }
}

#[cfg(test)]
mod tests;
