//! Politeness to the harvested servers: a number of requests at a time to each host, and none before the time that the host
//! has asked for.
//!
//! Each source has its own share of a host: no more requests than that number, however long they take. The sources take
//! turns, so that a host with many of them gets no more requests at a time either. A turn ends after some seconds even if
//! its request goes on, so a slow transfer of one source holds up the others no longer than that.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::model::SourceName;

/// Number of hosts above which those without requests are forgotten.
const MAX_IDLE_HOSTS: usize = 1000;

/// Time after which a request holds up those of other sources no longer. Most requests take less.
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// Longest time without requests to a host. A server can ask for more, perhaps by mistake, and gets a request each hour.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Hosts with their limits, as one source sees them. Clones share the same state.
#[derive(Clone)]
pub struct Hosts {
    hosts: Arc<Mutex<HashMap<String, Arc<Host>>>>,
    requests: usize,
    /// Time of a turn.
    turn: Duration,
    /// Source whose shares are used; `None` if there is only one.
    source: Option<SourceName>,
}

struct Host {
    turns: Arc<Semaphore>,
    /// Shares of the sources that have used the host.
    shares: Mutex<HashMap<Option<SourceName>, Arc<Semaphore>>>,
    /// Time before which no request may begin.
    free_at: Mutex<Instant>,
}

/// Permission to send requests to a host, one at a time. Dropping it lets the next request of the source begin.
pub struct HostPermit {
    host: Arc<Host>,
    _share: Option<OwnedSemaphorePermit>,
    /// Ends the turn after its longest time, or when it is dropped.
    _turn: AbortOnDropHandle<()>,
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
        Self { hosts: Arc::default(), requests, turn: LONGEST_TURN, source: None }
    }

    /// Returns the same hosts with the shares of a source.
    #[must_use]
    pub fn of_source(&self, source: &SourceName) -> Self {
        Self { source: Some(source.clone()), ..self.clone() }
    }

    /// Waits until the source has no other request too many at the host, has its turn, and the host accepts requests again.
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
        // The semaphores are never closed. The share comes first, so that a source waits for one turn at a time.
        let share = host.share(self.source.as_ref(), self.requests).acquire_owned().await.ok();
        let turn = Arc::clone(&host.turns).acquire_owned().await.ok();
        loop {
            let free_at = *host.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            match free_at.saturating_duration_since(Instant::now()) {
                Duration::ZERO => break,
                rest if rest > limit => return Err(rest),
                _ => sleep_until(free_at).await,
            }
        }
        let longest = self.turn;
        let end_of_turn = tokio::spawn(async move {
            sleep(longest).await;
            drop(turn);
        });
        Ok(HostPermit { host, _share: share, _turn: AbortOnDropHandle::new(end_of_turn) })
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_IDLE_HOSTS {
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.is_paused());
        }
        let new = || {
            let turns = Arc::new(Semaphore::new(self.requests));
            Arc::new(Host { turns, shares: Mutex::default(), free_at: Mutex::new(Instant::now()) })
        };
        Arc::clone(hosts.entry(name.to_owned()).or_insert_with(new))
    }
}

impl Host {
    /// Returns the share of a source, and forgets those of sources without requests.
    fn share(&self, source: Option<&SourceName>, requests: usize) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        Arc::clone(shares.entry(source.cloned()).or_insert_with(|| Arc::new(Semaphore::new(requests))))
    }

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

    use tokio::time::timeout;

    use super::{Duration, Hosts, Instant, SourceName};

    fn source(name: &str) -> SourceName {
        SourceName::parse(name).unwrap()
    }

    #[tokio::test]
    async fn slow_request_of_a_source_holds_up_others_for_the_time_of_a_turn_alone() {
        let hosts = Hosts { turn: Duration::from_millis(300), ..Hosts::default() };
        let [slow, other, third] = ["slow", "other", "third"].map(|name| hosts.of_source(&source(name)));
        let began = Instant::now();
        let mut of_slow = slow.permit("h").await;
        // The sources take turns.
        assert!(other.permit("h").now_or_never().is_none());
        let of_other = other.permit("h").await;
        assert!(began.elapsed() >= hosts.turn);
        assert!(third.permit("h").now_or_never().is_none());
        drop(of_other);
        drop(third.permit("h").await);
        // Each source has its one request only, however long that takes.
        assert!(timeout(2 * hosts.turn, slow.permit("h")).await.is_err());
        // A wait that the server asks for is one for everybody.
        of_slow.pause(Duration::from_secs(60));
        assert!(other.permit_within("h", Duration::from_secs(1)).await.is_err());
        drop(of_slow);
        assert!(slow.permit_within("h", Duration::from_secs(1)).await.is_err());
    }

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
