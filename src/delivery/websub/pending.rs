//! What waits to be verified, bounded for everybody that it concerns.
//!
//! A request names a callback, and whoever sends it has the gateway ask there. So a request replaces the one
//! before it for the same subscription, as long as that waits; the same is asked again a second later at the
//! earliest. One server is asked one thing at a time. One site, which is all servers of a registrable name or of an
//! address, is asked ten times in a second at the most; all sites together are asked twenty times a second. Only so
//! many requests wait for one site, and for all together.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::model::SubscriptionName;

/// Time from one verification of a subscription to the next.
const SAME: Duration = Duration::from_secs(1);

/// Time from one verification at a site to the next.
const SITE: Duration = Duration::from_millis(100);

/// Average time from one verification to the next, whatever its site, and the number of verifications that may begin
/// at once after a pause.
const ALL: Duration = Duration::from_millis(50);
const BURST: u32 = 20;

/// Number of requests that may wait for one site.
const OF_SITE: usize = 100;

/// Number of requests that may wait in all.
const OF_ALL: usize = 1000;

/// Target of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Scheme, host and port of the callback.
    pub(super) server: String,
    /// Registrable name or address of its host.
    pub(super) site: String,
}

/// What waits.
pub(super) struct Pending<T> {
    jobs: HashMap<SubscriptionName, Job<T>>,
    /// Servers that are being asked.
    busy: HashSet<String>,
    /// Sites that were asked lately, and the time of their next verification.
    sites: HashMap<String, Instant>,
    /// Time by which the verifications so far would have begun at the average rate.
    paced_until: Option<Instant>,
}

struct Job<T> {
    target: Target,
    wanted: Option<T>,
    is_running: bool,
    not_before: Instant,
}

/// Too many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    /// This one now.
    Now(SubscriptionName, T),
    /// Nothing before that time.
    At(Instant),
    /// Nothing until something is added or done.
    Nothing,
}

impl<T> Pending<T> {
    pub(super) fn new() -> Self {
        Self { jobs: HashMap::new(), busy: HashSet::new(), sites: HashMap::new(), paced_until: None }
    }

    /// Adds a request, in place of the one that waits for the same subscription. `merge` is given the one that is
    /// replaced, if there is one.
    pub(super) fn add(
        &mut self,
        name: &SubscriptionName,
        target: &Target,
        now: Instant,
        merge: impl FnOnce(Option<T>) -> T,
    ) -> Result<(), Full> {
        self.forget_what_is_over(now);
        if let Some(job) = self.jobs.get_mut(name) {
            job.wanted = Some(merge(job.wanted.take()));
            return Ok(());
        }
        let of_site = || self.jobs.values().filter(|job| job.target.site == target.site).count();
        if self.jobs.len() >= OF_ALL || of_site() >= OF_SITE {
            return Err(Full);
        }
        let job = Job { target: target.clone(), wanted: Some(merge(None)), is_running: false, not_before: now };
        self.jobs.insert(name.clone(), job);
        Ok(())
    }

    /// Takes the next one whose time has come; it runs until [`Pending::done`].
    pub(super) fn next(&mut self, now: Instant) -> Next<T> {
        let mut soonest: Option<(Instant, SubscriptionName)> = None;
        for (name, job) in &self.jobs {
            if job.wanted.is_none() || job.is_running || self.busy.contains(&job.target.server) {
                continue;
            }
            let at = self.sites.get(&job.target.site).map_or(job.not_before, |site| job.not_before.max(*site));
            if soonest.as_ref().is_none_or(|(earliest, _)| at < *earliest) {
                soonest = Some((at, name.clone()));
            }
        }
        let Some((at, name)) = soonest else { return Next::Nothing };
        let paced = self.paced_until.and_then(|until| until.checked_sub(ALL * (BURST - 1)));
        let at = paced.map_or(at, |paced| at.max(paced));
        if at > now {
            return Next::At(at);
        }
        let Some(job) = self.jobs.get_mut(&name) else { return Next::Nothing };
        let Some(wanted) = job.wanted.take() else { return Next::Nothing };
        job.is_running = true;
        job.not_before = now + SAME;
        self.busy.insert(job.target.server.clone());
        self.sites.insert(job.target.site.clone(), now + SITE);
        self.paced_until = Some(self.paced_until.map_or(now, |until| until.max(now)) + ALL);
        Next::Now(name, wanted)
    }

    /// One is done, whatever came of it.
    pub(super) fn done(&mut self, name: &SubscriptionName) {
        if let Some(job) = self.jobs.get_mut(name) {
            job.is_running = false;
            self.busy.remove(&job.target.server);
        }
    }

