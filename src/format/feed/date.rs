//! Dates of entries, in the forms that feeds use.
//!
//! Two families cover them: dates that begin with the year, as in RFC 3339, and dates with the name of the month, as in
//! RFC 822, RFC 850 and `asctime` of C. A date without a zone is in UTC. A date in numbers that does not begin with the
//! year is ambiguous, so it counts as unreadable.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use crate::model::Timestamp;

/// Names of the months in the languages of the feeds that were seen, in lower case and without a dot.
const MONTHS: [&[&str]; 12] = [
    &["jan", "january", "januar", "januari", "janv", "janvier", "ene", "enero", "gen", "gennaio", "janeiro"],
    &["feb", "february", "februar", "februari", "fév", "févr", "février", "fev", "fevereiro", "febrero", "febbraio"],
    &["mar", "march", "mär", "märz", "mrz", "mrt", "maart", "mars", "marzo", "março"],
    &["apr", "april", "avr", "avril", "abr", "abril", "aprile"],
    &["may", "mai", "mei", "mag", "maggio", "mayo", "maio", "maj"],
    &["jun", "june", "juni", "juin", "giu", "giugno", "junio", "junho"],
    &["jul", "july", "juli", "juil", "juillet", "lug", "luglio", "julio", "julho"],
    &["aug", "august", "augusti", "augustus", "août", "aout", "ago", "agosto"],
    &["sep", "sept", "september", "septembre", "septiembre", "set", "settembre", "setembro"],
    &["oct", "october", "octobre", "octubre", "okt", "oktober", "ott", "ottobre", "out", "outubro"],
    &["nov", "november", "novembre", "noviembre", "novembro"],
    &[
        "dec",
        "december",
        "dez",
        "dezember",
        "déc",
        "décembre",
        "dic",
        "dicembre",
        "diciembre",
        "dezembro",
        "des",
        "desember",
    ],
];

/// Names of zones with their offsets from UTC, in minutes. Names that several zones have, such as IST, are not listed.
const ZONES: [(&str, i32); 34] = [
    ("z", 0),
    ("ut", 0),
    ("utc", 0),
    ("gmt", 0),
    ("wet", 0),
    ("west", 60),
    ("bst", 60),
    ("cet", 60),
    ("met", 60),
    ("mez", 60),
    ("cest", 120),
    ("mest", 120),
    ("mesz", 120),
    ("eet", 120),
    ("eest", 180),
    ("msk", 180),
    ("hkt", 480),
    ("awst", 480),
    ("jst", 540),
    ("kst", 540),
    ("aest", 600),
    ("aedt", 660),
    ("nzst", 720),
    ("nzdt", 780),
    ("edt", -240),
    ("est", -300),
    ("cdt", -300),
    ("cst", -360),
    ("mdt", -360),
    ("mst", -420),
    ("pdt", -420),
    ("pst", -480),
    ("akst", -540),
    ("hst", -600),
];

/// Maximum length of a date, in bytes.
const MAX_BYTES: usize = 100;

/// Parses a date; `None` if it has none of the known forms.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    parse_datetime(text).map(Timestamp::from_datetime)
}

/// Parses a date as [`parse`] does.
pub(super) fn parse_datetime(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    if text.len() > MAX_BYTES {
        return None;
    }
    year_first(text).or_else(|| month_by_name(text))
}

/// Parts of a date. The time of a date without one is midnight.
#[derive(Default)]
struct Parts {
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    time: Duration,
    /// Offset from UTC, in minutes.
    offset: Option<i32>,
}

impl Parts {
    fn datetime(&self) -> Option<DateTime<Utc>> {
        let date = NaiveDate::from_ymd_opt(self.year?, self.month?, self.day?)?;
        // A time of 24:00:00 is the beginning of the next day.
        let time = TimeDelta::from_std(self.time).ok()? - TimeDelta::minutes(self.offset.unwrap_or_default().into());
        date.and_time(chrono::NaiveTime::MIN).and_utc().checked_add_signed(time)
    }
}

