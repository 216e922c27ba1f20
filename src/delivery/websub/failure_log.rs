//! Limits log lines about failing callbacks, because anybody can request such callbacks. Each site gets one
//! line per minute; the others are logged at `debug`.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Minimum time between two lines about a site.
const MIN_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of sites with a line within that time.
const MAX_SITES: usize = 100;

/// Failing sites and the times of their last lines.
#[derive(Debug, Default)]
pub(super) struct FailureLog(HashMap<String, Instant>);

impl FailureLog {
    /// Returns whether to log a failure at this site.
    pub(super) fn is_news(&mut self, site: &str, now: Instant) -> bool {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < MIN_INTERVAL);
        if self.0.contains_key(site) || self.0.len() >= MAX_SITES {
            return false;
        }
        self.0.insert(site.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{FailureLog, Instant, MAX_SITES, MIN_INTERVAL};

    #[test]
    fn log_lines_are_limited_per_site_and_in_total() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        let news = (0..1000).filter(|_| log.is_news("a", now)).count();
        assert_eq!(news, 1);
        assert!(
            log.is_news("b", now) && !log.is_news("a", now + MIN_INTERVAL / 2) && log.is_news("a", now + MIN_INTERVAL)
        );
        let news = (0..1000).filter(|number| log.is_news(&number.to_string(), now + MIN_INTERVAL)).count();
        assert_eq!(news, MAX_SITES - 1);
    }
}
