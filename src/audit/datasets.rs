//! An audit of archived datasets: compares the lists of their platforms with the registry.
//!
//! A correction needs the files, so it is no draft of the audit: it makes the job of the dataset due, which archives what has
//! changed.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use tokio::time::sleep;

use super::{
    progress::{Progress, WalkError},
    report::{AuditRequest, Difference, DifferenceKind, Phase},
    walk::AuditStop,
};
use crate::{
    filesets::{ComparedDataset, DatasetDifference, DatasetDifferenceKind, JobLoop},
    journal::{
        JournalError,
        ingest::{IngestJob, JobId, JobSelection, JobState},
    },
};

/// Number of jobs that are read at a time.
const PAGE: usize = 64;

/// Number of datasets that are compared at a time.
const AT_ONCE: usize = 4;

/// Time after which a host that has no answer about a dataset is asked about no further ones.
const SILENCE: Duration = Duration::from_secs(60);

/// A running audit of a source of datasets.
pub(super) struct DatasetWalk {
    jobs: Arc<JobLoop>,
    progress: Progress,
    pause: Duration,
    /// Hosts that answered nothing for a minute, at most one for each dataset.
    silent_hosts: Mutex<HashSet<String>>,
}

impl DatasetWalk {
    pub(super) fn new(jobs: Arc<JobLoop>, progress: Progress, request: &AuditRequest) -> Self {
        Self { jobs, progress, pause: Duration::from_secs(request.pause), silent_hosts: Mutex::default() }
    }

    /// Compares all archived datasets, from the position of the audit.
    pub(super) async fn run(mut self, stop: &AuditStop) -> Result<(), WalkError> {
        self.progress.begin().await?;
        let walked = stop.audit.run_until_cancelled(self.phases()).await.unwrap_or(Err(WalkError::Stopped));
        self.progress.end(walked, stop.duty.is_cancelled()).await
    }

    async fn phases(&mut self) -> Result<(), WalkError> {
        self.progress.audit.report.phase = Phase::Repository;
        loop {
            // The identifiers of jobs are in the order of the first requests, and the newest are read first.
            let before = self.progress.audit.position.parse().ok().map(JobId);
            // In any state, because a job that looks at an archived dataset again runs or waits.
            let selection = JobSelection::All { before, state: None };
            let page = self.progress.journal.ingest_jobs(selection, PAGE).await?;
            let Some(last) = page.last().map(|job| job.id.to_string()) else { return Ok(()) };
            let own = page.into_iter().filter(|job| job.source == *self.progress.source.name()).collect();
            self.compare(own).await?;
            self.progress.audit.position = last;
            self.progress.save().await?;
        }
    }

    /// Compares datasets. Those that differ are compared a second time, and the same differences count.
    async fn compare(&mut self, jobs: Vec<IngestJob>) -> Result<(), WalkError> {
        let mut differing = Vec::new();
        for (job, compared) in self.compared(jobs).await? {
            self.progress.audit.report.registered += 1;
            match compared {
                ComparedDataset::Differences(differences) => {
                    self.progress.audit.report.objects += 1;
                    if !differences.is_empty() {
                        differing.push((job, differences));
                    }
                }
                ComparedDataset::NoAnswer(reason) => {
                    tracing::debug!(
                        source = %self.progress.source.name(), dataset = %job.dataset, reason,
                        "an audit has no answer about a dataset"
                    );
                    self.progress.audit.report.unanswered += 1;
                }
            }
        }
        if differing.is_empty() {
            return Ok(());
        }
        sleep(self.pause).await;
        let (jobs, first): (Vec<_>, Vec<_>) = differing.into_iter().unzip();
        // A platform can have changed all paths of many datasets.
        let first: HashSet<_> = first.into_iter().flatten().collect();
        let again = self.compared(jobs).await?;
        for (job, compared) in again {
            let ComparedDataset::Differences(differences) = compared else {
                self.progress.audit.report.objects -= 1;
                self.progress.audit.report.unanswered += 1;
                continue;
            };
            let same = differences.into_iter().filter(|found| first.contains(found));
            let differences: Vec<_> = same.map(|found| difference(&job, found)).collect();
            if differences.is_empty() {
                continue;
            }
            self.progress.audit.report.add(differences);
            if self.progress.audit.report.repair {
                self.repeat(&job).await?;
            }
        }
        Ok(())
    }

    /// Makes the job of a dataset due, unless it runs: then it has read the list before, perhaps.
    async fn repeat(&mut self, job: &IngestJob) -> Result<(), WalkError> {
        let present = self.progress.journal.ingest_jobs(JobSelection::Some(vec![job.id]), 1).await?;
        let report = &mut self.progress.audit.report;
        if present.first().is_some_and(|present| present.state == JobState::Archived) {
            self.progress.journal.repeat_ingest(job).await?;
            report.corrections += 1;
        } else {
            report.refused += 1;
            let reason = "datasets are being archived at present; give the command again when their jobs have ended";
            report.reason = Some(format!("{} {reason}", report.refused));
        }
        Ok(())
    }

    /// Compares datasets, a few at a time.
    async fn compared(&mut self, jobs: Vec<IngestJob>) -> Result<Vec<(IngestJob, ComparedDataset)>, WalkError> {
        let Self { jobs: comparer, progress, silent_hosts, .. } = self;
        let compare = async |job: IngestJob| -> Result<_, JournalError> {
            if lock(silent_hosts).contains(&job.host) {
                let reason = "its host has answered nothing before".to_owned();
                return Ok(Some((job, ComparedDataset::NoAnswer(reason))));
            }
            let began = Instant::now();
            let compared = comparer.compare(&progress.journal, &job).await?;
            // The next datasets of this host would take as long, and so would the audit.
            if matches!(compared, Some(ComparedDataset::NoAnswer(_))) && began.elapsed() >= SILENCE {
                lock(silent_hosts).insert(job.host.clone());
            }
            Ok(compared.map(|compared| (job, compared)))
        };
        let compared: Vec<_> = stream::iter(jobs).map(compare).buffer_unordered(AT_ONCE).collect().await;
        Ok(compared.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

fn lock(hosts: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    hosts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn difference(job: &IngestJob, DatasetDifference { item, kind }: DatasetDifference) -> Difference {
    let (kind, members) = match kind {
        DatasetDifferenceKind::Missing => (DifferenceKind::Missing, Vec::new()),
        DatasetDifferenceKind::Different(members) => (DifferenceKind::Different, members),
        DatasetDifferenceKind::Extra => (DifferenceKind::Extra, Vec::new()),
    };
    Difference { kind, object: job.dataset.clone(), item, members: members.into_iter().map(str::to_owned).collect() }
}
