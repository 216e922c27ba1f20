//! Effects of changes for the public.
//!
//! The public sees an item while the item exists and is ACTIVE or UNAVAILABLE, or has no state (Fedora 4 to 6 have none). A hidden
//! item is as good as deleted: for the public, ACTIVE→INACTIVE is a DELETE, INACTIVE→ACTIVE is an ADD, and changes
//! of a hidden item have no effect. Applied to an empty set, the public changes always yield exactly the items that
//! the public can see.
//!
//! Most changes show their effect by themselves. For a late change or the first event of an item the effect depends
//! on the registry, so the journal then stores the effect beside the change, as [`VisibilityNotes`].

use serde::{Deserialize, Serialize};

use super::{
    Aspect, AspectSet, Change, ContentItemModification, ContentLocation, ItemChange, ItemId, ItemNotes, NonEmpty,
    State, Uri,
};

/// Returns whether the public sees an existing item in this state, or without one.
#[must_use]
pub fn is_public(state: Option<&State>) -> bool {
    state.is_none_or(|state| [State::ACTIVE, State::UNAVAILABLE].contains(state))
}

/// Effect of a change on an item for the public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VisibilityChange {
    /// No effect.
    Nothing,
    /// The item becomes visible.
    Appears,
    /// A visible item gets new content.
    Changes,
    /// The item becomes invisible.
    Disappears,
}

impl VisibilityChange {
    /// Returns the effect of a change on an item that was visible before or not (`None`: unknown), and that is
    /// visible or not after it.
    #[must_use]
    pub fn between(was: Option<bool>, is: bool, change: &ItemChange) -> Self {
        let gives_content = matches!(change, ItemChange::Add { .. } | ItemChange::Update { .. });
        let is_new = matches!(change, ItemChange::Add { .. });
        if is {
            return match was {
                Some(false) => Self::Appears,
                _ if gives_content && !is_new => Self::Changes,
                Some(true) if !is_new => Self::Nothing,
                _ => Self::Appears,
            };
        }
        // An item that existed before its first event may have been visible.
        let was = was.unwrap_or(!is_new && is_public(change.before()));
        if was { Self::Disappears } else { Self::Nothing }
    }

    /// Returns the effect that a change shows by itself.
    #[must_use]
    pub fn implied_by(change: &ItemChange) -> Self {
        let was = match change {
            ItemChange::Add { .. } => Some(false),
            ItemChange::State { before: None, .. } => None,
            _ => Some(is_public(change.before())),
        };
        let is = match change {
            ItemChange::Delete { .. } => false,
            _ => is_public(change.after().or(change.before())),
        };
        Self::between(was, is, change)
    }
}

/// Effects of a change for the public that the change does not show by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisibilityNotes {
    /// Effects on items that the change lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemVisibility>,
    /// Effects on items that the change does not list, because a late purge resets the states of the items that it
    /// does not delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<UnlistedItem>,
}

/// Effect for the public on an item that the change lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemVisibility {
    /// Index of the item in the change, from 0.
    pub at: usize,
    /// Effect on the item.
    #[serde(rename = "seen")]
    pub effect: VisibilityChange,
    /// Content location of an item that appears, if the change does not contain it, or contains an older one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentLocation>,
}

/// Effect for the public on an item that the change does not list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlistedItem {
    /// Permanent identifier of this part of the public change.
    pub id: ItemId,
    /// URI of the item.
    pub uri: Uri,
    /// Effect on the item.
    #[serde(rename = "seen")]
    pub effect: VisibilityChange,
    /// Content location of an item that appears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentLocation>,
}

impl VisibilityNotes {
    /// Returns whether there are no notes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.unlisted.is_empty()
    }

    fn effect(&self, at: usize, change: &ItemChange) -> (VisibilityChange, Option<&ContentLocation>) {
        match self.items.iter().find(|note| note.at == at) {
            Some(note) => (note.effect, note.content.as_ref()),
            None => (VisibilityChange::implied_by(change), None),
        }
    }
}

