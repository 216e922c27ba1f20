//! Turns of hosts: each host has one place among the jobs that run, so that slow hosts hold up their own datasets alone.

use std::collections::HashSet;

use url::Url;

/// Resolvers of persistent identifiers. The first segment of a path there is the publisher, which stands for its host.
const RESOLVERS: [&str; 5] = ["doi.org", "dx.doi.org", "www.doi.org", "hdl.handle.net", "n2t.net"];

/// Hosts of the jobs that run.
#[derive(Debug, Default)]
pub(super) struct Turns(HashSet<String>);

impl Turns {
    /// Creates the turns of the datasets whose jobs run.
    pub(super) fn new<'d>(datasets: impl IntoIterator<Item = &'d str>) -> Self {
        Self(datasets.into_iter().map(host_of).collect())
    }

    /// Gives the turn of its host to a dataset; returns false if another dataset has it.
    pub(super) fn take(&mut self, dataset: &str) -> bool {
        self.0.insert(host_of(dataset))
    }
}

/// Returns the host of a dataset, whatever its port. For an identifier behind a resolver, it is the prefix of its publisher.
fn host_of(dataset: &str) -> String {
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
    use super::Turns;

    #[test]
    fn one_dataset_of_a_host_runs_at_a_time() {
        let mut turns = Turns::new(["https://a.example/1", "https://doi.org/10.5281/zenodo.1"]);
        for (dataset, is_free) in [
            ("https://a.example/2", false),
            ("http://a.example/2", false),
            ("https://a.example:8443/2", false),
            ("https://b.example/1", true),
            ("https://b.example/2", false),
            ("https://doi.org/10.5281/zenodo.2", false),
            ("doi:10.5281/zenodo.3", false),
            ("https://doi.org/10.7910/DVN/1", true),
            ("https://hdl.handle.net/1234/5", true),
        ] {
            assert_eq!(turns.take(dataset), is_free, "{dataset}");
        }
    }
}
