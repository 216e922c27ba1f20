//! `[log]`: what is logged, and how.

use serde::{Deserialize, Deserializer, de::Error as _};
use tracing_subscriber::EnvFilter;

use crate::suggestion::nearest_name;

/// The target of all lines that are the gateway's own.
const OURS: &str = "tidings";

/// The levels of a directive.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// `[log]`: what is logged.
#[derive(Clone, Debug, Deserialize)]
pub struct Log {
    /// Directives of [`EnvFilter`], checked to be such.
    #[serde(deserialize_with = "directives")]
    pub filter: String,
    /// How a line is written.
    pub format: LogFormat,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: a JSON object a line.
    Json,
}

impl<'de> Deserialize<'de> for LogFormat {
    fn deserialize<D: Deserializer<'de>>(setting: D) -> Result<Self, D::Error> {
        match String::deserialize(setting)?.as_str() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(D::Error::custom(format_args!("it is {other:?}; give \"text\" or \"json\""))),
        }
    }
}

fn directives<'de, D: Deserializer<'de>>(setting: D) -> Result<String, D::Error> {
    let text = String::deserialize(setting)?;
    let advice = "give a level (error, warn, info, debug, trace, off), or directives, as in warn,tidings=debug";
    if EnvFilter::try_new(&text).is_err() {
        return Err(D::Error::custom(format_args!("it is {text:?}; {advice}")));
    }
    match silencing(&text) {
        Some(reason) => Err(D::Error::custom(format_args!("it is {text:?}; {reason}; {advice}"))),
        None => Ok(text),
    }
}

/// Why a directive is most likely a slip. The library takes any word that is no level for the name of a target, and
/// a filter that names targets alone switches off all others, errors included.
fn silencing(filter: &str) -> Option<String> {
    // Names of spans, which may have commas among them, need no level.
    if filter.contains('[') {
        return None;
    }
    filter.split(',').map(str::trim).filter(|directive| !directive.is_empty()).find_map(|directive| {
        let (target, has_level) = match directive.split_once('=') {
            Some((target, _)) => (target, true),
            None => (directive, false),
        };
        let first = target.split("::").next().unwrap_or(target);
        let is_level =
            !has_level && (LEVELS.iter().any(|level| level.eq_ignore_ascii_case(target)) || is_number(target));
        if is_level || first == OURS {
            None
        } else if !has_level {
            let meant = nearest_name(&target.to_lowercase(), LEVELS.into_iter().chain([OURS]));
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            Some(format!("{target:?} is no level{meant}"))
        } else if nearest_name(first, [OURS]).is_some() {
            Some(format!("{target:?} is no part of the program; did you mean {OURS}?"))
        } else {
            None
        }
    })
}

/// The library takes 0 to 5 for levels too.
fn is_number(text: &str) -> bool {
    matches!(text.parse::<u8>(), Ok(0..=5))
}

#[cfg(test)]
mod tests {
    use super::silencing;

    #[test]
    fn a_directive_names_a_level_or_a_part_of_the_program() {
        for filter in [
            "info",
            "INFO",
            "off",
            "3",
            "warn,tidings=debug",
            "tidings",
            "tidings::journal=trace,info",
            "hyper=warn,info",
            "warn, tidings::web=debug",
            "tidings[request{id=1,a}]",
            "",
        ] {
            assert_eq!(silencing(filter), None, "{filter}");
        }
        for (filter, reason) in [
            ("verbose", "\"verbose\" is no level"),
            ("inof", "\"inof\" is no level; did you mean info?"),
            ("warn,debg", "\"debg\" is no level; did you mean debug?"),
            ("tiding", "\"tiding\" is no level; did you mean tidings?"),
            ("warn,tiding=debug", "\"tiding\" is no part of the program; did you mean tidings?"),
            ("tidigns::web=debug", "\"tidigns::web\" is no part of the program; did you mean tidings?"),
        ] {
            assert_eq!(silencing(filter).as_deref(), Some(reason), "{filter}");
        }
    }
}
