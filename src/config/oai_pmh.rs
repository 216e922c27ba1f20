//! Settings of a source that is harvested over OAI-PMH.

use std::{ffi::OsString, fmt, sync::Arc, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, Unexpected},
};

use super::{
    amqp::{ca_certificate, required},
    error::ConfigError,
    secret,
    setting::{Setting, bounded},
    source::named,
    transport::{Connection, TransportKey, TransportKind},
};
use crate::{
    harvest::{
        HarvestSettings, Mode, Schedule,
        oai_pmh::{OaiPmhSettings, Timeouts},
    },
    http_client::{OutboundPolicy, OutboundUrl},
};

/// Default time from the start of a run to the start of the next one.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Shortest and longest time of a setting.
const TIMES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(366 * 24 * 60 * 60)];

/// Default maximum size of a page, in bytes.
const PAGE_BYTES: PageBytes = PageBytes(64 * 1024 * 1024);

/// The transport `oai-pmh`: a repository that is harvested over OAI-PMH.
pub(super) static OAI_PMH: TransportKind = TransportKind {
    name: "oai-pmh",
    keys: &[
        TransportKey::of::<IgnoredAny>("url"),
        TransportKey::of::<String>("ca"),
        TransportKey::of::<String>("metadata_prefix"),
        TransportKey::of::<Vec<String>>("sets"),
        TransportKey::of::<String>("mode"),
        TransportKey::of::<Time>("every"),
        TransportKey::of::<Time>("jitter"),
        TransportKey::of::<Time>("overlap"),
        TransportKey::of::<Time>("window"),
        TransportKey::of::<PageBytes>("page_bytes"),
    ],
    read: |table, environment| Ok(Connection::Harvest(read(table, environment)?)),
};

/// Maximum size of a page, in bytes, 1 MiB to 1 GiB.
#[derive(Deserialize)]
struct PageBytes(#[serde(deserialize_with = "bounded::<1_048_576, 1_073_741_824, _, _>")] usize);

/// A time with its unit, as in `"90s"`, `"15m"`, `"1h"` or `"30d"`.
struct Time(Duration);

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

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<HarvestSettings, ConfigError> {
    let setting = required(table, "url")?;
    let text = secret::text(&setting, environment)?;
    // The URL comes from the operator's configuration, so it may point to an internal host.
    let url = OutboundUrl::parse(&text, &OutboundPolicy::unrestricted())
        .map_err(|error| setting.invalid(error.to_string()))?;
    let ca = ca_certificate(table.get("ca")?, url.expose().scheme() == "https", "https", table)?;
    let metadata_prefix = table.get::<String>("metadata_prefix")?.unwrap_or_else(|| "oai_dc".to_owned());
    if !is_name(&metadata_prefix, "") {
        let reason = "it is not a metadata prefix; give one of ListMetadataFormats, such as \"oai_dc\"";
        return Err(table.entry("metadata_prefix")?.invalid(reason));
    }
    let sets = table.get::<Vec<String>>("sets")?.unwrap_or_default();
    if let Some(set) = sets.iter().find(|set| !is_name(set, ":")) {
        let reason = format!("{set:?} is not a set; give the setSpec of ListSets, such as \"math:algebra\"");
        return Err(table.entry("sets")?.invalid(reason));
    }
    let time = |name| Ok::<_, ConfigError>(table.get::<Time>(name)?.map(|Time(time)| time));
    let every = time("every")?.unwrap_or(EVERY);
    let jitter = time("jitter")?.unwrap_or(every / 10);
    let mode = named(table, "mode", "mode", &Mode::ALL, Mode::name)?.unwrap_or(Mode::Periodic);
    let PageBytes(page_bytes) = table.get("page_bytes")?.unwrap_or(PAGE_BYTES);
    let kind = OaiPmhSettings {
        url,
        ca,
        metadata_prefix,
        sets,
        overlap: time("overlap")?,
        window: time("window")?,
        page_bytes,
        timeouts: Timeouts::default(),
    };
    Ok(HarvestSettings { schedule: Schedule { mode, every, jitter }, kind: Arc::new(kind) })
}

/// Returns whether a text has only the characters of a metadata prefix or a set (sections 2.6 and 3.4), besides `others`.
fn is_name(text: &str, others: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.!~*'()".contains(c) || others.contains(c);
    !text.is_empty() && text.chars().all(is_allowed)
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
