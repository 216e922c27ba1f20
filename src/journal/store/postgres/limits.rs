//! Time limits of the sessions with the database, which follow the lease of the node.
//!
//! A node that is frozen or cut off does not end its transaction, and every other node then waits for the row of the
//! head. The server therefore ends a transaction whose node is silent for a third of the lease. A statement that the
//! server executes is work and no silence: it has a limit of its own, because a batch that were ended early would only be
//! repeated.

use std::time::Duration;

/// Bounds on the time for which a node or the server may be silent, a third of the lease between them.
const SILENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Bounds on the time for which a statement waits for a lock, the lease between them: long enough for the sessions of
/// two silent nodes to end one after the other.
const LOCK_WAIT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];

/// Maximum time to connect to one address of the server, unless the connection string sets another.
const CONNECT: Duration = Duration::from_secs(5);

/// Minimum of that time, however short the lease is.
const MIN_CONNECT: Duration = Duration::from_millis(300);

/// Time for the first statements of a session, which also need a few round trips.
const FIRST_STATEMENTS: Duration = Duration::from_secs(1);

/// Time limits that follow a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLimits {
    lease: Duration,
}

impl SessionLimits {
    pub(super) const fn of(lease: Duration) -> Self {
        Self { lease }
    }

    /// Returns the maximum time for which the server waits for the next statement of a transaction, and the node for the
    /// answer to an empty statement. Sent data may be unacknowledged for the same time.
    pub(super) fn silence(self) -> Duration {
        let [min, max] = SILENCE;
        (self.lease / 3).clamp(min, max)
    }

    /// Returns the maximum time for which a statement waits for a lock.
    fn lock_wait(self) -> Duration {
        let [min, max] = LOCK_WAIT;
        self.lease.clamp(min, max)
    }

    /// Returns the maximum time to connect to each of several addresses. All of them are tried within a third of the
    /// lease, because a renewal of the lease may have to try an address that does not answer.
    pub(super) fn connect(self, addresses: usize) -> Duration {
        let addresses = u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
        (self.lease / 3 / addresses).clamp(MIN_CONNECT, CONNECT)
    }

    /// Returns the maximum time to open a session, beside a longer one of the connection string: to connect to all
    /// addresses but one in vain, and to execute the first statements.
    pub(super) fn open(self) -> Duration {
        self.silence() + FIRST_STATEMENTS
    }

    /// Returns the statements that give a session these limits. `SET` works through pgbouncer, unlike the startup
    /// parameter `options`. The limit of statements does not include the wait of a commit for a synchronous standby.
    pub(super) fn settings(self) -> String {
        let (silence, lock_wait) = (self.silence().as_millis(), self.lock_wait().as_millis());
        format!(
            "SET statement_timeout = '15s';
            SET lock_timeout = {lock_wait};
            SET idle_in_transaction_session_timeout = {silence};
            SET tcp_user_timeout = {silence};
            SET client_connection_check_interval = {silence};"
        )
    }

    /// Returns the settings of the session that renews the lease. It waits for a lock half as long as a call may last,
    /// so that a lock costs no session.
    pub(super) fn node_settings(self) -> String {
        let call = self.lease / 3;
        format!("SET lock_timeout = {}; SET statement_timeout = {};", (call / 2).as_millis(), call.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, SessionLimits};

    #[test]
    fn limits_follow_the_lease_within_bounds() {
        let limits = |seconds| SessionLimits::of(Duration::from_secs(seconds));
        let silences: Vec<_> = [3, 10, 300].into_iter().map(|lease| limits(lease).silence().as_millis()).collect();
        assert_eq!(silences, [1000, 3333, 5000]);
        assert!(limits(3).settings().contains("idle_in_transaction_session_timeout = 1000;"));
        // Two silent nodes one after the other end before a waiting statement does.
        for lease in [3, 10, 300] {
            assert!(limits(lease).lock_wait() >= 2 * limits(lease).silence(), "{lease}");
        }
        // A renewal reaches the second address although the first one does not answer.
        for lease in [3, 10, 300] {
            assert!(
                limits(lease).connect(2) * 2 <= Duration::from_secs(lease) / 3 + Duration::from_millis(1),
                "{lease}"
            );
        }
    }
}
