//! The part of the journal that a reader may see.

use serde::{Deserialize, Serialize};

use super::{
    AspectSet, Change, ContentItemModification, ContentLocation, ContentObjectModification, ItemChange, ItemNotes,
    Origin, Settlement, SourceName, State, Text, Uri, UriPrefix, User, VisibilityDates, visibility::is_public,
};

/// Part of the journal that a reader may see: the changes of some sources and objects, as they are or as the public sees
/// them. A condition without values always holds.
///
/// The conditions are facts of an object that never change. So a reader who has got an object also gets its deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReaderView {
    /// Sources of the changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceName>,
    /// Prefixes of the URIs of the objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<UriPrefix>,
    /// Whether the reader sees only changes of public items, as the public sees them, and no names of users.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
}

impl ReaderView {
    /// Version of what a view shows of a change. Increase it when [`Change::anonymous`] or the meaning of a condition changes,
    /// because documents that were rendered before then show something else.
    pub const VERSION: u32 = 1;

    /// Returns whether the change is in this part.
    #[must_use]
    pub fn covers(&self, change: &Change) -> bool {
        self.covers_source(&change.modification.origin.source) && self.covers_object(&change.modification.object)
    }

    /// Returns whether changes of this source are in this part.
    #[must_use]
    pub fn covers_source(&self, source: &SourceName) -> bool {
        self.sources.is_empty() || self.sources.contains(source)
    }

    /// Returns whether this object is in this part.
    #[must_use]
    pub fn covers_object(&self, object: &Uri) -> bool {
        self.objects.is_empty() || self.objects.iter().any(|prefix| prefix.is_prefix_of(object))
    }

    /// Returns whether all objects with this prefix are in this part.
    #[must_use]
    pub fn covers_prefix(&self, prefix: &UriPrefix) -> bool {
        self.objects.is_empty() || self.objects.iter().any(|covered| prefix.as_str().starts_with(covered.as_str()))
    }
}

impl Change {
    /// Returns a copy for readers without a name of their own: without users, texts and identifiers of the source, and
    /// states that the public does not see. The change must be one that the public sees ([`Change::public`]).
    #[must_use]
    pub fn anonymous(&self) -> Self {
        // Each member is named here, so that nobody can add one without a decision about it.
        let Self { seq, received, modification, settlement } = self;
        let ContentObjectModification {
            id,
            user: _,
            time,
            object,
            parent,
            types,
            description: _,
            report: _,
            origin: Origin { source, event_id: _, software_version: _ },
            items,
        } = modification;
        let Settlement { filled, late, purge, as_of: _, lookup: _, due: _, items: notes } = settlement;
        let item = |ContentItemModification { id, uri, change }| ContentItemModification {
            id,
            uri,
            change: anonymous_item(change),
        };
        let note = |ItemNotes { late, inferred, initial_state, dates: _, denies: _, came: _ }: &ItemNotes| ItemNotes {
            late: *late,
            inferred: *inferred,
            initial_state: initial_state.clone().filter(|state| is_public(Some(state))),
            // Hidden items and future withdrawals are nobody's business.
            dates: VisibilityDates::NONE,
            denies: None,
            came: None,
        };
        let modification = ContentObjectModification {
            id: *id,
            user: User::unknown(),
            time: *time,
            object: object.clone(),
            parent: parent.clone(),
            types: types.clone(),
            description: Text::default(),
            report: None,
            origin: Origin { source: source.clone(), event_id: None, software_version: None },
            items: items.clone().map(item),
        };
        let (filled, late): (AspectSet, AspectSet) = (*filled, *late);
        let notes = notes.iter().map(note).collect();
        let purge = *purge;
        let settlement = Settlement { filled, late, purge, as_of: None, lookup: None, due: false, items: notes };
        Self { seq: *seq, received: *received, modification, settlement }
    }
}

