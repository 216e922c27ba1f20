//! Times of changes after a loss of changes, by a restore or a failover.
//!
//! Destinations may have lost changes, with the times of these. All times after the loss are later, so that a destination that
//! compares its time with the begin of the change lists learns that it must begin anew.

use crate::{
    journal::{Journal, order::OrderTime},
    model::{Seq, Timestamp},
};

/// Milliseconds by which the time of a loss is moved, because order times run ahead of the clock in a burst, and clocks of
/// nodes differ.
const MARGIN_MILLIS: i64 = 10 * 60 * 1000;

/// The last loss of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// Number after which the journal continued; 0 if it has lost no changes.
    pub(super) after: Seq,
    /// Time before all changes since then; that of 1970 if the journal has lost no changes.
    time: Timestamp,
}

impl Default for Loss {
    fn default() -> Self {
        Self { after: Seq::ZERO, time: Timestamp::EPOCH }
    }
}

impl Loss {
    /// Returns the last loss of a journal.
    pub(super) fn of(journal: &Journal) -> Self {
        journal.last_loss().map_or_else(Self::default, |(after, time)| Self::new(after, time))
    }

    /// Creates a loss after which the journal continued with the number after this one, at this time.
    pub(super) fn new(after: Seq, time: Timestamp) -> Self {
        let time = Timestamp::from_millis(time.millis().saturating_add(MARGIN_MILLIS)).unwrap_or(time);
        Self { after, time }
    }

    /// Returns the time from which on the journal has all changes since the loss.
    pub(super) fn begin(self) -> Timestamp {
        self.time
    }

    /// Returns the time of a change with this order time, or of a list that was begun when this change was the newest.
    /// Times increase strictly with the numbers, and are those of the order once it has passed the time of the loss.
    pub(super) fn time(self, seq: Seq, order: OrderTime) -> Timestamp {
        let Some(since) = seq.0.checked_sub(self.after.0).filter(|since| *since > 0) else { return self.time };
        let since_loss = self.time.millis().saturating_add(i64::try_from(since).unwrap_or(i64::MAX));
        Timestamp::from_millis(order.0.max(since_loss)).unwrap_or(Timestamp::EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::{Loss, MARGIN_MILLIS, OrderTime, Seq, Timestamp};

    const LOST_AT: i64 = 1_764_000_000_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn journal_without_a_loss_has_order_times() {
        let loss = Loss::default();
        assert_eq!(loss.begin(), Timestamp::EPOCH);
        assert_eq!(loss.time(Seq::ZERO, OrderTime::default()), Timestamp::EPOCH, "nothing is before the first change");
        assert_eq!(loss.time(Seq(1), OrderTime(LOST_AT)), at(LOST_AT));
        assert_eq!(loss.time(Seq(700), OrderTime(LOST_AT + 5)), at(LOST_AT + 5));
    }

    #[test]
    fn times_after_a_loss_are_later_than_its_begin_whatever_the_clock_shows() {
        let loss = Loss::new(Seq(1000), at(LOST_AT));
        let begin = LOST_AT + MARGIN_MILLIS;
        assert_eq!(loss.begin(), at(begin));
        // A list that was begun before the first change, and the surviving changes.
        assert_eq!(loss.time(Seq(1000), OrderTime(LOST_AT - 9)), at(begin));
        assert_eq!(loss.time(Seq(5), OrderTime(LOST_AT + 2 * MARGIN_MILLIS)), at(begin));
        let order = [LOST_AT - MARGIN_MILLIS, LOST_AT, begin - 1, begin, begin + 1, begin + 900].map(OrderTime);
        let times: Vec<_> = (1001..).zip(order).map(|(seq, order)| loss.time(Seq(seq), order).millis()).collect();
        assert_eq!(times, [begin + 1, begin + 2, begin + 3, begin + 4, begin + 5, begin + 900]);
    }

    /// The second loss of a day has a time a day after the first.
    #[test]
    fn times_after_a_second_loss_are_later_than_those_of_the_first() {
        let day = 24 * 60 * 60 * 1000;
        let first = Loss::new(Seq(1000), at(LOST_AT));
        let second = Loss::new(Seq(9000), at(LOST_AT + day));
        let newest = first.time(Seq(1500), OrderTime(LOST_AT + day / 2));
        assert!(second.begin() > newest);
        assert_eq!(second.time(Seq(9001), OrderTime(LOST_AT + day / 2)).millis(), second.begin().millis() + 1);
    }
}
