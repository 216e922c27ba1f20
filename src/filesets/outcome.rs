//! The next attempt of a job after an ingest.

use std::time::Duration;

use super::{FilesetSettings, Ingested, RetryRule};
use crate::{
    format::fileset::status::IngestStatus,
    journal::ingest::{IngestJob, JobState},
    model::{Text, Timestamp},
};

/// Number of successive attempts after which a job fails.
const MAX_ATTEMPTS: u32 = 10;

/// Maximum wait between two attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(24 * 60 * 60);

/// A job after an ingest.
pub(super) struct Outcome {
    pub(super) job: IngestJob,
    /// Whether the result is reported: when the dataset is archived or has failed. An attempt that another one follows is
    /// none, and neither is a failure to look at an archived dataset again, unless its platform says so.
    pub(super) is_reported: bool,
}

/// Returns whether the dataset of a job is archived. It stays so while its platform fails for a time.
pub(super) fn is_archived(job: &IngestJob) -> bool {
    job.status.as_deref().is_some_and(|status| status.starts_with("success"))
}

/// Returns whether an ingest has ended with a statement about the dataset. Other failures say nothing about an archived
/// dataset.
fn is_verdict(ingested: &Ingested) -> bool {
    is_statement(&ingested.result.status, ingested.retry)
}

/// Returns whether an outcome is a statement about the dataset: a success, or a response of its platform in the platform's
/// own format.
pub(super) fn is_statement(status: &IngestStatus, retry: Option<RetryRule>) -> bool {
    let verdicts = [
        IngestStatus::PLATFORM_404,
        IngestStatus::PLATFORM_RESTRICTED,
        IngestStatus::PLATFORM_SCOPE,
        IngestStatus::EMPTY_MANIFEST,
        IngestStatus::TOO_LARGE_SIZE,
        IngestStatus::TOO_MANY_FILES,
    ];
    let is_final = matches!(retry, Some(RetryRule::Never | RetryRule::At(_)));
    retry.is_none() || (is_final && verdicts.contains(status))
}

impl FilesetSettings {
    /// Decides about the next attempt of a job.
    pub(super) fn outcome(&self, job: IngestJob, ingested: &Ingested) -> Outcome {
        let now = Timestamp::now();
        if ingested.retry == Some(RetryRule::WhenHostIsFree) {
            // It is still due, and begins when its host has a place.
            return Outcome { job: IngestJob { state: JobState::Waiting, updated: now, ..job }, is_reported: false };
        }
        let result = &ingested.result;
        let was_archived = is_archived(&job);
        // An attempt that has gained files is no failure like the ones before.
        let failures = if ingested.gained_files > 0 { 1 } else { job.attempts.saturating_add(1) };
        let is_kept = was_archived && !is_verdict(ingested);
        let next_look = self.watch.map(|time| after(now, time));
        let mut is_last = true;
        let retry = match ingested.retry {
            // Nobody waits for a job, so it is not attempted within seconds.
            Some(RetryRule::WhenListening) => Some(RetryRule::Backoff(None)),
            retry => retry,
        };
        let (state, due, attempts) = match retry {
            None => (JobState::Archived, next_look, 0),
            Some(RetryRule::Backoff(asked)) if failures < MAX_ATTEMPTS => {
                is_last = false;
                let wait = asked.map_or_else(|| self.wait(failures), |asked| asked.min(LONGEST_RETRY));
                (JobState::Waiting, Some(after(now, wait)), failures)
            }
            Some(_) if is_kept => (JobState::Archived, next_look, 0),
            Some(RetryRule::At(time)) => (JobState::Waiting, Some(time.max(after(now, self.first_retry))), 0),
            Some(RetryRule::AfterFix) => (JobState::Blocked, None, failures),
            Some(RetryRule::Backoff(_) | RetryRule::WhenListening | RetryRule::Never | RetryRule::WhenHostIsFree) => {
                (JobState::Failed, None, failures)
            }
        };
        // An archived dataset keeps its status, by which a later failure is recognized as one of a watched dataset.
        let status = if is_kept { job.status.clone() } else { Some(result.status.to_string()) };
        let message = result.error_message.as_deref().map(Text::new);
        let job = IngestJob { state, due, attempts, status, message, updated: now, ..job };
        Outcome { job, is_reported: is_last && !is_kept }
    }

    /// Returns the wait after so many failures.
    fn wait(&self, failures: u32) -> Duration {
        let factor = 4_u32.saturating_pow(failures.saturating_sub(1));
        self.first_retry.saturating_mul(factor).min(LONGEST_RETRY)
    }
}