/// Parses a date such as `2024-03-05T10:00:00+01:00`, `2024-03-05 10:00`, `20240305T100000Z` or `2024/03/05`.
fn year_first(text: &str) -> Option<DateTime<Utc>> {
    let (year, rest) = digits(text, 4)?;
    let separator = rest.chars().next().filter(|c| matches!(c, '-' | '/'));
    let (month, rest) = digits(after(separator, rest)?, 2)?;
    let (day, rest) = digits(after(separator, rest)?, 2)?;
    let mut parts = Parts { year: i32::try_from(year).ok(), month: Some(month), day: Some(day), ..Parts::default() };
    if !rest.is_empty() {
        let rest = rest.strip_prefix(['T', 't', ' ', '\u{a0}']).unwrap_or(rest).trim_start();
        let rest = parts.read_time(rest)?;
        parts.read_zone(rest.trim())?;
    }
    parts.datetime()
}

/// Returns the text after a separator; `None` if it does not begin with it.
fn after(separator: Option<char>, text: &str) -> Option<&str> {
    separator.map_or(Some(text), |separator| text.strip_prefix(separator))
}

/// Parses a date such as `Tue, 05 Mar 2024 10:00:00 GMT`, `Tuesday, 05-Mar-24 10:00:00 GMT`, `Tue Mar  5 10:00:00 2024`
/// or `Sep 23, 2024 3:05 PM`. Names of days do not count, because many are wrong.
fn month_by_name(text: &str) -> Option<DateTime<Utc>> {
    let mut parts = Parts::default();
    for token in text.split(|c: char| c.is_whitespace() || c == ',').flat_map(without_hyphens) {
        if token.is_empty() {
            continue;
        }
        let begins_with_digit = token.starts_with(|c: char| c.is_ascii_digit());
        if begins_with_digit && token.contains(':') {
            let rest = parts.read_time(token)?;
            parts.read_zone(rest)?;
        } else if begins_with_digit {
            parts.read_number(token)?;
        } else if token.starts_with(['+', '-']) {
            parts.read_zone(token)?;
        } else if let Some(month) = month(token) {
            // Martes and mardi have the abbreviation of March. A name of a day is before the month.
            parts.month = Some(month);
        } else if parts.read_half(token).is_none() && !token.starts_with('(') && parts.day.or(parts.month).is_some() {
            parts.read_zone(token)?;
        }
    }
    parts.datetime()
}

impl Parts {
    /// Reads a day or a year.
    fn read_number(&mut self, token: &str) -> Option<()> {
        let end = token.find(|c: char| !c.is_ascii_digit()).unwrap_or(token.len());
        if !matches!(&token[end..], "" | "." | "st" | "nd" | "rd" | "th") {
            return None;
        }
        let number: u32 = token[..end].parse().ok()?;
        match (end, self.day, self.year) {
            (1 | 2, None, _) => self.day = Some(number),
            (4, _, None) => self.year = i32::try_from(number).ok(),
            // RFC 2822 section 4.3.
            (2, Some(_), None) => self.year = i32::try_from(number).ok().map(|year| year + century(year)),
            _ => return None,
        }
        Some(())
    }

