//! Points in time, as sources write them and as the journal keeps them.

use std::fmt;

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time in UTC, to the millisecond: what Fedora writes and what all formats can carry.
///
/// It is written as RFC 3339 with three digits and a `Z`: `2011-08-03T08:14:25.943Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(DateTime<Utc>);

/// Why a text is not a point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a date and time; write it as in 2011-08-03T08:14:25.943Z")]
pub struct InvalidTimestamp(String);

impl Timestamp {
    /// 1970-01-01T00:00:00.000Z: where a time is asked for and there has been none.
    pub const EPOCH: Self = Self(DateTime::UNIX_EPOCH);

    /// The present, by this machine's clock.
    #[must_use]
    pub fn now() -> Self {
        Self::from_datetime(Utc::now())
    }

    /// Drops what is finer than a millisecond, so that times compare as they are written. A leap
    /// second is taken as the first second after it, as in counting seconds since 1970: XML Schema
    /// has no second 60.
    #[must_use]
    pub fn from_datetime(time: DateTime<Utc>) -> Self {
        Self(DateTime::from_timestamp_millis(time.timestamp_millis()).unwrap_or(time))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z, as in `org.fcrepo.jms.timestamp`.
    ///
    /// Gives `None` outside the years that RFC 3339 can write (0000 to 9999).
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        DateTime::from_timestamp_millis(millis).map(Self).filter(Self::has_four_digit_year)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.0.timestamp_millis()
    }

    /// The same point in time for chrono.
    #[must_use]
    pub fn datetime(self) -> DateTime<Utc> {
        self.0
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
            .map(Self::from_datetime)
            .filter(Self::has_four_digit_year);
        parsed.ok_or_else(|| InvalidTimestamp(raw.chars().take(64).collect()))
    }

    fn has_four_digit_year(&self) -> bool {
        (0..=9999).contains(&chrono::Datelike::year(&self.0))
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
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&raw).map_err(serde::de::Error::custom)
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
    fn refuses_what_is_not_a_time() {
        for raw in ["@lastMod", "", "2016-05-19", "Z", "+12345-01-01T00:00:00Z", "-04:00Z"] {
            assert!(Timestamp::parse(raw).is_err(), "{raw}");
        }
        assert!(Timestamp::from_millis(i64::MAX).is_none());
        assert!(Timestamp::from_millis(253_402_300_800_000).is_none());
    }
}
