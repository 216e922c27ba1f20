//! Objects and items as a crawl found them in their repository.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{ContentLocation, NonEmpty, State, Timestamp, Uri};

/// Current state of an object in its repository, as opposed to an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CrawledObject)]
#[serde(deny_unknown_fields)]
pub struct CrawledObject {
    /// URI of the object, as messages of its source write it.
    pub object: Uri,
    /// Date in the repository since which the parent and the types are known to be valid.
    pub at: Timestamp,
    /// URI of the parent.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri)]
    pub parent: Option<Uri>,
    /// Types of the object; empty if the repository does not report them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub types: Vec<Uri>,
    /// Items of the object.
    #[schema(value_type = Vec<CrawledItem>, min_items = 1)]
    pub items: NonEmpty<CrawledItem>,
}

/// Current state of an item in its repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CrawledItem)]
#[serde(deny_unknown_fields)]
pub struct CrawledItem {
    /// URI of the item.
    pub uri: Uri,
    /// Date in the repository since which the item has this content: the date of its newest version.
    pub at: Timestamp,
    /// Location of the content, if the item has content.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ContentLocation)]
    pub content: Option<ContentLocation>,
    /// State of the item; `None` if the repository has no states.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = State)]
    pub state: Option<State>,
}

/// Refuses `null`, because an unknown value must be left out.
fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

impl CrawledObject {
    /// Returns the newest date: the time since which all these facts are valid.
    #[must_use]
    pub fn newest(&self) -> Timestamp {
        self.items.iter().map(|item| item.at).fold(self.at, Timestamp::max)
    }
}
