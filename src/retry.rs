//! Exponential backoff with jitter.

use std::time::Duration;

/// Waits between consecutive failed attempts.
///
/// Each wait is a random time between half and all of a duration that doubles from `base` to `cap`. So clients
/// that lost the same server do not all reconnect at the same moment. (The jitter of the crate `backon` is at
/// most `base`, which leaves long waits almost equal.)
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    /// Next wait before jitter.
    next: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff whose first wait is at most `base`, and whose later waits are at most `cap`.
    #[must_use]
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, next: base, failures: 0 }
    }

    /// Returns the number of waits since the start or the last reset.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Resets the backoff after a success.
    pub const fn reset(&mut self) {
        *self = Self::new(self.base, self.cap);
    }

    /// Raises the next waits to the maximum, after a failure that only an administrator can fix.
    pub const fn raise_to_cap(&mut self) {
        self.next = self.cap;
    }

    /// Counts a failure, and returns the time to wait before the next attempt.
    pub fn next_wait(&mut self) -> Duration {
        let longest = self.next.min(self.cap);
        self.failures = self.failures.saturating_add(1);
        self.next = longest.saturating_mul(2);
        jittered(longest)
    }
}

/// Returns a random time between half and all of `longest`.
#[must_use]
pub fn jittered(longest: Duration) -> Duration {
    longest.mul_f64(0.5 + 0.5 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Duration};

    const BASE: Duration = Duration::from_millis(100);
    const CAP: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_the_cap_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(BASE, CAP);
        for longest in [100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let wait = backoff.next_wait();
            assert!(wait >= longest / 2 && wait <= longest, "{wait:?} of {longest:?}");
        }
        assert_eq!(backoff.failures(), 6);
        let waits: Vec<_> = (0..8).map(|_| backoff.next_wait()).collect();
        assert!(waits.windows(2).any(|pair| pair[0] != pair[1]), "{waits:?}");
        backoff.reset();
        assert_eq!(backoff.failures(), 0);
        assert!(backoff.next_wait() <= BASE);
    }

    #[test]
    fn waits_never_exceed_the_cap() {
        let mut backoff = Backoff::new(BASE, CAP);
        (0..1000).for_each(|_| assert!(backoff.next_wait() <= CAP));
        assert!(Backoff::new(CAP, BASE).next_wait() <= BASE);
    }

    #[test]
    fn raised_waits_stay_at_the_cap_until_a_reset() {
        let mut backoff = Backoff::new(BASE, CAP);
        backoff.raise_to_cap();
        (0..2).for_each(|_| assert!(backoff.next_wait() >= CAP / 2));
        backoff.reset();
        assert!(backoff.next_wait() <= BASE);
    }
}
