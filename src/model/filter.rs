//! Filters: conditions that select changes for a reader.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{
    Change, ContentItemModification, ItemChange, MediaRange, ReaderView, SourceName, State, Timestamp, Uri,
    deserialize_str::deserialize_str,
};

/// Conditions that select changes. The values of one condition are alternatives, all conditions must hold, and a
/// condition without values always holds. The default filter therefore matches every change.
///
/// A filter selects a change as a whole, with all its items, because a reader could not detect that items are
/// missing. A change matches when the conditions on the change hold, and at least one of its items meets all
/// conditions on items.
///
/// With `visibility`, the conditions apply to the change as the public sees it ([`Change::public`]), and the reader
/// gets that public change. The caller passes it to the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Condition on the change: its source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceName>,
    /// Condition on the change: prefix of the URI of its object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<UriPrefix>,
    /// Condition on the change: parent of its object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<Uri>,
    /// Condition on the change: a type of its object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Uri>,
    /// Condition on an item: kind of its change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ItemChangeKind>,
    /// Condition on an item: the media type of its content. Changes without a media type always match (a DELETE, a
    /// change of state, a source that never reports media types): a superfluous notification costs one request, but
    /// a missed deletion is never corrected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media_types: Vec<MediaRange>,
    /// Condition on an item: its state after the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Condition on the change: earliest time of receipt, by the gateway's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Whether to select only changes of public items, as the public sees them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub visibility: bool,
    /// Part of the journal that the reader may see; `None` if everything. It comes from access control, so no definition and
    /// no query contains it.
    #[serde(skip)]
    pub view: Option<Arc<ReaderView>>,
}

/// How a reader sees the changes that a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rendition {
    /// As they are.
    Recorded,
    /// As the public sees them ([`Change::public`]).
    Public,
    /// As the public sees them, and without names of users ([`Change::anonymous`]).
    Anonymous,
}

impl Filter {
    /// Maximum number of values of one condition.
    pub const MAX_VALUES: usize = 50;

    /// Returns the name of the first condition with more than [`Filter::MAX_VALUES`] values, if there is one.
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

    /// Returns how the reader sees the changes.
    #[must_use]
    pub fn rendition(&self) -> Rendition {
        match &self.view {
            Some(view) if view.public => Rendition::Anonymous,
            _ if self.visibility => Rendition::Public,
            _ => Rendition::Recorded,
        }
    }

    /// Returns whether the change matches.
    #[must_use]
    pub fn matches(&self, change: &Change) -> bool {
        let modification = &change.modification;
        self.view.as_ref().is_none_or(|view| view.covers(change))
            && self.since.is_none_or(|since| change.received >= since)
            && any_of(&self.sources, |source| *source == modification.origin.source)
            && any_of(&self.objects, |prefix| prefix.is_prefix_of(&modification.object))
            && any_of(&self.parents, |parent| modification.parent.as_ref() == Some(parent))
            && any_of(&self.types, |object_type| modification.types.contains(object_type))
            && modification.items.iter().any(|item| self.matches_item(item))
    }

    fn matches_item(&self, item: &ContentItemModification) -> bool {
        any_of(&self.changes, |kind| *kind == ItemChangeKind::of(&item.change))
            && any_of(&self.media_types, |range| {
                let media_type = item.change.content().and_then(|content| content.media_type.as_ref());
                media_type.is_none_or(|media_type| range.matches(media_type))
            })
            && any_of(&self.states, |state| item.change.after() == Some(state))
    }
}

/// Returns whether a condition holds: for one of its values, or because it has none.
fn any_of<T>(values: &[T], holds: impl FnMut(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(holds)
}

/// Kind of an item's change: its change type, or `STATE` for a change of state alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ItemChangeKind {
    /// The item is new.
    Add,
    /// The item's content is new.
    Update,
    /// The item is deleted.
    Delete,
    /// Nothing but the item's state changed.
    State,
}

/// Error for a text that is not a kind of change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of change; give ADD, UPDATE, DELETE or STATE")]
struct InvalidItemChangeKind(String);

/// Reads the name in upper or lower case.
impl<'de> Deserialize<'de> for ItemChangeKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, |name| {
            let kinds = [Self::Add, Self::Update, Self::Delete, Self::State];
            let kind = kinds.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(name.trim()));
            kind.ok_or_else(|| InvalidItemChangeKind(name.chars().take(64).collect()))
        })
    }
}

