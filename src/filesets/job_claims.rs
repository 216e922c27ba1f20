//! Jobs that begin: requests that become jobs, jobs that are due, and those that an administrator has cancelled.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::{
    IngestContext, IngestProgress, Ingested, JobPlace,
    host_places::host_of,
    job_loop::{POSITION_CHANGES, Step, Tenure, WRITTEN_JOBS},
    metrics,
    outcome::is_archived,
    pool::RunningJob,
};
use crate::{
    format::fileset::{FilesetRequest, message::FilesetResult, status::IngestStatus},
    journal::{
        JournalError, RecordedChange,
        ingest::{IngestJob, JobId, JobSelection, JobState},
        list::changes_after,
    },
    model::{Report, Timestamp},
};

impl Tenure<'_> {
    /// Makes jobs of the requests after the position; returns whether no change is left.
    pub(super) async fn add_requests(&mut self, step: &mut Step) -> Result<bool, JournalError> {
        let mut examined = 0;
        while !step.is_full() && examined < POSITION_CHANGES {
            let (changes, _) = changes_after(self.journal, &mut self.position.after).await?;
            if changes.is_empty() {
                return Ok(true);
            }
            for change in changes {
                if let Some(job) = self.job(&change)? {
                    step.jobs.retain(|other: &IngestJob| other.dataset != job.dataset);
                    step.jobs.push(job);
                }
                self.position.after = change.seq();
                examined += 1;
            }
        }
        Ok(false)
    }

    /// Returns the job for a change with a request.
    fn job(&self, change: &RecordedChange) -> Result<Option<IngestJob>, JournalError> {
        let change = change.change()?;
        let modification = &change.modification;
        let Some(Report::Request(request)) = &modification.report else { return Ok(None) };
        if !self.jobs.settings.of.contains(&modification.origin.source) {
            return Ok(None);
        }
        Ok(Some(IngestJob {
            id: JobId::mint(),
            source: self.source.name().clone(),
            dataset: modification.object.clone(),
            host: host_of(modification.object.as_str()),
            request: request.clone(),
            state: JobState::Waiting,
            due: Some(change.received),
            attempts: 0,
            status: None,
            message: None,
            requested: change.received,
            updated: Timestamp::now(),
        }))
    }

    /// Makes jobs due that wait for another version of the program.
    pub(super) async fn unblock(&mut self, step: &mut Step) -> Result<(), JournalError> {
        if self.position.version == self.jobs.version {
            return Ok(());
        }
        let blocked = JobSelection::InState(self.source.name().clone(), JobState::Blocked);
        let now = Timestamp::now();
        let blocked = self.journal.ingest_jobs(blocked, WRITTEN_JOBS).await?.into_iter();
        step.jobs.extend(blocked.map(|job| IngestJob {
            state: JobState::Waiting,
            due: Some(now),
            attempts: 0,
            updated: now,
            ..job
        }));
        if step.is_empty() {
            self.position.version.clone_from(&self.jobs.version);
        }
        Ok(())
    }

    /// Begins jobs that are due, and ends those that were cancelled.
    pub(super) async fn begin_due(&mut self, step: &mut Step) -> Result<(), JournalError> {
        let now = Timestamp::now();
        // Running jobs are due too, so that another process continues them after a crash.
        let few = self.jobs.settings.jobs + self.pool.running.len() + WRITTEN_JOBS;
        let due = self.journal.ingest_jobs(JobSelection::Due(self.source.name().clone(), now), few).await?;
        let is_all = due.len() < few;
        self.begin_some(step, due).await?;
        if !is_all && self.pool.running.len() < self.jobs.settings.jobs {
            // The first jobs may all be of a few hosts. A running job has two hosts at most, whose jobs cannot begin.
            let enough = self.jobs.settings.jobs + 2 * self.pool.running.len();
            let due = JobSelection::DueByHost(self.source.name().clone(), now);
            let due = self.journal.ingest_jobs(due, enough).await?;
            self.begin_some(step, due).await?;
        }
        Ok(())
    }

    /// Begins as many of these jobs as places are free, and ends those that were cancelled.
    async fn begin_some(&mut self, step: &mut Step, due: Vec<IngestJob>) -> Result<(), JournalError> {
        for job in due {
            if step.is_full() {
                break;
            }
            if job.state == JobState::Cancelling {
                self.cancel(job, step);
            } else if self.pool.running.len() < self.jobs.settings.jobs
                && !self.pool.running.contains_key(&job.id)
                && let Some(place) = self.pool.hosts.take(job.id, &job.host)
            {
                let job = IngestJob { state: JobState::Running, updated: Timestamp::now(), ..job };
                self.begin(job, place, step).await?;
            }
        }
        Ok(())
    }

    /// Begins a job. One whose request cannot be read, because another version of the program has written it, fails.
    async fn begin(&mut self, job: IngestJob, place: JobPlace, step: &mut Step) -> Result<(), JournalError> {
        let request: FilesetRequest = match serde_json::from_str(job.request.as_str()) {
            Ok(request) => request,
            Err(error) => {
                let message = Some(format!("the request cannot be read: {error}; request the dataset again").into());
                step.jobs.push(IngestJob { state: JobState::Failed, due: None, message, ..job });
                return Ok(());
            }
        };
        let previous = self.journal.object_result(job.dataset.clone()).await?;
        let previous = previous.and_then(|previous| serde_json::from_str(previous.result.as_str()).ok());
        let context = IngestContext { previous, stored_bytes: self.position.bytes, place: place.clone() };
        let progress = Arc::new(IngestProgress::default());
        self.jobs.monitor.insert(job.id, &progress);
        let (ingester, end, id) = (Arc::clone(&self.jobs.ingester), self.pool.end.clone(), job.id);
        let (task_request, own_request) = (request.clone(), request.clone());
        let work = async move { ingester.ingest_again(&task_request, &context, &progress).await };
        let work = AbortOnDropHandle::new(tokio::spawn(work));
        let task = tokio::spawn(async move {
            // A panic ends this job alone, and is logged by its hook.
            let ingested = work.await.unwrap_or_else(|_| Ingested::died(own_request));
            // The pool is gone if the loop has stopped.
            let _ = end.send((id, ingested));
        });
        step.jobs.push(job.clone());
        self.pool.running.insert(id, RunningJob { job, request, place, _task: AbortOnDropHandle::new(task) });
        Ok(())
    }

    /// Ends a job that an administrator has cancelled.
    fn cancel(&mut self, job: IngestJob, step: &mut Step) {
        self.pool.running.remove(&job.id);
        self.jobs.monitor.remove(job.id);
        let message = "an administrator has cancelled the job".to_owned();
        if let Ok(request) = serde_json::from_str::<FilesetRequest>(job.request.as_str()) {
            let result = FilesetResult::new(request, IngestStatus::CANCELLED);
            // The copy of a dataset that is only watched stays.
            let result = FilesetResult { error_message: Some(message.clone()), ..result };
            step.results.extend((!is_archived(&job)).then_some(result));
        }
        metrics::ingested(self.source.name(), &IngestStatus::CANCELLED);
        step.jobs.push(IngestJob {
            state: JobState::Cancelled,
            due: None,
            status: Some(IngestStatus::CANCELLED.to_string()),
            message: Some(message.into()),
            updated: Timestamp::now(),
            ..job
        });
    }
}
