//! Politeness to the harvested servers: one request at a time to each host, and none before the time that the host has
//! asked for. Harvests of several sources on one host share the limit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, sleep_until},
};

/// Hosts with their limits. Clones share the same state. There are as many hosts as the configuration names.
#[derive(Clone, Default)]
pub struct Hosts(Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<Instant>>>>>);

/// Permission to send requests to a host, one at a time. Dropping it lets the next harvest send.
pub struct HostPermit(OwnedMutexGuard<Instant>);

impl Hosts {
    /// Waits until no other harvest sends a request to the host, and the host accepts requests again.
    pub async fn permit(&self, host: &str) -> HostPermit {
        let host = {
            let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                hosts.entry(host.to_owned()).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(Instant::now()))),
            )
        };
        let permit = host.lock_owned().await;
        sleep_until(*permit).await;
        HostPermit(permit)
    }
}

impl HostPermit {
    /// Sends no request to the host for this time.
    pub fn pause(&mut self, time: Duration) {
        *self.0 = Instant::now() + time;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::{Duration, Hosts, Instant};

    #[tokio::test]
    async fn host_gets_one_request_at_a_time_and_its_pause() {
        let hosts = Hosts::default();
        let mut first = hosts.permit("a").await;
        let other = hosts.permit("b").await;
        assert!(hosts.permit("a").now_or_never().is_none());
        let (began, pause) = (Instant::now(), Duration::from_millis(50));
        first.pause(pause);
        drop((first, other));
        let _second = hosts.permit("a").await;
        assert!(began.elapsed() >= pause);
    }
}
