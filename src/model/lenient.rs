//! Deserialization of members that senders write in several ways: `null` for a missing member, a time in any spelling, a
//! size as text.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor},
};

use super::Timestamp;

/// Deserializes a member for which `null` means that it is missing.
///
/// # Errors
/// Fails if the value is neither `null` nor a `T`.
pub(super) fn null_is_missing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Time in a message. One that cannot be read costs itself, and not the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedTime {
    /// A time in one of the spellings of [`Timestamp::parse`] and [`Timestamp::from_number`].
    Read(Timestamp),
    /// Anything else.
    Unreadable,
}

impl ReportedTime {
    /// Returns the time, if it could be read.
    pub(super) fn read(self) -> Option<Timestamp> {
        match self {
            Self::Read(time) => Some(time),
            Self::Unreadable => None,
        }
    }
}

impl Serialize for ReportedTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.read().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ReportedTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl TimeVisitor {
    fn of_number<E>(number: f64) -> Result<ReportedTime, E> {
        Ok(Timestamp::from_number(number).map_or(ReportedTime::Unreadable, ReportedTime::Read))
    }
}

#[expect(clippy::cast_precision_loss, reason = "no time has more than 53 bits of milliseconds")]
impl<'de> Visitor<'de> for TimeVisitor {
    type Value = ReportedTime;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ReportedTime, E> {
        Ok(Timestamp::parse(text).map_or(ReportedTime::Unreadable, ReportedTime::Read))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ReportedTime, E> {
        Self::of_number(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ReportedTime, E> {
        Self::of_number(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<ReportedTime, E> {
        Self::of_number(number)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<ReportedTime, E> {
        Ok(ReportedTime::Unreadable)
    }

    fn visit_unit<E: Error>(self) -> Result<ReportedTime, E> {
        Ok(ReportedTime::Unreadable)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<ReportedTime, A::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(ReportedTime::Unreadable)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ReportedTime, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(ReportedTime::Unreadable)
    }
}

/// Deserializes an optional size in bytes: a whole number, also as text or with a fraction of zero.
///
/// # Errors
/// Fails if the value is anything else, such as a negative number.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let size = Option::<Size>::deserialize(deserializer)?;
    Ok(size.map(|Size(bytes)| bytes))
}

struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size in bytes, a whole number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Size, E> {
        Ok(Size(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Size, E> {
        u64::try_from(number).map(Size).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Size, E> {
        /// First whole number that a double cannot distinguish from its neighbour.
        const FIRST_INEXACT: f64 = 9_007_199_254_740_992.0;
        let is_whole = number.fract() == 0.0 && (0.0..FIRST_INEXACT).contains(&number);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number is whole and in the range"
        )]
        let size = Size(number as u64);
        if is_whole { Ok(size) } else { Err(E::invalid_value(Unexpected::Float(number), &self)) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        text.trim().parse().map(Size).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::ReportedTime;
    use crate::model::{ContentLocation, Timestamp};

    #[test]
    fn time_that_cannot_be_read_is_no_error() {
        let at = |text| ReportedTime::Read(Timestamp::parse(text).unwrap());
        for (value, time) in [
            (json!("2020-01-02T03:04:05+0000"), at("2020-01-02T03:04:05Z")),
            (json!(1_458_750_952), at("2016-03-23T16:35:52Z")),
            (json!(1_458_750_952_123_u64), at("2016-03-23T16:35:52.123Z")),
            (json!("noon"), ReportedTime::Unreadable),
            (json!({"date": ["2020-01-02"]}), ReportedTime::Unreadable),
            (json!([1, "2"]), ReportedTime::Unreadable),
            (json!(true), ReportedTime::Unreadable),
            (json!(1e300), ReportedTime::Unreadable),
        ] {
            assert_eq!(from_value::<ReportedTime>(value).unwrap(), time);
        }
    }

    #[test]
    fn size_is_a_whole_number_in_any_spelling() {
        let size = |size: Value| {
            let content = from_value::<ContentLocation>(json!({"url": "urn:x:1", "size": size}));
            content.map(|content| content.size).map_err(|error| error.to_string())
        };
        for written in [json!(12), json!("12"), json!(12.0), json!(" 12 ")] {
            assert_eq!(size(written), Ok(Some(12)));
        }
        assert_eq!(size(Value::Null), Ok(None));
        for wrong in [json!(-1), json!(1.5), json!("twelve"), json!(1e30), json!([12])] {
            let error = size(wrong).unwrap_err();
            assert!(error.contains("expected a size in bytes, a whole number"), "{error}");
        }
    }
}
