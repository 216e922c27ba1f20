//! What a change is to the public: those who see an item as long as it is there and ACTIVE, or has
//! no state at all (Fedora 4 to 6 have none).
//!
//! An item that is held back is as good as gone: ACTIVE→INACTIVE is a DELETE to the public,
//! INACTIVE→ACTIVE an ADD, and what happens in between is nothing. Who applies the public's changes
//! to an empty set ends with just the items that the public can see.
//!
//! Mostly a change tells this by itself. Where it does not (it comes late, or is the first that is
//! heard of an item), the journal notes it beside the change, in a [`Sight`], since it alone has the
//! registry at that moment.

use serde::{Deserialize, Serialize};

use super::{Change, ContentItemModification, ContentLocation, ItemChange, ItemId, ItemNotes, NonEmpty, State, Uri};

/// Whether the public sees an item that is there in that state, or without any.
#[must_use]
pub fn is_public(state: Option<&State>) -> bool {
    state.is_none_or(|state| *state == State::ACTIVE)
}

/// What the public sees happen to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// It is there, and was not before.
    Appears,
    /// Its content is new.
    Changes,
    /// It is no longer there.
    Disappears,
}

impl Seen {
    /// What is seen of a change of an item which the public saw before (`None`: nobody knows) and
    /// sees, or does not, after it.
    #[must_use]
    pub fn between(was: Option<bool>, is: bool, told: &ItemChange) -> Self {
        let gives_content = matches!(told, ItemChange::Add { .. } | ItemChange::Update { .. });
        let is_new = matches!(told, ItemChange::Add { .. });
        if is {
            return match was {
                Some(false) => Self::Appears,
                _ if gives_content && !is_new => Self::Changes,
                Some(true) if !is_new => Self::Nothing,
                _ => Self::Appears,
            };
        }
        // What was there before anybody told of it may have been seen.
        let was = was.unwrap_or(!is_new && is_public(told.before()));
        if was { Self::Disappears } else { Self::Nothing }
    }

    /// What is seen of a change as far as it tells by itself.
    #[must_use]
    pub fn alone(told: &ItemChange) -> Self {
        let was = match told {
            ItemChange::Add { .. } => Some(false),
            ItemChange::State { before: None, .. } => None,
            _ => Some(is_public(told.before())),
        };
        let is = match told {
            ItemChange::Delete { .. } => false,
            _ => is_public(told.after().or(told.before())),
        };
        Self::between(was, is, told)
    }
}

/// What the public sees of a change, where the change does not tell it by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Items of the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<SightNote>,
    /// Items of its object that it does not list: a purge that comes late takes the states of those
    /// that it spares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<UnlistedItem>,
}

/// What the public sees of an item of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SightNote {
    /// The item's place in the change, from 0.
    pub at: usize,
    /// What is seen.
    pub seen: Seen,
    /// Where the content of what appears is, if the change does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentLocation>,
}

/// What the public sees of an item that the change does not list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlistedItem {
    /// Identifies this part of the public's change for ever.
    pub id: ItemId,
    /// The item.
    pub uri: Uri,
    /// What is seen.
    pub seen: Seen,
    /// Where the content of what appears is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentLocation>,
}

impl Sight {
    /// Whether there is nothing to note.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.unlisted.is_empty()
    }

    fn of(&self, at: usize, told: &ItemChange) -> (Seen, Option<&ContentLocation>) {
        match self.items.iter().find(|note| note.at == at) {
            Some(note) => (note.seen, note.content.as_ref()),
            None => (Seen::alone(told), None),
        }
    }
}

