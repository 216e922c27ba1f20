//! A circuit breaker: when a host has failed so many times in a row it is left alone for a while that grows, and then
//! asked once. Those who wait for it neither wear it down nor hold anybody up for the length of a timeout each.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::retry::Backoff;

/// After so many failures in a row it opens.
const FAILURES: u32 = 5;

/// First time for which it stays open, at most.
const SHORTEST: Duration = Duration::from_secs(1);

/// Longest time for which it stays open, at most; a longer `Retry-After` is cut to this.
const LONGEST: Duration = Duration::from_secs(60);

/// Who has waited for so long for an answer, and then gives up, has seen the host fail.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// How soon those who come while it is being tried come again.
const SOON: Duration = Duration::from_millis(100);

/// The breaker of one host.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug)]
struct State {
    failures: u32,
    backoff: Backoff,
    open: Option<Open>,
}

impl Default for State {
    fn default() -> Self {
        Self { failures: 0, backoff: Backoff::new(SHORTEST, LONGEST), open: None }
    }
}

#[derive(Debug)]
struct Open {
    until: Instant,
    is_tried: bool,
}

/// Leave to send one request. Its outcome is to be told; if it is dropped soon, nothing was learnt.
#[derive(Debug)]
pub(super) struct Leave<'b> {
    breaker: &'b Breaker,
    is_trial: bool,
    since: Instant,
    is_told: bool,
}

impl Breaker {
    /// Leave to ask the host now.
    ///
    /// # Errors
    /// How long to wait before asking for it again.
    pub(super) fn leave(&self, now: Instant) -> Result<Leave<'_>, Duration> {
        match &mut self.lock().open {
            None => Ok(Leave { breaker: self, is_trial: false, since: now, is_told: false }),
            Some(open) if now < open.until => Err(open.until - now),
            Some(open) if open.is_tried => Err(SOON),
            Some(open) => {
                open.is_tried = true;
                Ok(Leave { breaker: self, is_trial: true, since: now, is_told: false })
            }
        }
    }

    /// How long it is until the host is tried again; `None` when it is asked as usual.
    pub(super) fn open_for(&self, now: Instant) -> Option<Duration> {
        self.lock().open.as_ref().map(|open| open.until.saturating_duration_since(now))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is held is whole whenever the lock is free.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leave<'_> {
    /// The host has answered; says whether it had failed before.
    pub(super) fn answered(mut self) -> bool {
        self.is_told = true;
        let mut state = self.breaker.lock();
        std::mem::take(&mut *state).failures > 0
    }

    /// The host has failed; says whether that opened the breaker. `wait` is how long the host asks to be left alone.
    pub(super) fn failed(mut self, now: Instant, wait: Option<Duration>) -> bool {
        self.is_told = true;
        self.fail(now, wait)
    }

    fn fail(&self, now: Instant, wait: Option<Duration>) -> bool {
        let mut state = self.breaker.lock();
        state.failures = state.failures.saturating_add(1);
        let is_new = state.open.is_none();
        if (is_new && state.failures < FAILURES) || (!is_new && !self.is_trial) {
            return false;
        }
        let wait = state.backoff.next_wait().max(wait.unwrap_or_default().min(LONGEST));
        state.open = Some(Open { until: now + wait, is_tried: false });
        is_new
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.since) >= GIVEN_UP {
            self.fail(now, None);
        } else if self.is_trial
            && let Some(open) = &mut self.breaker.lock().open
        {
            open.is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, Duration, FAILURES, GIVEN_UP, Instant, LONGEST, SHORTEST};

    fn open(breaker: &Breaker, now: Instant) {
        for at in 1..=FAILURES {
            assert_eq!(breaker.leave(now).unwrap().failed(now, None), at == FAILURES);
        }
    }

    #[test]
    fn it_opens_after_some_failures_in_a_row_and_closes_at_an_answer() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..20 {
            breaker.leave(now).unwrap().failed(now, None);
            breaker.leave(now).unwrap().answered();
        }
        open(&breaker, now);
        assert!(breaker.leave(now).unwrap_err() <= SHORTEST);
        assert!(breaker.open_for(now).is_some());
        let later = now + SHORTEST;
        let trial = breaker.leave(later).unwrap();
        assert!(breaker.leave(later).is_err(), "one at a time tries");
        trial.answered();
        assert!(breaker.leave(later).is_ok());
    }

    #[test]
    fn each_time_it_fails_again_it_stays_open_for_longer() {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        open(&breaker, now);
        for _ in 0..20 {
            now += LONGEST;
            assert!(!breaker.leave(now).unwrap().failed(now, None));
            assert!(breaker.leave(now).is_err());
        }
        assert!(breaker.leave(now).unwrap_err() > LONGEST / 2 - Duration::from_secs(1));
        now += LONGEST;
        breaker.leave(now).unwrap().answered();
        open(&breaker, now);
        assert!(breaker.leave(now).unwrap_err() <= SHORTEST);
    }

    #[test]
    fn retry_after_is_heeded_up_to_the_longest_time() {
        for (asked, waits) in [(LONGEST / 2, LONGEST / 2), (LONGEST * 60, LONGEST)] {
            let (breaker, now) = (Breaker::default(), Instant::now());
            for _ in 0..FAILURES {
                breaker.leave(now).unwrap().failed(now, Some(asked));
            }
            assert_eq!(breaker.open_for(now), Some(waits));
        }
    }

    #[test]
    fn a_trial_that_is_given_up_leaves_room_for_the_next() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        open(&breaker, now);
        let later = now + SHORTEST;
        drop(breaker.leave(later).unwrap());
        assert!(breaker.leave(later).is_ok());
    }

    #[test]
    fn who_gives_up_after_a_while_has_seen_it_fail() {
        let breaker = Breaker::default();
        let since = Instant::now().checked_sub(GIVEN_UP).unwrap();
        for _ in 0..FAILURES {
            assert!(breaker.open_for(since).is_none());
            drop(breaker.leave(since).unwrap());
        }
        assert!(breaker.open_for(since).is_some());
    }

    #[test]
    fn what_comes_late_neither_opens_it_again_nor_for_longer() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        let early: Vec<_> = (0..3).map(|_| breaker.leave(now).unwrap()).collect();
        open(&breaker, now);
        let before = breaker.open_for(now);
        early.into_iter().for_each(|leave| assert!(!leave.failed(now, None)));
        assert_eq!(breaker.open_for(now), before);
    }
}
