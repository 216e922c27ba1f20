//! What a repository is asked about an event, since its message could not say it, and what came of that.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a draft's repository is to be asked, and what came of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftLookup {
    /// What the source could not tell.
    pub untold: Untold,
    /// What came of asking; `None` where nobody asked, or all was answered.
    pub mark: Option<LookupMark>,
}

impl DraftLookup {
    /// A draft of which that is untold.
    #[must_use]
    pub fn of(untold: Untold) -> Self {
        Self { untold, mark: None }
    }
}

/// What a source could not tell of an event, and its repository may know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Untold {
    /// Nothing: all is told, or what is gone cannot be asked about.
    #[default]
    Nothing,
    /// What the object belongs to, and its types.
    Object,
    /// That, and what the content is like: its version, media type, size and digest.
    Content,
    /// That, and which items the object has: it is new, and they are not listed.
    Items,
    /// That, and which version of the content is the newest now: an unknown number of them is gone, and perhaps all.
    Rest,
}

impl Untold {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Nothing, Self::Object, Self::Content, Self::Items, Self::Rest];

    /// Its name, as the journal keeps it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Object => "object",
            Self::Content => "content",
            Self::Items => "items",
            Self::Rest => "rest",
        }
    }
}

/// What came of asking the repository about an event, where it is not that all was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LookupMark {
    /// It did not answer, or not everything. What it knows is told later, by an UPDATE of the same time.
    Incomplete,
    /// It has no longer what the event speaks of.
    Gone,
    /// It has a newer version than the one that the event speaks of.
    Newer,
    /// The event is of another repository than the one that is asked.
    Foreign,
}

impl LookupMark {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Incomplete, Self::Gone, Self::Newer, Self::Foreign];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Gone => "gone",
            Self::Newer => "newer",
            Self::Foreign => "foreign",
        }
    }

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
