//! Which changes a reader wants.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{
    Change, ContentItemModification, ItemChange, MediaRange, SourceName, State, Timestamp, Uri,
    deserialize_str::deserialize_str,
};

/// Which changes a reader wants. The values of one condition are alternatives, the conditions hold
/// all together, and one without values always holds; so the default wants every change.
///
/// A change is wanted or not as a whole, with all its items: it is a set made at once, and a reader
/// who got a part of it could not tell. It is wanted when the conditions on the change hold, and at
/// least one of its items meets all the conditions on items.
///
/// With `visibility`, the conditions are on the change as the public sees it ([`Change::public`]), and
/// that is what the reader gets; who has the change gives the filter that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// On the change: its source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceName>,
    /// On the change: how the URI of its object begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<UriPrefix>,
    /// On the change: what its object belongs to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<Uri>,
    /// On the change: a type of its object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Uri>,
    /// On an item: what happened to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ItemChangeKind>,
    /// On an item: the media type of its content. A change that does not tell one (a DELETE, a change
    /// of state, a source that never does) is not held back by this: a reader who is told of one item
    /// too many asks once in vain, and one who misses a deletion is wrong for ever.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media_types: Vec<MediaRange>,
    /// On an item: its state after the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// On the change: it was received at that time or later, by the gateway's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only what changes what the public can see, as the public sees it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub visibility: bool,
}

impl Filter {
    /// How many values one condition may have.
    pub const MAX_VALUES: usize = 50;

    /// The condition that has more than [`Filter::MAX_VALUES`], if there is one.
    #[must_use]
    pub fn longest_condition(&self) -> Option<&'static str> {
        let lengths = [
            ("sources", self.sources.len()),
            ("objects", self.objects.len()),
            ("parents", self.parents.len()),
            ("types", self.types.len()),
            ("changes", self.changes.len()),
            ("media_types", self.media_types.len()),
            ("states", self.states.len()),
        ];
        lengths.into_iter().find(|(_, length)| *length > Self::MAX_VALUES).map(|(name, _)| name)
    }

    /// Whether the change is wanted.
    #[must_use]
    pub fn matches(&self, change: &Change) -> bool {
        let told = &change.modification;
        self.since.is_none_or(|since| change.received >= since)
            && any_of(&self.sources, |source| *source == told.origin.source)
            && any_of(&self.objects, |prefix| prefix.begins(&told.object))
            && any_of(&self.parents, |wanted| told.parent.as_ref() == Some(wanted))
            && any_of(&self.types, |wanted| told.types.contains(wanted))
            && told.items.iter().any(|item| self.matches_item(item))
    }

    fn matches_item(&self, item: &ContentItemModification) -> bool {
        any_of(&self.changes, |kind| *kind == ItemChangeKind::of(&item.change))
            && any_of(&self.media_types, |range| {
                let told = item.change.content().and_then(|content| content.media_type.as_ref());
                told.is_none_or(|told| range.takes(told))
            })
            && any_of(&self.states, |state| item.change.after() == Some(state))
    }
}

/// Whether a condition holds: one of its values does, or it has none.
fn any_of<T>(values: &[T], holds: impl FnMut(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(holds)
}

/// What happened to an item, told by one word: its change type, or `STATE` for a change of state
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ItemChangeKind {
    /// The item is new.
    Add,
    /// The item's content is new.
    Update,
    /// The item is gone.
    Delete,
    /// Nothing but the item's state changed.
    State,
}

impl ItemChangeKind {
    /// What happened to an item.
    #[must_use]
    pub fn of(change: &ItemChange) -> Self {
        match change {
            ItemChange::Add { .. } => Self::Add,
            ItemChange::Update { .. } => Self::Update,
            ItemChange::Delete { .. } => Self::Delete,
            ItemChange::State { .. } => Self::State,
        }
    }

    /// What happened to these items, each kind once.
    #[must_use]
    pub fn among(items: &[ContentItemModification]) -> Vec<Self> {
        let mut kinds: Vec<_> = items.iter().map(|item| Self::of(&item.change)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// One word for what happened to these items, in lower case: `add`, `update`, `delete` or `state` where
    /// that happened to each of them, else `mixed`.
    #[must_use]
    pub fn word(items: &[ContentItemModification]) -> &'static str {
        match Self::among(items)[..] {
            [Self::Add] => "add",
            [Self::Update] => "update",
            [Self::Delete] => "delete",
            [Self::State] => "state",
            _ => "mixed",
        }
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::State => "STATE",
        }
    }
}

/// How a URI begins, compared character for character: `http://h/objects/demo:` begins the URIs of
/// a PID namespace, and `http://h/objects/demo:1` those of `demo:1` and `demo:10` alike. 1 to
/// [`Uri::MAX_BYTES`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct UriPrefix(String);

/// Why a text does not begin a URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUriPrefix {
    /// There is nothing, and nothing begins every URI.
    #[error("it is empty; leave it out to have every object")]
    Empty,
    /// It is longer than a URI may be.
    #[error("it has {0} bytes; at most {max} are taken", max = Uri::MAX_BYTES)]
    TooLong(usize),
    /// It has a character that no URI has.
    #[error("{0:?} stands in no URI; percent-encode it as the object's URI has it")]
    Character(char),
}