impl Change {
    /// Returns the change as the public sees it: additions, updates and deletions of visible items, and no change
    /// of state alone; `None` if the change has no effect for the public.
    #[must_use]
    pub fn public(&self, visibility: &VisibilityNotes) -> Option<Self> {
        let mut items = Vec::new();
        let mut notes = Vec::new();
        for (at, item) in self.modification.items.iter().enumerate() {
            let (effect, content) = visibility.effect(at, &item.change);
            let mut note = self.settlement.item(at);
            if let Some(change) = public_change(&item.change, effect, content, note.late) {
                items.push(ContentItemModification { change, ..item.clone() });
                // The effect compares what the public sees before and after, so it is never late. New content can be.
                let is_late = |aspect: &Aspect| *aspect == Aspect::Content && content.is_none();
                note.late = note.late.iter().filter(is_late).collect();
                notes.push(note);
            }
        }
        for item in &visibility.unlisted {
            let delete = ItemChange::Delete { before: None, after: None };
            if let Some(change) = public_change(&delete, item.effect, item.content.as_ref(), AspectSet::EMPTY) {
                items.push(ContentItemModification { id: item.id, uri: item.uri.clone(), change });
                notes.push(ItemNotes::default());
            }
        }
        let items = NonEmpty::try_from(items).ok()?;
        while notes.last().is_some_and(|notes| *notes == ItemNotes::default()) {
            notes.pop();
        }
        let mut public = self.clone();
        public.modification.items = items;
        public.settlement.items = notes;
        Some(public)
    }
}

