//! Points in time, as sources write them and as the journal stores them.

use std::{fmt, ops::Range};

use chrono::{DateTime, Datelike, NaiveDateTime, Timelike, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::deserialize_str::deserialize_str;

/// A point in time in UTC, with a resolution of one millisecond, as Fedora writes it and all formats support it.
///
/// Its text form is RFC 3339 with three fractional digits and a `Z`: `2011-08-03T08:14:25.943Z`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01T00:00:00Z, in the years 0000 to 9999.
    millis: i64,
}

/// Range of times that RFC 3339 can represent (years 0000 to 9999), in milliseconds since 1970.
const YEARS: Range<i64> = -62_167_219_200_000..253_402_300_800_000;

/// Length of the text form, in bytes.
const TEXT_LEN: usize = 24;

/// Error for a text that is not a point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a date and time; write it as in 2011-08-03T08:14:25.943Z")]
pub struct InvalidTimestamp(String);

impl Timestamp {
    /// 1970-01-01T00:00:00.000Z: placeholder where a time is required and none is known.
    pub const EPOCH: Self = Self { millis: 0 };

    /// Returns the present time by this machine's clock.
    #[must_use]
    pub fn now() -> Self {
        Self::from_datetime(Utc::now())
    }

    /// Truncates a time to milliseconds, so that times compare as their text forms do. A leap second becomes the
    /// first second after it, because XML Schema has no second 60. A time that RFC 3339 cannot represent becomes
    /// the nearest one that it can.
    #[must_use]
    pub fn from_datetime(time: DateTime<Utc>) -> Self {
        Self { millis: time.timestamp_millis().clamp(YEARS.start, YEARS.end - 1) }
    }

    /// Converts milliseconds since 1970-01-01T00:00:00Z, as in `org.fcrepo.jms.timestamp`; returns `None` outside
    /// of the years that RFC 3339 can represent (0000 to 9999).
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        YEARS.contains(&millis).then_some(Self { millis })
    }

    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.millis
    }

    /// Converts to a chrono time.
    #[must_use]
    pub fn datetime(self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.millis).unwrap_or_default()
    }

    /// Parses the forms that sources send in practice:
    ///
    /// * RFC 3339 with a fraction of any length or none (Fedora 3 trims trailing zeros);
    /// * a date and time without offset (Python's `isoformat()`), interpreted as UTC;
    /// * an offset followed by a stray `Z` (`…-04:00Z`, in Fedora's own samples), in which the offset counts.
    ///
    /// # Errors
    /// Fails if the text has another form.
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

    /// Writes the text form to a buffer. Chrono's formatter takes ten times as long, and a change has several times.
    fn write_to(self, buffer: &mut [u8; TEXT_LEN]) -> &str {
        *buffer = *b"0000-00-00T00:00:00.000Z";
        let (date, time) = (self.datetime().date_naive(), self.datetime().time());
        let millis = time.nanosecond() / 1_000_000;
        let parts =
            [date.year().unsigned_abs(), date.month(), date.day(), time.hour(), time.minute(), time.second(), millis];
        for (end, mut rest) in [4, 7, 10, 13, 16, 19, 23].into_iter().zip(parts) {
            let digits = buffer[..end].iter_mut().rev().take_while(|digit| digit.is_ascii_digit());
            for digit in digits {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
                rest /= 10;
            }
        }
        std::str::from_utf8(buffer).unwrap_or_default()
    }
}

/// Removes a `Z` after an offset: `2016-05-19T17:17:39-04:00Z` becomes `2016-05-19T17:17:39-04:00`.
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
        f.write_str(self.write_to(&mut [0; TEXT_LEN]))
    }
}

/// Writes a date and a time instead of milliseconds, for readability.
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timestamp").field(&self.datetime()).finish()
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.write_to(&mut [0; TEXT_LEN]))
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
    fn parses_the_forms_that_sources_send() {
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
    fn text_form_equals_that_of_chrono() {
        let every = super::YEARS.step_by(1_234_567_890_123);
        for millis in every.chain([-1, 0, 951_782_399_999, 951_782_400_000]) {
            let time = Timestamp::from_millis(millis).unwrap();
            let written = time.datetime().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            assert_eq!(time.to_string(), written);
        }
    }

    #[test]
    fn refuses_other_texts() {
        for raw in ["@lastMod", "", "2016-05-19", "Z", "+12345-01-01T00:00:00Z", "-04:00Z"] {
            assert!(Timestamp::parse(raw).is_err(), "{raw}");
        }
        assert!(Timestamp::from_millis(i64::MAX).is_none());
        assert!(Timestamp::from_millis(253_402_300_800_000).is_none());
    }
}
