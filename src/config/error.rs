//! Why a configuration is wrong: what, where, and what to do, in a sentence or two.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use crate::suggestion::nearest_name;

/// Why a configuration is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration file {path} is not TOML: {reason}")]
    Syntax {
        /// The file.
        path: String,
        /// The place and the reason.
        reason: String,
    },
    /// The layers do not go together.
    #[error("the configuration cannot be put together: {0}")]
    Merge(String),
    /// There is no such setting.
    #[error("unknown setting {key} {origin}; {}", suggestion(key, known))]
    UnknownKey {
        /// The path of the key.
        key: String,
        /// Where it stands.
        origin: Origin,
        /// The keys that the table can have.
        known: Vec<String>,
    },
    /// A setting without a default is not given.
    #[error("the setting {key} is missing; add it to [{}]", table_of(key).0)]
    Missing {
        /// The path of the key.
        key: String,
    },
    /// A setting is not of its type, or out of its range.
    #[error("the setting {key} {origin} is wrong: {reason}")]
    Invalid {
        /// The path of the key.
        key: String,
        /// Where it stands.
        origin: Origin,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// The settings of a source do not fit its dialect.
    #[error("{key}: the dialect {dialect} does not take them: {reason}")]
    Settings {
        /// The path of the settings.
        key: String,
        /// The dialect.
        dialect: &'static str,
        /// What it says.
        reason: String,
    },
    /// A variable of the environment seems to be meant for a setting, and is not one.
    #[error("the environment variable {found} sets nothing; did you mean {meant}, with two underscores?")]
    Variable {
        /// The variable.
        found: String,
        /// What it would have to be called.
        meant: String,
    },
    /// Others could reach the gateway, and nothing would tell who they are.
    #[error(
        "server.listen is {address}, which others can reach, and there is no access control; make a token with \
         `tidings token`, or, if something in front lets only those through who may, say --insecure or set \
         server.insecure = true"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// A flag or a variable of the environment is not UTF-8.
    #[error("the value of {0} is not UTF-8")]
    NotUnicode(String),
}

/// Where the value of a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `config/default.toml`.
    Defaults,
    /// The user's file.
    File(String),
    /// This variable of the environment.
    Environment(String),
    /// This flag of the command.
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

/// The setting of that path as a variable of the environment.
pub(super) fn variable(key: &str) -> String {
    format!("TIDINGS_{}", key.replace('.', "__").to_uppercase())
}

/// The table of a key, and its name there.
fn table_of(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

/// What to write instead of the last name of `key`.
fn suggestion(key: &str, known: &[String]) -> String {
    let (table, name) = table_of(key);
    let path = |name: &str| if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
    match nearest_name(name, known.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean {}?", path(nearest)),
        None if table.is_empty() => format!("the tables are {}.", known.join(", ")),
        None => format!("{table} has {}.", known.join(", ")),
    }
}