/// Returns the change of an item without hidden states. A withdrawn item leaves as every other deleted one.
fn anonymous_item(change: ItemChange) -> ItemChange {
    let public = |state: Option<State>| state.filter(|state| is_public(Some(state)));
    let content = |content: Option<ContentLocation>| content.as_ref().map(ContentLocation::anonymous);
    match change {
        ItemChange::Add { content: location, after } => {
            ItemChange::Add { content: content(location), after: public(after) }
        }
        ItemChange::Update { content: location, before, after } => {
            ItemChange::Update { content: content(location), before: public(before), after: public(after) }
        }
        ItemChange::Delete { .. } => ItemChange::Delete { before: None, after: None },
        // The public sees no change of state alone.
        ItemChange::State { .. } => ItemChange::Update { content: None, before: None, after: None },
    }
}

impl ContentLocation {
    /// Returns the location for readers without a name: that of the original, because a copy is stored where they have no
    /// access, and without the activity that generated it.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        let original = self.reported();
        let (url, media_type, size, digest) = (original.url, original.media_type, original.size, original.digest);
        Self { url, media_type, size, digest, generated_by: None, original: None }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, ReaderView, SourceName, UriPrefix};

    /// A change with all members. Everything that an anonymous reader must not see contains the word "hidden".
    const CHANGE: &str = r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"fedora3",
        "sourceEventId":"hidden-1","sourceVersion":"hidden 3.8","received":"2026-01-02T03:04:05.006Z",
        "time":"2011-01-02T03:04:05Z","asOf":"2012-01-02T03:04:05Z","user":{"name":"hidden","uri":"http://h/hidden"},
        "object":"http://h/objects/1","parent":"http://h/objects/0","types":["info:fedora/a:M"],
        "description":"by hidden","report":{"result":{"agent":"hidden"}},"lookup":"incomplete","items":[
          {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/1","change":"UPDATE",
           "content":{"url":"http://h/hidden","generatedBy":"http://h/hidden","digest":{"algorithm":"md5","value":"d41d8cd98f00b204e9800998ecf8427e"},
             "original":{"url":"http://h/c","size":3}},"stateBefore":"ACTIVE","stateAfter":"UNAVAILABLE"},
          {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/2","change":"DELETE","stateBefore":"ACTIVE","stateAfter":"INACTIVE"}]}"#;

    #[test]
    fn anonymous_change_has_only_what_the_public_may_see() {
        let change: Change = serde_json::from_str(CHANGE).unwrap();
        let anonymous = serde_json::to_value(change.anonymous()).unwrap();
        let expected = serde_json::json!({
            "seq": 7, "id": "urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48", "source": "fedora3",
            "received": "2026-01-02T03:04:05.006Z", "time": "2011-01-02T03:04:05.000Z", "user": { "name": "unknown" },
            "object": "http://h/objects/1", "parent": "http://h/objects/0", "types": ["info:fedora/a:M"],
            "description": "", "items": [
                { "id": "urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3", "uri": "http://h/1", "change": "UPDATE",
                  "content": { "url": "http://h/c", "size": 3 }, "stateBefore": "ACTIVE", "stateAfter": "UNAVAILABLE" },
                { "id": "urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4", "uri": "http://h/2", "change": "DELETE" },
            ],
        });
        assert_eq!(anonymous, expected);
    }

    #[test]
    fn view_covers_sources_and_prefixes() {
        let change: Change = serde_json::from_str(CHANGE).unwrap();
        let view = |source: &str, object: &str| ReaderView {
            sources: (!source.is_empty()).then(|| SourceName::parse(source).unwrap()).into_iter().collect(),
            objects: (!object.is_empty()).then(|| UriPrefix::parse(object).unwrap()).into_iter().collect(),
            public: false,
        };
        for (source, object, covers) in [
            ("", "", true),
            ("fedora3", "http://h/objects/", true),
            ("sfm", "http://h/objects/", false),
            ("fedora3", "http://h/o/", false),
        ] {
            assert_eq!(view(source, object).covers(&change), covers, "{source} {object}");
        }
        let view = view("", "http://h/o/");
        for (prefix, covers) in [("http://h/o/", true), ("http://h/o/1", true), ("http://h/o", false)] {
            assert_eq!(view.covers_prefix(&UriPrefix::parse(prefix).unwrap()), covers, "{prefix}");
        }
    }
}
