//! Circuit breaker of a repository. After several failures in a row the circuit opens: no request is sent for
//! a growing time, then a single trial request decides. Waiting callers therefore neither overload the
//! repository nor block for a timeout each.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::retry::Backoff;

/// Number of consecutive failures that opens the circuit.
const FAILURES_TO_OPEN: u32 = 5;

/// Initial time for which the circuit stays open. Jitter may shorten it by half.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Maximum time for which the circuit stays open. A longer `Retry-After` is cut to this.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Age at which a dropped permit counts as a failure: the caller gave up waiting for the host.
const COUNTS_AS_FAILURE: Duration = Duration::from_secs(5);

/// Wait for callers that arrive while a trial request is running.
const TRIAL_WAIT: Duration = Duration::from_millis(100);

/// The circuit breaker of one host.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Mutex<State>);

#[derive(Debug)]
struct State {
    failures: u32,
    backoff: Backoff,
    open: Option<Open>,
}

impl Default for State {
    fn default() -> Self {
        Self { failures: 0, backoff: Backoff::new(SHORTEST_WAIT, LONGEST_WAIT), open: None }
    }
}

#[derive(Debug)]
struct Open {
    until: Instant,
    is_trial_running: bool,
}

/// Permission to send one request. The caller reports the outcome. A permit that is dropped early reports
/// nothing.
#[derive(Debug)]
pub(super) struct Permit<'b> {
    breaker: &'b CircuitBreaker,
    is_trial: bool,
    since: Instant,
    is_reported: bool,
}

impl CircuitBreaker {
    /// Returns permission to send a request now.
    ///
    /// # Errors
    /// While the circuit is open: the time until the next attempt.
    pub(super) fn permit(&self, now: Instant) -> Result<Permit<'_>, Duration> {
        match &mut self.lock().open {
            None => Ok(Permit { breaker: self, is_trial: false, since: now, is_reported: false }),
            Some(open) if now < open.until => Err(open.until - now),
            Some(open) if open.is_trial_running => Err(TRIAL_WAIT),
            Some(open) => {
                open.is_trial_running = true;
                Ok(Permit { breaker: self, is_trial: true, since: now, is_reported: false })
            }
        }
    }

    /// Returns the time until the next trial request; `None` while the circuit is closed.
    pub(super) fn open_for(&self, now: Instant) -> Option<Duration> {
        self.lock().open.as_ref().map(|open| open.until.saturating_duration_since(now))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Reports a response, and returns true if the host had failed before.
    pub(super) fn succeeded(mut self) -> bool {
        self.is_reported = true;
        let mut state = self.breaker.lock();
        std::mem::take(&mut *state).failures > 0
    }

    /// Reports a failure, and returns true if it opened the circuit. `wait` is the `Retry-After` of the host.
    pub(super) fn failed(mut self, now: Instant, wait: Option<Duration>) -> bool {
        self.is_reported = true;
        self.fail(now, wait)
    }

    fn fail(&self, now: Instant, wait: Option<Duration>) -> bool {
        let mut state = self.breaker.lock();
        state.failures = state.failures.saturating_add(1);
        let is_new = state.open.is_none();
        if (is_new && state.failures < FAILURES_TO_OPEN) || (!is_new && !self.is_trial) {
            return false;
        }
        let wait = state.backoff.next_wait().max(wait.unwrap_or_default().min(LONGEST_WAIT));
        state.open = Some(Open { until: now + wait, is_trial_running: false });
        is_new
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.is_reported {
            return;
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.since) >= COUNTS_AS_FAILURE {
            self.fail(now, None);
        } else if self.is_trial
            && let Some(open) = &mut self.breaker.lock().open
        {
            open.is_trial_running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTS_AS_FAILURE, CircuitBreaker, Duration, FAILURES_TO_OPEN, Instant, LONGEST_WAIT, SHORTEST_WAIT};

    fn open(breaker: &CircuitBreaker, now: Instant) {
        for at in 1..=FAILURES_TO_OPEN {
            assert_eq!(breaker.permit(now).unwrap().failed(now, None), at == FAILURES_TO_OPEN);
        }
    }

    #[test]
    fn circuit_opens_after_consecutive_failures_and_closes_after_a_response() {
        let (breaker, now) = (CircuitBreaker::default(), Instant::now());
        for _ in 0..20 {
            breaker.permit(now).unwrap().failed(now, None);
            breaker.permit(now).unwrap().succeeded();
        }
        open(&breaker, now);
        assert!(breaker.permit(now).unwrap_err() <= SHORTEST_WAIT);
        assert!(breaker.open_for(now).is_some());
        let later = now + SHORTEST_WAIT;
        let trial = breaker.permit(later).unwrap();
        assert!(breaker.permit(later).is_err(), "one at a time tries");
        trial.succeeded();
        assert!(breaker.permit(later).is_ok());
    }

    #[test]
    fn circuit_stays_open_longer_after_each_failed_trial() {
        let (breaker, mut now) = (CircuitBreaker::default(), Instant::now());
        open(&breaker, now);
        for _ in 0..20 {
            now += LONGEST_WAIT;
            assert!(!breaker.permit(now).unwrap().failed(now, None));
            assert!(breaker.permit(now).is_err());
        }
        assert!(breaker.permit(now).unwrap_err() > LONGEST_WAIT / 2 - Duration::from_secs(1));
        now += LONGEST_WAIT;
        breaker.permit(now).unwrap().succeeded();
        open(&breaker, now);
        assert!(breaker.permit(now).unwrap_err() <= SHORTEST_WAIT);
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_longest_wait() {
        for (retry_after, waits) in [(LONGEST_WAIT / 2, LONGEST_WAIT / 2), (LONGEST_WAIT * 60, LONGEST_WAIT)] {
            let (breaker, now) = (CircuitBreaker::default(), Instant::now());
            for _ in 0..FAILURES_TO_OPEN {
                breaker.permit(now).unwrap().failed(now, Some(retry_after));
            }
            assert_eq!(breaker.open_for(now), Some(waits));
        }
    }

    #[test]
    fn abandoned_trial_allows_the_next_one() {
        let (breaker, now) = (CircuitBreaker::default(), Instant::now());
        open(&breaker, now);
        let later = now + SHORTEST_WAIT;
        drop(breaker.permit(later).unwrap());
        assert!(breaker.permit(later).is_ok());
    }

    #[test]
    fn permit_dropped_after_a_long_wait_counts_as_failure() {
        let breaker = CircuitBreaker::default();
        let since = Instant::now().checked_sub(COUNTS_AS_FAILURE).unwrap();
        for _ in 0..FAILURES_TO_OPEN {
            assert!(breaker.open_for(since).is_none());
            drop(breaker.permit(since).unwrap());
        }
        assert!(breaker.open_for(since).is_some());
    }

    #[test]
    fn late_failures_do_not_extend_the_open_time() {
        let (breaker, now) = (CircuitBreaker::default(), Instant::now());
        let early: Vec<_> = (0..3).map(|_| breaker.permit(now).unwrap()).collect();
        open(&breaker, now);
        let before = breaker.open_for(now);
        early.into_iter().for_each(|permit| assert!(!permit.failed(now, None)));
        assert_eq!(breaker.open_for(now), before);
    }
}