impl Change {
    /// The change as the public sees it: its items as additions, updates and deletions of what is
    /// public, and never a change of state alone; `None` when there is nothing to see.
    #[must_use]
    pub fn public(&self, sight: &Sight) -> Option<Self> {
        let mut items = Vec::new();
        let mut notes = Vec::new();
        for (at, item) in self.modification.items.iter().enumerate() {
            let (seen, content) = sight.of(at, &item.change);
            if let Some(change) = public_change(&item.change, seen, content) {
                items.push(ContentItemModification { change, ..item.clone() });
                notes.push(self.settlement.item(at));
            }
        }
        for item in &sight.unlisted {
            let told = ItemChange::Delete { before: None, after: None };
            if let Some(change) = public_change(&told, item.seen, item.content.as_ref()) {
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

fn public_change(told: &ItemChange, seen: Seen, known: Option<&ContentLocation>) -> Option<ItemChange> {
    let content = || told.content().or(known).cloned();
    match (seen, told) {
        (Seen::Nothing, _) => None,
        (Seen::Appears, ItemChange::Add { content: None, after }) => {
            Some(ItemChange::Add { content: known.cloned(), after: after.clone() })
        }
        (Seen::Appears | Seen::Changes, ItemChange::Add { .. })
        | (Seen::Changes, ItemChange::Update { .. })
        | (Seen::Disappears, ItemChange::Delete { .. }) => Some(told.clone()),
        (Seen::Appears, _) => {
            let after = told.after().filter(|after| is_public(Some(after))).cloned();
            Some(ItemChange::Add { content: content(), after })
        }
        (Seen::Changes, _) => Some(ItemChange::Update { content: content(), before: None, after: None }),
        (Seen::Disappears, _) => {
            Some(ItemChange::Delete { before: told.before().cloned(), after: told.after().cloned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, ContentLocation, ItemChange, Seen, Sight, SightNote, State, Uri, public_change};

    fn content() -> Option<ContentLocation> {
        Some(ContentLocation::at(Uri::parse("http://h/c").unwrap()))
    }

    #[test]
    fn every_change_of_state_is_what_the_public_sees_of_it() {
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
        for (told, seen) in [
            (state(&a, &i), Seen::Disappears),
            (state(&a, &d), Seen::Disappears),
            (state(&i, &a), Seen::Appears),
            (state(&d, &a), Seen::Appears),
            (state(&i, &d), Seen::Nothing),
            (state(&None, &a), Seen::Appears),
            (state(&None, &i), Seen::Disappears),
            (update(&None, &None), Seen::Changes),
            (update(&a, &None), Seen::Changes),
            (update(&a, &a), Seen::Changes),
            (update(&i, &None), Seen::Nothing),
            (update(&a, &i), Seen::Disappears),
            (update(&i, &a), Seen::Appears),
            (add(&None), Seen::Appears),
            (add(&a), Seen::Appears),
            (add(&i), Seen::Nothing),
            (delete(&None), Seen::Disappears),
            (delete(&a), Seen::Disappears),
            (delete(&i), Seen::Nothing),
        ] {
            assert_eq!(Seen::alone(&told), seen, "{told:?}");
        }
    }

    #[test]
    fn what_appears_has_its_content_and_no_state_before() {
        let told = ItemChange::State { before: Some(State::INACTIVE), after: State::ACTIVE };
        let expected = ItemChange::Add { content: content(), after: Some(State::ACTIVE) };
        assert_eq!(public_change(&told, Seen::Appears, content().as_ref()), Some(expected));
        let told = ItemChange::Update { content: content(), before: Some(State::ACTIVE), after: Some(State::INACTIVE) };
        let expected = ItemChange::Delete { before: Some(State::ACTIVE), after: Some(State::INACTIVE) };
        assert_eq!(public_change(&told, Seen::Disappears, None), Some(expected));
    }

    #[test]
    fn a_change_keeps_the_items_that_are_seen_with_their_notes() {
        let json = r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"s",
            "received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z","user":{"name":"u"},
            "object":"http://h/1","description":"","items":[
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/1","stateBefore":"INACTIVE","stateAfter":"DELETED"},
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/2","change":"ADD","late":["content"]}]}"#;
        let change: Change = serde_json::from_str(json).unwrap();
        let public = change.public(&Sight::default()).unwrap();
        assert_eq!(public.modification.items.len(), 1);
        assert_eq!(public.modification.items[0], change.modification.items[1]);
        assert_eq!(public.settlement.item(0), change.settlement.item(1));
        let hidden = SightNote { at: 1, seen: Seen::Nothing, content: None };
        assert_eq!(change.public(&Sight { items: vec![hidden], unlisted: Vec::new() }), None);
    }
}
