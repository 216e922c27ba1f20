//! The jobs of a source of datasets, as one of the harvests: they rest while an administrator has paused the source.

use std::{convert::Infallible, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    Waits,
    engine::Interruption,
    pauses::Pauses,
    status::{HarvestState, HarvestStatus},
};
use crate::{
    filesets::{JobActivity, JobLoop},
    intake::Source,
    journal::Journal,
    model::Timestamp,
    retry::Backoff,
};

/// Executes the jobs of one source.
pub(super) struct JobRunner {
    /// The journal, for the duty of the source.
    pub(super) journal: Journal,
    pub(super) source: Arc<Source>,
    pub(super) jobs: Arc<JobLoop>,
    pub(super) status: Arc<HarvestStatus>,
    pub(super) waits: Waits,
}

impl JobRunner {
    /// Executes jobs until `stop` is cancelled, except during a pause. Jobs that run then begin again later.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut backoff = Backoff::new(self.waits.first_retry, self.waits.longest_retry);
        while !stop.is_cancelled() {
            match self.run_until_paused(&stop).await {
                Ok(()) => backoff.reset(),
                Err(interruption) => {
                    let Some(error) = interruption.failure() else { break };
                    let wait = backoff.next_wait();
                    let again_ms = wait.as_millis();
                    tracing::warn!(source = %self.source.name(), error, again_ms, "the jobs of a source of datasets cannot run; retrying");
                    self.status.fail(error.as_str().into());
                    self.status.set(HarvestState::Retrying, Some(Timestamp::from_datetime(chrono::Utc::now() + wait)));
                    let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
                }
            }
        }
        self.status.set(HarvestState::Stopped, None);
    }

    async fn run_until_paused(&self, stop: &CancellationToken) -> Result<(), Interruption> {
        let pauses = Pauses { journal: &self.journal, source: self.source.name(), status: &self.status };
        pauses.wait_until_resumed(stop).await?;
        self.status.set(HarvestState::Waiting, None);
        let jobs = self.jobs.run(&self.source, &self.journal, |activity| self.show(activity));
        tokio::select! {
            biased;
            paused = pauses.wait_until_paused(stop) => {
                tracing::info!(source = %self.source.name(), "the jobs of a source of datasets are paused");
                paused
            }
            failed = jobs => failed.map(|never: Infallible| match never {}).map_err(Interruption::Journal),
        }
    }

    fn show(&self, activity: JobActivity) {
        match activity {
            JobActivity::Running => {
                self.status.recover();
                self.status.set(HarvestState::Running, None);
            }
            JobActivity::Waiting(next) => {
                self.status.recover();
                self.status.set(HarvestState::Waiting, next);
            }
            JobActivity::Retrying(error, again) => {
                self.status.fail(error.to_string().into());
                self.status.set(HarvestState::Retrying, Some(again));
            }
        }
    }
}
