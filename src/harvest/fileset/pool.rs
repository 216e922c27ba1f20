//! The jobs of a harvest of datasets that run, and those that have ended.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{Ingested, JobPlace, host_places::HostPlaces};
use crate::{
    format::fileset::{FilesetRequest, message::FilesetResult},
    journal::ingest::{IngestJob, JobId},
};

/// Running jobs, and those of the last page.
pub(super) struct Pool {
    pub(super) running: HashMap<JobId, RunningJob>,
    /// Jobs that have ended, with their results: at most as many as run.
    pub(super) ended: mpsc::UnboundedReceiver<(JobId, Ingested)>,
    pub(super) end: mpsc::UnboundedSender<(JobId, Ingested)>,
    /// Jobs whose results were on the last page, which may not be on disk.
    pub(super) reported: Vec<(IngestJob, Option<FilesetResult>)>,
    /// Hosts whose datasets are archived now.
    pub(super) hosts: HostPlaces,
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
    pub(super) fn new() -> Self {
        let (end, ended) = mpsc::unbounded_channel();
        Self { running: HashMap::new(), ended, end, reported: Vec::new(), hosts: HostPlaces::default() }
    }
}
