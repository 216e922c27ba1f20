//! Politeness to the harvested servers: a number of requests at a time to each host, and none before the time that the host
//! has asked for. Harvests of several sources on one host share the limit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};

/// Number of hosts above which those without requests are forgotten.
const MAX_IDLE_HOSTS: usize = 1000;

/// Longest time without requests to a host. A server can ask for more, perhaps by mistake, and gets a request each hour.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Hosts with their limits. Clones share the same state.
#[derive(Clone)]
pub struct Hosts {
    hosts: Arc<Mutex<HashMap<String, Arc<Host>>>>,
    requests: usize,
}

struct Host {
    requests: Arc<Semaphore>,
    /// Time before which no request may begin.
    free_at: Mutex<Instant>,
}

/// Permission to send requests to a host, one at a time. Dropping it lets the next harvest send.
pub struct HostPermit {
    host: Arc<Host>,
    _request: Option<OwnedSemaphorePermit>,
}

/// One request at a time.
impl Default for Hosts {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Hosts {
    /// Creates limits of so many requests at a time to each host.
    #[must_use]
    pub fn new(requests: usize) -> Self {
        Self { hosts: Arc::default(), requests }
    }

    /// Waits until the host has no other request too many, and accepts requests again.
    pub async fn permit(&self, host: &str) -> HostPermit {
        loop {
            if let Ok(permit) = self.permit_within(host, Duration::MAX).await {
                return permit;
            }
        }
    }

    /// Waits as [`Hosts::permit`] does, for callers that hold something which others need meanwhile.
    ///
    /// # Errors
    /// Fails with the rest of the pause if the host wants no requests for longer than `limit`.
    pub async fn permit_within(&self, host: &str, limit: Duration) -> Result<HostPermit, Duration> {
        let host = self.host(host);
        // The semaphore is never closed.
        let request = Arc::clone(&host.requests).acquire_owned().await.ok();
        loop {
            let free_at = *host.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            match free_at.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(HostPermit { host, _request: request }),
                rest if rest > limit => return Err(rest),
                _ => sleep_until(free_at).await,
            }
        }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_IDLE_HOSTS {
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.is_paused());
        }
        let new = || {
            let (requests, free_at) = (Arc::new(Semaphore::new(self.requests)), Mutex::new(Instant::now()));
            Arc::new(Host { requests, free_at })
        };
        Arc::clone(hosts.entry(name.to_owned()).or_insert_with(new))
    }
}

impl Host {
    fn is_paused(&self) -> bool {
        *self.free_at.lock().unwrap_or_else(PoisonError::into_inner) > Instant::now()
    }
}

impl HostPermit {
    /// Sends no request to the host for this time, or for an hour if it is longer.
    pub fn pause(&mut self, time: Duration) {
        let mut free_at = self.host.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(Instant::now() + time.min(LONGEST_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::{Duration, Hosts, Instant};

    #[tokio::test]
    async fn host_gets_its_number_of_requests_at_a_time_and_its_pause() {
        for requests in [1, 3] {
            let hosts = Hosts::new(requests);
            let mut permits = Vec::new();
            for _ in 0..requests {
                permits.push(hosts.permit("a").now_or_never().unwrap());
            }
            let other = hosts.permit("b").await;
            assert!(hosts.permit("a").now_or_never().is_none());
            let (began, pause) = (Instant::now(), Duration::from_millis(50));
            permits[0].pause(pause);
            drop((permits, other));
            let _next = hosts.permit("a").await;
            assert!(began.elapsed() >= pause);
        }
    }

    #[tokio::test]
    async fn pause_has_a_bound_and_nobody_has_to_wait_for_its_end() {
        let hosts = Hosts::default();
        hosts.permit("a").await.pause(Duration::MAX);
        let rest = hosts.permit_within("a", Duration::from_secs(60)).await.err().unwrap();
        assert!(rest > Duration::from_secs(60) && rest <= super::LONGEST_PAUSE, "{rest:?}");
        assert!(hosts.permit("a").now_or_never().is_none() && hosts.permit("b").now_or_never().is_some());
        hosts.permit("b").await.pause(Duration::from_millis(20));
        assert!(hosts.permit_within("b", Duration::from_secs(60)).await.is_ok());
    }

    #[tokio::test]
    async fn idle_hosts_are_forgotten_and_busy_ones_are_not() {
        let hosts = Hosts::default();
        hosts.permit("paused").await.pause(Duration::from_secs(60));
        let _busy = hosts.permit("busy").await;
        for n in 0..3000 {
            hosts.permit(&n.to_string()).await;
        }
        assert!(hosts.hosts.lock().unwrap().len() <= super::MAX_IDLE_HOSTS);
        assert!(hosts.permit("busy").now_or_never().is_none() && hosts.permit("paused").now_or_never().is_none());
    }
}