    /// Reads a time at the beginning of a text, and returns the rest.
    fn read_time<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (hours, minutes, rest) = if text[end..].starts_with(':') {
            let (minutes, rest) = digits(&text[end + 1..], 2)?;
            (text[..end].parse().ok().filter(|_| end <= 2)?, minutes, rest)
        } else {
            let (hours, rest) = digits(text, 2)?;
            let (minutes, rest) = digits(rest, 2)?;
            (hours, minutes, rest)
        };
        let (seconds, rest) = match rest.strip_prefix(':') {
            Some(rest) => digits(rest, 2)?,
            None => digits(rest, 2).unwrap_or((0, rest)),
        };
        let (fraction, rest) = match rest.strip_prefix(['.', ',']) {
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                (format!("0.{}", &rest[..end]).parse().ok()?, &rest[end..])
            }
            None => (0.0, rest),
        };
        let is_end_of_day = (hours, minutes, seconds) == (24, 0, 0);
        if (hours > 23 && !is_end_of_day) || minutes > 59 || seconds > 60 {
            return None;
        }
        self.time = Duration::from_secs(u64::from(hours * 3600 + minutes * 60 + seconds));
        self.time += Duration::try_from_secs_f64(fraction).ok()?;
        Some(rest)
    }

    /// Reads a zone: an offset, a name, or a name with an offset. The first one counts.
    fn read_zone(&mut self, text: &str) -> Option<()> {
        if text.is_empty() || self.read_half(text).is_some() {
            return Some(());
        }
        let name_end = text.find(['+', '-']).unwrap_or(text.len());
        let (name, offset) = text.split_at(name_end);
        let name = name.trim();
        let known = ZONES.iter().find(|(zone, _)| zone.eq_ignore_ascii_case(name));
        let minutes = match (known, offset.is_empty()) {
            (Some((_, minutes)), true) => *minutes,
            // Both GMT+0100 and +01:00 are an hour before UTC.
            (Some((_, 0)), false) => offset_minutes(offset)?,
            (None, false) if name.is_empty() => offset_minutes(offset)?,
            _ => return None,
        };
        self.offset.get_or_insert(minutes);
        Some(())
    }

    /// Reads the half of a day.
    fn read_half(&mut self, text: &str) -> Option<()> {
        const HALF_DAY: Duration = Duration::from_secs(12 * 60 * 60);
        match text.trim().to_ascii_lowercase().as_str() {
            "am" if self.time >= HALF_DAY => self.time -= HALF_DAY,
            "pm" if self.time < HALF_DAY => self.time += HALF_DAY,
            "am" | "pm" => {}
            _ => return None,
        }
        Some(())
    }
}

/// Returns the century of a year of two digits (RFC 2822 section 4.3).
fn century(year: i32) -> i32 {
    if year < 50 { 2000 } else { 1900 }
}

/// Returns the three parts of a date such as `05-Mar-24`, and any other token as it is.
fn without_hyphens(token: &str) -> Vec<&str> {
    let parts: Vec<_> = token.split('-').collect();
    if matches!(&parts[..], [_, name, _] if month(name).is_some()) { parts } else { vec![token] }
}

/// Returns the number of a month.
fn month(name: &str) -> Option<u32> {
    let name = name.trim_end_matches('.').to_lowercase();
    let index = MONTHS.iter().position(|names| names.contains(&name.as_str()))?;
    u32::try_from(index + 1).ok()
}

/// Parses an offset such as `+0100`, `+01:00` or `+1`, in minutes.
fn offset_minutes(text: &str) -> Option<i32> {
    let (sign, rest) = if let Some(rest) = text.strip_prefix('-') { (-1, rest) } else { (1, text.strip_prefix('+')?) };
    let (hours, minutes): (i32, i32) = match (rest.split_once(':'), rest.len()) {
        (Some((hours, minutes)), _) => (hours.parse().ok()?, minutes.parse().ok()?),
        (None, 1 | 2) => (rest.parse().ok()?, 0),
        (None, 4) => (rest.get(..2)?.parse().ok()?, rest.get(2..)?.parse().ok()?),
        _ => return None,
    };
    ((0..24).contains(&hours) && (0..60).contains(&minutes)).then_some(sign * (hours * 60 + minutes))
}

