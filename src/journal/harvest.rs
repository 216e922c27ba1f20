//! Progress of harvests: the position after the last page of each source, the history of its runs, and the records that
//! its repository has listed. The definitions of harvests that were made over HTTP are stored beside them. A source whose
//! broker does not record what was read has only a position ([`Journal::append_positioned`]).
//!
//! A harvest writes the records of a page, the position after it and the counts of its run in one transaction
//! ([`Journal::append_page`]). After a crash it continues after the last page that is on disk.

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    Command, DraftOutcome, Journal, JournalError, Submission,
    ingest::{IngestJob, JobId},
    metrics,
    store::HarvestStore,
    subscriptions::DefinitionText,
};
use crate::model::{SourceName, Text, Timestamp};

/// Number of runs of each source that the history contains. The store removes older ones.
pub const KEPT_RUNS: usize = 100;

/// Identifier of a run: a UUID of version 7, so that identifiers are in the order of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// Returns the identifier of a new run.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

named_values! {
    /// State of a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum RunState {
        /// The run has not ended. A gateway that stops in between continues it.
        Running = "running",
        /// The run has read everything that it asked for.
        Completed = "completed",
        /// The run ended early.
        Failed = "failed",
    }
}

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Pages on disk.
    pub pages: u64,
    /// Records of these pages.
    pub records: u64,
    /// Changes that the records made. All other readable records changed nothing.
    pub changes: u64,
    /// Records that could not be read. They are in the quarantine.
    pub quarantined: u64,
    /// Pages with errors that the harvest has repaired, such as characters that XML does not allow.
    pub repaired: u64,
}

/// One run of a harvest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarvestRun {
    /// Identifier of the run.
    pub id: RunId,
    /// Source of the harvest.
    pub source: SourceName,
    /// Start of the run.
    pub started: Timestamp,
    /// Time of the last page, or of the end.
    pub updated: Timestamp,
    /// State of the run.
    pub state: RunState,
    /// Reason of a failure, or a remark about a completed run.
    pub reason: Option<Text>,
    /// Numbers of the run.
    pub counts: RunCounts,
}

/// Progress of a harvest, written in one transaction with the records before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarvestProgress {
    /// Position from which the harvest continues, in a format that only its kind knows.
    pub position: Arc<str>,
    /// The run that reached the position.
    pub run: HarvestRun,
    /// Records that the repository has listed on the page.
    pub listed: ListedRecords,
}

/// Position of a source that is written in one transaction with the messages before it, for a transport whose broker does
/// not record what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// The source.
    pub source: SourceName,
    /// Position from which the source continues, in a format that only its transport knows.
    pub position: Arc<str>,
}

/// Progress of a source of datasets, written in one transaction with the results of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// Position in the journal, from which requests become jobs.
    pub position: SourcePosition,
    /// New and modified jobs.
    pub jobs: Vec<IngestJob>,
}

/// Progress of a source, written in one transaction with the drafts before it. It is not written if the journal refuses a
/// message, because the caller stores that message in the quarantine first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Progress of a harvest, to which the journal adds the changes.
    Harvest(Box<HarvestProgress>),
    /// Position of a source that reads a broker.
    Position(SourcePosition),
    /// Progress of a source of datasets.
    Jobs(JobProgress),
}

/// Modification of the list of a repository's records. A run that reads the whole list finds the records that are
/// missing, which a repository without tombstones does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedRecords {
    /// Fate of the records of former lists, which is decided first.
    pub former: FormerRecords,
    /// Identifiers of the records that no longer exist.
    pub gone: Vec<String>,
    /// Records that exist.
    pub present: Vec<ListedRecord>,
    /// Start of the run that has listed them.
    pub at: Option<Timestamp>,
}

/// Fate of the records of former lists when a new list begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FormerRecords {
    /// They stay.
    #[default]
    Keep,
    /// They are kept under another name, because their objects are still in the registry.
    Rename(SourceName),
    /// They are no longer listed, but not gone. Those with a validator stay for the claims of other sources
    /// ([`ListedAt::Ended`]). The others are removed.
    Unlist,
}

/// Time for which the ended records without properties ([`ListedRecord::NO_PROPERTIES`]) stay at least, so that a run of each
/// other source finds them.
const ENDED_FOR_MILLIS: i64 = 90 * 24 * 60 * 60 * 1000;

