//! The harvest of datasets: executes the requests of other sources as jobs.
//!
//! The list of this harvest is the journal: a change with a request becomes a job, which is written in the transaction that
//! moves the position past the change. A page has new jobs, jobs that begin, or the results of jobs that have ended. The
//! job and its result are written together, so a job has one result, however often the gateway is killed.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use super::{
    FilesetHarvestSettings, IngestContext, IngestMonitor, IngestProgress, Ingested, Ingester, JobPlace, RetryRule,
    host_places::host_of,
    outcome::{Outcome, is_archived},
    pool::{Pool, RunningJob},
};
use crate::{
    format::fileset::{FilesetRequest, message::FilesetResult, status::IngestStatus},
    harvest::{
        HarvestError, Harvester, HarvesterSettings, Page, PageEnd,
        journal_list::{changes_after, wait_for_change},
        json_message, metrics,
    },
    journal::{
        Journal, JournalError, RecordedChange,
        ingest::{IngestJob, JobId, JobSelection, JobState},
    },
    model::{Report, Seq, SourceName, Timestamp},
};

/// Number of changes that a page examines.
const PAGE_CHANGES: usize = 16 * 1024;

/// Maximum number of new jobs of a page, and of results.
const PAGE_JOBS: usize = 256;

/// Interval at which running jobs are looked for that an administrator has cancelled, perhaps at another node.
const CANCEL_POLL: Duration = Duration::from_secs(2);

/// Interval at which a harvest without running jobs looks for due ones.
const DUE_POLL: Duration = Duration::from_secs(5);

/// The harvest of one source.
pub(super) struct FilesetHarvest {
    source: SourceName,
    settings: FilesetHarvestSettings,
    /// Version of the program, and a digest of the configuration.
    version: String,
    ingester: Arc<Ingester>,
    journal: Journal,
    monitor: IngestMonitor,
    pool: Mutex<Pool>,
}

/// Position of the harvest, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Position {
    /// Newest change that was examined.
    after: Seq,
    /// Size of all files that were stored for this source, in bytes.
    bytes: u64,
    /// Program and configuration that have executed the jobs. Others repeat those that wait for a change of the program.
    version: String,
}

impl Position {
    fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    #[expect(clippy::expect_used, reason = "all keys are strings")]
    fn text(&self) -> String {
        serde_json::to_string(self).expect("all keys are strings")
    }
}

/// Rows and results of a page.
#[derive(Default)]
struct Progress {
    jobs: Vec<IngestJob>,
    results: Vec<FilesetResult>,
}

impl Progress {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

impl Harvester for FilesetHarvest {
    fn describe(&self) -> String {
        self.settings.describe()
    }

    fn page<'a>(&'a self, position: &'a str, _: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(async {
            let mut pool = self.pool.lock().await;
            Ok(self.next_page(&mut pool, Position::parse(position)).await?)
        })
    }

    fn rest(&self) {
        // No page is being made, so nothing else has the lock.
        if let Ok(mut pool) = self.pool.try_lock() {
            self.monitor.remove_all(pool.running.keys());
            *pool = Pool::new();
        }
    }

    fn new_work<'a>(&'a self, position: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.wait_for_work(Position::parse(position)))
    }
}

impl FilesetHarvest {
    /// Creates the harvest of a source. `version` identifies the program and its configuration.
    pub(super) fn new(
        source: SourceName,
        settings: FilesetHarvestSettings,
        version: String,
        ingester: Arc<Ingester>,
        (journal, monitor): (Journal, IngestMonitor),
    ) -> Self {
        let pool = Mutex::new(Pool::new());
        Self { source, settings, version, ingester, journal, monitor, pool }
    }

    async fn next_page(&self, pool: &mut Pool, mut position: Position) -> Result<Page, JournalError> {
        if let Some(unwritten) = self.confirm(pool).await? {
            return Ok(self.page_of(pool, unwritten, &position, PageEnd::More));
        }
        loop {
            let mut progress = Progress::default();
            let is_end = self.add_requests(&mut position, &mut progress.jobs).await?;
            if progress.is_empty() && is_end {
                self.unblock(&mut position, &mut progress.jobs).await?;
            }
            if progress.is_empty() && is_end {
                self.begin_due(pool, &position, &mut progress).await?;
            }
            self.collect_ended(pool, &mut position, &mut progress);
            if !progress.is_empty() || !is_end {
                return Ok(self.page_of(pool, progress, &position, PageEnd::More));
            }
            if pool.running.is_empty() {
                return Ok(self.page_of(pool, progress, &position, PageEnd::Complete));
            }
            self.wait_for_event(pool, &mut position, &mut progress).await?;
            if !progress.is_empty() {
                return Ok(self.page_of(pool, progress, &position, PageEnd::More));
            }
        }
    }

    fn page_of(&self, pool: &mut Pool, progress: Progress, position: &Position, end: PageEnd) -> Page {
        let Progress { jobs, results } = progress;
        let messages: Vec<_> = results.iter().map(json_message).collect();
        let result_of = |job: &IngestJob| results.iter().find(|result| result.request.base_url == job.dataset).cloned();
        let ended = jobs.iter().filter(|job| !matches!(job.state, JobState::Running));
        pool.reported = ended.map(|job| (job.clone(), result_of(job))).collect();
        Page { jobs, ..Page::new(messages, position.text(), end) }
    }

