//! Settings that all kinds of harvest have: the place, the schedule, and the size of a page.

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected},
};

use super::{
    amqp::{ca_certificate, required},
    error::ConfigError,
    secret,
    setting::{Setting, bounded},
    source::named,
};
use crate::{
    harvest::{Mode, Schedule},
    http_client::{OutboundPolicy, OutboundUrl},
};

/// Default time from the start of a run to the start of the next one.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Shortest and longest time of a setting.
const TIMES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(366 * 24 * 60 * 60)];

/// Maximum size of a page, in bytes, 1 MiB to 1 GiB.
#[derive(Deserialize)]
pub(super) struct PageBytes(#[serde(deserialize_with = "bounded::<1_048_576, 1_073_741_824, _, _>")] pub(super) usize);

/// Share in percent of the records that one run may delete.
#[derive(Deserialize)]
pub(super) struct Percent(#[serde(deserialize_with = "bounded::<0, 100, _, _>")] pub(super) u64);

impl Default for Percent {
    fn default() -> Self {
        Self(10)
    }
}

/// A time with its unit, as in `"90s"`, `"15m"`, `"1h"` or `"30d"`.
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text).map(Self).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &ExpectedTime))
    }
}

/// Description of a time in errors.
struct ExpectedTime;

impl serde::de::Expected for ExpectedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time of 1s to 366d, such as \"90s\", \"15m\", \"1h\" or \"30d\"")
    }
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return None,
    };
    let number: u64 = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())??;
    let time = Duration::from_secs(number.checked_mul(unit)?);
    let [shortest, longest] = TIMES;
    (shortest..=longest).contains(&time).then_some(time)
}

/// Place that is harvested.
pub(super) struct Place {
    pub(super) url: OutboundUrl,
    pub(super) ca: Option<PathBuf>,
}

/// Reads `url` and `ca`.
pub(super) fn place(table: &Setting, environment: &[(OsString, OsString)]) -> Result<Place, ConfigError> {
    let setting = required(table, "url")?;
    let text = secret::text(&setting, environment)?;
    // The URL comes from the operator's configuration, so it may point to an internal host.
    let url = OutboundUrl::parse(&text, &OutboundPolicy::unrestricted())
        .map_err(|error| setting.invalid(error.to_string()))?;
    let ca = ca_certificate(table.get("ca")?, url.expose().scheme() == "https", "https", table)?;
    Ok(Place { url, ca })
}

/// Reads `mode`, `every` and `jitter`.
pub(super) fn schedule(table: &Setting) -> Result<Schedule, ConfigError> {
    let time = |name| Ok::<_, ConfigError>(table.get::<Time>(name)?.map(|Time(time)| time));
    let every = time("every")?.unwrap_or(EVERY);
    let jitter = time("jitter")?.unwrap_or(every / 10);
    let mode = named(table, "mode", "mode", &Mode::ALL, Mode::name)?.unwrap_or(Mode::Periodic);
    Ok(Schedule { mode, every, jitter, hours: table.get("hours")?.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::{Duration, parse_time};

    #[test]
    fn times_have_units_and_bounds() {
        for (text, seconds) in [("1s", Some(1)), ("15m", Some(900)), ("1h", Some(3600)), ("366d", Some(31_622_400))] {
            assert_eq!(parse_time(text), seconds.map(Duration::from_secs), "{text}");
        }
        for text in ["", "1", "s", "0s", "367d", "-1s", "1.5h", "1 h", "+1h", "1w", "1é", "99999999999999999999d"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
