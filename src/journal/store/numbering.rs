//! Continuation of the numbering after a loss of changes: a restore from a backup, or a failover to a database server
//! that lacks the newest changes.
//!
//! Readers may have seen the lost changes. If the journal continued with the next number, a reader with a later cursor
//! would miss new changes under numbers that it has already processed. The numbering therefore skips all numbers that
//! the lost part can have given: it continues at the current time, with [`NUMBERS_PER_MILLISECOND`] numbers for every
//! millisecond since 1970. No journal gives that many numbers, so no number is ever used twice, however often changes
//! are lost.

use crate::model::Timestamp;

/// Upper bound on the sustained number of changes per millisecond of any journal. Equals the length of a page of the
/// archived feed, so that no page has numbers from before and after a restore.
const NUMBERS_PER_MILLISECOND: i64 = 100;

/// Returns the number after which the numbering continues, if `given` is the newest number that is known to be given.
pub(super) fn floor_after_loss(given: i64, now: Timestamp) -> i64 {
    let clock = now.millis().saturating_mul(NUMBERS_PER_MILLISECOND);
    // The numbering must not go back even if the clock was set back.
    clock.max((given / NUMBERS_PER_MILLISECOND + 2).saturating_mul(NUMBERS_PER_MILLISECOND))
}

#[cfg(test)]
mod tests {
    use super::{Timestamp, floor_after_loss};

    #[test]
    fn numbering_continues_beyond_every_given_number() {
        let now = Timestamp::from_millis(1_000).unwrap();
        assert_eq!(floor_after_loss(0, now), 100_000);
        assert_eq!(floor_after_loss(100_000, now), 100_200, "a second loss within the same millisecond");
        assert_eq!(floor_after_loss(900_055, now), 900_200, "the clock was set back");
    }
}
