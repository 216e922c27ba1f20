//! The delivery loop of one subscription: reads after the cursor, filters, encodes, sends, waits for
//! confirmations and advances the cursor.
//!
//! A session is one connection to the receiver. It sends messages in order, up to the delivery's window, and
//! holds only these and one page in memory; everything else stays in the journal. Any failure ends the session.
//! The next session begins after the cursor, with the first unconfirmed change. A receiver may therefore get a
//! message twice, with the same identifier, but never a change before an earlier one. After a failure, one
//! message at a time is sent until the receiver accepts one.
//!
//! A permanently refused change becomes a dead letter in the same transaction that moves the cursor past it.
//! When a subscription has its maximum number of dead letters, it waits and retries, because dropping one would
//! lose a change.

mod page;
mod send;
mod settle;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::timeout};

use self::send::Session;
pub(super) use self::send::{encode, select};
use super::{
    Delivery,
    change_notices::ChangeNotices,
    cursors::Cursors,
    in_flight::InFlightWindow,
    memory::MemoryBudget,
    metrics,
    status::{SubscriptionState, SubscriptionStatus},
};
use crate::{
    cluster::Tenure,
    format::FormatKind,
    journal::{Journal, JournalError},
    model::{Filter, Seq, SubscriptionName},
    retry::Backoff,
};

/// Maximum delay that a receiver may request with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// Time after which a session drops an unsent page, because its receiver accepts nothing. The page is read
/// again later.
const PAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeouts of the delivery loop; tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct EngineTimeouts {
    /// Delay after the first failure.
    pub initial_backoff: Duration,
    /// Maximum delay between attempts.
    pub max_backoff: Duration,
    /// Maximum time to connect, and to send one message.
    pub send: Duration,
    /// Maximum time to wait for in-flight messages when the subscription stops, and then again for the
    /// connection to close.
    pub drain: Duration,
    /// Time after which an idle connection counts as success and earlier failures are forgotten.
    pub stable_after: Duration,
}

impl Default for EngineTimeouts {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(60),
            send: Duration::from_secs(30),
            drain: Duration::from_secs(3),
            stable_after: Duration::from_secs(60),
        }
    }
}

/// Engine of one subscription.
pub(super) struct Engine {
    pub(super) name: SubscriptionName,
    pub(super) journal: Journal,
    /// Notices of new changes.
    pub(super) notices: Arc<ChangeNotices>,
    pub(super) filter: Arc<Filter>,
    pub(super) format: &'static FormatKind,
    pub(super) max_dead_letters: u64,
    /// Duration of uninterrupted failures after which the subscription pauses.
    pub(super) pause_after: Option<Duration>,
    /// Memory budget that all engines share.
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) batching: Batching,
    pub(super) delivery: Box<dyn Delivery>,
    pub(super) cursor: Seq,
    pub(super) cursors: Cursors,
    pub(super) status: Arc<SubscriptionStatus>,
    /// Notified when dead letters are marked for replay.
    pub(super) replays: Arc<Notify>,
    /// Tenure of the subscription's duty; its token stops the engine.
    pub(super) tenure: Tenure,
    pub(super) timeouts: EngineTimeouts,
}

/// Bounds on batches, learned from the receiver's responses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batching {
    /// First and last change of a failed batch. These changes are sent one by one, because the receiver did not
    /// report which of them caused the failure.
    unbatched: (Seq, Seq),
    /// Maximum number of bytes, halved each time the receiver finds a batch too large.
    bytes: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { unbatched: (Seq::ZERO, Seq::ZERO), bytes: usize::MAX }
    }
}

impl Batching {
    /// Returns whether a change must be sent alone.
    fn is_unbatched(&self, seq: Seq) -> bool {
        (self.unbatched.0..=self.unbatched.1).contains(&seq)
    }
}

/// Reason why the engine of a subscription ended.
#[derive(Debug)]
pub(super) enum Exit {
    /// The subscription was stopped.
    Stopped,
    /// The receiver wants no further messages, for this reason.
    Gone(String),
    /// The receiver has failed for too long; the subscription is paused for this reason.
    Paused(String),
    /// Retention has removed the next change.
    FellBehind(JournalError),
    /// A failover has lost changes up to the cursor. The tenure ends, and the next one reads the stored cursor.
    LostChanges,
}

/// Reason why a session ended.
enum SessionEnd {
    Exit(Exit),
    Retry {
        reason: String,
        after: Option<Duration>,
        /// The change that the receiver did not accept, if it is known.
        stuck_at: Option<Seq>,
    },
    /// The receiver refused a batch or found it too large; its changes are sent again immediately in smaller
    /// messages.
    SmallerBatches,
}