fn after(time: Timestamp, wait: Duration) -> Timestamp {
    let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(time.millis().saturating_add(millis)).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::{Duration, FilesetSettings, IngestJob, IngestStatus, Ingested, JobState, RetryRule, Timestamp, after};
    use crate::{
        format::fileset::{FilesetRequest, message::FilesetResult},
        journal::ingest::JobId,
        model::{JsonDocument, SourceName, Uri},
    };

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// An attempt after others.
    struct Attempt {
        attempts: u32,
        before: Option<&'static str>,
        status: IngestStatus,
        retry: Option<RetryRule>,
        gained_files: u64,
    }

    impl Attempt {
        fn new(attempts: u32, retry: Option<RetryRule>) -> Self {
            let status = if retry.is_none() { IngestStatus::SUCCESS } else { IngestStatus::PLATFORM_ERROR };
            Self { attempts, before: None, status, retry, gained_files: 0 }
        }

        /// Returns state, minutes until the next attempt, number of attempts, whether the result is reported, and status.
        fn outcome(self) -> (JobState, Option<i64>, u32, bool, String) {
            let Self { attempts, before, status, retry, gained_files } = self;
            let dataset = Uri::parse("https://h/1").unwrap();
            let request = FilesetRequest::new(dataset.clone(), "test");
            let now = Timestamp::now();
            let job = IngestJob {
                id: JobId::mint(),
                source: SourceName::parse("s").unwrap(),
                dataset,
                host: "h".to_owned(),
                request: JsonDocument::new(&request).unwrap(),
                state: JobState::Running,
                due: Some(now),
                attempts,
                status: before.map(str::to_owned),
                message: None,
                requested: now,
                updated: now,
            };
            let settings =
                FilesetSettings { of: Vec::new(), jobs: 1, watch: Some(7 * DAY), first_retry: Duration::from_secs(60) };
            let ingested = Ingested { result: FilesetResult::new(request, status), retry, new_bytes: 0, gained_files };
            let super::Outcome { job, is_reported } = settings.outcome(job, &ingested);
            let minutes = job.due.map(|due| (due.millis() - now.millis()) / 60_000);
            (job.state, minutes, job.attempts, is_reported, job.status.unwrap_or_default())
        }
    }

    #[test]
    fn next_attempt_depends_on_the_kind_of_failure() {
        let soon = after(Timestamp::now(), 30 * DAY + Duration::from_secs(10));
        let minute = Duration::from_secs(61);
        for (attempts, retry, state, minutes, is_reported) in [
            (3, None, JobState::Archived, Some(7 * 24 * 60), true),
            (0, Some(RetryRule::Backoff(None)), JobState::Waiting, Some(1), false),
            (2, Some(RetryRule::Backoff(None)), JobState::Waiting, Some(16), false),
            (8, Some(RetryRule::Backoff(None)), JobState::Waiting, Some(24 * 60), false),
            (9, Some(RetryRule::Backoff(None)), JobState::Failed, None, true),
            (0, Some(RetryRule::WhenListening), JobState::Waiting, Some(1), false),
            (9, Some(RetryRule::WhenListening), JobState::Failed, None, true),
            (0, Some(RetryRule::Backoff(Some(10 * minute))), JobState::Waiting, Some(10), false),
            // A server that names a wait gets that one.
            (8, Some(RetryRule::Backoff(Some(minute))), JobState::Waiting, Some(1), false),
            (5, Some(RetryRule::At(soon)), JobState::Waiting, Some(30 * 24 * 60), true),
            (0, Some(RetryRule::AfterFix), JobState::Blocked, None, true),
            (0, Some(RetryRule::Never), JobState::Failed, None, true),
        ] {
            let (found, due, _, reported, _) = Attempt::new(attempts, retry).outcome();
            assert_eq!((found, due, reported), (state, minutes, is_reported), "{retry:?} after {attempts}");
        }
    }

    #[test]
    fn attempt_that_gains_files_is_no_failure() {
        let attempt = Attempt { gained_files: 3, ..Attempt::new(9, Some(RetryRule::Backoff(None))) };
        let (state, due, attempts, is_reported, _) = attempt.outcome();
        assert_eq!((state, due, attempts, is_reported), (JobState::Waiting, Some(1), 1, false));
    }

    #[test]
    fn archived_dataset_changes_only_by_the_word_of_its_platform() {
        let archived = |attempts, status: IngestStatus, retry| {
            let attempt = Attempt { before: Some("success"), status, ..Attempt::new(attempts, Some(retry)) };
            let (state, due, _, is_reported, status) = attempt.outcome();
            (state, due, is_reported, status)
        };
        let kept = |state, due| (state, Some(due), false, "success".to_owned());
        let week = 7 * 24 * 60;
        let passing = IngestStatus::PLATFORM_HTTP_ERROR;
        assert_eq!(archived(0, passing.clone(), RetryRule::Backoff(None)), kept(JobState::Waiting, 1));
        assert_eq!(archived(9, passing, RetryRule::Backoff(None)), kept(JobState::Archived, week));
        for (status, retry) in [
            (IngestStatus::REDIRECT_LOOP, RetryRule::Never),
            (IngestStatus::TERMINAL_BAD_STATUS, RetryRule::Never),
            (IngestStatus::ERROR_PLATFORM_DOWNLOAD, RetryRule::Never),
            (IngestStatus::MISMATCH_SIZE, RetryRule::Never),
            (IngestStatus::PLATFORM_BAD_ANSWER, RetryRule::AfterFix),
            (IngestStatus::NO_PLATFORM_MATCH, RetryRule::AfterFix),
        ] {
            assert_eq!(archived(0, status.clone(), retry), kept(JobState::Archived, week), "{status}");
        }
        for status in [IngestStatus::PLATFORM_404, IngestStatus::PLATFORM_RESTRICTED] {
            let (state, due, is_reported, found) = archived(0, status.clone(), RetryRule::Never);
            assert_eq!((state, due, is_reported, &*found), (JobState::Failed, None, true, status.as_str()));
        }
    }
}
