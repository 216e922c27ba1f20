//! State of a connection, for administrators.

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
    /// The state of a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum ConnectionState {
        /// The gateway is connecting.
        Connecting = "connecting",
        /// The connection works.
        Connected = "connected",
        /// The connection is open, and waits for another part of the gateway, for example for a journal that
        /// cannot be written.
        Stalled = "stalled",
        /// An administrator has paused the source.
        Paused = "paused",
        /// The last attempt failed; the gateway waits before the next one.
        Waiting = "waiting",
        /// Another node reads the source.
        Elsewhere = "elsewhere",
        /// The gateway is stopping.
        Stopped = "stopped",
    }
}

impl ConnectionState {
    /// Returns whether messages are read, on this node or on another one, or an administrator wants none to be read.
    #[must_use]
    pub fn is_healthy(self) -> bool {
        matches!(self, Self::Connected | Self::Elsewhere | Self::Paused)
    }
}

/// The last error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ConnectionFailure)]
pub struct ConnectionFailure {
    /// The error, and how to fix it.
    pub reason: String,
    /// The time of the error.
    #[schema(value_type = String, format = DateTime)]
    pub at: DateTime<Utc>,
}

/// A snapshot of a connection's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Connection)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionView {
    /// The state.
    pub state: ConnectionState,
    /// The time of the last change of the state.
    #[schema(value_type = String, format = DateTime)]
    pub since: DateTime<Utc>,
    /// The time since which no messages are read, although they should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub down_since: Option<DateTime<Utc>>,
    /// The last error since the gateway started, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_error: Option<ConnectionFailure>,
    /// A warning about the broker, although messages arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub warning: Option<String>,
    /// Number of messages that wait in the broker, for a source that knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lag: Option<u64>,
    /// The time of the next attempt, while the state is `waiting` or `stalled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub next_attempt: Option<DateTime<Utc>>,
}

/// Metric name: state of a connection; 1 for the current state, 0 for every other.
pub const CONNECTION_STATE: &str = "tidings_connection_state_info";

/// Metric name: number of messages that wait in the broker, for a source that knows it.
pub const CONNECTION_LAG: &str = "tidings_connection_lag_messages";

/// Metric name: number of failed attempts to connect and of lost connections.
pub const CONNECTION_FAILURES: &str = "tidings_connection_failures_total";

/// Shared state of a connection. The supervisor of the connection updates it.
#[derive(Debug)]
pub struct ConnectionStatus {
    name: String,
    view: Mutex<ConnectionView>,
    /// True if the connection is lost while its messages are still being processed.
    is_broken: AtomicBool,
}

