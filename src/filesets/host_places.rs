//! Places of hosts: each host has one place among the jobs that run, so that slow hosts hold up their own datasets alone.
//!
//! A job begins with the place of the host that its dataset names, and takes the place of each host to which redirections
//! lead it. If another job has that one, the job ends, and waits for it in the list of due jobs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use url::Url;

use crate::journal::ingest::JobId;

/// Resolvers of persistent identifiers. The first segment of a path there is the publisher, which stands for its host.
const RESOLVERS: [&str; 5] = ["doi.org", "dx.doi.org", "www.doi.org", "hdl.handle.net", "n2t.net"];

/// The hosts of the jobs of a source that run. Clones share the same places.
#[derive(Clone, Debug, Default)]
pub(super) struct HostPlaces(Arc<Mutex<HashMap<JobId, HeldHosts>>>);

/// Hosts of a job.
#[derive(Debug)]
struct HeldHosts {
    /// Host with which the job has begun. The job keeps it, so that no other one follows the same redirections in vain.
    first: String,
    /// Host to which redirections have led.
    asked: Option<String>,
    /// Host that the job wanted and another one has.
    wanted: Option<String>,
}

/// Places of a job at hosts. The default one belongs to no job, and is at every host. Clones are the same places, which are
/// free when all of them are dropped.
#[derive(Clone, Debug, Default)]
pub struct JobPlace(Option<Arc<Place>>);

#[derive(Debug)]
struct Place {
    places: HostPlaces,
    job: JobId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(&self.job);
    }
}

impl HostPlaces {
    /// Gives a job the place of a host; returns `None` if another job has it.
    pub(super) fn take(&self, job: JobId, host: &str) -> Option<JobPlace> {
        let mut jobs = self.lock();
        if jobs.values().any(|held| held.has(host)) {
            return None;
        }
        jobs.insert(job, HeldHosts { first: host.to_owned(), asked: None, wanted: None });
        Some(JobPlace(Some(Arc::new(Place { places: self.clone(), job }))))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, HeldHosts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldHosts {
    fn has(&self, host: &str) -> bool {
        self.first == host || self.asked.as_deref() == Some(host)
    }
}

impl JobPlace {
    /// Moves to the host of a URL; returns false if another job has its place. A resolver has places for all jobs.
    pub(super) fn move_to(&self, url: &Url) -> bool {
        let (Some(place), Some(host)) = (&self.0, url.host_str()) else { return true };
        if RESOLVERS.contains(&host) {
            return true;
        }
        let mut jobs = place.places.lock();
        let is_taken = jobs.iter().any(|(job, held)| *job != place.job && held.has(host));
        let Some(held) = jobs.get_mut(&place.job) else { return true };
        if is_taken {
            held.wanted = Some(host.to_owned());
        } else {
            (held.asked, held.wanted) = (Some(host.to_owned()), None);
        }
        !is_taken
    }

    /// Returns the host from which the dataset is requested, as far as the job knows.
    pub(super) fn host(&self) -> Option<String> {
        let place = self.0.as_ref()?;
        let jobs = place.places.lock();
        let held = jobs.get(&place.job)?;
        held.wanted.as_ref().or(held.asked.as_ref()).cloned()
    }
}

/// Returns the host that a dataset names, whatever its port. For an identifier behind a resolver, it is the prefix of its
/// publisher.
pub(super) fn host_of(dataset: &str) -> String {
    let Ok(url) = Url::parse(dataset) else { return dataset.to_owned() };
    let publisher = |path: &str| path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
    match url.host_str() {
        Some(host) if RESOLVERS.contains(&host) => publisher(url.path()),
        Some(host) => host.to_owned(),
        None => publisher(url.path()),
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{HostPlaces, JobId, JobPlace, host_of};

    fn at(host: &str) -> Url {
        Url::parse(&format!("https://{host}/1")).unwrap()
    }

    #[test]
    fn host_is_that_of_the_dataset_or_its_publisher() {
        for (dataset, host) in [
            ("https://a.example/2", "a.example"),
            ("http://a.example:8443/2", "a.example"),
            ("https://doi.org/10.5281/zenodo.2", "10.5281"),
            ("doi:10.5281/zenodo.3", "10.5281"),
            ("https://hdl.handle.net/1234/5", "1234"),
        ] {
            assert_eq!(host_of(dataset), host);
        }
    }

    #[test]
    fn one_job_is_at_a_host_at_a_time() {
        let places = HostPlaces::default();
        let first = places.take(JobId::mint(), "10.1").unwrap();
        assert!(places.take(JobId::mint(), "10.1").is_none());
        let second = places.take(JobId::mint(), "10.2").unwrap();
        assert!(first.move_to(&at("doi.org")) && second.move_to(&at("doi.org")));
        assert!(first.move_to(&at("slow.example")) && first.move_to(&at("slow.example")));
        assert!(!second.move_to(&at("slow.example")));
        assert_eq!(second.host().as_deref(), Some("slow.example"));
        drop(second);
        assert!(places.take(JobId::mint(), "slow.example").is_none());
        drop(first.clone());
        assert!(places.take(JobId::mint(), "10.1").is_none());
        // The place of a host that redirects further is free for others.
        assert!(first.move_to(&at("archive.example")));
        let third = places.take(JobId::mint(), "slow.example").unwrap();
        assert_eq!((first.host().as_deref(), third.host()), (Some("archive.example"), None));
        drop(first);
        assert!(third.move_to(&at("archive.example")) && places.take(JobId::mint(), "10.1").is_some());
    }

    #[test]
    fn place_of_no_job_is_everywhere() {
        let place = JobPlace::default();
        assert!(place.move_to(&at("a.example")) && place.host().is_none());
    }
}
