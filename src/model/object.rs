//! Modifications of objects.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::{
    ChangeId, ContentItemModification, EventId, Report, SourceName, Text, Timestamp, Uri, lenient::null_is_missing,
};

/// A set of changes made at the same time to one object of a repository: the `ContentObjectModification` of the
/// content-change-message 0.1 page, with its origin.
///
/// `docs/json.md` documents the JSON shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentObjectModification {
    /// Identifier of the change.
    pub id: ChangeId,
    /// User who made the change.
    pub user: User,
    /// Time of the change, by the source's clock.
    pub time: Timestamp,
    /// URI of the object: for Fedora 3 the REST endpoint of its profile, as on the 0.1 page.
    pub object: Uri,
    /// URI of the object's parent.
    pub parent: Option<Uri>,
    /// Types of the object.
    pub types: Vec<Uri>,
    /// Human-readable description.
    pub description: Text,
    /// Message of the source about work on the object.
    pub report: Option<Report>,
    /// Origin of the change.
    pub origin: Origin,
    /// Modified items.
    pub items: NonEmpty<ContentItemModification>,
}

/// User who made a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
pub struct User {
    /// Name, never empty, because Atom requires one (RFC 4287 section 3.2.1).
    name: Text,
    /// URI of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri)]
    uri: Option<Uri>,
}

/// Replaces a missing or empty name by [`User::UNKNOWN`], as [`User::new`] does.
impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a user, an object with a name and perhaps a uri")]
        struct Raw {
            #[serde(default, deserialize_with = "null_is_missing")]
            name: Text,
            #[serde(default)]
            uri: Option<Uri>,
        }
        let raw = Raw::deserialize(deserializer)?;
        Ok(Self::new(raw.name.as_str(), raw.uri))
    }
}

impl User {
    /// Name for users without a name in the source; Fedora 3 uses the same word.
    pub const UNKNOWN: &'static str = "unknown";

    /// Returns a user with this name; an empty name becomes [`User::UNKNOWN`].
    #[must_use]
    pub fn new(name: &str, uri: Option<Uri>) -> Self {
        let name = Text::new(name);
        let name = if name.is_empty() { Text::new(Self::UNKNOWN) } else { name };
        Self { name, uri }
    }

    /// Returns a user without a name in the source.
    #[must_use]
    pub fn unknown() -> Self {
        Self::new(Self::UNKNOWN, None)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the URI of the user.
    #[must_use]
    pub fn uri(&self) -> Option<&Uri> {
        self.uri.as_ref()
    }
}

/// Origin of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the configured source.
    pub source: SourceName,
    /// Identifier of the event in the source.
    pub event_id: Option<EventId>,
    /// Version of the source's software, in the spelling of the source.
    pub software_version: Option<Text>,
}

/// A list with at least one element.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<T>")]
pub struct NonEmpty<T>(Vec<T>);

/// Error for a change without items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a change has at least one item")]
pub struct NoItems;

impl<T> NonEmpty<T> {
    /// Returns a list with one element.
    #[must_use]
    pub fn one(item: T) -> Self {
        Self(vec![item])
    }

    /// Returns a list of a first element and others.
    #[must_use]
    pub fn one_and(first: T, others: Vec<T>) -> Self {
        let mut all = vec![first];
        all.extend(others);
        Self(all)
    }

    /// Converts each element.
    #[must_use]
    pub fn map<U>(self, each: impl FnMut(T) -> U) -> NonEmpty<U> {
        NonEmpty(self.0.into_iter().map(each).collect())
    }

    /// Returns the elements as a vector.
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
