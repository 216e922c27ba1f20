//! What happened to one object: the set of changes that its source made at once.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::{ChangeId, ContentItemModification, EventId, SourceName, Text, Timestamp, Uri};

/// A set of changes made at once to one object of a repository: the `ContentObjectModification`
/// of the content-change-message 0.1 page, and where it came from.
///
/// Its JSON shape is documented in `docs/json.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentObjectModification {
    /// Identifies the change.
    pub id: ChangeId,
    /// Who made it.
    pub user: User,
    /// When it was made, by the source's clock.
    pub time: Timestamp,
    /// The object: for Fedora 3 the REST endpoint of its profile, as on the 0.1 page.
    pub object: Uri,
    /// The object that it belongs to.
    pub parent: Option<Uri>,
    /// What kinds of object it is.
    pub types: Vec<Uri>,
    /// What was done, for people.
    pub description: Text,
    /// Where the change came from.
    pub origin: Origin,
    /// What happened to which items.
    pub items: NonEmpty<ContentItemModification>,
}

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
pub struct User {
    /// The name; Atom asks for one (RFC 4287 section 3.2.1), so it is never empty.
    name: Text,
    /// What identifies the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri)]
    uri: Option<Uri>,
}

/// A name that is missing or empty becomes [`User::UNKNOWN`], as in [`User::new`].
impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            name: Text,
            #[serde(default)]
            uri: Option<Uri>,
        }
        let raw = Raw::deserialize(deserializer)?;
        Ok(Self::new(raw.name.as_str(), raw.uri))
    }
}

impl User {
    /// The name of a user of whom the source says nothing.
    pub const UNKNOWN: &'static str = "unknown";

    /// A user by name; an empty name becomes [`User::UNKNOWN`], Fedora 3's own word for it.
    #[must_use]
    pub fn new(name: &str, uri: Option<Uri>) -> Self {
        let name = Text::new(name);
        let name = if name.is_empty() { Text::new(Self::UNKNOWN) } else { name };
        Self { name, uri }
    }

    /// A user of whom the source says nothing.
    #[must_use]
    pub fn unknown() -> Self {
        Self::new(Self::UNKNOWN, None)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// What identifies the user.
    #[must_use]
    pub fn uri(&self) -> Option<&Uri> {
        self.uri.as_ref()
    }
}

/// Where a change came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The configured source.
    pub source: SourceName,
    /// The source's own identifier of the event.
    pub event_id: Option<EventId>,
    /// The version of the source's software, as the source writes it.
    pub software_version: Option<Text>,
}

/// At least one of something, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<T>")]
pub struct NonEmpty<T>(Vec<T>);

/// A change without items was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a change has at least one item")]
pub struct NoItems;

impl<T> NonEmpty<T> {
    /// Just one.
    #[must_use]
    pub fn one(item: T) -> Self {
        Self(vec![item])
    }

    /// One, and as many others as there are.
    #[must_use]
    pub fn one_and(first: T, others: Vec<T>) -> Self {
        let mut all = vec![first];
        all.extend(others);
        Self(all)
    }

    /// As many of something else.
    #[must_use]
    pub fn map<U>(self, each: impl FnMut(T) -> U) -> NonEmpty<U> {
        NonEmpty(self.0.into_iter().map(each).collect())
    }

    /// The items, by value.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T> TryFrom<Vec<T>> for NonEmpty<T> {
    type Error = NoItems;

    fn try_from(items: Vec<T>) -> Result<Self, NoItems> {
        if items.is_empty() { Err(NoItems) } else { Ok(Self(items)) }
    }
}

impl<T: Serialize> Serialize for NonEmpty<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T> Deref for NonEmpty<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a NonEmpty<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
