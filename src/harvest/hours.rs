//! Hours in which runs may begin, such as the nights of working days.

use std::{str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, de::Error};

use crate::model::Timestamp;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

const MINUTE: i64 = 60 * 1000;
const DAY: i64 = 24 * 60 * MINUTE;

/// Day of the week of 1 January 1970, a Thursday, counted from Monday.
const FIRST_DAY: i64 = 3;

/// Spans of time in a week, in UTC. Without any span, every time is one of the hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hours(Arc<[Span]>);

/// A span on some days of the week, as in `mon-fri 22:00-06:00`. One that ends before it begins ends on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// Days on which the span begins, from Monday.
    days: [bool; 7],
    /// Begin and end, in milliseconds since midnight.
    begin: i64,
    end: i64,
}

/// Error for a text that is no span.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no span of hours; write it as in \"22:00-06:00\", \"mon-fri 20:00-24:00\" or \"sat,sun 00:00-24:00\""
)]
pub(super) struct InvalidHours(String);

impl Hours {
    /// Returns whether a time is one of the hours.
    #[must_use]
    pub fn contains(&self, time: Timestamp) -> bool {
        self.next(time) == time
    }

    /// Returns the first time from `time` on that is one of the hours.
    #[must_use]
    pub fn next(&self, time: Timestamp) -> Timestamp {
        let millis = time.millis();
        let today = millis.div_euclid(DAY);
        // A span of yesterday may not have ended.
        let spans = (today - 1..=today + 7).flat_map(|day| self.0.iter().filter_map(move |span| span.on(day)));
        let begins = spans.filter(|(_, end)| *end > millis).map(|(begin, _)| begin.max(millis));
        begins.min().and_then(Timestamp::from_millis).unwrap_or(time)
    }
}

impl Span {
    /// Returns begin and end of the span on a day since 1970, if it begins on this day of the week.
    fn on(self, day: i64) -> Option<(i64, i64)> {
        let weekday = usize::try_from((day + FIRST_DAY).rem_euclid(7)).unwrap_or_default();
        let end = if self.end > self.begin { self.end } else { self.end + DAY };
        self.days[weekday].then_some((day * DAY + self.begin, day * DAY + end))
    }
}

impl FromStr for Span {
    type Err = InvalidHours;

    fn from_str(text: &str) -> Result<Self, InvalidHours> {
        let invalid = || InvalidHours(text.chars().take(64).collect());
        let (days, times) = match text.trim().split_once(' ') {
            Some((days, times)) => (days_of(days).ok_or_else(invalid)?, times.trim()),
            None => ([true; 7], text.trim()),
        };
        let (begin, end) = times.split_once('-').ok_or_else(invalid)?;
        let (begin, end) = (time_of(begin).ok_or_else(invalid)?, time_of(end).ok_or_else(invalid)?);
        if begin == DAY { Err(invalid()) } else { Ok(Self { days, begin, end }) }
    }
}

/// Parses days, as in `mon-fri` or `sat,sun`.
fn days_of(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    let number = |name: &str| DAYS.iter().position(|day| *day == name);
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        let count = (last + 7 - first) % 7;
        (0..=count).for_each(|day| days[(first + day) % 7] = true);
    }
    Some(days)
}

/// Parses a time of 00:00 to 24:00; returns the milliseconds since midnight.
fn time_of(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| text.parse::<u8>().ok().filter(|_| text.len() == 2 && !text.starts_with('+'));
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let time = (i64::from(hours) * 60 + i64::from(minutes)) * MINUTE;
    (minutes < 60 && time <= DAY).then_some(time)
}

impl<'de> Deserialize<'de> for Hours {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spans = Vec::<String>::deserialize(deserializer)?;
        let spans = spans.iter().map(|text| text.parse()).collect::<Result<_, InvalidHours>>();
        spans.map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{Hours, Span, Timestamp};

    fn next(spans: &[&str], time: &str) -> String {
        let hours = Hours(spans.iter().map(|span| span.parse::<Span>().unwrap()).collect());
        let time = Timestamp::parse(time).unwrap();
        let next = hours.next(time);
        assert_eq!(hours.contains(time), next == time);
        assert!(hours.contains(next));
        next.to_string()
    }

    #[test]
    fn next_time_is_in_a_span() {
        // 2026-11-24 is a Tuesday.
        for (spans, time, expected) in [
            (&[][..], "2026-11-24T12:00:00Z", "2026-11-24T12:00:00Z"),
            (&["22:00-06:00"], "2026-11-24T12:00:00Z", "2026-11-24T22:00:00Z"),
            (&["22:00-06:00"], "2026-11-24T23:30:00Z", "2026-11-24T23:30:00Z"),
            (&["22:00-06:00"], "2026-11-24T05:59:59.999Z", "2026-11-24T05:59:59.999Z"),
            (&["22:00-06:00"], "2026-11-24T06:00:00Z", "2026-11-24T22:00:00Z"),
            (&["sat,sun 00:00-24:00"], "2026-11-24T12:00:00Z", "2026-11-28T00:00:00Z"),
            (&["sat,sun 00:00-24:00"], "2026-11-29T23:59:00Z", "2026-11-29T23:59:00Z"),
            (&["sat,sun 00:00-24:00"], "2026-11-30T00:00:00Z", "2026-12-05T00:00:00Z"),
            // The span of Friday ends on Saturday.
            (&["mon-fri 22:00-06:00"], "2026-11-28T05:00:00Z", "2026-11-28T05:00:00Z"),
            (&["mon-fri 22:00-06:00"], "2026-11-28T07:00:00Z", "2026-11-30T22:00:00Z"),
            (&["fri-mon 10:00-11:00"], "2026-11-24T12:00:00Z", "2026-11-27T10:00:00Z"),
            (&["tue 10:00-11:00"], "2026-11-24T11:00:00Z", "2026-12-01T10:00:00Z"),
            (&["tue 13:00-14:00", "12:30-12:45"], "2026-11-24T12:00:00Z", "2026-11-24T12:30:00Z"),
            (&["08:00-08:00"], "2026-11-24T07:00:00Z", "2026-11-24T07:00:00Z"),
        ] {
            let expected = Timestamp::parse(expected).unwrap().to_string();
            assert_eq!(next(spans, time), expected, "{spans:?} {time}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "22-06", "22:00", "24:00-06:00", "22:60-23:00", "1:00-2:00", "mon", "moo 22:00-06:00", "25:00-26:00"]
        {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
