//! Kinds of events, and the tables that give them and the states by the words of a sender.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::{ContentLocation, DraftChange, ItemChange, State};

named_values! {
    /// Meaning of an event for the item.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub(super) enum Kind {
        /// New content; the registry knows whether the item is new.
        Content = "content",
        /// A new item.
        Add = "add",
        /// New content of an item that was there before.
        Update = "update",
        /// The item is there with this content and state, as a record says that reports no event.
        Present = "present",
        /// The item is gone.
        Delete = "delete",
        /// The object is gone with all its items.
        Purge = "purge",
        /// Another state.
        State = "state",
        /// Other metadata alone.
        Metadata = "metadata",
        /// Nothing that concerns content.
        Ignore = "ignore",
    }
}

impl Kind {
    /// Returns the kind with this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether the change of the item has content.
    pub(super) fn has_content(self) -> bool {
        matches!(self, Self::Content | Self::Add | Self::Update | Self::Present)
    }

    /// Returns whether the change of the item can have dates of visibility.
    pub(super) fn has_dates(self) -> bool {
        self.has_content() || matches!(self, Self::State | Self::Metadata)
    }

    /// Returns the change of the item; `None` for a kind that changes no single item, and for a state that is missing.
    pub(super) fn change(self, content: Option<ContentLocation>, state: Option<State>) -> Option<DraftChange> {
        Some(match self {
            Self::Content => match state {
                Some(state) => DraftChange::AddOrUpdateWithState { content, state },
                None => DraftChange::AddOrUpdate { content, initial_state: None },
            },
            Self::Add => DraftChange::Reported(ItemChange::Add { content, after: state }),
            Self::Update => DraftChange::Reported(ItemChange::Update { content, before: None, after: state }),
            Self::Present => DraftChange::Present { content, state },
            Self::Delete => DraftChange::Reported(ItemChange::Delete { before: None, after: None }),
            Self::State => DraftChange::Reported(ItemChange::State { before: None, after: state? }),
            Self::Metadata => DraftChange::Properties { after: state },
            Self::Purge | Self::Ignore => return None,
        })
    }
}

/// A table whose keys are words of a sender, with `*` for any characters.
#[derive(Clone, Debug)]
pub(super) struct Patterns<T>(BTreeMap<String, T>);

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patterns<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self)
    }
}

impl<T> Patterns<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of the word itself, or else of the pattern with the most characters that matches it.
    pub(super) fn find(&self, word: &str) -> Option<&T> {
        let length = |pattern: &str| pattern.bytes().filter(|byte| *byte != b'*').count();
        let matching = || self.0.iter().filter(|(pattern, _)| matches(pattern, word));
        self.0.get(word).or_else(|| matching().max_by_key(|(pattern, _)| length(pattern)).map(|(_, value)| value))
    }

    /// Returns the patterns as part of a sentence.
    pub(super) fn list(&self) -> String {
        self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether a word matches a pattern. It takes each part between asterisks at its first place, which is enough.
fn matches(pattern: &str, word: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == word };
    let Some(mut word) = word.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        match word.find(part) {
            Some(place) => word = &word[place + part.len()..],
            None => return false,
        }
    }
    word.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{Kind, Patterns, matches};

    #[test]
    fn asterisk_stands_for_any_characters() {
        for (pattern, word, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*b*c", "axbxc", true),
            ("a*b*c", "axcxb", false),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("**", "é", true),
            ("A*", "a", false),
        ] {
            assert_eq!(matches(pattern, word), expected, "{pattern} {word}");
        }
    }

    #[test]
    fn most_specific_pattern_counts() {
        let json = r#"{"*":"ignore","Object*":"metadata","ObjectCreated:*":"content","ObjectCreated:Copy":"add"}"#;
        let kinds: Patterns<Kind> = serde_json::from_str(json).unwrap();
        for (word, kind) in [
            ("ObjectCreated:Copy", Kind::Add),
            ("ObjectCreated:Put", Kind::Content),
            ("ObjectAcl:Put", Kind::Metadata),
            ("Test", Kind::Ignore),
        ] {
            assert_eq!(kinds.find(word), Some(&kind), "{word}");
        }
    }
}
