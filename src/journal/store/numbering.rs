//! Continuation of the numbering after a loss of changes: a restore from a backup, or a failover to a database server
//! that lacks the newest changes.
//!
//! Readers may have seen the lost changes. If the journal continued with the next number, a reader with a later cursor
//! would miss new changes under numbers that it has already processed. The numbering therefore skips all numbers that
//! the lost part can have given: it continues at the current time, with [`NUMBERS_PER_MILLISECOND`] numbers for every
//! millisecond since 1970. No journal gives that many numbers.
//!
//! The clock alone is not enough. It may have been set back since the last loss, or it is the clock of another node,
//! which is slower. The numbering therefore skips at least [`MIN_SKIPPED`] numbers, which is more than any loss. So no
//! number is ever used twice, however often changes are lost.

use crate::model::{Seq, Timestamp};

/// Upper bound on the sustained number of changes per millisecond of any journal. Equals the length of a page of the
/// archived feed, so that no page has numbers from before and after a restore.
const NUMBERS_PER_MILLISECOND: i64 = 100;

/// Minimum number of skipped numbers: those of one day.
const MIN_SKIPPED: i64 = 24 * 60 * 60 * 1000 * NUMBERS_PER_MILLISECOND;

/// Returns the number after which the numbering continues, if `given` is the newest number that is known to be given.
pub(super) fn floor_after_loss(given: i64, now: Timestamp) -> i64 {
    let clock = now.millis().saturating_mul(NUMBERS_PER_MILLISECOND);
    let next_page = (given / NUMBERS_PER_MILLISECOND + 1).saturating_mul(NUMBERS_PER_MILLISECOND);
    clock.max(next_page.saturating_add(MIN_SKIPPED))
}

/// Returns the time of a loss from the number after which the numbering continued. It is later than the loss if the numbering
/// skipped the numbers of a day.
pub(in crate::journal) fn time_of_loss(floor: Seq) -> Option<Timestamp> {
    Timestamp::from_millis(i64::try_from(floor.0).ok()? / NUMBERS_PER_MILLISECOND)
}

#[cfg(test)]
mod tests {
    use super::{MIN_SKIPPED, NUMBERS_PER_MILLISECOND, Timestamp, floor_after_loss};

    const HOUR: i64 = 60 * 60 * 1000;

    /// Number of changes that the lost part has given after those that are known.
    const LOST: i64 = 1_000_000;

    #[test]
    fn numbering_continues_beyond_every_given_number() {
        let now = 1_800_000_000_000;
        let floor = |given, millis| floor_after_loss(given, Timestamp::from_millis(millis).unwrap());
        let first = floor(5, now);
        assert_eq!(first, now * NUMBERS_PER_MILLISECOND);
        // The second loss follows at once, a minute later by the clock of a slower node, and after a day.
        for millis in [now, now + 60_000 - HOUR, now + 24 * HOUR] {
            let second = floor(first + 10, millis);
            assert!(second > first + 10 + LOST, "{millis}: {second}");
            assert_eq!(second % NUMBERS_PER_MILLISECOND, 0, "a page of the feed begins there");
        }
        assert_eq!(floor(first + 55, now), first + 100 + MIN_SKIPPED);
    }
}
