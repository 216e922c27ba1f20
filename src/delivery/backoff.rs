//! How long to wait before the next attempt: longer each time, and never just as long as others do.

use std::time::Duration;

/// Exponential backoff with jitter: each wait is between half and all of a time that doubles from
/// `first` to `longest`.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Begins anew: something has succeeded.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How often in a row it has failed.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait after another failure.
    pub(super) fn next(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        let half = doubled.min(self.longest) / 2;
        // The random bits of an identifier do: this need not be hard to guess.
        let random = uuid::Uuid::new_v4().as_bytes()[0];
        half + half * u32::from(random) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Duration};

    #[test]
    fn grows_to_its_bound_and_begins_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for (least, most) in [(50, 100), (100, 200), (200, 400), (400, 800), (500, 1000), (500, 1000)] {
            let wait = backoff.next();
            assert!((Duration::from_millis(least)..=Duration::from_millis(most)).contains(&wait), "{wait:?}");
        }
        assert_eq!(backoff.failures(), 6);
        (0..100).for_each(|_| assert!(backoff.next() <= Duration::from_secs(1)));
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
    }
}
