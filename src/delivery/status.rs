//! How a subscription is doing: written by its engine, shown by `GET /subscriptions`.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;
use utoipa::ToSchema;

use super::rate::Rate;
use crate::model::{Seq, Timestamp};

/// What a subscription is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = SubscriptionState)]
pub enum State {
    /// It is connecting to its receiver, or has failed and tries again.
    Connecting,
    /// It delivers, or waits for changes.
    Running,
    /// The last attempt failed; it waits for the next.
    Retrying,
    /// Somebody has paused it.
    Paused,
    /// Its receiver wants no more.
    Ended,
    /// Changes that it has not delivered are no longer kept.
    FellBehind,
    /// The configuration no longer has it; its cursor is kept.
    Orphaned,
    /// It cannot work as it is defined, or has failed by a fault of the gateway.
    Failed,
}

/// How a subscription is doing at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What it is doing.
    pub state: State,
    /// All changes up to this one are done with.
    pub cursor: Seq,
    /// Messages delivered since the gateway started.
    pub delivered: u64,
    /// Messages a second, lately.
    pub rate: f64,
    /// When a message was last delivered.
    pub last_delivered: Option<Timestamp>,
    /// Messages that nobody wanted and that were passed over, since the gateway started.
    pub unroutable: u64,
    /// What went wrong last, and when.
    pub last_error: Option<(Timestamp, String)>,
    /// How often in a row it has failed.
    pub failures: u32,
    /// When it is tried again.
    pub next_attempt: Option<Timestamp>,
    /// How many dead letters there are.
    pub dead_letters: u64,
}

impl Snapshot {
    /// Whether the subscription should deliver and does not. One that connects again after a failure has not recovered yet.
    pub(super) fn is_failing(&self) -> bool {
        match self.state {
            State::Retrying | State::FellBehind | State::Failed => true,
            State::Connecting => self.failures > 0,
            State::Running | State::Paused | State::Ended | State::Orphaned => false,
        }
    }
}

/// How a subscription is doing.
#[derive(Debug)]
pub(super) struct Status(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    shown: Snapshot,
    rate: Rate,
}

impl Status {
    pub(super) fn new(state: State, cursor: Seq, dead_letters: u64) -> Self {
        let shown = Snapshot {
            state,
            cursor,
            delivered: 0,
            rate: 0.0,
            last_delivered: None,
            unroutable: 0,
            last_error: None,
            failures: 0,
            next_attempt: None,
            dead_letters,
        };
        Self(Mutex::new(Inner { shown, rate: Rate::new(Instant::now()) }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let inner = self.inner();
        Snapshot { rate: inner.rate.per_second(Instant::now()), ..inner.shown.clone() }
    }

    pub(super) fn set(&self, state: State) {
        let shown = &mut self.inner().shown;
        shown.state = state;
        shown.next_attempt = None;
    }

    /// What is wrong, as long as it is in that state.
    pub(super) fn stopped(&self, state: State, why: &str) {
        let shown = &mut self.inner().shown;
        shown.state = state;
        shown.next_attempt = None;
        shown.last_error = Some((Timestamp::now(), why.to_owned()));
    }

    pub(super) fn retrying(&self, why: &str, wait: Duration, failures: u32) {
        let now = Timestamp::now();
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let shown = &mut self.inner().shown;
        shown.state = State::Retrying;
        shown.failures = failures;
        shown.last_error = Some((now, why.to_owned()));
        shown.next_attempt = Timestamp::from_millis(now.millis().saturating_add(wait));
    }

    pub(super) fn moved(&self, cursor: Seq) {
        self.inner().shown.cursor = cursor;
    }

    pub(super) fn delivered(&self, messages: u64) {
        let inner = &mut *self.inner();
        inner.rate.count(Instant::now(), messages);
        inner.shown.delivered += messages;
        inner.shown.last_delivered = Some(Timestamp::now());
    }

    /// The receiver is done with a message, or the connection has stood for a while.
    pub(super) fn recovered(&self) {
        self.inner().shown.failures = 0;
    }

    pub(super) fn unroutable(&self, messages: u64) {
        self.inner().shown.unroutable += messages;
    }

    pub(super) fn dead_letters(&self, count: impl FnOnce(u64) -> u64) {
        let shown = &mut self.inner().shown;
        shown.dead_letters = count(shown.dead_letters);
    }
}