impl ConnectionStatus {
    /// Creates the status of the connection with the key `name` in the configuration, such as `sources.sfm`.
    #[must_use]
    pub fn new(name: String) -> Self {
        let state = ConnectionState::Connecting;
        // A rate() query needs the initial zero.
        metrics::counter!(CONNECTION_FAILURES, "connection" => name.clone()).increment(0);
        for other in ConnectionState::ALL {
            set_gauge(&name, other, other == state);
        }
        Self {
            name,
            view: Mutex::new(ConnectionView {
                state,
                since: now(),
                down_since: Some(now()),
                last_error: None,
                warning: None,
                lag: None,
                next_attempt: None,
            }),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Sets the state, and returns true if it changed.
    pub fn set_state(&self, state: ConnectionState) -> bool {
        let mut view = self.lock();
        view.next_attempt = None;
        let state = match state {
            ConnectionState::Connected if self.is_broken.load(Ordering::Relaxed) => ConnectionState::Waiting,
            ConnectionState::Connecting => {
                self.is_broken.store(false, Ordering::Relaxed);
                state
            }
            _ => state,
        };
        self.enter(&mut view, state)
    }

    /// Records an error and sets the state. The next attempt takes place after `wait`.
    pub fn record_failure(&self, state: ConnectionState, reason: &str, wait: Duration) {
        let mut view = self.lock();
        let now = now();
        view.last_error = Some(ConnectionFailure { reason: reason.to_owned(), at: now });
        view.next_attempt = Some((now + wait).trunc_subsecs(MILLISECONDS));
        self.enter(&mut view, state);
        metrics::counter!(CONNECTION_FAILURES, "connection" => self.name.clone()).increment(1);
    }

    /// Records that the connection was lost while its messages are still being processed. Until the next
    /// attempt the state is `waiting`, or `stalled` if that processing waits.
    pub fn connection_lost(&self, reason: &str) {
        let mut view = self.lock();
        self.is_broken.store(true, Ordering::Relaxed);
        view.last_error = Some(ConnectionFailure { reason: reason.to_owned(), at: now() });
        if view.state == ConnectionState::Connected {
            self.enter(&mut view, ConnectionState::Waiting);
        }
    }

    /// Sets or clears the warning, and returns true if it changed.
    pub fn set_warning(&self, warning: Option<String>) -> bool {
        let mut view = self.lock();
        let is_new = view.warning != warning;
        view.warning = warning;
        is_new
    }

    /// Sets the number of messages that wait in the broker.
    pub fn set_lag(&self, messages: u64) {
        self.lock().lag = Some(messages);
        #[expect(clippy::cast_precision_loss, reason = "a gauge has no other numbers")]
        metrics::gauge!(CONNECTION_LAG, "connection" => self.name.clone()).set(messages as f64);
    }

    /// Returns a snapshot of the current state.
    #[must_use]
    pub fn view(&self) -> ConnectionView {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionView> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, view: &mut ConnectionView, state: ConnectionState) -> bool {
        let is_new = view.state != state;
        if is_new {
            set_gauge(&self.name, view.state, false);
            set_gauge(&self.name, state, true);
            view.state = state;
            // The node that reads the source knows its lag.
            view.lag = view.lag.filter(|_| state != ConnectionState::Elsewhere);
            view.since = now();
            view.down_since = if state.is_healthy() { None } else { Some(view.down_since.unwrap_or(view.since)) };
        }
        is_new
    }
}

/// Number of fraction digits of a time in the API.
const MILLISECONDS: u16 = 3;

fn now() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(MILLISECONDS)
}

fn set_gauge(name: &str, state: ConnectionState, is_current: bool) {
    let gauge = metrics::gauge!(CONNECTION_STATE, "connection" => name.to_owned(), "state" => state.name());
    gauge.set(if is_current { 1.0 } else { 0.0 });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ConnectionState, ConnectionStatus};

    #[test]
    fn last_error_stays_after_a_recovery() {
        let status = ConnectionStatus::new("sources.s".to_owned());
        status.record_failure(ConnectionState::Waiting, "nobody is there", Duration::from_secs(3));
        let waiting = status.view();
        assert_eq!(waiting.state, ConnectionState::Waiting);
        assert!(waiting.next_attempt.unwrap() > waiting.since);
        assert!(status.set_state(ConnectionState::Connected));
        assert!(!status.set_state(ConnectionState::Connected));
        let connected = status.view();
        assert_eq!(connected.last_error.unwrap().reason, "nobody is there");
        assert_eq!(connected.next_attempt, None);
    }

    #[test]
    fn lost_connection_is_not_shown_as_connected() {
        let status = ConnectionStatus::new("sources.b".to_owned());
        status.set_state(ConnectionState::Connected);
        status.connection_lost("it is gone");
        let view = status.view();
        assert_eq!((view.state, view.last_error.unwrap().reason.as_str()), (ConnectionState::Waiting, "it is gone"));
        status.set_state(ConnectionState::Stalled);
        assert_eq!(status.view().state, ConnectionState::Stalled);
        status.set_state(ConnectionState::Connected);
        assert_eq!(status.view().state, ConnectionState::Waiting);
        status.set_state(ConnectionState::Connecting);
        status.set_state(ConnectionState::Connected);
        assert_eq!(status.view().state, ConnectionState::Connected);
    }

    #[test]
    fn state_names_are_those_of_the_json() {
        for state in ConnectionState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
