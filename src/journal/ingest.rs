//! Jobs that archive datasets, and the newest results of work on objects.
//!
//! A source of datasets writes its jobs in the transaction of their results ([`JobProgress`](super::harvest::JobProgress)),
//! together with the results that they have. The results of other systems arrive as changes, so the journal keeps the
//! newest result of each object, from whichever source.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Journal, JournalError, harvest::HarvestWrite};
use crate::model::{JsonDocument, Seq, SourceName, Text, Timestamp, Uri};

/// Identifier of a job: a UUID of version 7, so that identifiers are in the order of the first requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl JobId {
    /// Returns the identifier of a new job.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

named_values! {
    /// State of a job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum JobState {
        /// The job begins when it is due.
        Waiting = "waiting",
        /// A node executes the job. After a crash the job begins again.
        Running = "running",
        /// The dataset is archived. It is looked at again when the job is due.
        Archived = "archived",
        /// The last attempt failed for a reason that a later attempt would meet too.
        Failed = "failed",
        /// The last attempt failed for a reason that only a change of the program or its configuration removes.
        Blocked = "blocked",
        /// An administrator has cancelled the job, and the harvest has not noticed that yet.
        Cancelling = "cancelling",
        /// The job was cancelled.
        Cancelled = "cancelled",
    }
}

impl JobState {
    /// Returns whether the last attempt has ended, and none is due because of a failure.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Archived | Self::Failed | Self::Blocked | Self::Cancelled)
    }
}

/// Job that archives a dataset. Each dataset has one job at a source, and a repeated request uses it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestJob {
    /// Identifier.
    pub id: JobId,
    /// Source of the harvest that executes the job.
    pub source: SourceName,
    /// URI of the dataset.
    pub dataset: Uri,
    /// Host from which the dataset is requested. Before the first attempt, the prefix of its publisher can stand for it.
    pub host: String,
    /// The request.
    pub request: JsonDocument,
    /// State.
    pub state: JobState,
    /// Time of the next attempt; `None` if there is none.
    pub due: Option<Timestamp>,
    /// Number of successive attempts that have failed.
    pub attempts: u32,
    /// Outcome of the last attempt, as in `success` or `too-large-size`.
    pub status: Option<String>,
    /// Reason of the outcome for people.
    pub message: Option<Text>,
    /// Time of the newest request.
    pub requested: Timestamp,
    /// Time of the last modification.
    pub updated: Timestamp,
}

/// Selection of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSelection {
    /// Jobs of a source that are due at a time, those with the earliest time first.
    Due(SourceName, Timestamp),
    /// The earliest job of each host among those of a source that are due at a time, those with the earliest time first.
    DueByHost(SourceName, Timestamp),
    /// Jobs of a source in a state, those with the newest modification first. None are `archived` or `cancelled`.
    InState(SourceName, JobState),
    /// Jobs of all sources before this one (the newest if `None`), the newest first.
    All {
        /// The job before which the list begins.
        before: Option<JobId>,
        /// State of the jobs; `None` for all.
        state: Option<JobState>,
    },
    /// Jobs with these identifiers.
    Some(Vec<JobId>),
}

/// Number of the jobs of a source in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCount {
    /// The source.
    pub source: SourceName,
    /// The state.
    pub state: JobState,
    /// Number of jobs.
    pub jobs: u64,
    /// Number of the jobs that were modified at or after the time of the question.
    pub recent: u64,
}

/// Newest result of work on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectResult {
    /// Number of the change that the result made.
    pub seq: Seq,
    /// Time of receipt.
    pub received: Timestamp,
    /// The result.
    pub result: JsonDocument,
}

impl Journal {
    /// Returns up to `limit` jobs.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn ingest_jobs(&self, selection: JobSelection, limit: usize) -> Result<Vec<IngestJob>, JournalError> {
        self.read(move |store| store.ingest_jobs(&selection, limit)).await
    }

    /// Returns the numbers of jobs by source and state, and how many of them were modified at or after `since`. Jobs that are
    /// archived or cancelled are not counted, because there can be millions.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn ingest_counts(&self, since: Timestamp) -> Result<Vec<JobCount>, JournalError> {
        self.read(move |store| store.ingest_counts(since)).await
    }

    /// Returns the time at which the next job of a source is due.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn next_ingest(&self, source: SourceName) -> Result<Option<Timestamp>, JournalError> {
        self.read(move |store| store.next_ingest(&source)).await
    }

    /// Asks the harvest of a job to cancel it. A job that has failed or is blocked is cancelled at once, and keeps its
    /// status. Nothing happens if the job has ended otherwise and is not looked at again.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn cancel_ingest(&self, job: &IngestJob) -> Result<(), JournalError> {
        let write = HarvestWrite::CancelJob(job.id, Timestamp::now());
        self.write_harvest(job.source.clone(), write).await
    }

    /// Asks the harvest of a job to look at its archived dataset again, as a watch does. Nothing happens if the dataset is not
    /// archived.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn repeat_ingest(&self, job: &IngestJob) -> Result<(), JournalError> {
        let write = HarvestWrite::RepeatJob(job.id, Timestamp::now());
        self.write_harvest(job.source.clone(), write).await
    }

    /// Returns the newest result of work on an object.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn object_result(&self, object: Uri) -> Result<Option<ObjectResult>, JournalError> {
        self.read(move |store| store.object_result(&object)).await
    }
}
