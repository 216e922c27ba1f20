//! Queue of requests that wait for verification, with limits that protect third parties.
//!
//! A request names any callback, and the gateway then sends a request there. A new request therefore replaces a
//! waiting one for the same subscription, and a subscription is verified at most once per second. A server
//! receives one request at a time. A site (all servers of a registrable name or an IP address) receives at most
//! ten requests per second, and all sites together twenty. The number of waiting requests is limited per site
//! and in total.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::model::SubscriptionName;

/// Minimum time between two verifications of a subscription.
const SUBSCRIPTION_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two verifications at a site.
const SITE_INTERVAL: Duration = Duration::from_millis(100);

/// Average time between two verifications, and the number that may start at once after a pause.
const AVERAGE_INTERVAL: Duration = Duration::from_millis(50);
const BURST: u32 = 20;

/// Maximum number of waiting requests per site.
const MAX_WAITING_PER_SITE: usize = 100;

/// Maximum number of waiting requests.
const MAX_WAITING: usize = 1000;

/// Target of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Scheme, host and port of the callback.
    pub(super) server: String,
    /// Registrable name or IP address of its host.
    pub(super) site: String,
}

/// Requests that wait for verification.
pub(super) struct VerificationQueue<T> {
    jobs: HashMap<SubscriptionName, Job<T>>,
    /// Servers with a verification in progress.
    busy: HashSet<String>,
    /// Recently contacted sites, and the earliest time of their next verification.
    sites: HashMap<String, Instant>,
    /// Time by which all verifications so far would have started at the average rate.
    paced_until: Option<Instant>,
}

struct Job<T> {
    target: Target,
    queued: Option<T>,
    is_running: bool,
    not_before: Instant,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// Next action of the runner.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    /// Verify this request now.
    Now(SubscriptionName, T),
    /// Wait until this time.
    At(Instant),
    /// Wait until a request is added or finished.
    Nothing,
}

impl<T> VerificationQueue<T> {
    pub(super) fn new() -> Self {
        Self { jobs: HashMap::new(), busy: HashSet::new(), sites: HashMap::new(), paced_until: None }
    }

    /// Adds a request, or replaces the waiting one for the same subscription. `merge` receives the replaced
    /// request, if there is one.
    pub(super) fn add(
        &mut self,
        name: &SubscriptionName,
        target: &Target,
        now: Instant,
        merge: impl FnOnce(Option<T>) -> T,
    ) -> Result<(), QueueFull> {
        self.remove_expired(now);
        if let Some(job) = self.jobs.get_mut(name) {
            job.queued = Some(merge(job.queued.take()));
            return Ok(());
        }
        let of_site = || self.jobs.values().filter(|job| job.target.site == target.site).count();
        if self.jobs.len() >= MAX_WAITING || of_site() >= MAX_WAITING_PER_SITE {
            return Err(QueueFull);
        }
        let job = Job { target: target.clone(), queued: Some(merge(None)), is_running: false, not_before: now };
        self.jobs.insert(name.clone(), job);
        Ok(())
    }

    /// Takes the next request that is due. It runs until [`VerificationQueue::finish`].
    pub(super) fn next(&mut self, now: Instant) -> Next<T> {
        let mut soonest: Option<(Instant, SubscriptionName)> = None;
        for (name, job) in &self.jobs {
            if job.queued.is_none() || job.is_running || self.busy.contains(&job.target.server) {
                continue;
            }
            let at = self.sites.get(&job.target.site).map_or(job.not_before, |site| job.not_before.max(*site));
            if soonest.as_ref().is_none_or(|(earliest, _)| at < *earliest) {
                soonest = Some((at, name.clone()));
            }
        }
        let Some((at, name)) = soonest else { return Next::Nothing };
        let paced = self.paced_until.and_then(|until| until.checked_sub(AVERAGE_INTERVAL * (BURST - 1)));
        let at = paced.map_or(at, |paced| at.max(paced));
        if at > now {
            return Next::At(at);
        }
        let Some(job) = self.jobs.get_mut(&name) else { return Next::Nothing };
        let Some(queued) = job.queued.take() else { return Next::Nothing };
        job.is_running = true;
        job.not_before = now + SUBSCRIPTION_INTERVAL;
        self.busy.insert(job.target.server.clone());
        self.sites.insert(job.target.site.clone(), now + SITE_INTERVAL);
        self.paced_until = Some(self.paced_until.map_or(now, |until| until.max(now)) + AVERAGE_INTERVAL);
        Next::Now(name, queued)
    }

    /// Marks a verification as finished, whatever its result.
    pub(super) fn finish(&mut self, name: &SubscriptionName) {
        if let Some(job) = self.jobs.get_mut(name) {
            job.is_running = false;
            self.busy.remove(&job.target.server);
        }
    }

    fn remove_expired(&mut self, now: Instant) {
        self.jobs.retain(|_, job| job.is_running || job.queued.is_some() || job.not_before > now);
        self.sites.retain(|_, not_before| *not_before > now);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AVERAGE_INTERVAL, BURST, Duration, Instant, MAX_WAITING, MAX_WAITING_PER_SITE, Next, QueueFull, SITE_INTERVAL,
        SUBSCRIPTION_INTERVAL, SubscriptionName, Target, VerificationQueue,
    };