    /// Removes the workspaces of the jobs on the last page. If the page is not on disk, returns its jobs again.
    async fn confirm(&self, pool: &mut Pool) -> Result<Option<Progress>, JournalError> {
        if pool.reported.is_empty() {
            return Ok(None);
        }
        let ids = pool.reported.iter().map(|(job, _)| job.id).collect();
        let rows = self.journal.ingest_jobs(JobSelection::Some(ids), pool.reported.len()).await?;
        let mut unwritten = Progress::default();
        for (job, result) in std::mem::take(&mut pool.reported) {
            let is_written = rows.iter().any(|row| row.id == job.id && row.updated >= job.updated);
            // A new job gets the identifier of the row that its dataset has already.
            if !is_written && (job.state != JobState::Waiting || result.is_some()) {
                unwritten.jobs.push(job);
                unwritten.results.extend(result);
            } else if job.state.is_final()
                && let Ok(request) = serde_json::from_str(job.request.as_str())
                && let Err(error) = self.ingester.forget(&request).await
            {
                tracing::warn!(source = %self.source, dataset = %job.dataset, %error, "cannot remove the temporary files of a job; `tidings files gc` does");
            }
        }
        Ok((!unwritten.is_empty()).then_some(unwritten))
    }

    /// Makes jobs of the requests after the position; returns whether no change is left.
    async fn add_requests(&self, position: &mut Position, jobs: &mut Vec<IngestJob>) -> Result<bool, JournalError> {
        let mut examined = 0;
        while jobs.len() < PAGE_JOBS && examined < PAGE_CHANGES {
            let (changes, _) = changes_after(&self.journal, &mut position.after).await?;
            if changes.is_empty() {
                return Ok(true);
            }
            for change in changes {
                if let Some(job) = self.job(&change)? {
                    jobs.retain(|other: &IngestJob| other.dataset != job.dataset);
                    jobs.push(job);
                }
                position.after = change.seq();
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
        if !self.settings.of.contains(&modification.origin.source) {
            return Ok(None);
        }
        Ok(Some(IngestJob {
            id: JobId::mint(),
            source: self.source.clone(),
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
    async fn unblock(&self, position: &mut Position, jobs: &mut Vec<IngestJob>) -> Result<(), JournalError> {
        if position.version == self.version {
            return Ok(());
        }
        let blocked = JobSelection::InState(self.source.clone(), JobState::Blocked);
        let now = Timestamp::now();
        let blocked = self.journal.ingest_jobs(blocked, PAGE_JOBS).await?.into_iter();
        jobs.extend(blocked.map(|job| IngestJob {
            state: JobState::Waiting,
            due: Some(now),
            attempts: 0,
            updated: now,
            ..job
        }));
        if jobs.is_empty() {
            position.version.clone_from(&self.version);
        }
        Ok(())
    }

    /// Begins jobs that are due, and ends those that were cancelled.
    async fn begin_due(
        &self,
        pool: &mut Pool,
        position: &Position,
        progress: &mut Progress,
    ) -> Result<(), JournalError> {
        let now = Timestamp::now();
        // Running jobs are due too, so that another process continues them after a crash.
        let few = self.settings.jobs + pool.running.len() + PAGE_JOBS;
        let due = self.journal.ingest_jobs(JobSelection::Due(self.source.clone(), now), few).await?;
        let is_all = due.len() < few;
        self.begin_some(pool, position, progress, due).await?;
        if !is_all && pool.running.len() < self.settings.jobs {
            // The first jobs may all be of a few hosts. A running job has two hosts at most, whose jobs cannot begin.
            let enough = self.settings.jobs + 2 * pool.running.len();
            let due = JobSelection::DueByHost(self.source.clone(), now);
            let due = self.journal.ingest_jobs(due, enough).await?;
            self.begin_some(pool, position, progress, due).await?;
        }
        Ok(())
    }

    /// Begins as many of these jobs as places are free, and ends those that were cancelled.
    async fn begin_some(
        &self,
        pool: &mut Pool,
        position: &Position,
        progress: &mut Progress,
        due: Vec<IngestJob>,
    ) -> Result<(), JournalError> {
        for job in due {
            if progress.jobs.len() >= PAGE_JOBS {
                break;
            }
            if job.state == JobState::Cancelling {
                self.cancel(pool, job, progress);
            } else if pool.running.len() < self.settings.jobs
                && !pool.running.contains_key(&job.id)
                && let Some(place) = pool.hosts.take(job.id, &job.host)
            {
                let job = IngestJob { state: JobState::Running, updated: Timestamp::now(), ..job };
                self.begin(pool, job.clone(), place, position).await?;
                progress.jobs.push(job);
            }
        }
        Ok(())
    }

    async fn begin(
        &self,
        pool: &mut Pool,
        job: IngestJob,
        place: JobPlace,
        position: &Position,
    ) -> Result<(), JournalError> {
        let request: FilesetRequest = match serde_json::from_str(job.request.as_str()) {
            Ok(request) => request,
            // The dialect has written it, so only another version of the program can be the reason.
            Err(error) => {
                return Err(JournalError::from(crate::journal::store::StoreError::Damaged(error.to_string())));
            }
        };
        let previous = self.journal.object_result(job.dataset.clone()).await?;
        let previous = previous.and_then(|previous| serde_json::from_str(previous.result.as_str()).ok());
        let context = IngestContext { previous, stored_bytes: position.bytes, place: place.clone() };
        let (ingester, end, id) = (Arc::clone(&self.ingester), pool.end.clone(), job.id);
        let progress = Arc::new(IngestProgress::default());
        self.monitor.insert(id, &progress);
        let (task_request, own_request) = (request.clone(), request.clone());
        let work = async move { ingester.ingest_again(&task_request, &context, &progress).await };
        let work = AbortOnDropHandle::new(tokio::spawn(work));
        let task = tokio::spawn(async move {
            // A panic ends this job alone, and is logged by its hook.
            let ingested = work.await.unwrap_or_else(|_| Ingested::died(own_request));
            // The pool is gone if the harvest has stopped.
            let _ = end.send((id, ingested));
        });
        pool.running.insert(id, RunningJob { job, request, place, _task: AbortOnDropHandle::new(task) });
        Ok(())
    }

    /// Ends a job that an administrator has cancelled.
    fn cancel(&self, pool: &mut Pool, job: IngestJob, progress: &mut Progress) {
        pool.running.remove(&job.id);
        self.monitor.remove(job.id);
        let message = "an administrator has cancelled the job".to_owned();
        if let Ok(request) = serde_json::from_str::<FilesetRequest>(job.request.as_str()) {
            let result = FilesetResult::new(request, IngestStatus::CANCELLED);
            // The copy of a dataset that is only watched stays.
            let result = FilesetResult { error_message: Some(message.clone()), ..result };
            progress.results.extend((!is_archived(&job)).then_some(result));
        }
        metrics::ingested(&self.source, &IngestStatus::CANCELLED);
        progress.jobs.push(IngestJob {
            state: JobState::Cancelled,
            due: None,
            status: Some(IngestStatus::CANCELLED.to_string()),
            message: Some(message.into()),
            updated: Timestamp::now(),
            ..job
        });
    }

    /// Adds the jobs that have ended to a page.
    fn collect_ended(&self, pool: &mut Pool, position: &mut Position, progress: &mut Progress) {
        while progress.jobs.len() < PAGE_JOBS
            && let Ok((id, ingested)) = pool.ended.try_recv()
        {
            self.end(pool, id, ingested, position, progress);
        }
    }

    fn end(&self, pool: &mut Pool, id: JobId, ingested: Ingested, position: &mut Position, progress: &mut Progress) {
        self.monitor.remove(id);
        // It was cancelled meanwhile.
        let Some(RunningJob { job, request, place, .. }) = pool.running.remove(&id) else { return };
        let host = place.host().unwrap_or_else(|| job.host.clone());
        let job = IngestJob { host, ..job };
        if ingested.retry == Some(RetryRule::WhenHostIsFree) {
            tracing::debug!(source = %self.source, dataset = %request.base_url, host = %job.host, "a dataset waits for another one at its host");
        } else {
            metrics::ingested(&self.source, &ingested.result.status);
            tracing::info!(
                source = %self.source, dataset = %request.base_url, status = %ingested.result.status,
                reason = ingested.result.error_message.as_deref(), "the ingest of a dataset has ended"
            );
        }
        position.bytes = position.bytes.saturating_add(ingested.new_bytes);
        let Outcome { job, is_reported } = self.settings.outcome(job, &ingested);
        progress.jobs.push(job);
        progress.results.extend(is_reported.then_some(ingested.result));
    }

    /// Waits until a job has ended, was cancelled or is due, or a request arrives.
    async fn wait_for_event(
        &self,
        pool: &mut Pool,
        position: &mut Position,
        progress: &mut Progress,
    ) -> Result<(), JournalError> {
        let mut head = self.journal.watch();
        if self.journal.head() > position.after {
            return Ok(());
        }
        head.mark_unchanged();
        tokio::select! {
            Some((id, ingested)) = pool.ended.recv() => self.end(pool, id, ingested, position, progress),
            changed = head.changed() => changed.map_err(|_| JournalError::Closed)?,
            () = sleep(CANCEL_POLL) => {}
        }
        Ok(())
    }

    /// Waits until a request arrives or a job is due. The first run with another program or configuration begins at once.
    async fn wait_for_work(&self, position: Position) {
        if position.version != self.version {
            return;
        }
        let due = async {
            loop {
                let next = self.journal.next_ingest(self.source.clone()).await;
                if next.is_ok_and(|next| next.is_some_and(|next| next <= Timestamp::now())) {
                    return;
                }
                sleep(DUE_POLL).await;
            }
        };
        tokio::select! {
            () = due => {}
            () = wait_for_change(&self.journal, position.after, |change| Ok(self.job(change)?.is_some())) => {}
        }
    }
}
