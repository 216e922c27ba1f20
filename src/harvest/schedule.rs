//! Times of runs.

use std::time::Duration;

use super::Hours;
use crate::{
    journal::harvest::{HarvestRun, RunState},
    model::Timestamp,
};

/// Wait after the first failed run. Each further failure doubles it.
const FIRST_FAILURE_WAIT: Duration = Duration::from_secs(60);

/// Maximum wait after failed runs.
const LONGEST_FAILURE_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Time beyond `every` after which a harvest is overdue by default.
const OVERDUE_AFTER: Duration = Duration::from_secs(48 * 60 * 60);

named_values! {
    /// Number of runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        /// A run after each interval.
        Periodic = "periodic",
        /// One complete run. Later runs begin only on request.
        Once = "once",
    }
}

/// Times of the runs of a harvest.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Number of runs.
    pub mode: Mode,
    /// Time from the start of a run to the start of the next one.
    pub every: Duration,
    /// Largest random part that is added to `every`, so that harvests do not all begin at the same moment.
    pub jitter: Duration,
    /// Hours in which runs begin, unless they are requested.
    pub hours: Hours,
    /// Time since the last complete run after which the harvest is overdue.
    pub overdue_after: Duration,
}

impl Schedule {
    /// Creates a schedule without limits on the hours. A harvest is overdue two days after the next run was due.
    #[must_use]
    pub fn new(mode: Mode, every: Duration, jitter: Duration) -> Self {
        Self { mode, every, jitter, hours: Hours::default(), overdue_after: every + OVERDUE_AFTER }
    }

    /// Returns the time of the next run after the newest runs (newest first, none of them running); `None` if none is
    /// due without a request. `random` is between 0 and 1.
    #[must_use]
    pub fn next_run(&self, newest: &[HarvestRun], random: f64) -> Option<Timestamp> {
        let Some(last) = newest.first() else { return Some(Timestamp::EPOCH) };
        let failures = newest.iter().take_while(|run| run.state == RunState::Failed).count();
        match (failures, self.mode) {
            (0, Mode::Once) => None,
            (0, Mode::Periodic) => Some(later(last.started, self.every + self.jitter.mul_f64(random))),
            (failures, _) => {
                let doublings = u32::try_from(failures - 1).unwrap_or(u32::MAX).min(16);
                let wait = FIRST_FAILURE_WAIT.saturating_mul(1 << doublings).min(LONGEST_FAILURE_WAIT);
                Some(later(last.updated, wait.mul_f64(1.0 - random / 2.0)))
            }
        }
    }

    /// Returns whether no run has been complete for too long, if the last complete one ended at this time.
    #[must_use]
    pub fn is_overdue(&self, complete: Timestamp, now: Timestamp) -> bool {
        now > later(complete, self.overdue_after)
    }
}

/// Returns the time `wait` after `time`.
fn later(time: Timestamp, wait: Duration) -> Timestamp {
    let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(time.millis().saturating_add(wait)).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::{Duration, HarvestRun, Mode, RunState, Schedule, Timestamp};
    use crate::{
        journal::harvest::{RunCounts, RunId},
        model::SourceName,
    };

    const HOUR: i64 = 3_600_000;

    fn run(state: RunState) -> HarvestRun {
        let time = |millis| Timestamp::from_millis(millis).unwrap();
        HarvestRun {
            id: RunId::mint(),
            source: SourceName::parse("s").unwrap(),
            started: time(0),
            updated: time(1000),
            state,
            reason: None,
            counts: RunCounts::default(),
        }
    }

    fn next(mode: Mode, states: &[RunState], random: f64) -> Option<i64> {
        let schedule = Schedule::new(mode, Duration::from_secs(3600), Duration::from_secs(360));
        let runs: Vec<_> = states.iter().copied().map(run).collect();
        schedule.next_run(&runs, random).map(Timestamp::millis)
    }

    #[test]
    fn runs_are_periodic_with_jitter_or_once() {
        assert_eq!(next(Mode::Periodic, &[], 0.5), Some(0));
        assert_eq!(next(Mode::Once, &[], 0.5), Some(0));
        assert_eq!(next(Mode::Periodic, &[RunState::Completed], 0.0), Some(HOUR));
        assert_eq!(next(Mode::Periodic, &[RunState::Completed], 1.0), Some(HOUR + 360_000));
        assert_eq!(next(Mode::Once, &[RunState::Completed], 0.0), None);
    }

    #[test]
    fn waits_after_failures_double_up_to_a_day() {
        let failed = |count| next(Mode::Once, &vec![RunState::Failed; count], 0.0);
        assert_eq!((failed(1), failed(2), failed(5)), (Some(61_000), Some(121_000), Some(961_000)));
        assert_eq!(failed(100), Some(24 * HOUR + 1000));
        assert_eq!(next(Mode::Periodic, &[RunState::Failed, RunState::Completed], 1.0), Some(31_000));
    }
}
