//! Reading one message at a time after a connection that a message may have ended.
//!
//! When a connection breaks, the broker counts a delivery for every message that it had sent, and it drops
//! messages that reach the delivery limit. A message that breaks each connection would therefore take all
//! messages with it that were sent at the same time. After such an end the gateway requests one message at a
//! time, until it has acknowledged as many messages as could have been sent with the bad one.

use std::time::Duration;

/// Time after which a connection counts as stable: its first message did not break it, and earlier failures no
/// longer count.
pub(super) const STABLE: Duration = Duration::from_secs(10);

/// Number of messages that are still to be read one at a time.
#[derive(Debug, Default)]
pub(super) struct Caution(Option<u64>);

impl Caution {
    /// Switches to one message at a time, until `prefetch` messages are acknowledged.
    pub(super) fn begin(&mut self, prefetch: u16) {
        self.0 = Some(u64::from(prefetch)).filter(|prefetch| *prefetch > 1);
    }

    /// Subtracts acknowledged messages.
    pub(super) fn note(&mut self, acknowledged: u64) {
        self.0 = self.0.map(|left| left.saturating_sub(acknowledged)).filter(|left| *left > 0);
    }

    /// Returns the number of messages left to read one at a time; `None` if the configured prefetch applies.
    pub(super) fn left(&self) -> Option<u64> {
        self.0
    }

    /// Returns the prefetch of the next connection: 1, or `configured`.
    pub(super) fn prefetch(&self, configured: u16) -> u16 {
        if self.0.is_some() { 1 } else { configured }
    }
}

/// The last failure, so that a failure that repeats is logged once.
#[derive(Debug, Default)]
pub(super) struct LastFailure {
    reason: String,
    /// True if the last failure was the same as the one before, and no message was acknowledged between them.
    pub(super) is_repeated: bool,
}

impl LastFailure {
    /// Records a failure, and returns true if it repeats the last one.
    pub(super) fn note(&mut self, reason: &str, uptime: Duration, acknowledged: u64) -> bool {
        self.is_repeated = reason == self.reason && uptime < STABLE && acknowledged == 0;
        reason.clone_into(&mut self.reason);
        self.is_repeated
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Caution, LastFailure, STABLE};

    #[test]
    fn caution_ends_after_a_whole_prefetch_is_acknowledged() {
        let mut caution = Caution::default();
        caution.note(3);
        assert_eq!((caution.prefetch(100), caution.left()), (100, None));
        caution.begin(100);
        caution.note(99);
        assert_eq!((caution.prefetch(100), caution.left()), (1, Some(1)));
        caution.note(5);
        assert_eq!((caution.prefetch(100), caution.left()), (100, None));
        caution.begin(1);
        assert_eq!(caution.left(), None);
    }

    #[test]
    fn failure_is_repeated_if_nothing_was_acknowledged_between() {
        let mut last_failure = LastFailure::default();
        let short = Duration::from_millis(5);
        assert!(!last_failure.note("a", Duration::ZERO, 0));
        assert!(last_failure.note("a", short, 0) && last_failure.is_repeated);
        assert!(!last_failure.note("a", short, 1));
        assert!(!last_failure.note("a", STABLE, 0));
        assert!(!last_failure.note("b", short, 0) && !last_failure.is_repeated);
    }
}
