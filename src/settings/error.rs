//! Errors of settings. Each says what is wrong, where, and what to do.

use super::Origin;
use crate::suggestion::nearest_name;

/// Error in a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A setting does not exist.
    #[error("unknown setting {key} {origin}; {}", suggestion(key, known))]
    Unknown {
        /// The path of the key.
        key: String,
        /// Place of the setting.
        origin: Origin,
        /// Keys that the table supports.
        known: Vec<&'static str>,
    },
    /// A required setting is missing.
    #[error("the setting {key} is missing; add it to [{}]", table_of(key).0)]
    Missing {
        /// The path of the key.
        key: String,
    },
    /// The value of a setting has the wrong type, is out of range, or contradicts another setting.
    #[error("the setting {key} {origin} is wrong: {reason}")]
    Invalid {
        /// The path of the key.
        key: String,
        /// Place of the setting.
        origin: Origin,
        /// The mistake, and what was expected.
        reason: String,
    },
}

impl SettingError {
    /// Returns the path of the key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Unknown { key, .. } | Self::Missing { key } | Self::Invalid { key, .. } => key,
        }
    }

    /// Returns the place where the setting is given; `None` if it is missing.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Unknown { origin, .. } | Self::Invalid { origin, .. } => Some(origin),
            Self::Missing { .. } => None,
        }
    }
}

/// Errors in a table, at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingErrors(pub Vec<SettingError>);

impl From<SettingError> for SettingErrors {
    fn from(error: SettingError) -> Self {
        Self(vec![error])
    }
}

/// Splits the path of a key into its table and its last name.
fn table_of(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

/// Suggests a replacement for the unknown key: the nearest known key, or all keys of the table.
fn suggestion(key: &str, known: &[&str]) -> String {
    let (table, name) = table_of(key);
    let path = |name: &str| if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
    match nearest_name(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean {}?", path(nearest)),
        None if table.is_empty() => format!("the tables are {}.", known.join(", ")),
        None if table.starts_with("access.tokens.") => format!(
            "{table} has {}. The token itself is not stored: put its SHA-256 into sha256; `tidings token` prints both.",
            known.join(", ")
        ),
        None => format!("{table} has {}.", known.join(", ")),
    }
}
