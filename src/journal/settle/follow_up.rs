//! Results of later lookups for events that the journal has already.

use super::DraftSettler;
use crate::model::{
    Aspect, ContentLocation, DraftChange, DraftItem, DraftItems, ItemChange, ItemId, ItemNotes, State, Uri,
};

impl DraftSettler<'_> {
    /// Drops facts that the registry has already, or has newer. If only facts about the object are left, the first
    /// unchanged item carries them as an UPDATE without content.
    /// `reported` is what an event without a time said: its follow-up is outdated if another event has changed that.
    /// `state` is the state that the item has by its dates, if they say another one than the registry has.
    pub(super) fn follow_up(
        &mut self,
        id: Option<ItemId>,
        uri: Uri,
        change: ItemChange,
        reported: Option<&ItemChange>,
        state: Option<State>,
    ) {
        let is_late = self.has_later_event(&uri);
        let is_contradicted = reported.is_some_and(|reported| !self.still_says(&uri, reported));
        let is_outdated = is_late || is_contradicted;
        let exists = self.registered.is_live(&uri);
        let is_same = change.content().is_none_or(|content| exists && self.has_content(&uri, content));
        // New content does not change the dates, and possibly nobody else has read them. An event without a time has no order
        // among those that read them.
        let state = state.filter(|_| !is_contradicted && (exists || !is_late));
        // A follow-up without a time, or of the second of the deletion, is not late. It would bring a deleted item back.
        if !is_late && !exists && (is_outdated || self.registered.is_gone(&uri)) {
            return;
        }
        let change = match change {
            ItemChange::Delete { before, after } if !is_outdated => return self.delete(id, uri, before, after),
            _ if is_outdated || is_same || matches!(change, ItemChange::State { .. }) => {
                let before = self.state_before(&uri);
                match (std::mem::take(&mut self.object_news), state) {
                    (false, None) => return,
                    (false, Some(after)) => ItemChange::State { before, after },
                    (true, after) => ItemChange::Update { content: None, before, after },
                }
            }
            ItemChange::Add { content, .. } if exists => {
                ItemChange::Update { content, before: self.state_before(&uri), after: state }
            }
            ItemChange::Update { content, before, after } => {
                let before = before.or_else(|| self.state_before(&uri));
                ItemChange::Update { content, before, after: state.or(after) }
            }
            ItemChange::Add { content, after } => ItemChange::Add { content, after: state.or(after) },
            other => other,
        };
        self.object_news = false;
        self.push(id, uri, change, ItemNotes::default());
    }

    /// Returns whether a draft completes an event of whose items one has a later event. It says nothing certain about dates then,
    /// also of the items that the event does not name.
    pub(super) fn completes_earlier_event(&self, items: &DraftItems) -> bool {
        let is_follow_up = |item: &DraftItem| {
            matches!(item.change.undated(), DraftChange::FollowUp(_) | DraftChange::FollowUpTo { .. })
        };
        items.listed().iter().any(|item| is_follow_up(item) && self.has_later_event(&item.uri))
    }

    /// Returns whether a later event has created or deleted the item, or brought content.
    pub(super) fn has_later_event(&self, uri: &Uri) -> bool {
        self.is_late(uri, Aspect::Existence) || self.is_late(uri, Aspect::Content)
    }

    /// Returns whether the registry still has what an event said about an item.
    fn still_says(&self, uri: &Uri, reported: &ItemChange) -> bool {
        if matches!(reported, ItemChange::Delete { .. }) {
            return self.registered.is_gone(uri);
        }
        let is_same = |content: &ContentLocation| self.registered.content(uri).is_some_and(|known| known == content);
        self.registered.is_live(uri) && reported.content().is_none_or(is_same)
    }
}
