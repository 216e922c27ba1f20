//! What the public sees of a change, worked out when it is settled: the registry is there at that
//! moment, before and after. Only what the change does not tell by itself is noted.

use std::collections::BTreeMap;

use super::registry::ObjectState;
use crate::model::{
    ContentItemModification, ContentObjectModification, ItemId, Seen, Settlement, Sight, SightNote, UnlistedItem, Uri,
    is_public,
};

/// What the public saw of an object's items before a change.
#[derive(Debug)]
pub(super) struct Before(BTreeMap<Uri, bool>);

impl Before {
    /// Of the items that the change lists; of all, where it is a purge, which may take the states of
    /// those that it does not list. Items that nobody has ever told of are not among them, nor those whose states
    /// a walk alone has told: what the public made of these nobody knows.
    pub(super) fn of(state: &ObjectState, told: &ContentObjectModification, settlement: &Settlement) -> Self {
        let known = |uri: &Uri| {
            (state.items.contains_key(uri) && !state.is_unheard(uri)).then(|| (uri.clone(), is_seen(state, uri)))
        };
        Self(if settlement.purge {
            state.items.keys().filter_map(known).collect()
        } else {
            told.items.iter().filter_map(|item| known(&item.uri)).collect()
        })
    }

    /// What is to be noted, now that the registry has taken the change over.
    pub(super) fn note(self, state: &ObjectState, told: &ContentObjectModification, settlement: &Settlement) -> Sight {
        let speakers = speakers(&told.items);
        let items = told.items.iter().enumerate();
        let items = items.filter_map(|(at, item)| self.of_item(state, at, item, speakers.get(&item.uri) == Some(&at)));
        let items = items.collect();
        let mut unlisted = Vec::new();
        if settlement.purge {
            for (uri, was) in self.0.iter().filter(|(uri, _)| !speakers.contains_key(uri)) {
                let is = is_seen(state, uri);
                let seen = if is { Seen::Appears } else { Seen::Disappears };
                if *was != is {
                    let content = state.content(uri).filter(|_| is).cloned();
                    unlisted.push(UnlistedItem { id: ItemId::mint(), uri: uri.clone(), seen, content });
                }
            }
        }
        Sight { items, unlisted }
    }

    fn of_item(
        &self,
        state: &ObjectState,
        at: usize,
        item: &ContentItemModification,
        speaks: bool,
    ) -> Option<SightNote> {
        let seen = if speaks {
            Seen::between(self.0.get(&item.uri).copied(), is_seen(state, &item.uri), &item.change)
        } else {
            Seen::Nothing
        };
        let content = state.content(&item.uri).filter(|_| seen == Seen::Appears && item.change.content().is_none());
        let told_alone = seen == Seen::alone(&item.change) && content.is_none();
        (!told_alone).then(|| SightNote { at, seen, content: content.cloned() })
    }
}

/// Where a change lists an item twice, one of the two speaks for what became of it altogether: the
/// last with content, or else the last.
fn speakers(items: &[ContentItemModification]) -> BTreeMap<&Uri, usize> {
    let mut speakers: BTreeMap<&Uri, usize> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        let speaker = speakers.entry(&item.uri).or_insert(at);
        if item.change.content().is_some() || items[*speaker].change.content().is_none() {
            *speaker = at;
        }
    }
    speakers
}

fn is_seen(state: &ObjectState, uri: &Uri) -> bool {
    state.is_live(uri) && is_public(state.state(uri))
}
