//! Lookups: facts that a message lacks, and the result of requesting them from the repository.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Lookup of a draft: the missing facts and the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftLookup {
    /// Facts that the message lacks.
    pub missing: MissingFacts,
    /// Result of the lookup; `None` if no lookup was made or the repository answered completely.
    pub mark: Option<LookupMark>,
}

impl DraftLookup {
    /// Returns a lookup of these facts that has no result yet.
    #[must_use]
    pub fn of(missing: MissingFacts) -> Self {
        Self { missing, mark: None }
    }
}

named_values! {
    /// Facts that a message lacks and the repository may have.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum MissingFacts {
        /// No facts: the message is complete, or the object is deleted and a lookup would find nothing.
        #[default]
        Nothing = "nothing",
        /// Parent and types of the object.
        Object = "object",
        /// Parent and types of the object, and version, media type, size and digest of the content.
        Content = "content",
        /// Parent, types and items of a new object, because the message does not list the items.
        Items = "items",
        /// Parent and types of the object, and the newest remaining version of the content, because the event
        /// deleted an unknown number of versions, possibly all.
        RemainingVersions = "rest",
    }
}

named_values! {
    /// Result of a lookup that the repository did not answer completely.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum LookupMark {
        /// The repository did not answer, or only in part. A later UPDATE with the same time adds the missing facts.
        Incomplete = "incomplete",
        /// The repository no longer has the object or item of the event.
        Gone = "gone",
        /// The repository has a newer version than the version of the event.
        Newer = "newer",
        /// The event comes from another repository than the configured one.
        Foreign = "foreign",
    }
}

impl LookupMark {
    /// Returns the mark with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.name() == name)
    }
}

impl fmt::Display for LookupMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::LookupMark;

    #[test]
    fn the_names_are_those_of_the_json() {
        for mark in LookupMark::ALL {
            assert_eq!(serde_json::to_value(mark).unwrap(), mark.name());
            assert_eq!(LookupMark::parse(mark.name()), Some(mark));
        }
    }
}
