//! Metrics of the target.

use std::time::Duration;

use metrics::{counter, gauge};

use super::crawler::CrawlerState;

/// Number of installed crawlers, by state.
pub const CRAWLERS: &str = "tidings_xesam_crawlers";

/// Number of crawlers that have not answered a call for a second or longer.
pub const UNANSWERED: &str = "tidings_xesam_unanswered_crawlers";

/// Number of records that crawlers have accepted.
pub const RECORDS: &str = "tidings_xesam_records_total";

/// Number of batches that crawlers have accepted.
pub const BATCHES: &str = "tidings_xesam_batches_total";

/// Number of requests of crawlers by outcome: incremental, full or refused.
pub const REQUESTS: &str = "tidings_xesam_requests_total";

/// Number of pages of records that were read from the journal or the registry.
pub const PAGES: &str = "tidings_xesam_pages_total";

/// Time after which a crawler without an answer counts as unanswered.
const PROMPT: Duration = Duration::from_secs(1);

#[expect(clippy::cast_precision_loss, reason = "there are a few thousand crawlers at the most")]
pub(super) fn set_crawlers(crawlers: impl Iterator<Item = (CrawlerState, Option<Duration>)>) {
    let (mut states, mut unanswered) = ([0_usize; CrawlerState::ALL.len()], 0_usize);
    for (state, since) in crawlers {
        if let Some(count) = CrawlerState::ALL.iter().position(|other| *other == state) {
            states[count] += 1;
        }
        unanswered += usize::from(since.is_some_and(|since| since >= PROMPT));
    }
    for (state, count) in CrawlerState::ALL.into_iter().zip(states) {
        gauge!(CRAWLERS, "state" => state.name()).set(count as f64);
    }
    gauge!(UNANSWERED).set(unanswered as f64);
}

/// Shows the series of counters, because a `rate()` query needs the initial zero.
pub(super) fn register() {
    for outcome in ["incremental", "full", "refused"] {
        counter!(REQUESTS, "outcome" => outcome).increment(0);
    }
    for of in ["journal", "registry"] {
        counter!(PAGES, "of" => of).increment(0);
    }
    counter!(BATCHES).increment(0);
    counter!(RECORDS).increment(0);
}

pub(super) fn count_batch(records: usize) {
    counter!(BATCHES).increment(1);
    counter!(RECORDS).increment(records as u64);
}

pub(super) fn count_request(outcome: &'static str) {
    counter!(REQUESTS, "outcome" => outcome).increment(1);
}

/// Counts a page of `journal` or `registry`.
pub(super) fn count_page(of: &'static str) {
    counter!(PAGES, "of" => of).increment(1);
}
