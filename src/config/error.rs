//! Errors of the configuration. Each message says what is wrong, where, and what to do.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use crate::settings::{Origin, SettingError, SettingErrors};

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
    /// A setting is unknown, missing or wrong.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The settings of a source are not valid for its dialect.
    #[error("{key} {origin} is wrong for the dialect {dialect}: {reason}")]
    DialectSettings {
        /// Path of the settings.
        key: String,
        /// Where they are given.
        origin: Origin,
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

impl ConfigError {
    /// Returns the line of the configuration file that the error is about, if it is about one.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Setting(error) => error.origin(),
            Self::DialectSettings { origin, .. } => Some(origin),
            _ => None,
        }
        .and_then(|origin| match origin {
            Origin::File { line, .. } => Some(*line),
            Origin::Defaults | Origin::Environment(_) | Origin::Flag(_) => None,
        })
    }
}

/// All errors that were found in the configuration, at least one.
///
/// One error is shown as it is. Several are shown in the order of their lines, each after its line.
#[derive(Debug, Default)]
pub struct ConfigErrors(Vec<ConfigError>);

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [error] = &self.0[..] else {
            write!(f, "the configuration has {} errors", self.0.len())?;
            let mut errors: Vec<_> = self.0.iter().collect();
            errors.sort_by_key(|error| error.line().unwrap_or(usize::MAX));
            return errors.into_iter().try_for_each(|error| match error.line() {
                Some(line) => write!(f, "\n  line {line}: {error}"),
                None => write!(f, "\n  {error}"),
            });
        };
        match error.line() {
            Some(line) => write!(f, "line {line}: {error}"),
            None => error.fmt(f),
        }
    }
}

impl ConfigErrors {
    /// Returns the errors.
    #[must_use]
    pub fn all(&self) -> &[ConfigError] {
        &self.0
    }

    /// Returns the first error.
    pub(super) fn into_first(self) -> Option<ConfigError> {
        self.0.into_iter().next()
    }

    /// Returns the value if there is no error.
    pub(super) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Returns the value, or keeps the errors and returns `None`.
    pub(super) fn keep<T, E: Into<Self>>(&mut self, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| self.0.extend(error.into().0)).ok()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl From<SettingError> for ConfigErrors {
    fn from(error: SettingError) -> Self {
        Self(vec![error.into()])
    }
}

impl From<SettingErrors> for ConfigErrors {
    fn from(SettingErrors(errors): SettingErrors) -> Self {
        Self(errors.into_iter().map(ConfigError::from).collect())
    }
}