    fn name(number: usize) -> SubscriptionName {
        SubscriptionName::parse(&format!("s{number}")).unwrap()
    }

    fn add(pending: &mut VerificationQueue<usize>, number: usize, server: &str, now: Instant) -> Result<(), QueueFull> {
        let target = Target { server: server.to_owned(), site: server.split(':').next().unwrap().to_owned() };
        pending.add(&name(number), &target, now, |before| before.unwrap_or(0) + 1)
    }

    #[test]
    fn requests_for_one_subscription_are_merged() {
        let (mut pending, now) = (VerificationQueue::new(), Instant::now());
        (0..1000).for_each(|_| add(&mut pending, 1, "a", now).unwrap());
        assert_eq!(pending.next(now), Next::Now(name(1), 1000));
        // Another request during and after the verification is due one second later.
        add(&mut pending, 1, "a", now).unwrap();
        assert_eq!(pending.next(now), Next::Nothing);
        pending.finish(&name(1));
        assert_eq!(pending.next(now), Next::At(now + SUBSCRIPTION_INTERVAL));
        assert_eq!(pending.next(now + SUBSCRIPTION_INTERVAL), Next::Now(name(1), 1));
        pending.finish(&name(1));
        add(&mut pending, 1, "a", now + SUBSCRIPTION_INTERVAL + Duration::from_millis(1)).unwrap();
        assert_eq!(
            pending.next(now + SUBSCRIPTION_INTERVAL + SUBSCRIPTION_INTERVAL / 2),
            Next::At(now + 2 * SUBSCRIPTION_INTERVAL)
        );
    }

    #[test]
    fn verifications_are_sequential_per_server_and_parallel_across_servers() {
        let (mut pending, now) = (VerificationQueue::new(), Instant::now());
        add(&mut pending, 1, "a", now).unwrap();
        add(&mut pending, 2, "a", now).unwrap();
        add(&mut pending, 3, "b", now).unwrap();
        let mut started = Vec::new();
        while let Next::Now(name, _) = pending.next(now) {
            started.push(name);
        }
        assert_eq!(started.len(), 2);
        assert!(started.contains(&name(3)));
        let first = started.into_iter().find(|started| *started != name(3)).unwrap();
        pending.finish(&first);
        assert_eq!(pending.next(now), Next::At(now + SITE_INTERVAL));
        assert!(matches!(pending.next(now + SITE_INTERVAL), Next::Now(..)));
    }

    #[test]
    fn waiting_requests_are_bounded() {
        let (mut pending, now) = (VerificationQueue::new(), Instant::now());
        (0..MAX_WAITING_PER_SITE).for_each(|number| add(&mut pending, number, "a", now).unwrap());
        assert_eq!(add(&mut pending, MAX_WAITING_PER_SITE, "a", now), Err(QueueFull));
        assert_eq!(add(&mut pending, 0, "a", now), Ok(()), "it replaces the one that waits");
        (MAX_WAITING_PER_SITE..MAX_WAITING)
            .for_each(|number| add(&mut pending, number, &format!("h{number}"), now).unwrap());
        assert_eq!(add(&mut pending, MAX_WAITING, "z", now), Err(QueueFull));
        // A finished request leaves the queue when its subscription may be verified again.
        let Next::Now(name, _) = pending.next(now) else { panic!("one may begin") };
        pending.finish(&name);
        assert_eq!(add(&mut pending, MAX_WAITING, "z", now), Err(QueueFull));
        assert_eq!(add(&mut pending, MAX_WAITING, "z", now + SUBSCRIPTION_INTERVAL), Ok(()));
    }

    /// Starts all verifications that are due within a time; returns their number.
    fn started_within(pending: &mut VerificationQueue<usize>, mut now: Instant, time: Duration) -> u32 {
        let (until, mut started) = (now + time, 0);
        loop {
            match pending.next(now) {
                Next::Now(name, _) => {
                    pending.finish(&name);
                    started += 1;
                }
                Next::At(at) if at < until => now = at,
                _ => return started,
            }
        }
    }

    #[test]
    fn site_limit_applies_across_ports() {
        let (mut pending, now) = (VerificationQueue::new(), Instant::now());
        (0..MAX_WAITING_PER_SITE).for_each(|number| add(&mut pending, number, &format!("a:{number}"), now).unwrap());
        assert_eq!(
            add(&mut pending, MAX_WAITING_PER_SITE, "a:x", now),
            Err(QueueFull),
            "ports share the room of their site"
        );
        assert_eq!(started_within(&mut pending, now, Duration::from_secs(3)), 30);
    }

    #[test]
    fn total_rate_is_twenty_per_second() {
        let (mut pending, now) = (VerificationQueue::new(), Instant::now());
        (0..500).for_each(|number| add(&mut pending, number, &format!("h{number}"), now).unwrap());
        let started = started_within(&mut pending, now, Duration::from_secs(3));
        assert_eq!(Duration::from_secs(3), AVERAGE_INTERVAL * 60);
        assert_eq!(started, BURST + 60 - 1);
    }
}