    fn forget_what_is_over(&mut self, now: Instant) {
        self.jobs.retain(|_, job| job.is_running || job.wanted.is_some() || job.not_before > now);
        self.sites.retain(|_, not_before| *not_before > now);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ALL, BURST, Duration, Full, Instant, Next, OF_ALL, OF_SITE, Pending, SAME, SITE, SubscriptionName, Target,
    };

    fn name(number: usize) -> SubscriptionName {
        SubscriptionName::parse(&format!("s{number}")).unwrap()
    }

    fn add(pending: &mut Pending<usize>, number: usize, server: &str, now: Instant) -> Result<(), Full> {
        let target = Target { server: server.to_owned(), site: server.split(':').next().unwrap().to_owned() };
        pending.add(&name(number), &target, now, |before| before.unwrap_or(0) + 1)
    }

    #[test]
    fn a_crowd_of_requests_for_one_is_one() {
        let (mut pending, now) = (Pending::new(), Instant::now());
        (0..1000).for_each(|_| add(&mut pending, 1, "a", now).unwrap());
        assert_eq!(pending.next(now), Next::Now(name(1), 1000));
        // One more while it runs, and after it: a second later.
        add(&mut pending, 1, "a", now).unwrap();
        assert_eq!(pending.next(now), Next::Nothing);
        pending.done(&name(1));
        assert_eq!(pending.next(now), Next::At(now + SAME));
        assert_eq!(pending.next(now + SAME), Next::Now(name(1), 1));
        pending.done(&name(1));
        add(&mut pending, 1, "a", now + SAME + Duration::from_millis(1)).unwrap();
        assert_eq!(pending.next(now + SAME + SAME / 2), Next::At(now + 2 * SAME));
    }

    #[test]
    fn a_server_is_asked_one_thing_at_a_time_and_others_do_not_wait_for_it() {
        let (mut pending, now) = (Pending::new(), Instant::now());
        add(&mut pending, 1, "a", now).unwrap();
        add(&mut pending, 2, "a", now).unwrap();
        add(&mut pending, 3, "b", now).unwrap();
        let mut begun = Vec::new();
        while let Next::Now(name, _) = pending.next(now) {
            begun.push(name);
        }
        assert_eq!(begun.len(), 2);
        assert!(begun.contains(&name(3)));
        let first = begun.into_iter().find(|begun| *begun != name(3)).unwrap();
        pending.done(&first);
        assert_eq!(pending.next(now), Next::At(now + SITE));
        assert!(matches!(pending.next(now + SITE), Next::Now(..)));
    }

    #[test]
    fn only_so_many_wait() {
        let (mut pending, now) = (Pending::new(), Instant::now());
        (0..OF_SITE).for_each(|number| add(&mut pending, number, "a", now).unwrap());
        assert_eq!(add(&mut pending, OF_SITE, "a", now), Err(Full));
        assert_eq!(add(&mut pending, 0, "a", now), Ok(()), "it replaces the one that waits");
        (OF_SITE..OF_ALL).for_each(|number| add(&mut pending, number, &format!("h{number}"), now).unwrap());
        assert_eq!(add(&mut pending, OF_ALL, "z", now), Err(Full));
        // What is over makes room, once it may be asked again.
        let Next::Now(name, _) = pending.next(now) else { panic!("one may begin") };
        pending.done(&name);
        assert_eq!(add(&mut pending, OF_ALL, "z", now), Err(Full));
        assert_eq!(add(&mut pending, OF_ALL, "z", now + SAME), Ok(()));
    }

    /// Begins all that may begin within a time; says how many begin.
    fn begun_within(pending: &mut Pending<usize>, mut now: Instant, time: Duration) -> u32 {
        let (until, mut begun) = (now + time, 0);
        loop {
            match pending.next(now) {
                Next::Now(name, _) => {
                    pending.done(&name);
                    begun += 1;
                }
                Next::At(at) if at < until => now = at,
                _ => return begun,
            }
        }
    }

    #[test]
    fn a_site_is_asked_ten_times_a_second_on_whatever_ports() {
        let (mut pending, now) = (Pending::new(), Instant::now());
        (0..OF_SITE).for_each(|number| add(&mut pending, number, &format!("a:{number}"), now).unwrap());
        assert_eq!(add(&mut pending, OF_SITE, "a:x", now), Err(Full), "ports share the room of their site");
        assert_eq!(begun_within(&mut pending, now, Duration::from_secs(3)), 30);
    }

    #[test]
    fn all_sites_together_are_asked_twenty_times_a_second() {
        let (mut pending, now) = (Pending::new(), Instant::now());
        (0..500).for_each(|number| add(&mut pending, number, &format!("h{number}"), now).unwrap());
        let begun = begun_within(&mut pending, now, Duration::from_secs(3));
        assert_eq!(Duration::from_secs(3), ALL * 60);
        assert_eq!(begun, BURST + 60 - 1);
    }
}
