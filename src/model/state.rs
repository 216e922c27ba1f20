//! What state an item is in.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize};

use super::deserialize_str::deserialize_str;

/// A state of content (`ACTIVE`, `INACTIVE`, `DELETED`) or of an activity (`REQUESTED`,
/// `RUNNING`, …): a token of an open vocabulary, `[A-Z][A-Z_]*`, at most [`State::MAX_BYTES`] long.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct State(Cow<'static, str>);

/// Why a text is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state; a state is written in capital letters and underscores, as in ACTIVE")]
pub struct InvalidState(String);

impl State {
    /// The content is there to be used (Fedora's `A`).
    pub const ACTIVE: Self = Self(Cow::Borrowed("ACTIVE"));
    /// The content is held back (Fedora's `I`).
    pub const INACTIVE: Self = Self(Cow::Borrowed("INACTIVE"));
    /// The content is marked as deleted, and still stored (Fedora's `D`).
    pub const DELETED: Self = Self(Cow::Borrowed("DELETED"));

    /// An activity has been asked for.
    pub const REQUESTED: Self = Self(Cow::Borrowed("REQUESTED"));
    /// An activity has been asked to stop.
    pub const STOPPING: Self = Self(Cow::Borrowed("STOPPING"));
    /// An activity is over, and what it made does not count.
    pub const VOIDED: Self = Self(Cow::Borrowed("VOIDED"));
    /// An activity was left out.
    pub const SKIPPED: Self = Self(Cow::Borrowed("SKIPPED"));
    /// A source of content is looked at for news.
    pub const OPENED: Self = Self(Cow::Borrowed("OPENED"));
    /// A source of content is not looked at any more.
    pub const CLOSED: Self = Self(Cow::Borrowed("CLOSED"));
    /// An activity has come to its end and done what it was asked for.
    pub const COMPLETED_SUCCESS: Self = Self(Cow::Borrowed("COMPLETED_SUCCESS"));
    /// An activity has come to its end and not done what it was asked for.
    pub const COMPLETED_FAILURE: Self = Self(Cow::Borrowed("COMPLETED_FAILURE"));

    /// The longest state taken, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Takes a token of the vocabulary.
    ///
    /// # Errors
    /// When it is not `[A-Z][A-Z_]*` or is too long.
    pub fn parse(raw: &str) -> Result<Self, InvalidState> {
        for known in [Self::ACTIVE, Self::INACTIVE, Self::DELETED] {
            if known.as_str() == raw {
                return Ok(known);
            }
        }
        let token = raw.starts_with(|c: char| c.is_ascii_uppercase())
            && raw.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
            && raw.len() <= Self::MAX_BYTES;
        if token {
            Ok(Self(Cow::Owned(raw.to_owned())))
        } else {
            Err(InvalidState(raw.chars().take(Self::MAX_BYTES).collect()))
        }
    }

    /// The token.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    #[test]
    fn takes_tokens_only() {
        assert_eq!(State::parse("ACTIVE").unwrap(), State::ACTIVE);
        assert_eq!(State::parse("COMPLETED_SUCCESS").unwrap().as_str(), "COMPLETED_SUCCESS");
        for raw in ["", "active", "_A", "A B", "A1", &"A".repeat(65)] {
            assert!(State::parse(raw).is_err(), "{raw}");
        }
    }
}