/// Parses a number of exactly so many digits at the beginning of a text, and returns it with the rest.
fn digits(text: &str, count: usize) -> Option<(u32, &str)> {
    let number = text.get(..count).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((number.parse().ok()?, &text[count..]))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn dates_have_many_forms() {
        for (text, expected) in [
            ("2022-12-14T22:02:55", "2022-12-14T22:02:55.000Z"),
            ("2024-03-05T10:00:00", "2024-03-05T10:00:00.000Z"),
            ("2024-09-23 10:11:12", "2024-09-23T10:11:12.000Z"),
            ("2024-03-05 10:00:00 +0100", "2024-03-05T09:00:00.000Z"),
            ("2024-03-05T10:00Z", "2024-03-05T10:00:00.000Z"),
            ("2024-03-05t10:00:00.123456z", "2024-03-05T10:00:00.123Z"),
            ("2024-03-05T10:00:00-05:00", "2024-03-05T15:00:00.000Z"),
            ("20240305T100000Z", "2024-03-05T10:00:00.000Z"),
            ("2024-03-05", "2024-03-05T00:00:00.000Z"),
            ("2024/03/05 10:00", "2024-03-05T10:00:00.000Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00", "2024-03-05T10:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 GMT", "2024-03-05T10:00:00.000Z"),
            ("Tue, 5 Mar 2024 9:05:00 +0000", "2024-03-05T09:05:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 GMT+0100", "2024-03-05T09:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 GMT+01:00", "2024-03-05T09:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 +01:00", "2024-03-05T09:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 -0800 (PST)", "2024-03-05T18:00:00.000Z"),
            ("Mon, May 25 2020 04:45:26 +0000", "2020-05-25T04:45:26.000Z"),
            ("Sep 23, 2024", "2024-09-23T00:00:00.000Z"),
            ("Sep 23, 2024 3:05 PM", "2024-09-23T15:05:00.000Z"),
            ("Sep 23, 2024 12:05 am EST", "2024-09-23T05:05:00.000Z"),
            ("23rd September 2024", "2024-09-23T00:00:00.000Z"),
            ("Tuesday, 05-Mar-24 10:00:00 GMT", "2024-03-05T10:00:00.000Z"),
            ("Saturday, 05-Mar-94 10:00:00 GMT", "1994-03-05T10:00:00.000Z"),
            ("Tue Mar  5 10:00:00 2024", "2024-03-05T10:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 CET", "2024-03-05T09:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 BST", "2024-03-05T09:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 JST", "2024-03-05T01:00:00.000Z"),
            ("Tue, 05 Mar 2024 10:00:00 PST", "2024-03-05T18:00:00.000Z"),
            ("ma, 08 okt 2018 10:00:00 +0200", "2018-10-08T08:00:00.000Z"),
            ("lun, 05 gen 2024 10:00:00 +0100", "2024-01-05T09:00:00.000Z"),
            ("mar, 05 dic 2023 10:00:00 +0100", "2023-12-05T09:00:00.000Z"),
            ("Mo, 05 Mai 2024 10:00:00 +0200", "2024-05-05T08:00:00.000Z"),
            ("dim., 04 août 2024 10:00:00 +0200", "2024-08-04T08:00:00.000Z"),
            ("Tue, 05 Mar 2024 24:00:00 GMT", "2024-03-06T00:00:00.000Z"),
            ("2024-03-05T24:00:00Z", "2024-03-06T00:00:00.000Z"),
        ] {
            assert_eq!(parse(text).map(|date| date.to_string()).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_dates() {
        for text in [
            "",
            "some day",
            "domani",
            "2024",
            "05/03/2024",
            "2024-13-05",
            "2024-03-05T25:00:00Z",
            "Tue, 05 Mar 2024 10:00:00 XYZ",
            "Tue, 05 Mar 10:00:00 GMT",
            "05 05 05",
            "Tue, 05 Mär",
            "é2024-03-05",
            "2024é03-05",
            "Mar 5é 2024",
            "+: -: 5:é",
            "2024-03-05T10:00:00+99:00",
            &"1 ".repeat(200),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
