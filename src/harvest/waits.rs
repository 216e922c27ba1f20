//! Waits of a harvest before a run: for its time, for a request, and for new work.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Engine, Mode, engine::Interruption, pauses::LONGEST_SLEEP, status::HarvestState};
use crate::{
    journal::harvest::{HarvestRun, RunState},
    model::Timestamp,
};

/// Time between two runs of a feed whose hub reports changes, in milliseconds.
const RARE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Least time between the starts of two runs of a feed whose hub reports changes. A feed with a shorter interval has that.
const HUB_GAP: Duration = Duration::from_secs(30);

/// Result of the wait for a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RunStart {
    /// A run is due or requested.
    Now,
    /// The harvest was paused.
    Paused,
}

impl Engine {
    /// Waits until a run is due or requested, or the harvest is paused.
    pub(super) async fn wait_for_run(
        &self,
        newest: &[HarvestRun],
        stop: &CancellationToken,
    ) -> Result<RunStart, Interruption> {
        let mut due = self.schedule.next_run(newest, fastrand::f64());
        if newest.first().is_some_and(|run| run.state == RunState::Completed) {
            let stored = self.journal.harvest(self.source.name().clone()).await?;
            let earliest = stored.as_ref().and_then(|stored| self.harvester.earliest_run(&stored.position));
            let hub = stored.and_then(|stored| rare_run(&newest[0], stored.lease?));
            due = due.map(|due| [earliest, hub].into_iter().flatten().fold(due, Timestamp::max));
        }
        let hours = &self.schedule.hours;
        due = due.map(|due| hours.next(due.max(Timestamp::now())));
        let state = if self.schedule.mode == Mode::Once && due.is_none() {
            HarvestState::Finished
        } else {
            HarvestState::Waiting
        };
        self.status.set(state, due);
        let last_start = newest.first().map(|run| run.started);
        let stored = self.journal.harvest(self.source.name().clone()).await?;
        let position = stored.map_or_else(|| "".into(), |stored| stored.position);
        // A failed run is not repeated before its time, whatever else there is to do.
        let may_be_early = newest.first().is_none_or(|run| run.state == RunState::Completed);
        // Everybody who knows the URL for notifications can send any number of them.
        let gap = self.harvester.callback(&position).map(|_| HUB_GAP.min(self.schedule.every));
        let mut new_work = self.harvester.new_work(&position);
        loop {
            let stored = self.journal.harvest(self.source.name().clone()).await?;
            if stored.as_ref().is_some_and(|stored| stored.paused) {
                return Ok(RunStart::Paused);
            }
            let requested = stored.and_then(|stored| stored.requested);
            let is_requested = requested.is_some_and(|requested| Some(requested) > last_start);
            let gap = gap.filter(|_| !self.status.is_urgent());
            let requested = is_requested.then(|| gap_left(gap, last_start, Timestamp::now()));
            let left = |due: Timestamp| u64::try_from(due.millis() - Timestamp::now().millis()).unwrap_or(0);
            let remaining = due.map(|due| Duration::from_millis(left(due)));
            let remaining = [remaining, requested].into_iter().flatten().min().unwrap_or(LONGEST_SLEEP);
            if remaining.is_zero() {
                return Ok(RunStart::Now);
            }
            tokio::select! {
                biased;
                waited = self.pauses().wait_for_administrator(remaining.min(LONGEST_SLEEP), stop) => waited?,
                () = &mut new_work, if may_be_early && hours.contains(Timestamp::now()) => return Ok(RunStart::Now),
            }
        }
    }
}

/// Returns the time until a requested run begins. A clock that was set back makes it no longer than the gap.
fn gap_left(gap: Option<Duration>, last_start: Option<Timestamp>, now: Timestamp) -> Duration {
    let (Some(gap), Some(last_start)) = (gap, last_start) else { return Duration::ZERO };
    let passed = u64::try_from(now.millis() - last_start.millis()).unwrap_or(0);
    gap.saturating_sub(Duration::from_millis(passed))
}

/// Returns the time of the next run of a feed whose hub reports changes until `lease`: a day after the last one, or before
/// the lease ends, because the run renews it. `None` if the lease has ended.
fn rare_run(last: &HarvestRun, lease: Timestamp) -> Option<Timestamp> {
    let left = lease.millis().saturating_sub(last.started.millis());
    let is_running = lease > Timestamp::now();
    is_running.then(|| Timestamp::from_millis(last.started.millis() + RARE_MILLIS.min(left / 4 * 3)))?
}

#[cfg(test)]
mod tests {
    use super::{Duration, HUB_GAP, HarvestRun, RunState, Timestamp, gap_left, rare_run};
    use crate::{
        journal::harvest::{RunCounts, RunId},
        model::SourceName,
    };

    #[test]
    fn runs_that_a_hub_begins_have_a_gap() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000).unwrap();
        for (last_start, now, left) in [(0, 0, 30), (0, 29, 1), (0, 30, 0), (0, 500, 0), (1000, 0, 30)] {
            let left_now = gap_left(Some(HUB_GAP), Some(at(last_start)), at(now));
            assert_eq!(left_now, Duration::from_secs(left), "{last_start} {now}");
        }
        assert_eq!(gap_left(Some(HUB_GAP), None, at(0)), Duration::ZERO);
        assert_eq!(gap_left(None, Some(at(0)), at(0)), Duration::ZERO);
    }

    #[test]
    fn feed_with_a_hub_is_requested_each_day_and_before_its_lease_ends() {
        const HOUR: i64 = 60 * 60 * 1000;
        let at = |millis: i64| Timestamp::from_millis(Timestamp::now().millis() + millis).unwrap();
        let last = HarvestRun {
            id: RunId::mint(),
            source: SourceName::parse("s").unwrap(),
            started: at(-HOUR),
            updated: at(-HOUR),
            state: RunState::Completed,
            reason: None,
            counts: RunCounts::default(),
        };
        let hours = |lease: i64| rare_run(&last, at(lease)).map(|next| (next.millis() - last.started.millis()) / HOUR);
        assert_eq!(hours(240 * HOUR + 1000), Some(24));
        assert_eq!(hours(3 * HOUR + 1000), Some(3));
        assert_eq!(hours(-1000), None);
    }
}
