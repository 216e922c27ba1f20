//! Errors of the configuration. Each message says what is wrong, where, and what to do.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use crate::suggestion::nearest_name;

/// Error in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The configuration file is not TOML.
    #[error("the configuration file {path} is not TOML: {reason}")]
    Syntax {
        /// Path of the file.
        path: String,
        /// Location and cause.
        reason: String,
    },
    /// The layers cannot be merged.
    #[error("cannot merge the layers of the configuration: {0}")]
    Merge(String),
    /// A setting does not exist.
    #[error("unknown setting {key} {origin}; {}", suggestion(key, known))]
    UnknownKey {
        /// The path of the key.
        key: String,
        /// Where the setting is given.
        origin: Origin,
        /// Keys that the table supports.
        known: Vec<String>,
    },
    /// A required setting is missing.
    #[error("the setting {key} is missing; add it to [{}]", table_of(key).0)]
    Missing {
        /// The path of the key.
        key: String,
    },
    /// The value of a setting has the wrong type or is out of range.
    #[error("the setting {key} {origin} is wrong: {reason}")]
    Invalid {
        /// The path of the key.
        key: String,
        /// Where the setting is given.
        origin: Origin,
        /// The mistake, and what was expected.
        reason: String,
    },
    /// The settings of a source are not valid for its dialect.
    #[error("{key} is wrong for the dialect {dialect}: {reason}")]
    DialectSettings {
        /// Path of the settings.
        key: String,
        /// Name of the dialect.
        dialect: &'static str,
        /// Error of the dialect.
        reason: String,
    },
    /// An environment variable resembles the name of a setting but is none.
    #[error("the environment variable {variable} has no effect; did you mean {nearest}, with two underscores?")]
    MisspelledVariable {
        /// Name of the variable.
        variable: String,
        /// Correct name of the variable for the setting.
        nearest: String,
    },
    /// The gateway would listen on a public socket address without access control.
    #[error(
        "server.listen is {address}, which others can reach, and there is no access control; make a token with \
         `tidings token`, or give --insecure if a proxy in front controls access"
    )]
    NoAccessControl {
        /// Socket address.
        address: SocketAddr,
    },
    /// The value of a flag or an environment variable is not UTF-8.
    #[error("the value of {0} is not UTF-8")]
    NotUnicode(String),
}

/// Origin of the value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `config/default.toml`.
    Defaults,
    /// Path of a configuration file.
    File(String),
    /// Name of an environment variable.
    Environment(String),
    /// Name of a command-line flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defaults => f.write_str("in the defaults"),
            Self::File(path) => write!(f, "in {path}"),
            Self::Environment(variable) => write!(f, "from the environment variable {variable}"),
            Self::Flag(flag) => write!(f, "from the flag {flag}"),
        }
    }
}

/// Returns the environment variable for the setting with this path.
pub(super) fn variable(key: &str) -> String {
    format!("TIDINGS_{}", key.replace('.', "__").to_uppercase())
}

/// Splits the path of a key into its table and its last name.
fn table_of(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

/// Suggests a replacement for the unknown key: the nearest known key, or all keys of the table.
fn suggestion(key: &str, known: &[String]) -> String {
    let (table, name) = table_of(key);
    let path = |name: &str| if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
    match nearest_name(name, known.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean {}?", path(nearest)),
        None if table.is_empty() => format!("the tables are {}.", known.join(", ")),
        None if table.starts_with("access.tokens.") => format!(
            "{table} has {}. The token itself is not stored: put its SHA-256 into sha256; `tidings token` prints both.",
            known.join(", ")
        ),
        None => format!("{table} has {}.", known.join(", ")),
    }
}