/// Returns the change of one item as the public sees it. `registered` is the content location from the registry, if that of
/// the change is missing or late. `late` are the aspects of the change that the registry knows better.
fn public_change(
    change: &ItemChange,
    effect: VisibilityChange,
    registered: Option<&ContentLocation>,
    late: AspectSet,
) -> Option<ItemChange> {
    use VisibilityChange::{Appears, Changes, Disappears, Nothing};
    let content = || registered.or(change.content()).cloned();
    match (effect, change) {
        (Nothing, _) => None,
        (Changes, ItemChange::Add { .. } | ItemChange::Update { .. }) | (Disappears, ItemChange::Delete { .. }) => {
            Some(change.clone())
        }
        (Appears, _) => {
            let is_known = |after: &&State| is_public(Some(after)) && !late.contains(Aspect::State);
            Some(ItemChange::Add { content: content(), after: change.after().filter(is_known).cloned() })
        }
        (Changes, _) => Some(ItemChange::Update { content: content(), before: None, after: None }),
        (Disappears, _) => {
            Some(ItemChange::Delete { before: change.before().cloned(), after: change.after().cloned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AspectSet, Change, ContentLocation, ItemChange, ItemVisibility, State, Uri, VisibilityChange, VisibilityNotes,
        public_change,
    };

    fn content() -> Option<ContentLocation> {
        Some(ContentLocation::at(Uri::parse("http://h/c").unwrap()))
    }

    #[test]
    fn each_change_implies_its_effect_for_the_public() {
        let (a, i, d) = (Some(State::ACTIVE), Some(State::INACTIVE), Some(State::DELETED));
        let state = |before: &Option<State>, after: &Option<State>| ItemChange::State {
            before: before.clone(),
            after: after.clone().unwrap(),
        };
        let update = |before: &Option<State>, after: &Option<State>| ItemChange::Update {
            content: content(),
            before: before.clone(),
            after: after.clone(),
        };
        let add = |after: &Option<State>| ItemChange::Add { content: content(), after: after.clone() };
        let delete = |before: &Option<State>| ItemChange::Delete { before: before.clone(), after: None };
        for (change, effect) in [
            (state(&a, &i), VisibilityChange::Disappears),
            (state(&a, &d), VisibilityChange::Disappears),
            (state(&i, &a), VisibilityChange::Appears),
            (state(&d, &a), VisibilityChange::Appears),
            (state(&i, &d), VisibilityChange::Nothing),
            (state(&None, &a), VisibilityChange::Appears),
            (state(&None, &i), VisibilityChange::Disappears),
            (update(&None, &None), VisibilityChange::Changes),
            (update(&a, &None), VisibilityChange::Changes),
            (update(&a, &a), VisibilityChange::Changes),
            (update(&i, &None), VisibilityChange::Nothing),
            (update(&a, &i), VisibilityChange::Disappears),
            (update(&i, &a), VisibilityChange::Appears),
            (add(&None), VisibilityChange::Appears),
            (add(&a), VisibilityChange::Appears),
            (add(&i), VisibilityChange::Nothing),
            (delete(&None), VisibilityChange::Disappears),
            (delete(&a), VisibilityChange::Disappears),
            (delete(&i), VisibilityChange::Nothing),
        ] {
            assert_eq!(VisibilityChange::implied_by(&change), effect, "{change:?}");
        }
    }

    #[test]
    fn an_appearing_item_has_content_and_no_state_before() {
        let change = ItemChange::State { before: Some(State::INACTIVE), after: State::ACTIVE };
        let expected = ItemChange::Add { content: content(), after: Some(State::ACTIVE) };
        assert_eq!(
            public_change(&change, VisibilityChange::Appears, content().as_ref(), AspectSet::EMPTY),
            Some(expected)
        );
        let change =
            ItemChange::Update { content: content(), before: Some(State::ACTIVE), after: Some(State::INACTIVE) };
        let expected = ItemChange::Delete { before: Some(State::ACTIVE), after: Some(State::INACTIVE) };
        assert_eq!(public_change(&change, VisibilityChange::Disappears, None, AspectSet::EMPTY), Some(expected));
    }

    #[test]
    fn a_public_change_has_the_visible_items_with_their_notes() {
        let json = r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"s",
            "received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z","user":{"name":"u"},
            "object":"http://h/1","description":"","items":[
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/1","stateBefore":"INACTIVE","stateAfter":"DELETED"},
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/2","change":"ADD","late":["content"]}]}"#;
        let change: Change = serde_json::from_str(json).unwrap();
        let public = change.public(&VisibilityNotes::default()).unwrap();
        assert_eq!(public.modification.items.len(), 1);
        assert_eq!(public.modification.items[0], change.modification.items[1]);
        assert_eq!(public.settlement.item(0), change.settlement.item(1));
        let hidden = ItemVisibility { at: 1, effect: VisibilityChange::Nothing, content: None };
        assert_eq!(change.public(&VisibilityNotes { items: vec![hidden], unlisted: Vec::new() }), None);
    }

    #[test]
    fn a_public_change_is_never_late_about_what_the_public_sees() {
        let json = r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"s",
            "received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z","user":{"name":"u"},
            "object":"http://h/1","description":"","items":[
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/1","stateBefore":"ACTIVE",
               "stateAfter":"INACTIVE","late":["existence"]},
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/2","change":"UPDATE",
               "content":{"url":"http://h/old"},"stateAfter":"ACTIVE","late":["existence","content"]},
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa5","uri":"http://h/3","change":"UPDATE",
               "content":{"url":"http://h/old"},"late":["existence","content"]}]}"#;
        let change: Change = serde_json::from_str(json).unwrap();
        let appears = ItemVisibility { at: 1, effect: VisibilityChange::Appears, content: content() };
        let public = change.public(&VisibilityNotes { items: vec![appears], unlisted: Vec::new() }).unwrap();
        let changes: Vec<_> = public.modification.items.iter().map(|item| &item.change).collect();
        assert!(matches!(changes[0], ItemChange::Delete { .. }) && public.settlement.item(0).late.is_empty());
        // The content that appears is the newer one of the registry.
        assert_eq!(*changes[1], ItemChange::Add { content: content(), after: Some(State::ACTIVE) });
        assert!(public.settlement.item(1).late.is_empty());
        // Older content is late for the public too.
        assert_eq!(public.settlement.item(2).late, AspectSet::of_names("content"));
    }
}
