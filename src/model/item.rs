//! Modifications of single items.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{ContentLocation, ItemId, State, Uri, deserialize_str::deserialize_str};

/// Modification of one item of content: a Fedora datastream, an LDP resource, a WARC, or the object itself if the
/// change concerns the object as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentItemModification {
    /// Identifier of this part of the change.
    pub id: ItemId,
    /// URI of the item: for Fedora 3 the REST endpoint of its content, as on the 0.1 page.
    pub uri: Uri,
    /// Change of the item.
    pub change: ItemChange,
}

/// Change type of an item: the `changes:ITEM:CHANGE:TYPE` of the 0.1 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeType {
    /// The item is new.
    Add,
    /// The item's content is new.
    Update,
    /// The item is deleted.
    Delete,
}

impl ChangeType {
    /// Returns the term of the 0.1 message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// Parses the term of the 0.1 message, in upper or lower case.
    #[must_use]
    pub fn parse(term: &str) -> Option<Self> {
        [Self::Add, Self::Update, Self::Delete].into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(term))
    }
}

/// Error for a text that is not a change type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a change type; give ADD, UPDATE or DELETE")]
pub(super) struct InvalidChangeType(String);

impl<'de> Deserialize<'de> for ChangeType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let invalid = |term: &str| InvalidChangeType(term.chars().take(64).collect());
        deserialize_str(deserializer, |term| Self::parse(term.trim()).ok_or_else(|| invalid(term)))
    }
}

impl fmt::Display for ChangeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A change of content, of state, or of both. Each variant has only the parts that the change type allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemChange {
    /// A new item, which has no state before.
    Add {
        /// Location of the content.
        content: Option<ContentLocation>,
        /// State of the new item.
        after: Option<State>,
    },
    /// New content, with or without a change of state.
    Update {
        /// Location of the new content; `None` if only properties changed.
        content: Option<ContentLocation>,
        /// State before the change.
        before: Option<State>,
        /// State after the change; `None` if the event did not change the state.
        after: Option<State>,
    },
    /// The item is deleted.
    Delete {
        /// State before the change.
        before: Option<State>,
        /// State after the change, if the source has states of deleted items.
        after: Option<State>,
    },
    /// A change of state alone.
    State {
        /// State before the change; `None` if unknown.
        before: Option<State>,
        /// State after the change.
        after: State,
    },
}

/// Error for parts of an item that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemChangeError {
    /// A change that cannot have content has a content location.
    #[error("a content location goes with ADD and UPDATE only")]
    ContentWithoutAddOrUpdate,
    /// A new item has a state before.
    #[error("an ADD has no state before")]
    AddWithStateBefore,
    /// The item has neither a change type nor a state after.
    #[error("an item has a change type (ADD, UPDATE, DELETE), a state after, or both")]
    NoChange,
}

impl ItemChange {
    /// Combines the parts of an item from a message.
    ///
    /// # Errors
    /// Fails if the parts contradict each other.
    pub fn from_parts(
        change_type: Option<ChangeType>,
        content: Option<ContentLocation>,
        before: Option<State>,
        after: Option<State>,
    ) -> Result<Self, ItemChangeError> {
        match change_type {
            Some(ChangeType::Add) if before.is_some() => Err(ItemChangeError::AddWithStateBefore),
            Some(ChangeType::Add) => Ok(Self::Add { content, after }),
            Some(ChangeType::Update) => Ok(Self::Update { content, before, after }),
            _ if content.is_some() => Err(ItemChangeError::ContentWithoutAddOrUpdate),
            Some(ChangeType::Delete) => Ok(Self::Delete { before, after }),
            None => after.map(|after| Self::State { before, after }).ok_or(ItemChangeError::NoChange),
        }
    }

    /// Returns the change type; `None` for a change of state alone.
    #[must_use]
    pub fn change_type(&self) -> Option<ChangeType> {
        match self {
            Self::Add { .. } => Some(ChangeType::Add),
            Self::Update { .. } => Some(ChangeType::Update),
            Self::Delete { .. } => Some(ChangeType::Delete),
            Self::State { .. } => None,
        }
    }

    /// Returns the location of the new content.
    #[must_use]
    pub fn content(&self) -> Option<&ContentLocation> {
        match self {
            Self::Add { content, .. } | Self::Update { content, .. } => content.as_ref(),
            Self::Delete { .. } | Self::State { .. } => None,
        }
    }

    /// Returns the state before the change.
    #[must_use]
    pub fn before(&self) -> Option<&State> {
        match self {
            Self::Add { .. } => None,
            Self::Update { before, .. } | Self::Delete { before, .. } | Self::State { before, .. } => before.as_ref(),
        }
    }

    /// Returns the state after the change.
    #[must_use]
    pub fn after(&self) -> Option<&State> {
        match self {
            Self::Add { after, .. } | Self::Update { after, .. } | Self::Delete { after, .. } => after.as_ref(),
            Self::State { after, .. } => Some(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChangeType, ContentLocation, ItemChange, ItemChangeError, State, Uri};

    #[test]
    fn refuses_parts_that_contradict_each_other() {
        let content = || Some(ContentLocation::at(Uri::parse("http://h/c").unwrap()));
        for (kind, content, before, error) in [
            (Some(ChangeType::Delete), content(), None, ItemChangeError::ContentWithoutAddOrUpdate),
            (None, content(), None, ItemChangeError::ContentWithoutAddOrUpdate),
            (Some(ChangeType::Add), None, Some(State::ACTIVE), ItemChangeError::AddWithStateBefore),
            (None, None, Some(State::ACTIVE), ItemChangeError::NoChange),
        ] {
            assert_eq!(ItemChange::from_parts(kind, content, before, None), Err(error));
        }
    }
}