impl ItemChangeKind {
    /// Returns the kind of a change.
    #[must_use]
    pub fn of(change: &ItemChange) -> Self {
        match change {
            ItemChange::Add { .. } => Self::Add,
            ItemChange::Update { .. } => Self::Update,
            ItemChange::Delete { .. } => Self::Delete,
            ItemChange::State { .. } => Self::State,
        }
    }

    /// Returns the distinct kinds of the items' changes that are on time, in order. A late change is no news: the item
    /// did not become what the change says.
    #[must_use]
    pub fn among(change: &Change) -> Vec<Self> {
        Self::distinct(change.items_on_time())
    }

    fn distinct<'a>(items: impl IntoIterator<Item = &'a ContentItemModification>) -> Vec<Self> {
        let mut kinds: Vec<_> = items.into_iter().map(|item| Self::of(&item.change)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Returns a summary of a change in one lower-case word: `add`, `update`, `delete` or `state` if all items that are on
    /// time have this kind of change, `late` if none is on time, and otherwise `mixed`.
    #[must_use]
    pub fn word(change: &Change) -> &'static str {
        Self::word_of(change.items_on_time())
    }

    /// Returns the summary of these items' changes, as [`Self::word`] does.
    #[must_use]
    pub fn word_of<'a>(items: impl IntoIterator<Item = &'a ContentItemModification>) -> &'static str {
        match Self::distinct(items)[..] {
            [] => "late",
            [Self::Add] => "add",
            [Self::Update] => "update",
            [Self::Delete] => "delete",
            [Self::State] => "state",
            _ => "mixed",
        }
    }

    /// Returns the name in JSON.
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

/// Prefix of a URI, compared character by character, of 1 to [`Uri::MAX_BYTES`] bytes. For example,
/// `http://h/objects/demo:` matches the URIs of a PID namespace, and `http://h/objects/demo:1` matches both
/// `demo:1` and `demo:10`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct UriPrefix(String);

/// Error for a text that cannot be the prefix of a URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUriPrefix {
    /// The text is empty, and would match every URI.
    #[error("it is empty; leave it out to have every object")]
    Empty,
    /// The text is longer than the maximum length of a URI.
    #[error("it has {0} bytes; the maximum is {max}", max = Uri::MAX_BYTES)]
    TooLong(usize),
    /// The text has a character that no URI may contain.
    #[error("a URI cannot contain {0:?}; percent-encode it as in the object's URI")]
    Character(char),
}

impl UriPrefix {
    /// Parses the prefix of a URI.
    ///
    /// # Errors
    /// Fails if no URI can begin with the text.
    pub fn parse(raw: &str) -> Result<Self, InvalidUriPrefix> {
        match raw.chars().find(|c| !super::uri::is_uri_char(*c)) {
            _ if raw.is_empty() => Err(InvalidUriPrefix::Empty),
            _ if raw.len() > Uri::MAX_BYTES => Err(InvalidUriPrefix::TooLong(raw.len())),
            Some(bad) => Err(InvalidUriPrefix::Character(bad)),
            None => Ok(Self(raw.to_owned())),
        }
    }

    /// Returns whether the URI begins with this prefix.
    #[must_use]
    pub fn is_prefix_of(&self, uri: &Uri) -> bool {
        uri.as_str().starts_with(&self.0)
    }

    /// Returns the prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The whole URI as a prefix.
impl From<&Uri> for UriPrefix {
    fn from(uri: &Uri) -> Self {
        Self(uri.as_str().to_owned())
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
    fn matches_changes_that_meet_every_condition() {
        let change: Change = serde_json::from_str(CHANGE).unwrap();
        for (filter, expected) in [
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
            assert_eq!(filter.matches(&change), expected, "{filter:?}");
        }
    }

    #[test]
    fn kinds_are_read_in_any_case() {
        for (name, kind) in
            [("delete", ItemChangeKind::Delete), ("Add", ItemChangeKind::Add), ("STATE", ItemChangeKind::State)]
        {
            assert_eq!(serde_json::from_value::<ItemChangeKind>(name.into()).unwrap(), kind);
        }
        let error = serde_json::from_str::<ItemChangeKind>("\"gone\"").unwrap_err().to_string();
        assert!(error.starts_with("\"gone\" is not a kind of change; give ADD, UPDATE, DELETE or STATE"), "{error}");
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        assert_eq!(UriPrefix::parse(""), Err(InvalidUriPrefix::Empty));
        assert_eq!(UriPrefix::parse("http://h/a b"), Err(InvalidUriPrefix::Character(' ')));
        assert_eq!(UriPrefix::parse(&"a".repeat(2049)), Err(InvalidUriPrefix::TooLong(2049)));
    }
}
