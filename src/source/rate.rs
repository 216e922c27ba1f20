//! Rate limit of a source: a token bucket.
//!
//! It is written by hand because it has thirty lines. A crate would add clocks, keyed stores and jitter that
//! the gateway does not need, and a dozen dependencies.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A token bucket. Each message consumes one token.
#[derive(Debug)]
pub struct RateLimiter {
    per_second: f64,
    burst: f64,
    state: Mutex<BucketState>,
}

#[derive(Debug)]
struct BucketState {
    tokens: f64,
    at: Instant,
}

impl RateLimiter {
    /// Creates a full bucket for `per_second` messages a second on average and bursts of `burst` messages.
    /// Both are at least 1.
    #[must_use]
    pub fn new(per_second: u32, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        let state = Mutex::new(BucketState { tokens: burst, at: Instant::now() });
        Self { per_second: f64::from(per_second.max(1)), burst, state }
    }

    /// Consumes one token.
    ///
    /// # Errors
    /// If the bucket is empty: the time until the next token.
    pub fn try_acquire(&self) -> Result<(), Duration> {
        self.try_acquire_at(Instant::now())
    }

    fn try_acquire_at(&self, now: Instant) -> Result<(), Duration> {
        // Every change is complete before the lock is released, even if a thread panics.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Two callers may acquire the lock in another order than they read the clock.
        let filled = now.saturating_duration_since(state.at).as_secs_f64() * self.per_second;
        state.tokens = (state.tokens + filled).min(self.burst);
        state.at = state.at.max(now);
        if state.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - state.tokens) / self.per_second));
        }
        state.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::RateLimiter;

    #[test]
    fn bucket_allows_a_burst_then_the_rate() {
        let limiter = RateLimiter::new(10, 3);
        let start = Instant::now();
        let at =
            |millis| limiter.try_acquire_at(start + Duration::from_millis(millis)).map_err(|wait| wait.as_millis());
        assert_eq!([at(1000), at(1000), at(1000)], [Ok(()); 3]);
        assert!(matches!(at(1000), Err(99..=100)), "{:?}", at(1000));
        assert!(matches!(at(1050), Err(49..=50)), "{:?}", at(1050));
        assert_eq!(at(1101), Ok(()));
        assert!(at(1101).is_err());
        // An earlier reading of the clock neither adds nor removes tokens.
        assert!(at(500).is_err());
        assert_eq!([at(60_000), at(60_000), at(60_000)], [Ok(()); 3]);
        assert!(at(60_000).is_err());
    }
}
