//! Log lines about callbacks that fail. Anybody may ask for callbacks that do, so there is one line a minute for a
//! site, and the others are at `debug`.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Time from one line about a site to the next.
const QUIET: Duration = Duration::from_secs(60);

/// Number of sites that have a line within that time.
const SITES: usize = 100;

/// Sites that have failed, and the times of their lines.
#[derive(Debug, Default)]
pub(super) struct FailureLog(HashMap<String, Instant>);

impl FailureLog {
    /// Whether a failure at this site has a line of its own.
    pub(super) fn is_news(&mut self, site: &str, now: Instant) -> bool {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < QUIET);
        if self.0.contains_key(site) || self.0.len() >= SITES {
            return false;
        }
        self.0.insert(site.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{FailureLog, Instant, QUIET, SITES};

    #[test]
    fn a_site_has_one_line_a_minute_and_only_so_many_sites_have_one() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        let news = (0..1000).filter(|_| log.is_news("a", now)).count();
        assert_eq!(news, 1);
        assert!(log.is_news("b", now) && !log.is_news("a", now + QUIET / 2) && log.is_news("a", now + QUIET));
        let news = (0..1000).filter(|number| log.is_news(&number.to_string(), now + QUIET)).count();
        assert_eq!(news, SITES - 1);
    }
}
