//! The loop of a source of datasets: executes the requests of other sources as jobs.
//!
//! A change of the journal with a request becomes a job, which is written in the transaction that moves the position past the
//! change. A job that is due begins when a place is free and no other one is at its host. Its end and its result are written
//! together, so a job has one result, however often the gateway is killed.

use std::{convert::Infallible, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    FilesetSettings, IngestMonitor, Ingested, Ingester, RetryRule, metrics,
    outcome::Outcome,
    pool::{Pool, RunningJob},
};
use crate::{
    format::{Headers, fileset::message::FilesetResult},
    intake::{Batch, Incoming, Intake, ReceivedMessage, Source},
    journal::{
        Journal, JournalError,
        harvest::{JobProgress, SourcePosition},
        ingest::{IngestJob, JobId},
    },
    model::{Seq, Timestamp},
    retry::Backoff,
    transfer::HarvestBudget,
};

/// Number of changes after which the position is written, even if none of them has a request.
pub(super) const POSITION_CHANGES: u64 = 16 * 1024;

/// Maximum number of jobs that are written at once.
pub(super) const WRITTEN_JOBS: usize = 256;

/// Interval at which jobs are looked for that are due, or that an administrator has cancelled, perhaps at another node:
/// while jobs run, and otherwise.
const BUSY_POLL: Duration = Duration::from_secs(2);
const IDLE_POLL: Duration = Duration::from_secs(5);

/// First and longest wait before a failed access to the journal is repeated. The jobs go on meanwhile.
const JOURNAL_WAITS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5 * 60));

/// The jobs of one source of datasets. [`JobLoop::run`] executes them.
pub struct JobLoop {
    pub(super) settings: FilesetSettings,
    /// Version of the program, and a digest of the configuration.
    pub(super) version: String,
    pub(super) ingester: Arc<Ingester>,
    pub(super) monitor: IngestMonitor,
    budget: HarvestBudget,
}

/// Activity of the loop, for people.
#[derive(Clone, Debug)]
pub enum JobActivity {
    /// Jobs run.
    Running,
    /// No job runs. The time is that of the next job that is due, if one is known.
    Waiting(Option<Timestamp>),
    /// The journal fails, and the loop tries again at this time.
    Retrying(JournalError, Timestamp),
}

/// Position of the loop, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Position {
    /// Newest change that was examined.
    pub(super) after: Seq,
    /// Size of all files that were stored for this source, in bytes.
    pub(super) bytes: u64,
    /// Program and configuration that have executed the jobs. Others repeat those that wait for a change of the program.
    pub(super) version: String,
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

/// New rows of jobs, and the results of those that have ended.
#[derive(Default)]
pub(super) struct Step {
    pub(super) jobs: Vec<IngestJob>,
    pub(super) results: Vec<FilesetResult>,
}

impl Step {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.jobs.len() >= WRITTEN_JOBS
    }
}

/// A run of the loop, which ends all its jobs when it is dropped.
pub(super) struct Tenure<'a> {
    pub(super) jobs: &'a JobLoop,
    pub(super) source: &'a Arc<Source>,
    pub(super) journal: &'a Journal,
    pub(super) pool: Pool,
    /// Result of the last step, which is not on disk.
    unwritten: Option<Step>,
    pub(super) position: Position,
    /// Position that the journal has.
    written: Position,
    /// Time of the next look for jobs that are due.
    next_look: Instant,
}

impl JobLoop {
    /// Creates the loop of a source. `version` identifies the program and its configuration.
    pub(super) fn new(
        settings: FilesetSettings,
        version: String,
        ingester: Arc<Ingester>,
        monitor: IngestMonitor,
        budget: HarvestBudget,
    ) -> Self {
        Self { settings, version, ingester, monitor, budget }
    }

    /// Returns the size of the files that were stored up to a position, in bytes.
    pub(crate) fn stored_bytes(position: &str) -> u64 {
        Position::parse(position).bytes
    }

    /// Describes what is archived.
    #[must_use]
    pub fn describe(&self) -> String {
        self.settings.describe()
    }

    /// Executes the jobs of a source until it is dropped, which ends those that run: they begin again. `show` gets what it
    /// does at present.
    ///
    /// # Errors
    /// Fails if the journal refuses a write for good, for example because another node has the duty now.
    pub async fn run(
        &self,
        source: &Arc<Source>,
        journal: &Journal,
        show: impl Fn(JobActivity),
    ) -> Result<Infallible, JournalError> {
        let (pool, position) = (Pool::new(self.monitor.clone()), Position::default());
        let written = position.clone();
        let (unwritten, next_look) = (None, Instant::now());
        let mut tenure = Tenure { jobs: self, source, journal, pool, unwritten, position, written, next_look };
        let (first, longest) = JOURNAL_WAITS;
        let mut backoff = Backoff::new(first, longest);
        let mut has_position = false;
        loop {
            let done = match has_position {
                true => tenure.step(&show).await,
                false => tenure.read_position().await.map(|()| has_position = true),
            };
            match done {
                Ok(()) => backoff.reset(),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => {
                    let wait = backoff.next_wait();
                    let again_ms = wait.as_millis();
                    tracing::warn!(source = %source.name(), %error, again_ms, "the jobs of a source of datasets cannot go on; retrying");
                    show(JobActivity::Retrying(error, after(wait)));
                    sleep(wait).await;
                }
            }
        }
    }
}

