//! Status of a subscription: updated by its engine, shown by `GET /subscriptions`.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    journal::subscriptions::SubscriptionRecord,
    message_rate::MessageRate,
    model::{Seq, Timestamp},
};

named_values! {
    /// State of a subscription.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schema(as = SubscriptionState)]
    pub enum SubscriptionState {
        /// The subscription connects to its receiver, for the first time or after a failure.
        Connecting = "connecting",
        /// The subscription delivers, or waits for changes.
        Running = "running",
        /// The last attempt failed; it waits for the next one.
        Retrying = "retrying",
        /// The subscription was paused.
        Paused = "paused",
        /// Its receiver wants no further messages.
        Ended = "ended",
        /// Retention has removed changes that it has not delivered.
        FellBehind = "fell-behind",
        /// The configuration no longer defines it; its cursor is retained.
        Orphaned = "orphaned",
        /// Another node delivers it.
        Elsewhere = "elsewhere",
        /// Its definition does not work, or its engine has failed because of a fault in the gateway.
        Failed = "failed",
    }
}

/// Status of a subscription at one moment.
#[derive(Clone, Debug)]
pub struct StatusSnapshot {
    /// State.
    pub state: SubscriptionState,
    /// All changes up to this one are complete.
    pub cursor: Seq,
    /// The engine of this node has handled all changes after this one up to the cursor, with the present definition.
    pub handled_after: Seq,
    /// Number of messages delivered since the gateway started.
    pub delivered: u64,
    /// Recent messages per second.
    pub rate: f64,
    /// Time of the last delivered message, also before the gateway started.
    pub last_delivered: Option<Timestamp>,
    /// Number of messages that reached no queue and were skipped, since the gateway started.
    pub unroutable: u64,
    /// Last error and its time.
    pub last_error: Option<(Timestamp, String)>,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Time of the first of them, or since when the subscription cannot deliver.
    pub failing_since: Option<Timestamp>,
    /// Number of the change that the receiver does not accept, while the last attempt to deliver it has failed.
    pub stuck_at: Option<Seq>,
    /// Time of the next attempt.
    pub next_attempt: Option<Timestamp>,
    /// Number of dead letters.
    pub dead_letters: u64,
}

impl StatusSnapshot {
    /// Returns whether the subscription should deliver and does not. A subscription that reconnects after a
    /// failure still counts as failing.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        match self.state {
            SubscriptionState::Retrying | SubscriptionState::FellBehind | SubscriptionState::Failed => true,
            SubscriptionState::Connecting => self.failures > 0,
            SubscriptionState::Running
            | SubscriptionState::Paused
            | SubscriptionState::Ended
            | SubscriptionState::Orphaned
            | SubscriptionState::Elsewhere => false,
        }
    }
}

/// Status of a subscription, shared by its engine and the HTTP interface.
#[derive(Debug)]
pub(super) struct SubscriptionStatus(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    snapshot: StatusSnapshot,
    rate: MessageRate,
}

impl SubscriptionStatus {
    pub(super) fn new(state: SubscriptionState, stored: &SubscriptionRecord) -> Self {
        let SubscriptionRecord { cursor, dead_letters, delivered, .. } = *stored;
        let snapshot = StatusSnapshot {
            state,
            cursor,
            handled_after: cursor,
            delivered: 0,
            rate: 0.0,
            last_delivered: delivered,
            unroutable: 0,
            last_error: None,
            failures: 0,
            failing_since: None,
            stuck_at: None,
            next_attempt: None,
            dead_letters,
        };
        Self(Mutex::new(Inner { snapshot, rate: MessageRate::new(Instant::now()) }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn snapshot(&self) -> StatusSnapshot {
        let inner = self.inner();
        StatusSnapshot { rate: inner.rate.per_second(Instant::now()), ..inner.snapshot.clone() }
    }

    pub(super) fn set(&self, state: SubscriptionState) {
        let snapshot = &mut self.inner().snapshot;
        snapshot.state = state;
        snapshot.next_attempt = None;
    }

    /// Sets a state in which the subscription does not deliver, with the cause.
    pub(super) fn set_stopped(&self, state: SubscriptionState, why: &str) {
        let now = Timestamp::now();
        let snapshot = &mut self.inner().snapshot;
        snapshot.state = state;
        snapshot.next_attempt = None;
        snapshot.last_error = Some((now, why.to_owned()));
        snapshot.failing_since.get_or_insert(now);
    }

    /// Sets the state after a failure. `stuck_at` is the first change that was sent and not settled, if there was one.
    pub(super) fn set_retrying(&self, why: &str, wait: Duration, failures: u32, stuck_at: Option<Seq>) {
        let now = Timestamp::now();
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let snapshot = &mut self.inner().snapshot;
        snapshot.state = SubscriptionState::Retrying;
        snapshot.failures = failures;
        snapshot.failing_since.get_or_insert(now);
        // An attempt that only failed to connect says nothing about the change.
        snapshot.stuck_at = stuck_at.or(snapshot.stuck_at);
        snapshot.last_error = Some((now, why.to_owned()));
        snapshot.next_attempt = Timestamp::from_millis(now.millis().saturating_add(wait));
    }

    /// Advances the cursor past changes that the engine has handled.
    pub(super) fn set_cursor(&self, cursor: Seq) {
        self.inner().snapshot.cursor = cursor;
    }

    /// Moves the cursor to where the engine begins.
    pub(super) fn begin_at(&self, cursor: Seq) {
        let snapshot = &mut self.inner().snapshot;
        (snapshot.cursor, snapshot.handled_after) = (cursor, cursor);
    }

    /// Notes that the cursor no longer shows the last message of the receiver: the definition has changed, or a dead letter was dropped.
    pub(super) fn forget_handled(&self) {
        let snapshot = &mut self.inner().snapshot;
        snapshot.handled_after = snapshot.cursor;
    }

    /// Takes the progress that another node has written.
    pub(super) fn take_progress(&self, stored: &SubscriptionRecord) {
        let snapshot = &mut self.inner().snapshot;
        (snapshot.cursor, snapshot.handled_after) = (stored.cursor, stored.cursor);
        snapshot.dead_letters = stored.dead_letters;
        snapshot.last_delivered = stored.delivered.or(snapshot.last_delivered);
    }

    pub(super) fn count_delivered(&self, messages: u64) {
        let inner = &mut *self.inner();
        inner.rate.count(Instant::now(), messages);
        inner.snapshot.delivered += messages;
        inner.snapshot.last_delivered = Some(Timestamp::now());
    }

    /// Resets the failure count, after the receiver has settled a message or the connection has been stable for
    /// a while.
    pub(super) fn reset_failures(&self) {
        let snapshot = &mut self.inner().snapshot;
        (snapshot.failures, snapshot.failing_since, snapshot.stuck_at) = (0, None, None);
    }

    pub(super) fn count_unroutable(&self, messages: u64) {
        self.inner().snapshot.unroutable += messages;
    }

    pub(super) fn update_dead_letters(&self, count: impl FnOnce(u64) -> u64) {
        let snapshot = &mut self.inner().snapshot;
        snapshot.dead_letters = count(snapshot.dead_letters);
    }
}