/// Maximum number of other sources whose records are compared with one of a source: those with the first names.
pub const MAX_CLAIMS: usize = 16;

/// A record that another source has listed too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Identifier of the record.
    pub identifier: String,
    /// Name of the other source.
    pub source: String,
    /// Validator of the other source's record.
    pub validator: String,
    /// Whether the other source lists the record still ([`ListedAt::Ended`]).
    pub is_listed: bool,
    /// A number that differs for each time that the other source has ceased to list the record; 0 while it lists it.
    pub ended: i64,
}

/// A record that a repository has listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRecord {
    /// Identifier, without a NUL character.
    pub identifier: String,
    /// Properties by which a harvest recognizes that the record has not changed, in a format that only its kind knows;
    /// empty if they do not show that.
    pub validator: String,
    /// When the source has listed it.
    pub listed: ListedAt,
}

/// Time at which a source has listed a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedAt {
    /// The start of the run that writes the record.
    Run,
    /// Another time.
    At(Timestamp),
    /// The source listed the record before this time, and does so no longer. The record stays for the claims of other sources,
    /// and is neither counted nor missing.
    Ended(Timestamp),
}

impl ListedRecord {
    /// Validator of a record that has no properties, and leaves an ended record nevertheless, for at least 90 days.
    pub const NO_PROPERTIES: &str = "[]";
}

impl ListedAt {
    /// Returns the time of the row that a run since `at` writes, in milliseconds since 1970; a negative number if the source
    /// does not list the record.
    pub(super) fn millis(self, at: Timestamp) -> i64 {
        match self {
            Self::Run => at.millis(),
            Self::At(time) => time.millis(),
            Self::Ended(time) => Self::ended_millis(time.millis()),
        }
    }

    /// Returns the time of the row above which, and below zero, a run since `at` removes ended records without properties.
    pub(super) fn oldest_ended_millis(at: Timestamp) -> i64 {
        Self::ended_millis(at.millis().saturating_sub(ENDED_FOR_MILLIS))
    }

    fn ended_millis(time: i64) -> i64 {
        -1 - time.max(0)
    }
}

impl From<String> for ListedRecord {
    fn from(identifier: String) -> Self {
        Self { identifier, validator: String::new(), listed: ListedAt::Run }
    }
}

/// Numbers of the records that a repository has listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedCounts {
    /// Number of all records.
    pub all: u64,
    /// Number of the records that no run since the given time has listed.
    pub missing: u64,
}

/// State of a source's harvest between its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarvestRecord {
    /// Position from which the harvest continues; empty before the first page.
    pub position: Arc<str>,
    /// Time at which an administrator last requested a run.
    pub requested: Option<Timestamp>,
    /// Whether an administrator has paused the harvest.
    pub paused: bool,
    /// End of the subscription at the hub of the feed, as the hub has confirmed it.
    pub lease: Option<Timestamp>,
}

/// A harvest that was made over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarvestDefinition {
    /// Source of the harvest.
    pub source: SourceName,
    /// JSON of the settings.
    pub text: DefinitionText,
}

/// A modification of a harvest by an administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HarvestWrite {
    /// Notes that a run was requested at this time.
    Request(Timestamp),
    /// Stores the definition of a harvest that is made over HTTP.
    Define(DefinitionText),
    /// Pauses or resumes the harvest.
    SetPaused(bool),
    /// Ends the duty of the source, so that the node that has it begins again.
    Restart,
    /// Asks a harvest of datasets to cancel a job, at this time.
    CancelJob(JobId, Timestamp),
    /// Makes the job of an archived dataset due, at this time.
    RepeatJob(JobId, Timestamp),
    /// Notes the end of the subscription at the hub of the feed; `None` if the hub has refused or ended it.
    SetLease(Option<Timestamp>),
    /// Removes the harvest with its definition, its position and its history, and ends its duty.
    Remove,
}

