//! The next attempt of a job after an ingest.

use std::time::Duration;

use super::{FilesetHarvestSettings, Ingested, RetryRule};
use crate::{
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
    /// Whether the result is reported. A passing failure to look at an archived dataset again is none of the dataset.
    pub(super) is_reported: bool,
}

/// Returns whether the dataset of a job is archived. It stays so while its platform fails for a time.
pub(super) fn is_archived(job: &IngestJob) -> bool {
    job.status.as_deref().is_some_and(|status| status.starts_with("success"))
}

impl FilesetHarvestSettings {
    /// Decides about the next attempt of a job.
    pub(super) fn outcome(&self, job: IngestJob, ingested: &Ingested) -> Outcome {
        let now = Timestamp::now();
        if ingested.retry == Some(RetryRule::WhenHostIsFree) {
            // It is still due, and begins when its host has a place.
            return Outcome { job: IngestJob { state: JobState::Waiting, updated: now, ..job }, is_reported: false };
        }
        let result = &ingested.result;
        let was_archived = is_archived(&job);
        let failures = job.attempts.saturating_add(1);
        let is_passing = matches!(ingested.retry, Some(RetryRule::Backoff(_) | RetryRule::AfterFix));
        let (state, due, attempts) = match ingested.retry {
            None => (JobState::Archived, self.watch.map(|time| after(now, time)), 0),
            Some(RetryRule::Backoff(_)) if failures >= MAX_ATTEMPTS && was_archived => {
                (JobState::Archived, Some(after(now, self.watch.unwrap_or(LONGEST_RETRY))), 0)
            }
            Some(RetryRule::Backoff(_)) if failures >= MAX_ATTEMPTS => (JobState::Failed, None, failures),
            Some(RetryRule::Backoff(asked)) => {
                let wait = self.wait(failures).max(asked.unwrap_or_default().min(LONGEST_RETRY));
                (JobState::Waiting, Some(after(now, wait)), failures)
            }
            Some(RetryRule::At(time)) => (JobState::Waiting, Some(time.max(after(now, self.first_retry))), 0),
            Some(RetryRule::AfterFix) => (JobState::Blocked, None, failures),
            Some(RetryRule::Never | RetryRule::WhenHostIsFree) => (JobState::Failed, None, failures),
        };
        // An archived dataset keeps its status, by which a later failure is recognized as one of a watched dataset.
        let is_kept = was_archived && is_passing;
        let status = if is_kept { job.status.clone() } else { Some(result.status.to_string()) };
        let message = result.error_message.as_deref().map(Text::new);
        let job = IngestJob { state, due, attempts, status, message, updated: now, ..job };
        Outcome { job, is_reported: !is_kept }
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
    use super::{Duration, FilesetHarvestSettings, IngestJob, Ingested, JobState, RetryRule, Timestamp, after};
    use crate::{
        format::fileset::{FilesetRequest, message::FilesetResult, status::IngestStatus},
        journal::ingest::JobId,
        model::{JsonDocument, SourceName, Uri},
    };

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn outcome(attempts: u32, before: Option<&str>, retry: Option<RetryRule>) -> (JobState, Option<i64>, bool, String) {
        let dataset = Uri::parse("https://h/1").unwrap();
        let request = FilesetRequest::new(dataset.clone(), "test");
        let status = if retry.is_none() { IngestStatus::SUCCESS } else { IngestStatus::PLATFORM_ERROR };
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
        let settings = FilesetHarvestSettings {
            of: Vec::new(),
            jobs: 1,
            watch: Some(7 * DAY),
            first_retry: Duration::from_secs(60),
        };
        let ingested = Ingested { result: FilesetResult::new(request, status), retry, new_bytes: 0 };
        let outcome = settings.outcome(job, &ingested);
        let minutes = outcome.job.due.map(|due| (due.millis() - now.millis()) / 60_000);
        (outcome.job.state, minutes, outcome.is_reported, outcome.job.status.unwrap_or_default())
    }

    #[test]
    fn next_attempt_depends_on_the_kind_of_failure() {
        let soon = after(Timestamp::now(), 30 * DAY + Duration::from_secs(10));
        let minute = Duration::from_secs(61);
        for (attempts, retry, state, minutes) in [
            (3, None, JobState::Archived, Some(7 * 24 * 60)),
            (0, Some(RetryRule::Backoff(None)), JobState::Waiting, Some(1)),
            (2, Some(RetryRule::Backoff(None)), JobState::Waiting, Some(16)),
            (8, Some(RetryRule::Backoff(None)), JobState::Waiting, Some(24 * 60)),
            (9, Some(RetryRule::Backoff(None)), JobState::Failed, None),
            (0, Some(RetryRule::Backoff(Some(10 * minute))), JobState::Waiting, Some(10)),
            (5, Some(RetryRule::At(soon)), JobState::Waiting, Some(30 * 24 * 60)),
            (0, Some(RetryRule::AfterFix), JobState::Blocked, None),
            (0, Some(RetryRule::Never), JobState::Failed, None),
        ] {
            let (found, due, is_reported, _) = outcome(attempts, None, retry);
            assert_eq!((found, due, is_reported), (state, minutes, true), "{retry:?} after {attempts}");
        }
    }

    #[test]
    fn archived_dataset_stays_archived_while_its_platform_fails() {
        let (state, due, is_reported, status) = outcome(0, Some("success"), Some(RetryRule::Backoff(None)));
        assert_eq!((state, due, is_reported, &*status), (JobState::Waiting, Some(1), false, "success"));
        let (state, due, is_reported, _) = outcome(9, Some("success"), Some(RetryRule::Backoff(None)));
        assert_eq!((state, due, is_reported), (JobState::Archived, Some(7 * 24 * 60), false));
        let (_, _, is_reported, status) = outcome(0, Some("success"), Some(RetryRule::Never));
        assert!(is_reported && status == "platform-error");
    }
}