impl UriPrefix {
    /// Takes the beginning of a URI.
    ///
    /// # Errors
    /// When no URI can begin so.
    pub fn parse(raw: &str) -> Result<Self, InvalidUriPrefix> {
        match raw.chars().find(|c| !super::uri::may_stand_in_uri(*c)) {
            _ if raw.is_empty() => Err(InvalidUriPrefix::Empty),
            _ if raw.len() > Uri::MAX_BYTES => Err(InvalidUriPrefix::TooLong(raw.len())),
            Some(bad) => Err(InvalidUriPrefix::Character(bad)),
            None => Ok(Self(raw.to_owned())),
        }
    }

    /// Whether the URI begins so.
    #[must_use]
    pub fn begins(&self, uri: &Uri) -> bool {
        uri.as_str().starts_with(&self.0)
    }

    /// The beginning.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UriPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for UriPrefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Change, Filter, InvalidUriPrefix, ItemChangeKind, MediaRange, SourceName, State, Timestamp, Uri, UriPrefix,
    };

    /// Two items: an ADD that is ACTIVE and a change of state to INACTIVE.
    const CHANGE: &str = r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"fedora3",
        "received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z","user":{"name":"fedoraAdmin"},
        "object":"http://h/objects/demo:1","parent":"http://h/objects/demo:0","types":["info:fedora/a:M","info:fedora/a:N"],"description":"",
        "items":[
          {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/1","change":"ADD","content":{"url":"http://h/c","mediaType":"image/png"},"stateAfter":"ACTIVE"},
          {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/2","stateAfter":"INACTIVE"}]}"#;

    fn sources(names: &[&str]) -> Filter {
        Filter { sources: names.iter().map(|name| SourceName::parse(name).unwrap()).collect(), ..Filter::default() }
    }

    fn object(prefix: &str) -> Filter {
        Filter { objects: vec![UriPrefix::parse(prefix).unwrap()], ..Filter::default() }
    }

    fn types(uri: &str) -> Filter {
        Filter { types: vec![Uri::parse(uri).unwrap()], ..Filter::default() }
    }

    fn parent(uri: &str) -> Filter {
        Filter { parents: vec![Uri::parse(uri).unwrap()], ..Filter::default() }
    }

    fn media(kind: ItemChangeKind, range: &str) -> Filter {
        Filter { changes: vec![kind], media_types: vec![MediaRange::parse(range).unwrap()], ..Filter::default() }
    }

    fn item(kind: ItemChangeKind, state: &State) -> Filter {
        Filter { changes: vec![kind], states: vec![state.clone()], ..Filter::default() }
    }

    fn since(time: &str) -> Filter {
        Filter { since: Some(Timestamp::parse(time).unwrap()), ..Filter::default() }
    }

    #[test]
    fn wants_what_meets_every_condition() {
        let change: Change = serde_json::from_str(CHANGE).unwrap();
        for (filter, wanted) in [
            (Filter::default(), true),
            (sources(&["fedora3"]), true),
            (sources(&["sfm", "fedora3"]), true),
            (sources(&["sfm"]), false),
            (object("http://h/objects/demo:"), true),
            (object("http://h/objects/test:"), false),
            (parent("http://h/objects/demo:0"), true),
            (parent("http://h/objects/demo:"), false),
            (media(ItemChangeKind::Add, "image/*"), true),
            (media(ItemChangeKind::Add, "text/xml"), false),
            (media(ItemChangeKind::State, "text/xml"), true),
            (types("info:fedora/a:N"), true),
            (types("info:fedora/a:O"), false),
            (item(ItemChangeKind::Add, &State::ACTIVE), true),
            (item(ItemChangeKind::State, &State::INACTIVE), true),
            (item(ItemChangeKind::Add, &State::INACTIVE), false),
            (item(ItemChangeKind::Delete, &State::ACTIVE), false),
            (since("2026-01-02T03:04:05.006Z"), true),
            (since("2026-01-02T03:04:05.007Z"), false),
            (Filter { objects: object("http://h/objects/demo:").objects, ..sources(&["sfm"]) }, false),
        ] {
            assert_eq!(filter.matches(&change), wanted, "{filter:?}");
        }
    }

    #[test]
    fn a_prefix_begins_some_uri() {
        assert_eq!(UriPrefix::parse(""), Err(InvalidUriPrefix::Empty));
        assert_eq!(UriPrefix::parse("http://h/a b"), Err(InvalidUriPrefix::Character(' ')));
        assert_eq!(UriPrefix::parse(&"a".repeat(2049)), Err(InvalidUriPrefix::TooLong(2049)));
    }
}