impl Journal {
    /// Appends the records of a page as [`Journal::append_batch`] does, and writes the progress of the harvest in the
    /// same transaction. The journal adds the new changes to the counts of the run, and returns the counts that it has
    /// written. Waits without a time limit, because the position must be known before the next page.
    ///
    /// # Errors
    /// Fails if nothing was written, or the gateway is stopping.
    pub async fn append_page(
        &self,
        submissions: Vec<Submission>,
        progress: HarvestProgress,
    ) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        let began = Instant::now();
        let progress = Some(Progress::Harvest(Box::new(progress)));
        let outcomes = self.execute(|reply| Command::Append { submissions, term: self.term, progress, reply }).await;
        let outcomes = self.outages.wrote(outcomes)?;
        metrics::appended(began.elapsed());
        Ok(outcomes)
    }

    /// Appends messages as [`Journal::append_batch`] does, and writes the position after them in the same transaction. If
    /// the journal refuses a message ([`DraftOutcome::TooManyItems`]), it appends the others without the position.
    ///
    /// # Errors
    /// As [`Journal::append_batch`].
    pub async fn append_positioned(
        &self,
        submissions: Vec<Submission>,
        position: SourcePosition,
    ) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        self.append_patiently(submissions, Some(Progress::Position(position))).await
    }

    /// Appends the results of jobs as [`Journal::append_positioned`] does, and writes the jobs in the same transaction.
    ///
    /// # Errors
    /// As [`Journal::append_batch`].
    pub async fn append_results(
        &self,
        submissions: Vec<Submission>,
        progress: JobProgress,
    ) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        self.append_patiently(submissions, Some(Progress::Jobs(progress))).await
    }

    /// Returns the position of a source; `None` before the first one was written.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn source_position(&self, source: SourceName) -> Result<Option<Arc<str>>, JournalError> {
        let record = self.harvest(source).await?;
        Ok(record.map(|record| record.position).filter(|position| !position.is_empty()))
    }

    /// Returns the position of a source's harvest; `None` before the first run.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn harvest(&self, source: SourceName) -> Result<Option<HarvestRecord>, JournalError> {
        self.read(move |store| store.harvest(&source)).await
    }

    /// Returns up to `limit` runs of a source before `before` (from the newest if `None`), newest first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn harvest_runs(
        &self,
        source: SourceName,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<HarvestRun>, JournalError> {
        self.read(move |store| store.harvest_runs(&source, before, limit)).await
    }

    /// Returns the numbers of a source's listed records: of all, and of those that no run since `since` has listed.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn listed_counts(&self, source: SourceName, since: Timestamp) -> Result<ListedCounts, JournalError> {
        self.read(move |store| store.listed_counts(&source, since)).await
    }

    /// Returns up to `limit` identifiers after `after` that no run since `since` has listed, in order of their octets.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn missing_records(
        &self,
        source: SourceName,
        since: Timestamp,
        after: String,
        limit: usize,
    ) -> Result<Vec<String>, JournalError> {
        self.read(move |store| store.missing_records(&source, since, &after, limit)).await
    }

    /// Returns the validators of those of a source's listed records that have these identifiers.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn validators(
        &self,
        source: SourceName,
        identifiers: Vec<String>,
    ) -> Result<HashMap<String, String>, JournalError> {
        self.read(move |store| store.validators(&source, &identifiers)).await
    }

    /// Returns the records of other sources with these identifiers, at most [`MAX_CLAIMS`] for each.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn claims(&self, source: SourceName, identifiers: Vec<String>) -> Result<Vec<Claim>, JournalError> {
        if identifiers.is_empty() {
            return Ok(Vec::new());
        }
        self.read(move |store| store.claims(&source, &identifiers)).await
    }

    /// Returns up to `limit` records of other sources that the source lists too, in order of identifiers and sources.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn shared_records(&self, source: SourceName, limit: usize) -> Result<Vec<Claim>, JournalError> {
        self.read(move |store| store.shared_records(&source, limit)).await
    }

    /// Requests a run of a source's harvest. The node that harvests the source begins it soon.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn request_harvest(&self, source: SourceName) -> Result<(), JournalError> {
        self.write_harvest(source, HarvestWrite::Request(Timestamp::now())).await
    }

    /// Modifies a source's harvest. On return the modification is on disk.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn write_harvest(&self, source: SourceName, write: HarvestWrite) -> Result<(), JournalError> {
        self.send(|reply| Command::WriteHarvest(source, write, reply)).await
    }

    /// Returns the harvests that were made over HTTP, in order of their sources.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn harvest_definitions(&self) -> Result<Vec<HarvestDefinition>, JournalError> {
        self.read(HarvestStore::harvest_definitions).await
    }
}
