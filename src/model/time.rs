//! Points in time, as sources write them and as the journal keeps them.

use std::{fmt, ops::Range};

use chrono::{DateTime, Datelike, NaiveDateTime, Timelike, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::deserialize_str::deserialize_str;

/// A point in time in UTC, to the millisecond: what Fedora writes and what all formats can carry.
///
/// It is written as RFC 3339 with three digits and a `Z`: `2011-08-03T08:14:25.943Z`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    /// Since 1970-01-01T00:00:00Z; in the years 0000 to 9999.
    millis: i64,
}

/// The years that RFC 3339 can write, 0000 to 9999, in milliseconds since 1970.
const YEARS: Range<i64> = -62_167_219_200_000..253_402_300_800_000;

/// How many bytes it takes, written.
const WRITTEN: usize = 24;

/// Why a text is not a point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a date and time; write it as in 2011-08-03T08:14:25.943Z")]
pub struct InvalidTimestamp(String);

impl Timestamp {
    /// 1970-01-01T00:00:00.000Z: where a time is asked for and there has been none.
    pub const EPOCH: Self = Self { millis: 0 };

    /// The present, by this machine's clock.
    #[must_use]
    pub fn now() -> Self {
        Self::from_datetime(Utc::now())
    }

    /// Drops what is finer than a millisecond, so that times compare as they are written. A leap
    /// second is taken as the first second after it, as in counting seconds since 1970: XML Schema
    /// has no second 60. A time that RFC 3339 cannot write is taken as the nearest that it can.
    #[must_use]
    pub fn from_datetime(time: DateTime<Utc>) -> Self {
        Self { millis: time.timestamp_millis().clamp(YEARS.start, YEARS.end - 1) }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z, as in `org.fcrepo.jms.timestamp`.
    ///
    /// Gives `None` outside the years that RFC 3339 can write (0000 to 9999).
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        YEARS.contains(&millis).then_some(Self { millis })
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.millis
    }

    /// The same point in time for chrono.
    #[must_use]
    pub fn datetime(self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.millis).unwrap_or_default()
    }

    /// Reads what the sources really send: RFC 3339 with a fraction of any length or none
    /// (Fedora 3 trims trailing zeros), a naive date and time (Python's `isoformat()`, taken as
    /// UTC), and an offset with a stray `Z` behind it (`…-04:00Z`, Fedora's own samples), where the
    /// offset is what was meant.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(raw: &str) -> Result<Self, InvalidTimestamp> {
        let raw = raw.trim();
        let parsed = DateTime::parse_from_rfc3339(raw)
            .map(|time| time.with_timezone(&Utc))
            .or_else(|_| {
                without_stray_z(raw).map_or_else(
                    || naive_as_utc(raw),
                    |rest| DateTime::parse_from_rfc3339(rest).map(|time| time.with_timezone(&Utc)),
                )
            })
            .ok()
            .and_then(|time| Self::from_millis(time.timestamp_millis()));
        parsed.ok_or_else(|| InvalidTimestamp(raw.chars().take(64).collect()))
    }

    /// Writes it. A change has several, and chrono's way over a formatter takes ten times as long.
    fn written(self, room: &mut [u8; WRITTEN]) -> &str {
        *room = *b"0000-00-00T00:00:00.000Z";
        let (date, time) = (self.datetime().date_naive(), self.datetime().time());
        let millis = time.nanosecond() / 1_000_000;
        let parts =
            [date.year().unsigned_abs(), date.month(), date.day(), time.hour(), time.minute(), time.second(), millis];
        for (end, mut rest) in [4, 7, 10, 13, 16, 19, 23].into_iter().zip(parts) {
            let digits = room[..end].iter_mut().rev().take_while(|digit| digit.is_ascii_digit());
            for digit in digits {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
                rest /= 10;
            }
        }
        std::str::from_utf8(room).unwrap_or_default()
    }
}

/// `2016-05-19T17:17:39-04:00` for `2016-05-19T17:17:39-04:00Z`.
fn without_stray_z(raw: &str) -> Option<&str> {
    let rest = raw.strip_suffix(['Z', 'z'])?;
    let sign = rest.len().checked_sub("+00:00".len())?;
    matches!(rest.as_bytes().get(sign), Some(b'+' | b'-')).then_some(rest)
}

fn naive_as_utc(raw: &str) -> chrono::ParseResult<DateTime<Utc>> {
    NaiveDateTime::parse_from_str(raw, "%Y-%m-%dT%H:%M:%S%.f").map(|time| time.and_utc())
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.written(&mut [0; WRITTEN]))
    }
}

/// Shown as a date and a time: nobody reads milliseconds.
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timestamp").field(&self.datetime()).finish()
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.written(&mut [0; WRITTEN]))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn reads_what_sources_really_send() {
        for (raw, written) in [
            ("2011-08-03T08:14:25.943Z", "2011-08-03T08:14:25.943Z"),
            ("2011-08-19T09:24:11.66Z", "2011-08-19T09:24:11.660Z"),
            ("2011-08-19T09:24:11Z", "2011-08-19T09:24:11.000Z"),
            ("2016-05-19T17:17:39-04:00Z", "2016-05-19T21:17:39.000Z"),
            ("2016-05-19T17:17:39.123456+02:00", "2016-05-19T15:17:39.123Z"),
            ("2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.500Z"),
            ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"),
            ("2016-05-19T17:17:39.5", "2016-05-19T17:17:39.500Z"),
            ("  2016-05-19T17:17:39\n", "2016-05-19T17:17:39.000Z"),
        ] {
            assert_eq!(Timestamp::parse(raw).unwrap().to_string(), written);
        }
    }

    #[test]
    fn is_written_as_chrono_writes_it() {
        let every = super::YEARS.step_by(1_234_567_890_123);
        for millis in every.chain([-1, 0, 951_782_399_999, 951_782_400_000]) {
            let time = Timestamp::from_millis(millis).unwrap();
            let written = time.datetime().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            assert_eq!(time.to_string(), written);
        }
    }

    #[test]
    fn refuses_what_is_not_a_time() {
        for raw in ["@lastMod", "", "2016-05-19", "Z", "+12345-01-01T00:00:00Z", "-04:00Z"] {
            assert!(Timestamp::parse(raw).is_err(), "{raw}");
        }
        assert!(Timestamp::from_millis(i64::MAX).is_none());
        assert!(Timestamp::from_millis(253_402_300_800_000).is_none());
    }
}