impl Engine {
    /// Runs sessions until the engine is stopped or cannot continue.
    pub(super) async fn run(mut self) -> Exit {
        metrics::register_deliveries(&self.name);
        let mut backoff = Backoff::new(self.timeouts.initial_backoff, self.timeouts.max_backoff);
        let mut last = String::new();
        let mut failing_since = Instant::now();
        loop {
            self.status.set(SubscriptionState::Connecting);
            let end = self.session(&mut backoff).await;
            let _ = timeout(self.timeouts.drain, self.delivery.close()).await;
            let (reason, after, stuck_at) = match end {
                SessionEnd::Exit(end) => return end,
                SessionEnd::SmallerBatches => continue,
                SessionEnd::Retry { reason, after, stuck_at } => (reason, after, stuck_at),
            };
            if backoff.failures() == 0 {
                failing_since = Instant::now();
            }
            let wait = backoff.next_wait().max(after.unwrap_or_default().min(MAX_RETRY_AFTER));
            metrics::count_deliveries(&self.name, "retried", 1);
            self.status.set_retrying(&reason, wait, backoff.failures(), stuck_at);
            let again_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            // Repetitions of the same failure are logged at `debug`, however long it lasts.
            if backoff.failures() > 1 && reason == last {
                tracing::debug!(subscription = %self.name, reason, again_ms, "delivery still fails");
            } else {
                tracing::warn!(subscription = %self.name, reason, again_ms, "delivery failed; retrying");
            }
            let until_pause = self.pause_after.map(|limit| limit.saturating_sub(failing_since.elapsed()));
            let pauses = until_pause.filter(|left| *left <= wait);
            tokio::select! {
                () = tokio::time::sleep(pauses.unwrap_or(wait)) => {}
                () = self.tenure.stop().cancelled() => return Exit::Stopped,
            }
            if pauses.is_some() {
                let seconds = self.pause_after.unwrap_or_default().as_secs();
                return Exit::Paused(format!("paused after {seconds} seconds of failures; last error: {reason}"));
            }
            last = reason;
        }
    }

    async fn session(&mut self, backoff: &mut Backoff) -> SessionEnd {
        let stop = self.tenure.stop().clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => return SessionEnd::Exit(Exit::Stopped),
            connected = timeout(self.timeouts.send, self.delivery.connect()) => match connected {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return retry(error),
                Err(_) => return retry(format!("no connection within {} seconds", self.timeouts.send.as_secs())),
            },
        }
        if backoff.failures() == 0 {
            self.status.set(SubscriptionState::Running);
            tracing::info!(subscription = %self.name, after = self.cursor.0, "ready to deliver");
        }
        let in_flight = InFlightWindow::new(self.delivery.window(), backoff.failures() > 0);
        let dead_letters_backoff = Backoff::new(self.timeouts.initial_backoff, self.timeouts.max_backoff);
        let mut session = Session::new(in_flight, self.cursor, dead_letters_backoff);
        loop {
            if let Err(end) = self.fill_window(&mut session).await {
                return end;
            }
            match session.take_read_error() {
                Some(error @ JournalError::Gone { .. }) => {
                    return explain_gap(&self.journal, session.read_through, error).await;
                }
                Some(error) => return retry(error),
                None => {}
            }
            let is_idle = session.is_idle() && (session.is_waiting || self.cursor >= self.journal.head());
            let (idle_since, failures) = (session.idle_since(is_idle), backoff.failures());
            if is_idle {
                session.reservation = None;
                if failures > 0 {
                    // The connection works, and no pending message can prove more.
                    self.status.set(SubscriptionState::Running);
                }
            }
            let wants_page = session.wants_page();
            if wants_page && session.pending_page.is_none() {
                session.pending_page = Some(self.page(session.read_through));
            }
            let (is_stuck, dead_letters_after) = (session.is_stuck(), session.dead_letters_after);
            let Session { in_flight, pending_page, pending_reservation, .. } = &mut session;
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return self.drain(session, backoff).await,
                outcome = in_flight.next() => outcome,
                reservation = send::wait_for_memory(pending_reservation) => {
                    session.reservation = reservation;
                    continue;
                }
                page = page::arrival(pending_page), if wants_page => match page {
                    Ok(page) => {
                        self.add_page(&mut session, page);
                        // A page from memory arrives without waiting, so other tasks get a turn here.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    // Messages in flight are settled first, so that each session makes progress.
                    Err(error) => {
                        session.read_error = Some(error);
                        continue;
                    }
                },
                () = self.replays.notified() => {
                    session.check_dead_letters = true;
                    continue;
                }
                error = self.delivery.wait_for_failure() => return retry(error),
                () = tokio::time::sleep(PAGE_TIMEOUT), if is_stuck => {
                    session.drop_page();
                    continue;
                }
                () = until(dead_letters_after) => {
                    session.dead_letters_after = None;
                    continue;
                }
                () = until(idle_since.map(|since| since + self.timeouts.stable_after)), if failures > 0 => {
                    backoff.reset();
                    self.status.reset_failures();
                    continue;
                }
            };
            if let Err(end) = self.settle(&mut session, outcome, backoff).await {
                return end;
            }
        }
    }

    /// Waits for in-flight messages, up to the drain timeout, and sends nothing more.
    async fn drain(&mut self, mut session: Session, backoff: &mut Backoff) -> SessionEnd {
        let until = tokio::time::Instant::now() + self.timeouts.drain;
        while !session.in_flight.is_empty() {
            let Ok(outcome) = tokio::time::timeout_at(until, session.in_flight.next()).await else { break };
            if self.settle(&mut session, outcome, backoff).await.is_err() {
                break;
            }
        }
        SessionEnd::Exit(Exit::Stopped)
    }
}

/// Returns why the journal has no change after a number: a failover has lost it, or retention has removed the next one.
async fn explain_gap(journal: &Journal, after: Seq, error: JournalError) -> SessionEnd {
    match journal.surviving(after).await {
        Ok(survived) if survived == after => SessionEnd::Exit(Exit::FellBehind(error)),
        Ok(_) => SessionEnd::Exit(Exit::LostChanges),
        Err(error) => retry(error),
    }
}

/// Waits until this time; forever if there is none.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn retry(reason: impl ToString) -> SessionEnd {
    SessionEnd::Retry { reason: reason.to_string(), after: None, stuck_at: None }
}

/// Returns the end of a session because of a change that the receiver does not accept.
fn stuck(seq: Seq, reason: String) -> SessionEnd {
    SessionEnd::Retry { reason, after: None, stuck_at: Some(seq) }
}

#[cfg(test)]
mod tests;
