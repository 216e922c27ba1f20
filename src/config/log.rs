//! `[log]`: filter and format of the log.

use tracing_subscriber::EnvFilter;

use crate::{
    settings::{TextType, settings},
    suggestion::nearest_name,
};

/// Target of all log lines of the gateway itself.
const OWN_TARGET: &str = "tidings";

/// Levels that a directive may have.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

settings! {
    /// `[log]`: filter and format of the log.
    #[derive(Clone, Debug)]
    pub struct LogConfig {
        /// Valid directives of [`EnvFilter`].
        pub filter: Directives,
        /// Format of a line.
        pub format: LogFormat,
    }
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text, for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

impl TextType for LogFormat {
    type Value = Self;

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("it is {other:?}; give \"text\" or \"json\"")),
        }
    }
}

/// Directives of [`EnvFilter`].
pub struct Directives;

impl TextType for Directives {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        let advice = "give a level (error, warn, info, debug, trace, off), or directives, as in warn,tidings=debug";
        if EnvFilter::try_new(text).is_err() {
            return Err(format!("it is {text:?}; {advice}"));
        }
        match likely_mistake(text) {
            Some(reason) => Err(format!("it is {text:?}; {reason}; {advice}")),
            None => Ok(text.to_owned()),
        }
    }
}

/// Returns the reason why a directive is probably a mistake. `EnvFilter` treats every word that is not a level as the
/// name of a target. A filter that only names targets disables all other lines, including errors.
fn likely_mistake(filter: &str) -> Option<String> {
    // Directives with span names are not checked, because they may contain commas.
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
        if is_level || first == OWN_TARGET {
            None
        } else if !has_level {
            let nearest = nearest_name(&target.to_lowercase(), LEVELS.into_iter().chain([OWN_TARGET]));
            let suggestion = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            Some(format!("{target:?} is not a level{suggestion}"))
        } else if nearest_name(first, [OWN_TARGET]).is_some() {
            Some(format!("{target:?} is not a part of the program; did you mean {OWN_TARGET}?"))
        } else {
            None
        }
    })
}

/// Returns whether the text is a level as a number: `EnvFilter` accepts 0 to 5.
fn is_number(text: &str) -> bool {
    matches!(text.parse::<u8>(), Ok(0..=5))
}

#[cfg(test)]
mod tests {
    use super::likely_mistake;

    #[test]
    fn misspelt_directives_are_found() {
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
            assert_eq!(likely_mistake(filter), None, "{filter}");
        }
        for (filter, reason) in [
            ("verbose", "\"verbose\" is not a level"),
            ("inof", "\"inof\" is not a level; did you mean info?"),
            ("warn,debg", "\"debg\" is not a level; did you mean debug?"),
            ("tiding", "\"tiding\" is not a level; did you mean tidings?"),
            ("warn,tiding=debug", "\"tiding\" is not a part of the program; did you mean tidings?"),
            ("tidigns::web=debug", "\"tidigns::web\" is not a part of the program; did you mean tidings?"),
        ] {
            assert_eq!(likely_mistake(filter).as_deref(), Some(reason), "{filter}");
        }
    }
}
