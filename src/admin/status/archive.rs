//! Soundings about archived datasets and stored files, which the journal is asked for.

use std::{collections::BTreeMap, time::Instant};

use super::soundings::Pace;
use crate::{
    harvest::Harvests,
    journal::{
        Journal, JournalError,
        ingest::{JobCount, JobSelection, JobState},
    },
    model::{SourceName, Timestamp},
};

/// Time for which a failed job is a problem, in milliseconds. Its result stays in the journal, so an administrator who has
/// read it need not cancel each of a thousand jobs.
const FAILURE_MILLIS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Facts about archived datasets and stored files.
#[derive(Clone, Debug, Default)]
pub(super) struct ArchiveFacts {
    /// Number of jobs by state, without those that are archived or cancelled.
    pub(super) jobs: BTreeMap<&'static str, u64>,
    /// Sources with jobs that have failed or are blocked.
    pub(super) failures: BTreeMap<SourceName, JobFailures>,
    /// Size of the files that were stored for each source, in bytes.
    pub(super) stored: BTreeMap<SourceName, u64>,
    pace: Pace,
}

/// Jobs of a source that have failed lately, or are blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobFailures {
    /// Number of the jobs.
    pub(super) jobs: u64,
    /// Dataset of the last one, with its reason.
    pub(super) last: Option<String>,
}

impl ArchiveFacts {
    /// Asks the journal, unless it was asked a moment ago. The former facts stay if it fails.
    pub(super) async fn take(&mut self, journal: &Journal, harvests: &Harvests) -> Result<(), JournalError> {
        if !self.pace.is_due() {
            return Ok(());
        }
        let began = Instant::now();
        let counts = journal.ingest_counts(since(Timestamp::now())).await?;
        let failures = failures(journal, &counts).await?;
        let mut jobs = BTreeMap::new();
        counts.iter().for_each(|count| *jobs.entry(count.state.name()).or_default() += count.jobs);
        (self.jobs, self.failures) = (jobs, failures);
        self.stored = stored(journal, harvests).await?;
        self.pace = Pace::after(began.elapsed());
        Ok(())
    }
}

/// Returns the time since which failures are problems.
fn since(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.millis().saturating_sub(FAILURE_MILLIS)).unwrap_or(now)
}

/// Returns the jobs that an administrator should see: those that failed lately, and all that wait for him.
async fn failures(journal: &Journal, counts: &[JobCount]) -> Result<BTreeMap<SourceName, JobFailures>, JournalError> {
    let mut failures = BTreeMap::<_, (JobFailures, Timestamp)>::new();
    for JobCount { source, state, jobs, recent } in counts {
        let jobs = match state {
            JobState::Blocked => *jobs,
            JobState::Failed => *recent,
            _ => 0,
        };
        if jobs == 0 {
            continue;
        }
        let (failure, updated) = failures.entry(source.clone()).or_insert((JobFailures::default(), Timestamp::EPOCH));
        failure.jobs += jobs;
        let newest = journal.ingest_jobs(JobSelection::InState(source.clone(), *state), 1).await?;
        if let Some(job) = newest.into_iter().next().filter(|job| job.updated > *updated) {
            let reason = job.message.map(String::from).or(job.status).unwrap_or_default();
            (failure.last, *updated) = (Some(format!("{}: {reason}", job.dataset)), job.updated);
        }
    }
    Ok(failures.into_iter().map(|(source, (failure, _))| (source, failure)).collect())
}

/// Returns the size of the files that were stored for each source.
async fn stored(journal: &Journal, harvests: &Harvests) -> Result<BTreeMap<SourceName, u64>, JournalError> {
    let mut stored = BTreeMap::new();
    // The empty position is that of a harvest before its first page.
    for harvest in harvests.list().into_iter().filter(|harvest| harvest.stored_bytes("").is_some()) {
        let source = harvest.source.name().clone();
        let Some(position) = journal.source_position(source.clone()).await? else { continue };
        // A position can have a thousand downloads that are repeated later.
        let read = tokio::task::spawn_blocking(move || harvest.stored_bytes(&position));
        if let Ok(Some(bytes)) = read.await {
            stored.insert(source, bytes);
        }
    }
    Ok(stored)
}