impl Tenure<'_> {
    async fn read_position(&mut self) -> Result<(), JournalError> {
        let stored = self.journal.harvest(self.source.name().clone()).await?;
        self.written = Position::parse(stored.as_ref().map_or("", |stored| &stored.position));
        self.position = self.written.clone();
        Ok(())
    }

    /// Takes one step if there is work, and otherwise waits for work.
    async fn step(&mut self, show: &impl Fn(JobActivity)) -> Result<(), JournalError> {
        if self.unwritten.is_some() {
            return self.write().await;
        }
        let mut step = Step::default();
        let is_end = self.add_requests(&mut step).await?;
        if step.is_empty() && is_end {
            self.unblock(&mut step).await?;
        }
        if step.is_empty()
            && let Some((id, ingested)) = self.pool.next_ended()
        {
            self.end(id, ingested, &mut step);
        }
        if step.is_empty() && is_end && Instant::now() >= self.next_look {
            self.begin_due(&mut step).await?;
            show(self.activity().await?);
            self.next_look = Instant::now() + if self.pool.running.is_empty() { IDLE_POLL } else { BUSY_POLL };
        }
        let is_far = self.position.after.0 >= self.written.after.0.saturating_add(POSITION_CHANGES);
        if !step.is_empty() || is_far || self.position.version != self.written.version {
            self.unwritten = Some(step);
            return self.write().await;
        }
        if is_end { self.wait_for_event().await } else { Ok(()) }
    }

    async fn activity(&self) -> Result<JobActivity, JournalError> {
        if !self.pool.running.is_empty() {
            return Ok(JobActivity::Running);
        }
        Ok(JobActivity::Waiting(self.journal.next_ingest(self.source.name().clone()).await?))
    }

    /// Writes what the last step has made, with the position, and removes the workspaces of jobs that have ended for good.
    async fn write(&mut self) -> Result<(), JournalError> {
        let Some(Step { jobs, results }) = &self.unwritten else { return Ok(()) };
        let messages: Vec<_> = results.iter().map(result_message).collect();
        let bytes = messages.iter().map(|message| message.body.len()).sum();
        let number = messages.len();
        let _share = self.jobs.budget.part(bytes).await;
        let source = Arc::clone(self.source);
        let messages = messages.into_iter().map(ReceivedMessage::Readable).collect();
        let batch = self.jobs.budget.work(move |_| Batch::read(&source, messages)).await;
        let mut batch = batch.map_err(|_| JournalError::Closed)?;
        let (source, position) = (self.source.name().clone(), self.position.text().into());
        let progress = JobProgress { position: SourcePosition { source, position }, jobs: jobs.clone() };
        let turn = self.jobs.budget.turn(number).await;
        Intake::new(self.journal.clone()).accept_jobs(self.source, &mut batch, progress).await?;
        drop(turn);
        self.written = self.position.clone();
        let written = self.unwritten.take().unwrap_or_default();
        if !written.is_empty() {
            self.next_look = Instant::now();
        }
        for job in written.jobs.iter().filter(|job| job.state.is_final()) {
            self.forget(job).await;
        }
        Ok(())
    }

    /// Removes the workspace of a job.
    async fn forget(&self, job: &IngestJob) {
        if let Ok(request) = serde_json::from_str(job.request.as_str())
            && let Err(error) = self.jobs.ingester.forget(&request).await
        {
            tracing::warn!(source = %self.source.name(), dataset = %job.dataset, %error, "cannot remove the temporary files of a job; `tidings files gc` does");
        }
    }

    fn end(&mut self, id: JobId, ingested: Ingested, step: &mut Step) {
        self.jobs.monitor.remove(id);
        // It was cancelled meanwhile.
        let Some(RunningJob { job, request, place, .. }) = self.pool.running.remove(&id) else { return };
        let source = self.source.name();
        let host = place.host().unwrap_or_else(|| job.host.clone());
        let job = IngestJob { host, ..job };
        if ingested.retry == Some(RetryRule::WhenHostIsFree) {
            tracing::debug!(%source, dataset = %request.base_url, host = %job.host, "a dataset waits for another one at its host");
        } else {
            metrics::ingested(source, &ingested.result.status);
            tracing::info!(
                %source, dataset = %request.base_url, status = %ingested.result.status,
                reason = ingested.result.error_message.as_deref(), "the ingest of a dataset has ended"
            );
        }
        self.position.bytes = self.position.bytes.saturating_add(ingested.new_bytes);
        let Outcome { job, is_reported } = self.jobs.settings.outcome(job, &ingested);
        step.jobs.push(job);
        step.results.extend(is_reported.then_some(ingested.result));
    }

    /// Waits until a job has ended, a request arrives, or it is time to look for jobs that are due or cancelled.
    async fn wait_for_event(&mut self) -> Result<(), JournalError> {
        let mut head = self.journal.watch();
        head.mark_unchanged();
        if self.journal.head() > self.position.after {
            return Ok(());
        }
        tokio::select! {
            () = self.pool.wait_for_end() => {}
            changed = head.changed() => changed.map_err(|_| JournalError::Closed)?,
            () = sleep_until(self.next_look) => {}
        }
        Ok(())
    }
}

/// Returns the message with a result, for the dialect of the source.
fn result_message(result: &FilesetResult) -> Incoming {
    // Serialization fails only for maps without text keys, and a result has none.
    let body = serde_json::to_vec(result).unwrap_or_default().into();
    Incoming {
        content_type: Some("application/json".to_owned()),
        headers: Headers::default(),
        body,
        transport_id: None,
        redelivered: false,
        set: None,
    }
}

/// Returns the time after a wait.
fn after(wait: Duration) -> Timestamp {
    Timestamp::from_datetime(chrono::Utc::now() + wait)
}
