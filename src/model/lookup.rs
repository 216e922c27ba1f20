//! What a repository is asked about an event, since its message could not say it, and what came of that.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a draft's repository is to be asked, and what came of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftLookup {
    /// What the source could not tell.
    pub missing: MissingFacts,
    /// What came of asking; `None` where nobody asked, or all was answered.
    pub mark: Option<LookupMark>,
}

impl DraftLookup {
    /// A draft of which that is untold.
    #[must_use]
    pub fn of(missing: MissingFacts) -> Self {
        Self { missing, mark: None }
    }
}

named_values! {
    /// What a source could not tell of an event, and its repository may know.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum MissingFacts {
        /// Nothing: all is told, or what is gone cannot be asked about.
        #[default]
        Nothing = "nothing",
        /// What the object belongs to, and its types.
        Object = "object",
        /// That, and what the content is like: its version, media type, size and digest.
        Content = "content",
        /// That, and which items the object has: it is new, and they are not listed.
        Items = "items",
        /// That, and which version of the content is the newest now: an unknown number of them is gone, and perhaps all.
        RemainingVersions = "rest",
    }
}

named_values! {
    /// What came of asking the repository about an event, where it is not that all was answered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum LookupMark {
        /// It did not answer, or not everything. What it knows is told later, by an UPDATE of the same time.
        Incomplete = "incomplete",
        /// It has no longer what the event speaks of.
        Gone = "gone",
        /// It has a newer version than the one that the event speaks of.
        Newer = "newer",
        /// The event is of another repository than the one that is asked.
        Foreign = "foreign",
    }
}

impl LookupMark {
    /// The mark of that name.
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
