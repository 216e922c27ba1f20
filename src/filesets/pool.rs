//! The jobs of a source of datasets that run, and those that have ended.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{IngestMonitor, Ingested, JobPlace, host_places::HostPlaces};
use crate::{
    format::fileset::FilesetRequest,
    journal::ingest::{IngestJob, JobId},
};

/// Running jobs. Dropping it ends them.
pub(super) struct Pool {
    pub(super) running: HashMap<JobId, RunningJob>,
    pub(super) end: mpsc::UnboundedSender<(JobId, Ingested)>,
    /// Jobs that have ended, with their results: at most as many as run.
    ended: mpsc::UnboundedReceiver<(JobId, Ingested)>,
    /// The next one of them, for which somebody has waited.
    next_ended: Option<(JobId, Ingested)>,
    /// Hosts whose datasets are archived now.
    pub(super) hosts: HostPlaces,
    monitor: IngestMonitor,
}

/// A job that runs.
pub(super) struct RunningJob {
    pub(super) job: IngestJob,
    pub(super) request: FilesetRequest,
    pub(super) place: JobPlace,
    /// Ends the job when it is dropped.
    pub(super) _task: AbortOnDropHandle<()>,
}

impl Pool {
    pub(super) fn new(monitor: IngestMonitor) -> Self {
        let (end, ended) = mpsc::unbounded_channel();
        Self { running: HashMap::new(), end, ended, next_ended: None, hosts: HostPlaces::default(), monitor }
    }

    /// Returns the next job that has ended.
    pub(super) fn next_ended(&mut self) -> Option<(JobId, Ingested)> {
        self.next_ended.take().or_else(|| self.ended.try_recv().ok())
    }

    /// Waits until a job has ended.
    pub(super) async fn wait_for_end(&mut self) {
        // The pool has a sender, so the channel never ends.
        if self.next_ended.is_none() {
            self.next_ended = self.ended.recv().await;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.monitor.remove_all(self.running.keys());
    }
}
