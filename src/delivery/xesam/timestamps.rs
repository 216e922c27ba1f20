//! Timestamps of records on the wire.
//!
//! The journal gives many changes the same time of receipt, and a change has several records. A record's timestamp is
//! therefore the time of receipt with a position below it, in nanoseconds:
//!
//! * It grows from record to record, so that an order by timestamps is the order of the journal.
//! * It is never a whole second. A crawler keeps whole seconds, and asks for records after them; it gets the records of
//!   the last second again, and misses none.
//! * It stays within the second of receipt. Otherwise the crawler's second could be later than that of the next record.
//!
//! It depends on nothing but the selected records of its second. So every crawler, every node and every run of the gateway gives a
//! record the same timestamp.

use chrono::DateTime;

use crate::model::Timestamp;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// A timestamp on the wire, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WireTime(i64);

impl WireTime {
    /// Returns the timestamp of the first record of a change that follows a record with this timestamp. It exceeds the
    /// given one, unless a second has a billion records.
    pub(super) fn next_in(self, received: Timestamp) -> Self {
        let received = received.millis().saturating_mul(NANOS_PER_MILLI);
        let end =
            received.div_euclid(NANOS_PER_SECOND).saturating_mul(NANOS_PER_SECOND).saturating_add(NANOS_PER_SECOND - 1);
        Self(self.0.max(received).saturating_add(1).min(end))
    }

    /// Returns the timestamp that follows by this many records of the same change.
    pub(super) fn plus(self, records: usize) -> Self {
        let end = self.0.div_euclid(NANOS_PER_SECOND) * NANOS_PER_SECOND + NANOS_PER_SECOND - 1;
        Self(self.0.saturating_add(i64::try_from(records).unwrap_or(i64::MAX)).min(end))
    }

    /// Writes the timestamp in ISO 8601, with nine fractional digits, so that the order of the texts is the same.
    pub(super) fn text(self) -> String {
        let (seconds, nanos) = (self.0.div_euclid(NANOS_PER_SECOND), self.0.rem_euclid(NANOS_PER_SECOND));
        let time = DateTime::from_timestamp(seconds, u32::try_from(nanos).unwrap_or_default()).unwrap_or_default();
        time.to_rfc3339_opts(chrono::SecondsFormat::Nanos, true)
    }
}

#[cfg(test)]
mod tests {
    use super::{NANOS_PER_SECOND, Timestamp, WireTime};

    fn received(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn timestamps_grow_within_the_second_of_receipt() {
        let (early, late) = (received("2026-11-22T12:00:01.000Z"), received("2026-11-22T12:00:01.999Z"));
        let first = WireTime::default().next_in(early);
        assert_eq!(first.text(), "2026-11-22T12:00:01.000000001Z", "never a whole second");
        let second = first.plus(2).next_in(early);
        assert_eq!(second.text(), "2026-11-22T12:00:01.000000004Z");
        let third = second.next_in(late);
        assert_eq!(third.text(), "2026-11-22T12:00:01.999000001Z");
        let last = third.plus(5_000_000);
        assert_eq!(last.text(), "2026-11-22T12:00:01.999999999Z", "not the next second");
        assert_eq!(last.next_in(late), last);
        let next = received("2026-11-22T12:00:02Z");
        assert_eq!(last.next_in(next).text(), "2026-11-22T12:00:02.000000001Z");
    }

    #[test]
    fn texts_are_in_order_of_the_timestamps() {
        let times = [0, 1, 999_999_999, NANOS_PER_SECOND + 1, 1_795_000_000 * NANOS_PER_SECOND + 10];
        let texts: Vec<_> = times.iter().map(|nanos| WireTime(*nanos).text()).collect();
        assert!(texts.is_sorted() && texts.iter().all(|text| text.len() == 30), "{texts:?}");
    }
}
