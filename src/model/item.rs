//! What happened to one item.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ContentLocation, ItemId, State, Uri};

/// What happened to one item of content: a Fedora datastream, an LDP resource, a WARC, or the
/// object itself where the change is to the object as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentItemModification {
    /// Identifies this part of the change.
    pub id: ItemId,
    /// The item: for Fedora 3 the REST endpoint of its content, as on the 0.1 page.
    pub uri: Uri,
    /// What happened.
    pub change: ItemChange,
}

/// Added, updated or deleted: the `changes:ITEM:CHANGE:TYPE` of the 0.1 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeType {
    /// The item is new.
    Add,
    /// The item's content is new.
    Update,
    /// The item is gone.
    Delete,
}

impl ChangeType {
    /// The term of the 0.1 message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// Takes the term of the 0.1 message.
    #[must_use]
    pub fn parse(term: &str) -> Option<Self> {
        [Self::Add, Self::Update, Self::Delete].into_iter().find(|kind| kind.as_str() == term)
    }
}

impl fmt::Display for ChangeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A change of content or of state, or both: each variant has what it may have and no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemChange {
    /// A new item; it has no state before.
    Add {
        /// Where its content is.
        content: Option<ContentLocation>,
        /// The state it begins in.
        after: Option<State>,
    },
    /// New content, with or without a change of state.
    Update {
        /// Where the new content is; `None` when only properties changed.
        content: Option<ContentLocation>,
        /// The state until now.
        before: Option<State>,
        /// The state from now on; `None` when the event did not change it.
        after: Option<State>,
    },
    /// The item is gone.
    Delete {
        /// The state until now.
        before: Option<State>,
        /// The state from now on, where the source has one for what is gone.
        after: Option<State>,
    },
    /// A change of state alone.
    State {
        /// The state until now; `None` when nobody knows it.
        before: Option<State>,
        /// The state from now on.
        after: State,
    },
}

/// Why the parts of an item do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemChangeError {
    /// Content was told for a change that has none.
    #[error("a content location goes with ADD and UPDATE only")]
    ContentWithoutAddOrUpdate,
    /// A state before was told for something new.
    #[error("an ADD has no state before")]
    AddWithStateBefore,
    /// Neither a change type nor a state after was told.
    #[error("an item has a change type (ADD, UPDATE, DELETE), a state after, or both")]
    NoChange,
}

impl ItemChange {
    /// Puts together what a message told in separate places.
    ///
    /// # Errors
    /// When the parts contradict each other.
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

    /// The change type; `None` for a change of state alone.
    #[must_use]
    pub fn change_type(&self) -> Option<ChangeType> {
        match self {
            Self::Add { .. } => Some(ChangeType::Add),
            Self::Update { .. } => Some(ChangeType::Update),
            Self::Delete { .. } => Some(ChangeType::Delete),
            Self::State { .. } => None,
        }
    }

    /// Where the new content is.
    #[must_use]
    pub fn content(&self) -> Option<&ContentLocation> {
        match self {
            Self::Add { content, .. } | Self::Update { content, .. } => content.as_ref(),
            Self::Delete { .. } | Self::State { .. } => None,
        }
    }

    /// The state until now.
    #[must_use]
    pub fn before(&self) -> Option<&State> {
        match self {
            Self::Add { .. } => None,
            Self::Update { before, .. } | Self::Delete { before, .. } | Self::State { before, .. } => before.as_ref(),
        }
    }

    /// The state from now on.
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
