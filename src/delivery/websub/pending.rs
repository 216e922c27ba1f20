//! What waits to be verified, bounded for everybody that it concerns.
//!
//! A request names a callback, and whoever sends it has the gateway ask there. So a request replaces the one
//! before it for the same subscription, as long as that waits; the same is asked again a second later at the
//! earliest; one server is asked one thing at a time, ten in a second at the most; and only so many wait for one
//! server, and for all together.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::model::SubscriptionName;

/// How long after one verification of a subscription the next may begin, and of any on one server.
const SAME: Duration = Duration::from_secs(1);
const SERVER: Duration = Duration::from_millis(100);

/// How many may wait, of one server and of all.
const OF_SERVER: usize = 100;
const OF_ALL: usize = 1000;

/// What waits.
pub(super) struct Pending<T> {
    jobs: HashMap<SubscriptionName, Job<T>>,
    servers: HashMap<String, Instant>,
}

struct Job<T> {
    server: String,
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
        Self { jobs: HashMap::new(), servers: HashMap::new() }
    }

    /// Adds a request, in place of the one that waits for the same subscription. `merge` is given the one that is
    /// replaced, if there is one.
    pub(super) fn add(
        &mut self,
        name: &SubscriptionName,
        server: &str,
        now: Instant,
        merge: impl FnOnce(Option<T>) -> T,
    ) -> Result<(), Full> {
        self.forget_what_is_over(now);
        if let Some(job) = self.jobs.get_mut(name) {
            job.wanted = Some(merge(job.wanted.take()));
            return Ok(());
        }
        if self.jobs.len() >= OF_ALL || self.jobs.values().filter(|job| job.server == server).count() >= OF_SERVER {
            return Err(Full);
        }
        let job = Job { server: server.to_owned(), wanted: Some(merge(None)), is_running: false, not_before: now };
        self.jobs.insert(name.clone(), job);
        Ok(())
    }

    /// Takes the next one whose time has come; it runs until [`Pending::done`].
    pub(super) fn next(&mut self, now: Instant) -> Next<T> {
        let mut soonest: Option<(Instant, SubscriptionName)> = None;
        for (name, job) in &self.jobs {
            let is_busy = job.is_running || self.is_busy(&job.server);
            if job.wanted.is_none() || is_busy {
                continue;
            }
            let at = self.servers.get(&job.server).map_or(job.not_before, |server| job.not_before.max(*server));
            if soonest.as_ref().is_none_or(|(earliest, _)| at < *earliest) {
                soonest = Some((at, name.clone()));
            }
        }
        let Some((at, name)) = soonest else { return Next::Nothing };
        if at > now {
            return Next::At(at);
        }
        let Some(job) = self.jobs.get_mut(&name) else { return Next::Nothing };
        let Some(wanted) = job.wanted.take() else { return Next::Nothing };
        job.is_running = true;
        job.not_before = now + SAME;
        self.servers.insert(job.server.clone(), now + SERVER);
        Next::Now(name, wanted)
    }

    /// One is done, whatever came of it.
    pub(super) fn done(&mut self, name: &SubscriptionName) {
        if let Some(job) = self.jobs.get_mut(name) {
            job.is_running = false;
        }
    }

    fn is_busy(&self, server: &str) -> bool {
        self.jobs.values().any(|job| job.is_running && job.server == server)
    }

    fn forget_what_is_over(&mut self, now: Instant) {
        self.jobs.retain(|_, job| job.is_running || job.wanted.is_some() || job.not_before > now);
        self.servers.retain(|_, not_before| *not_before > now);
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Full, Instant, Next, OF_ALL, OF_SERVER, Pending, SAME, SERVER, SubscriptionName};

    fn name(number: usize) -> SubscriptionName {
        SubscriptionName::parse(&format!("s{number}")).unwrap()
    }

    fn add(pending: &mut Pending<usize>, number: usize, server: &str, now: Instant) -> Result<(), Full> {
        pending.add(&name(number), server, now, |before| before.unwrap_or(0) + 1)
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
        assert_eq!(pending.next(now), Next::At(now + SERVER));
        assert!(matches!(pending.next(now + SERVER), Next::Now(..)));
    }

    #[test]
    fn only_so_many_wait() {
        let (mut pending, now) = (Pending::new(), Instant::now());
        (0..OF_SERVER).for_each(|number| add(&mut pending, number, "a", now).unwrap());
        assert_eq!(add(&mut pending, OF_SERVER, "a", now), Err(Full));
        assert_eq!(add(&mut pending, 0, "a", now), Ok(()), "it replaces the one that waits");
        (OF_SERVER..OF_ALL).for_each(|number| add(&mut pending, number, &format!("h{number}"), now).unwrap());
        assert_eq!(add(&mut pending, OF_ALL, "z", now), Err(Full));
        // What is over makes room, once it may be asked again.
        while let Next::Now(name, _) = pending.next(now) {
            pending.done(&name);
        }
        assert_eq!(add(&mut pending, OF_ALL, "z", now), Err(Full));
        assert_eq!(add(&mut pending, OF_ALL, "z", now + SAME), Ok(()));
    }
}
