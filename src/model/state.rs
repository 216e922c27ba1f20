//! States of items.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize};

use super::deserialize_str::deserialize_str;

/// A state of content (`ACTIVE`, `INACTIVE`, `DELETED`) or of an activity (`REQUESTED`,
/// `RUNNING`, …): a token of an open vocabulary, `[A-Z][A-Z_]*`, at most [`State::MAX_BYTES`] long.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct State(Cow<'static, str>);

/// Error for a text that is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state; a state is written in capital letters and underscores, as in ACTIVE")]
pub struct InvalidState(String);

impl State {
    /// State of public content (Fedora's `A`).
    pub const ACTIVE: Self = Self(Cow::Borrowed("ACTIVE"));
    /// State of hidden content (Fedora's `I`).
    pub const INACTIVE: Self = Self(Cow::Borrowed("INACTIVE"));
    /// State of content that is marked as deleted, but still stored (Fedora's `D`).
    pub const DELETED: Self = Self(Cow::Borrowed("DELETED"));
    /// State of content that the gateway could not copy so far. It says nothing about access, so the content stays public.
    pub const UNAVAILABLE: Self = Self(Cow::Borrowed("UNAVAILABLE"));
    /// State of content that the public may see from a date that is still to come.
    pub const EMBARGOED: Self = Self(Cow::Borrowed("EMBARGOED"));
    /// State of content that the public could see until a date that has come.
    pub const EXPIRED: Self = Self(Cow::Borrowed("EXPIRED"));

    /// State of a requested activity.
    pub const REQUESTED: Self = Self(Cow::Borrowed("REQUESTED"));
    /// State of an activity that was requested to stop.
    pub const STOPPING: Self = Self(Cow::Borrowed("STOPPING"));
    /// State of a finished activity whose results are invalid.
    pub const VOIDED: Self = Self(Cow::Borrowed("VOIDED"));
    /// State of an activity that was skipped.
    pub const SKIPPED: Self = Self(Cow::Borrowed("SKIPPED"));
    /// State of a source of content that is polled for news.
    pub const OPENED: Self = Self(Cow::Borrowed("OPENED"));
    /// State of a source of content that is no longer polled.
    pub const CLOSED: Self = Self(Cow::Borrowed("CLOSED"));
    /// State of an activity that finished successfully.
    pub const COMPLETED_SUCCESS: Self = Self(Cow::Borrowed("COMPLETED_SUCCESS"));
    /// State of an activity that finished without success.
    pub const COMPLETED_FAILURE: Self = Self(Cow::Borrowed("COMPLETED_FAILURE"));

    /// Maximum length of a state, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Parses a token of the vocabulary.
    ///
    /// # Errors
    /// Fails if the text is not `[A-Z][A-Z_]*` or is too long.
    pub fn parse(raw: &str) -> Result<Self, InvalidState> {
        for constant in [Self::ACTIVE, Self::INACTIVE, Self::DELETED] {
            if constant.as_str() == raw {
                return Ok(constant);
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

    /// Returns whether the gateway chooses this state by the dates of an item.
    #[must_use]
    pub fn is_of_dates(&self) -> bool {
        [Self::EMBARGOED, Self::EXPIRED].contains(self)
    }

    /// Returns the token.
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
    fn parses_only_tokens() {
        assert_eq!(State::parse("ACTIVE").unwrap(), State::ACTIVE);
        assert_eq!(State::parse("COMPLETED_SUCCESS").unwrap().as_str(), "COMPLETED_SUCCESS");
        for raw in ["", "active", "_A", "A B", "A1", &"A".repeat(65)] {
            assert!(State::parse(raw).is_err(), "{raw}");
        }
    }
}
