//! How many messages a source may send: a token bucket.
//!
//! It is written here since it is thirty lines: a crate for it would bring clocks, keyed stores and
//! jitter that nothing here needs, and a dozen crates with them.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A bucket that fills at a rate and holds a burst; each message takes one out.
#[derive(Debug)]
pub struct Rate {
    per_second: f64,
    burst: f64,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    tokens: f64,
    at: Instant,
}

impl Rate {
    /// A full bucket for `per_second` messages a second on average, at least 1, and `burst` at once,
    /// at least 1.
    #[must_use]
    pub fn new(per_second: u32, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        let held = Mutex::new(Held { tokens: burst, at: Instant::now() });
        Self { per_second: f64::from(per_second.max(1)), burst, held }
    }

    /// Takes one message's worth out.
    ///
    /// # Errors
    /// When there is none: how long until there is one.
    pub fn take(&self) -> Result<(), Duration> {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Result<(), Duration> {
        // What is held is whole whenever the lock is free.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Two callers may come in another order than their clocks' readings.
        let filled = now.saturating_duration_since(held.at).as_secs_f64() * self.per_second;
        held.tokens = (held.tokens + filled).min(self.burst);
        held.at = held.at.max(now);
        if held.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - held.tokens) / self.per_second));
        }
        held.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Rate;

    #[test]
    fn a_burst_then_the_rate_and_no_more_than_a_burst_is_saved_up() {
        let rate = Rate::new(10, 3);
        let start = Instant::now();
        let at = |millis| rate.take_at(start + Duration::from_millis(millis)).map_err(|wait| wait.as_millis());
        assert_eq!([at(1000), at(1000), at(1000)], [Ok(()); 3]);
        assert!(matches!(at(1000), Err(99..=100)), "{:?}", at(1000));
        assert!(matches!(at(1050), Err(49..=50)), "{:?}", at(1050));
        assert_eq!(at(1101), Ok(()));
        assert!(at(1101).is_err());
        // A clock that was read earlier gives nothing and takes nothing away.
        assert!(at(500).is_err());
        assert_eq!([at(60_000), at(60_000), at(60_000)], [Ok(()); 3]);
        assert!(at(60_000).is_err());
    }
}
