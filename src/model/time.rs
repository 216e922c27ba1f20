//! Points in time, as sources write them and as the journal stores them.

use std::{fmt, ops::Range};

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc};
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

    /// Returns whether the time has no fraction of a second, as sources write it that cut their times to seconds.
    #[must_use]
    pub fn is_whole_second(self) -> bool {
        self.millis % 1000 == 0
    }

    /// Returns the last millisecond that the time can mean: that of its second, if the source cut it to seconds.
    #[must_use]
    pub fn latest_meaning(self) -> Self {
        Self { millis: if self.is_whole_second() { self.millis + 999 } else { self.millis } }
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
    /// * an offset followed by a stray `Z` (`…-04:00Z`, in Fedora's own samples), in which the offset counts;
    /// * an offset without its colon (PHP's `DATE_ISO8601`), or of hours alone;
    /// * a blank instead of the `T` (Python's `str(datetime)`), a comma before the fraction (ISO 8601), a time without
    ///   seconds, and a zone in brackets after the offset (Java's `ZonedDateTime`).
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
            .or_else(|| DateTime::parse_from_rfc3339(&in_rfc3339(raw)?).ok().map(|time| time.with_timezone(&Utc)))
            .and_then(|time| Self::from_millis(time.timestamp_millis()));
        parsed.ok_or_else(|| InvalidTimestamp(raw.chars().take(64).collect()))
    }

    /// Parses a time as [`Timestamp::parse`] does, or a date such as `2011-08-03`, which is the start of its day in UTC.
    /// For times that people give; a source whose times are dates would order its events wrongly.
    ///
    /// # Errors
    /// Fails if the text has another form.
    pub fn parse_or_day(raw: &str) -> Result<Self, InvalidTimestamp> {
        match NaiveDate::parse_from_str(raw.trim(), "%Y-%m-%d") {
            Ok(day) => Ok(Self::from_datetime(day.and_time(NaiveTime::MIN).and_utc())),
            Err(_) => Self::parse(raw),
        }
    }

    /// Converts a number of seconds or milliseconds since 1970. A number from 10^11 counts milliseconds, because as seconds
    /// it would be in the year 5138 or later. Returns `None` outside of the years 0000 to 9999.
    #[must_use]
    pub fn from_number(number: f64) -> Option<Self> {
        const FIRST_MILLIS: f64 = 1e11;
        let millis = if number.abs() < FIRST_MILLIS { number * 1000.0 } else { number };
        #[expect(clippy::cast_possible_truncation, reason = "a number outside of the range is refused")]
        let whole = millis.trunc() as i64;
        Self::from_millis(whole).filter(|_| millis.is_finite())
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

/// Writes a time in one of the other spellings of [`Timestamp::parse`] as RFC 3339 demands; `None` if it has another form.
fn in_rfc3339(raw: &str) -> Option<String> {
    let raw = raw.strip_suffix(']').and_then(|rest| Some(rest.split_once('[')?.0)).unwrap_or(raw);
    let (date, rest) = raw.split_at_checked("0000-00-00".len())?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.' | ',')).unwrap_or(rest.len());
    let (time, offset) = rest.split_at(end);
    let time = time.replace(',', ".");
    let seconds = if time.len() == "00:00".len() { ":00" } else { "" };
    let offset = match offset.trim_start() {
        "" | "Z" | "z" | "UTC" | "GMT" => "Z".to_owned(),
        offset => {
            let (sign, digits) = offset.split_at_checked(1)?;
            let digits = digits.replace(':', "");
            let (hours, minutes) = digits.split_at_checked(2)?;
            let minutes = if minutes.is_empty() { "00" } else { minutes };
            format!("{sign}{hours}:{minutes}")
        }
    };
    Some(format!("{date}T{time}{seconds}{offset}"))
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
            ("2020-01-02T03:04:05+0000", "2020-01-02T03:04:05.000Z"),
            ("2020-01-02T03:04:05+00", "2020-01-02T03:04:05.000Z"),
            ("2020-01-02T03:04:05.5-0230", "2020-01-02T05:34:05.500Z"),
            ("2020-01-02 03:04:05", "2020-01-02T03:04:05.000Z"),
            ("2020-01-02 03:04:05.123456+01:00", "2020-01-02T02:04:05.123Z"),
            ("2020-01-02 03:04:05 +0100", "2020-01-02T02:04:05.000Z"),
            ("2020-01-02T03:04:05,123Z", "2020-01-02T03:04:05.123Z"),
            ("2020-01-02T03:04Z", "2020-01-02T03:04:00.000Z"),
            ("2020-01-02T03:04:05Z[UTC]", "2020-01-02T03:04:05.000Z"),
            ("2020-01-02T03:04:05+01:00[Europe/Oslo]", "2020-01-02T02:04:05.000Z"),
        ] {
            assert_eq!(Timestamp::parse(raw).unwrap().to_string(), written);
        }
    }

    #[test]
    fn date_is_the_start_of_its_day() {
        for (raw, written) in [
            ("2020-01-02", Some("2020-01-02T00:00:00.000Z")),
            (" 2020-02-29 ", Some("2020-02-29T00:00:00.000Z")),
            ("2020-01-02T03:04:05+01:00", Some("2020-01-02T02:04:05.000Z")),
            ("2021-02-29", None),
            ("2020-01", None),
            ("2020", None),
        ] {
            let time = Timestamp::parse_or_day(raw).ok().map(|time| time.to_string());
            assert_eq!(time.as_deref(), written, "{raw}");
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
        for raw in [
            "@lastMod",
            "",
            "2016-05-19",
            "Z",
            "+12345-01-01T00:00:00Z",
            "-04:00Z",
            "2016-05-19T",
            "2016-05-19T1",
            "2016-05-19 noon",
            "2016-05-19T03:04:05+",
            "2016-05-19T03:04:05+0",
            "2016-05-19T03:04:05é",
            "2016-05-1é03:04:05",
            "[]",
            "1458750952",
        ] {
            assert!(Timestamp::parse(raw).is_err(), "{raw}");
        }
        assert!(Timestamp::from_millis(i64::MAX).is_none());
        assert!(Timestamp::from_millis(253_402_300_800_000).is_none());
    }

    #[test]
    fn time_in_whole_seconds_covers_its_second() {
        for (raw, latest) in [
            ("2016-05-19T17:17:39Z", "2016-05-19T17:17:39.999Z"),
            ("2016-05-19T17:17:39.001Z", "2016-05-19T17:17:39.001Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::parse(raw).unwrap().latest_meaning().to_string(), latest);
        }
    }

    #[test]
    fn number_is_in_seconds_or_milliseconds() {
        let written = |number| Timestamp::from_number(number).map(|time| time.to_string());
        assert_eq!(written(1_458_750_952.25).as_deref(), Some("2016-03-23T16:35:52.250Z"));
        assert_eq!(written(1_458_750_952_123.0).as_deref(), Some("2016-03-23T16:35:52.123Z"));
        assert_eq!(written(-1.0).as_deref(), Some("1969-12-31T23:59:59.000Z"));
        for number in [1e300, f64::NAN, f64::INFINITY, -1e15] {
            assert_eq!(written(number), None, "{number}");
        }
    }
}
