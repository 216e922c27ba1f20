//! How a connection is, for those who administer it.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, SubsecRound, Utc};
use serde::Serialize;
use utoipa::ToSchema;

named_values! {
    /// What a connection is doing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum ConnectionState {
        /// An attempt is being made.
        Connecting = "connecting",
        /// It does its work.
        Connected = "connected",
        /// The broker takes nothing, since it is short of memory or disk.
        Blocked = "blocked",
        /// It is there, and it waits for something else of this gateway, as for the journal to be writable.
        Paused = "paused",
        /// The last attempt failed, and it is not yet time for the next.
        Waiting = "waiting",
        /// The gateway is stopping.
        Stopped = "stopped",
    }
}

/// What went wrong last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ConnectionFailure)]
pub struct Failure {
    /// What it was, and what to do about it.
    pub reason: String,
    /// When it was.
    #[schema(value_type = String, format = DateTime)]
    pub at: DateTime<Utc>,
}

/// A connection's state as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Connection)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// What it is doing.
    pub state: ConnectionState,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: DateTime<Utc>,
    /// What went wrong last, if anything has since the gateway started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_error: Option<Failure>,
    /// A reason for an administrator to look at the broker, although messages come.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub warning: Option<String>,
    /// When the next attempt is made, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub next_attempt: Option<DateTime<Utc>>,
}

/// The metric of what a connection is doing: 1 for its state, 0 for every other.
pub const CONNECTION_STATE: &str = "tidings_connection_state_info";

/// The metric of failures: attempts to connect, and connections that broke.
pub const CONNECTION_FAILURES: &str = "tidings_connection_failures_total";

/// A connection's state, told by whoever supervises it.
#[derive(Debug)]
pub struct ConnectionStatus {
    name: String,
    shown: Mutex<Shown>,
    /// Whether the connection is gone, while its messages are still being worked on.
    is_broken: AtomicBool,
}

impl ConnectionStatus {
    /// For the connection of what the configuration calls `name`, as in `sources.sfm`.
    #[must_use]
    pub fn of(name: String) -> Self {
        let state = ConnectionState::Connecting;
        // A rate needs to see the zero from which it rises.
        metrics::counter!(CONNECTION_FAILURES, "connection" => name.clone()).increment(0);
        for other in ConnectionState::ALL {
            measure(&name, other, other == state);
        }
        Self {
            name,
            shown: Mutex::new(Shown { state, since: now(), last_error: None, warning: None, next_attempt: None }),
            is_broken: AtomicBool::new(false),
        }
    }

    /// It does something else now; says whether it did not before.
    pub fn is(&self, state: ConnectionState) -> bool {
        let mut shown = self.lock();
        shown.next_attempt = None;
        let state = match state {
            ConnectionState::Connected if self.is_broken.load(Ordering::Relaxed) => ConnectionState::Waiting,
            ConnectionState::Connecting => {
                self.is_broken.store(false, Ordering::Relaxed);
                state
            }
            _ => state,
        };
        self.enter(&mut shown, state)
    }

    /// Something went wrong, and it goes on in `state`; in `again` comes the next attempt.
    pub fn failed(&self, state: ConnectionState, reason: &str, again: Duration) {
        let mut shown = self.lock();
        let now = now();
        shown.last_error = Some(Failure { reason: reason.to_owned(), at: now });
        shown.next_attempt = Some((now + again).trunc_subsecs(MILLISECONDS));
        self.enter(&mut shown, state);
        metrics::counter!(CONNECTION_FAILURES, "connection" => self.name.clone()).increment(1);
    }

    /// Notes that the connection broke, while its messages are still being worked on. Until the next attempt the state is
    /// `waiting`, or `paused` where that work waits for something.
    pub fn broke(&self, reason: &str) {
        let mut shown = self.lock();
        self.is_broken.store(true, Ordering::Relaxed);
        shown.last_error = Some(Failure { reason: reason.to_owned(), at: now() });
        if shown.state == ConnectionState::Connected {
            self.enter(&mut shown, ConnectionState::Waiting);
        }
    }

    /// Sets or clears the warning, and returns whether that changed it.
    pub fn warn(&self, warning: Option<String>) -> bool {
        let mut shown = self.lock();
        let is_new = shown.warning != warning;
        shown.warning = warning;
        is_new
    }

    /// How it is now.
    #[must_use]
    pub fn shown(&self) -> Shown {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        // What is held is whole whenever the lock is free.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, shown: &mut Shown, state: ConnectionState) -> bool {
        let is_new = shown.state != state;
        if is_new {
            measure(&self.name, shown.state, false);
            measure(&self.name, state, true);
            shown.state = state;
            shown.since = now();
        }
        is_new
    }
}

/// The digits of a time's fraction that are shown, as everywhere else.
const MILLISECONDS: u16 = 3;

fn now() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(MILLISECONDS)
}

fn measure(name: &str, state: ConnectionState, holds: bool) {
    let gauge = metrics::gauge!(CONNECTION_STATE, "connection" => name.to_owned(), "state" => state.name());
    gauge.set(if holds { 1.0 } else { 0.0 });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ConnectionState, ConnectionStatus};

    #[test]
    fn the_last_error_stays_when_all_is_well_again() {
        let status = ConnectionStatus::of("sources.s".to_owned());
        status.failed(ConnectionState::Waiting, "nobody is there", Duration::from_secs(3));
        let waiting = status.shown();
        assert_eq!(waiting.state, ConnectionState::Waiting);
        assert!(waiting.next_attempt.unwrap() > waiting.since);
        assert!(status.is(ConnectionState::Connected));
        assert!(!status.is(ConnectionState::Connected));
        let connected = status.shown();
        assert_eq!(connected.last_error.unwrap().reason, "nobody is there");
        assert_eq!(connected.next_attempt, None);
    }

    #[test]
    fn a_broken_connection_is_not_shown_as_connected() {
        let status = ConnectionStatus::of("sources.b".to_owned());
        status.is(ConnectionState::Connected);
        status.broke("it is gone");
        let shown = status.shown();
        assert_eq!((shown.state, shown.last_error.unwrap().reason.as_str()), (ConnectionState::Waiting, "it is gone"));
        status.is(ConnectionState::Paused);
        assert_eq!(status.shown().state, ConnectionState::Paused);
        status.is(ConnectionState::Connected);
        assert_eq!(status.shown().state, ConnectionState::Waiting);
        status.is(ConnectionState::Connecting);
        status.is(ConnectionState::Connected);
        assert_eq!(status.shown().state, ConnectionState::Connected);
    }

    #[test]
    fn the_names_are_those_of_the_json() {
        for state in ConnectionState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
