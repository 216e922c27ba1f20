//! Requests of a crawl, with a rate limit and retries.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::{CrawlError, CrawlOptions, SkippedResource};
use crate::{
    lookup::{LookupError, LookupResponse, Repository, Resource, ResourceStream},
    retry::Backoff,
};

/// Initial wait before a retry. Jitter may shorten it by half.
const BASE_WAIT: Duration = Duration::from_millis(200);

/// Maximum wait before a retry. Jitter may shorten it by half.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Maximum rate of a crawl's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Maximum number of requests per second; `None` for no limit.
    pub per_second: Option<u32>,
}

/// Client of a crawl.
pub(super) struct CrawlRequests {
    pub(super) repository: Repository,
    pub(super) options: CrawlOptions,
    schedule: Mutex<Schedule>,
}

/// Schedule of requests under a rate limit.
#[derive(Debug, Default)]
struct Schedule {
    next: Option<Instant>,
}

impl Schedule {
    /// Reserves the next slot and returns the time until it begins. Slots are evenly spaced, and unused slots
    /// are lost.
    fn reserve(&mut self, rate_limit: RateLimit, now: Instant) -> Duration {
        let Some(per_second) = rate_limit.per_second else { return Duration::ZERO };
        let slot = self.next.map_or(now, |next| next.max(now));
        self.next = Some(slot + Duration::from_secs(1) / per_second.max(1));
        slot - now
    }
}

impl CrawlRequests {
    pub(super) fn new(repository: Repository, options: CrawlOptions) -> Self {
        Self { repository, options, schedule: Mutex::default() }
    }

    /// Sends a GET request; `None` if the resource does not exist.
    pub(super) async fn get(&self, path: &str, accept: &'static str) -> Result<Option<Resource>, CrawlError> {
        self.with_retries(path, async || self.repository.get(path, accept).await.map(LookupResponse::into_resource))
            .await
    }

    /// Sends a HEAD request and returns the response headers; `None` if the resource does not exist.
    pub(super) async fn head(
        &self,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<Option<Resource>, CrawlError> {
        self.with_retries(path, async || self.repository.head(path, headers).await.map(LookupResponse::into_resource))
            .await
    }

    /// Sends a GET request and streams the body; `None` if the resource does not exist.
    pub(super) async fn open(&self, path: &str, accept: &'static str) -> Result<Option<ResourceStream>, CrawlError> {
        self.with_retries(path, async || self.repository.open(path, accept).await).await
    }

    /// Converts the error of a resource to a skipped resource, if the options allow it. Otherwise returns the
    /// error.
    pub(super) fn skip(&self, name: &str, error: CrawlError) -> Result<SkippedResource, CrawlError> {
        if self.options.skip_failing && error.is_of_one_resource() {
            return Ok(SkippedResource { name: name.to_owned(), reason: error.to_string() });
        }
        Err(error)
    }

    async fn with_retries<T>(
        &self,
        path: &str,
        send: impl AsyncFn() -> Result<T, LookupError>,
    ) -> Result<T, CrawlError> {
        let mut backoff = Backoff::new(BASE_WAIT, LONGEST_WAIT);
        loop {
            self.wait_for_slot().await;
            let error = match send().await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let wait = match &error {
                // No request was sent, so this is not counted as a retry.
                LookupError::CircuitOpen { retry_after } => *retry_after,
                LookupError::NoFreeRequest { .. } => Duration::ZERO,
                error if error.is_transient() && backoff.failures() < self.options.retries => backoff.next_wait(),
                _ => return Err(CrawlError::Request { path: path.to_owned(), error }),
            };
            tracing::debug!(path, %error, "repeating a request to the repository");
            tokio::time::sleep(wait).await;
        }
    }

    async fn wait_for_slot(&self) {
        let wait = match self.schedule.lock() {
            Ok(mut schedule) => schedule.reserve(self.options.rate_limit, Instant::now()),
            // The schedule is valid even after a panic in another thread.
            Err(poisoned) => poisoned.into_inner().reserve(self.options.rate_limit, Instant::now()),
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, RateLimit, Schedule};

    #[test]
    fn slots_are_evenly_spaced_and_unused_ones_are_lost() {
        let rate_limit = RateLimit { per_second: Some(4) };
        let began = Instant::now();
        let mut schedule = Schedule::default();
        let mut wait = |after_ms| {
            let now = began + Duration::from_millis(after_ms);
            schedule.reserve(rate_limit, now).as_millis()
        };
        assert_eq!([wait(0), wait(0), wait(0)], [0, 250, 500]);
        assert_eq!(wait(700), 50);
        // No request for a while.
        assert_eq!([wait(5_000), wait(5_000), wait(5_001)], [0, 250, 499]);
        assert_eq!(Schedule::default().reserve(RateLimit::default(), began), Duration::ZERO);
    }

    #[test]
    fn no_second_has_more_slots_than_the_rate_limit() {
        let rate_limit = RateLimit { per_second: Some(7) };
        let began = Instant::now();
        let mut schedule = Schedule::default();
        let mut now = began;
        let mut slots = Vec::new();
        for number in 0..200_u64 {
            now += Duration::from_millis(number * 37 % 90);
            slots.push(now + schedule.reserve(rate_limit, now));
        }
        for slot in &slots {
            let within = slots.iter().filter(|other| **other >= *slot && **other < *slot + Duration::from_millis(990));
            assert!(within.count() <= 7);
        }
    }
}
