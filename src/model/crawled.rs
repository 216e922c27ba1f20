//! What a walk through a repository found, as far as the repository tells it.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{ContentLocation, NonEmpty, State, Timestamp, Uri};

/// An object as it was found in its repository: not what happened to it, but how it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FoundObject)]
#[serde(deny_unknown_fields)]
pub struct CrawledObject {
    /// The object, as messages of its source name it.
    pub object: Uri,
    /// A date of the repository's since which parent and types have been so, as far as it can tell.
    pub at: Timestamp,
    /// What it belongs to.
    #[serde(default, deserialize_with = "told", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri)]
    pub parent: Option<Uri>,
    /// Its types; empty where the repository does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub types: Vec<Uri>,
    /// What it consists of.
    #[schema(value_type = Vec<CrawledItem>, min_items = 1)]
    pub items: NonEmpty<CrawledItem>,
}

/// An item as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FoundItem)]
#[serde(deny_unknown_fields)]
pub struct CrawledItem {
    /// The item.
    pub uri: Uri,
    /// A date of the repository's since which it has been there with that content: the date of its newest version.
    pub at: Timestamp,
    /// Where its content is, if it has any.
    #[serde(default, deserialize_with = "told", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ContentLocation)]
    pub content: Option<ContentLocation>,
    /// Its state; `None` where the repository has no states.
    #[serde(default, deserialize_with = "told", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = State)]
    pub state: Option<State>,
}

/// What is not told is left out, and never `null`.
fn told<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

impl CrawledObject {
    /// The newest of its dates: as of then all of it was so.
    #[must_use]
    pub fn newest(&self) -> Timestamp {
        self.items.iter().map(|item| item.at).fold(self.at, Timestamp::max)
    }
}
