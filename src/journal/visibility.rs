//! Effects of a change for the public, computed when the change is settled, because the registry then has the
//! states before and after it. Only effects that differ from what the change shows by itself are noted.

use super::{RawContentLocation, registry::ObjectState, store::StoreError};
use crate::model::{
    Aspect, ContentItemModification, ContentObjectModification, ItemId, ItemVisibility, Settlement, UnlistedItem, Uri,
    VisibilityChange, VisibilityNotes, is_public,
};

/// Visibility of an object's items before a change, each item once, in order of their URIs.
#[derive(Debug)]
pub(super) struct VisibilityBefore(Vec<(Uri, bool)>);

impl VisibilityBefore {
    /// Reads the visibility of the items that the change lists; of all items for a purge, because a purge may reset the
    /// states of items that it does not list.
    ///
    /// Excludes items that no event has mentioned, and items whose state is known only from a crawl: their earlier
    /// visibility is unknown.
    pub(super) fn of(state: &ObjectState, change: &ContentObjectModification, settlement: &Settlement) -> Self {
        let visibility = |uri: &Uri| {
            let is_known = state.items.contains_key(uri) && !state.is_unannounced(uri);
            is_known.then(|| (uri.clone(), is_visible(state, uri)))
        };
        if settlement.purge {
            return Self(state.items.keys().filter_map(visibility).collect());
        }
        let mut items: Vec<_> = change.items.iter().filter_map(|item| visibility(&item.uri)).collect();
        items.sort_unstable();
        items.dedup();
        Self(items)
    }

    fn was_visible(&self, uri: &Uri) -> Option<bool> {
        let index = self.0.binary_search_by(|(item, _)| item.cmp(uri)).ok()?;
        Some(self.0[index].1)
    }

    /// Compares with the state after the change, and returns the effects that the change does not show by itself.
    ///
    /// # Errors
    /// Fails if a content location in the registry cannot be parsed: the journal is damaged.
    pub(super) fn compare(
        self,
        state: &ObjectState,
        change: &ContentObjectModification,
        settlement: &Settlement,
    ) -> Result<VisibilityNotes, StoreError> {
        let decisive = DecisiveEntries::of(&change.items);
        let items = change.items.iter().enumerate();
        let items = items.filter_map(|(at, item)| {
            let is_content_late = settlement.item(at).late.contains(Aspect::Content);
            self.compare_item(state, (at, item), decisive.contains(&item.uri, at), is_content_late)
        });
        let items = items.collect::<Result<_, _>>()?;
        let mut unlisted = Vec::new();
        if settlement.purge {
            for (uri, was) in self.0.iter().filter(|(uri, _)| !decisive.lists(uri)) {
                let is = is_visible(state, uri);
                let effect = if is { VisibilityChange::Appears } else { VisibilityChange::Disappears };
                if *was != is {
                    let content = state.content(uri).filter(|_| is).map(RawContentLocation::parse).transpose()?;
                    unlisted.push(UnlistedItem { id: ItemId::mint(), uri: uri.clone(), effect, content });
                }
            }
        }
        Ok(VisibilityNotes { items, unlisted })
    }

    fn compare_item(
        &self,
        state: &ObjectState,
        (at, item): (usize, &ContentItemModification),
        is_decisive: bool,
        is_content_late: bool,
    ) -> Option<Result<ItemVisibility, StoreError>> {
        let effect = if is_decisive {
            VisibilityChange::between(self.was_visible(&item.uri), is_visible(state, &item.uri), &item.change)
        } else {
            VisibilityChange::Nothing
        };
        let lacks_content = item.change.content().is_none() || is_content_late;
        let content = state.content(&item.uri).filter(|_| effect == VisibilityChange::Appears && lacks_content);
        let is_implied = effect == VisibilityChange::implied_by(&item.change) && content.is_none();
        let note = || Ok(ItemVisibility { at, effect, content: content.map(RawContentLocation::parse).transpose()? });
        (!is_implied).then(note)
    }
}

/// Index of the decisive entry of each item: the last one with content, or else the last one. A change may list an item
/// twice, and the decisive entry then shows the overall effect. Each item appears once, in order of their URIs.
struct DecisiveEntries<'a>(Vec<(&'a Uri, usize)>);

impl<'a> DecisiveEntries<'a> {
    fn of(items: &'a [ContentItemModification]) -> Self {
        let listed = items.iter().enumerate();
        let mut listed: Vec<_> = listed.map(|(at, item)| (&item.uri, item.change.content().is_some(), at)).collect();
        listed.sort_unstable();
        let mut decisive: Vec<(&Uri, usize)> = Vec::with_capacity(listed.len());
        for (uri, _, at) in listed {
            match decisive.last_mut().filter(|(last, _)| *last == uri) {
                Some((_, entry)) => *entry = at,
                None => decisive.push((uri, at)),
            }
        }
        Self(decisive)
    }

    /// Returns whether the change lists the item.
    fn lists(&self, uri: &Uri) -> bool {
        self.0.binary_search_by_key(&uri, |(listed, _)| listed).is_ok()
    }

    /// Returns whether the entry at this index is decisive for the item.
    fn contains(&self, uri: &Uri, at: usize) -> bool {
        self.0.binary_search(&(uri, at)).is_ok()
    }
}

/// Returns whether the public sees one of the items that a change concerns: those that it lists, and all for a purge.
pub(super) fn shows_an_item(state: &ObjectState, change: &ContentObjectModification, settlement: &Settlement) -> bool {
    if settlement.purge {
        return state.items.keys().any(|uri| is_visible(state, uri));
    }
    change.items.iter().any(|item| is_visible(state, &item.uri))
}

pub(super) fn is_visible(state: &ObjectState, uri: &Uri) -> bool {
    state.is_live(uri) && is_public(state.state(uri))
}

#[cfg(test)]
mod tests {
    use super::{ContentItemModification, DecisiveEntries, ItemId, Uri};
    use crate::model::{ContentLocation, ItemChange};

    #[test]
    fn duplicate_item_uses_last_entry_with_content_or_else_the_last() {
        let uri = |name: &str| Uri::parse(&format!("http://h/{name}")).unwrap();
        let item = |name: &str, has_content: bool| {
            let content = has_content.then(|| ContentLocation::at(uri("content")));
            let change = ItemChange::Update { content, before: None, after: None };
            ContentItemModification { id: ItemId::mint(), uri: uri(name), change }
        };
        let items =
            [item("b", true), item("a", false), item("b", true), item("b", false), item("a", false), item("c", false)];
        let entries = DecisiveEntries::of(&items);
        let decisive: Vec<_> = (0..items.len()).filter(|at| entries.contains(&items[*at].uri, *at)).collect();
        assert_eq!(decisive, [2, 4, 5]);
        assert!(entries.lists(&uri("a")) && !entries.lists(&uri("d")));
    }
}
