//! Reading one message at a time after a connection that a message may have ended.
//!
//! A broker counts a delivery of every message that it sent before a connection broke, and drops a message that has
//! been delivered too often (a delivery limit). A message that ends each connection would therefore take all messages
//! with it that were sent at the same time. So after such an end the gateway asks for one message at a time. It does so
//! until as many messages are acknowledged as could have been sent with the bad one.

use std::time::Duration;

/// Time after which a connection counts as stable: it did not end by the message that came first, and failures before it
/// no longer count.
pub(super) const STABLE: Duration = Duration::from_secs(10);

/// Number of messages that are still to be read one at a time.
#[derive(Debug, Default)]
pub(super) struct Caution(Option<u64>);

impl Caution {
    /// Reads one message at a time from now on, until `prefetch` messages are acknowledged.
    pub(super) fn begin(&mut self, prefetch: u16) {
        self.0 = Some(u64::from(prefetch)).filter(|prefetch| *prefetch > 1);
    }

    /// Subtracts messages that were acknowledged.
    pub(super) fn note(&mut self, acknowledged: u64) {
        self.0 = self.0.map(|left| left.saturating_sub(acknowledged)).filter(|left| *left > 0);
    }

    /// The number of messages before the prefetch is the configured one again; `None` where it is.
    pub(super) fn left(&self) -> Option<u64> {
        self.0
    }

    /// The prefetch of the next connection, where `configured` is the usual one.
    pub(super) fn prefetch(&self, configured: u16) -> u16 {
        if self.0.is_some() { 1 } else { configured }
    }
}

/// The last failure, so that the log has one line for the same trouble, however long it lasts.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    reason: String,
    /// Whether the last failure was the same as the one before, and nothing was acknowledged between them.
    pub(super) is_repeated: bool,
}

impl Trouble {
    /// Notes a failure, and returns whether it is a repetition of the last one.
    pub(super) fn note(&mut self, reason: &str, worked: Duration, acknowledged: u64) -> bool {
        self.is_repeated = reason == self.reason && worked < STABLE && acknowledged == 0;
        reason.clone_into(&mut self.reason);
        self.is_repeated
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Caution, STABLE, Trouble};

    #[test]
    fn caution_ends_when_all_that_were_sent_together_are_acknowledged() {
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
    fn trouble_is_repeated_where_nothing_came_between() {
        let mut trouble = Trouble::default();
        let short = Duration::from_millis(5);
        assert!(!trouble.note("a", Duration::ZERO, 0));
        assert!(trouble.note("a", short, 0) && trouble.is_repeated);
        assert!(!trouble.note("a", short, 1));
        assert!(!trouble.note("a", STABLE, 0));
        assert!(!trouble.note("b", short, 0) && !trouble.is_repeated);
    }
}
