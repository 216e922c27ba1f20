//! Facts of a draft about its object: news of its parent and types, the item that carries them, and that it is deleted.

use std::collections::BTreeSet;

use super::{super::registry::ObjectState, DraftSettler};
use crate::model::{
    Aspect, ContentItemModification, Draft, DraftChange, DraftItem, DraftItems, ItemChange, ItemId, Timestamp, Uri,
};

/// Returns whether a draft reports a parent or types that the registry lacks and that are not late.
pub(super) fn has_new_object_facts(draft: &Draft, registered: &ObjectState, order: Timestamp) -> bool {
    let on_time = |aspect| !registered.is_late(&draft.object, aspect, order);
    let parent = draft.parent.is_some() && draft.parent.as_ref() != registered.parent() && on_time(Aspect::Parent);
    let types = !draft.types.is_empty() && !are_same_types(&draft.types, registered.types()) && on_time(Aspect::Types);
    parent || types
}

/// Compares two lists of types, ignoring their order.
fn are_same_types(types: &[Uri], others: &[Uri]) -> bool {
    let sorted = |types: &[Uri]| types.iter().cloned().collect::<BTreeSet<_>>();
    types == others || sorted(types) == sorted(others)
}

/// Returns the item of a change that only has new facts about its object: an UPDATE without content of the first
/// existing item, or else the DELETE of the first deleted item. Neither changes the item in the registry.
pub(super) fn carrier_item(
    items: &DraftItems,
    registered: &ObjectState,
    order: Timestamp,
) -> Option<(Uri, ItemChange)> {
    let items = match items {
        DraftItems::Listed(items) => &items[..],
        DraftItems::Complete(items) => items,
        DraftItems::Purge | DraftItems::Relayed { .. } => return None,
    };
    let on_time = |item: &&DraftItem| !registered.is_late(&item.uri, Aspect::Existence, order);
    if let Some(item) = items.iter().filter(on_time).find(|item| registered.is_live(&item.uri)) {
        let state = registered.state(&item.uri);
        let before = state.filter(|_| !registered.is_late(&item.uri, Aspect::State, order)).cloned();
        return Some((item.uri.clone(), ItemChange::Update { content: None, before, after: None }));
    }
    items.iter().filter(on_time).find_map(|item| match item.change.undated() {
        DraftChange::Reported(ItemChange::Delete { .. }) if registered.is_gone(&item.uri) => {
            Some((item.uri.clone(), ItemChange::Delete { before: None, after: None }))
        }
        _ => None,
    })
}

impl DraftSettler<'_> {
    /// Returns whether each item of the change is a deletion, none is that of the object, and at least one is not late.
    pub(super) fn only_deletes_others(&self, object: &Uri) -> bool {
        let deletes = |item: &ContentItemModification| matches!(item.change, ItemChange::Delete { .. });
        self.items.iter().all(|item| deletes(item) && item.uri != *object)
            && self.notes.iter().any(|notes| !notes.late.contains(Aspect::Existence))
    }
}

/// Returns the deletion of the object itself that a draft reports although the registry has it. A change that deletes further
/// items has it nevertheless: without it, readers who know objects alone would see an update of an object that is gone.
pub(super) fn known_deletion(
    object: &Uri,
    items: &DraftItems,
    registered: &ObjectState,
    order: Timestamp,
) -> Option<(Option<ItemId>, ItemChange)> {
    if !registered.is_gone(object) || registered.is_late(object, Aspect::Existence, order) {
        return None;
    }
    let deletion = |after| ItemChange::Delete { before: None, after };
    let items = match items {
        DraftItems::Listed(items) => items,
        DraftItems::Complete(items) if items.is_empty() => return Some((None, deletion(None))),
        DraftItems::Complete(_) | DraftItems::Purge | DraftItems::Relayed { .. } => return None,
    };
    let itself = items.iter().rev().find(|item| item.uri == *object)?;
    match itself.change.undated() {
        DraftChange::Reported(ItemChange::Delete { after, .. }) => Some((itself.id, deletion(after.clone()))),
        DraftChange::Absent => Some((itself.id, deletion(None))),
        _ => None,
    }
}
