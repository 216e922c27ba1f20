//! How long to wait before the next attempt.

use std::time::Duration;

/// The first wait, in its middle.
const SHORTEST: Duration = Duration::from_millis(250);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(15);

/// What worked for so long was no attempt that failed: the next wait is a short one.
const STABLE: Duration = Duration::from_secs(10);

/// Waits between attempts, each about twice the one before, up to 15 seconds by default; each at random between
/// half and all of it, so that many who lost the same broker do not come back at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::up_to(LONGEST)
    }
}

impl Backoff {
    /// With another longest wait.
    #[must_use]
    pub fn up_to(longest: Duration) -> Self {
        Self { next: SHORTEST.min(longest), longest }
    }

    /// How long to wait after a failure. `worked` is for how long all was well before it; what only an
    /// administrator can mend (`transient` is false) is tried again at the slow end.
    pub fn after_failure(&mut self, worked: Duration, transient: bool) -> Duration {
        if worked >= STABLE {
            self.next = SHORTEST.min(self.longest);
        }
        if !transient {
            self.next = self.longest;
        }
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait.mul_f64(0.5 + 0.5 * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Backoff, LONGEST, SHORTEST, STABLE};

    #[test]
    fn waits_double_up_to_the_longest_and_are_never_quite_the_same() {
        let mut backoff = Backoff::default();
        let mut middle = SHORTEST;
        for _ in 0..20 {
            let wait = backoff.after_failure(Duration::ZERO, true);
            assert!(wait >= middle / 2 && wait <= middle, "{wait:?} of {middle:?}");
            middle = (middle * 2).min(LONGEST);
        }
        let waits: Vec<_> = (0..8).map(|_| backoff.after_failure(Duration::ZERO, true)).collect();
        assert!(waits.windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
    }

    #[test]
    fn what_had_worked_for_a_while_is_tried_again_soon() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.after_failure(Duration::ZERO, true);
        }
        assert!(backoff.after_failure(STABLE, true) <= SHORTEST);
    }

    #[test]
    fn what_only_an_administrator_can_mend_is_tried_again_slowly() {
        assert!(Backoff::default().after_failure(STABLE, false) >= LONGEST / 2);
    }
}
