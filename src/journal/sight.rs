//! What the public sees of a change, worked out when it is settled: the registry is there at that
//! moment, before and after. Only what the change does not tell by itself is noted.

use super::{KeptContent, registry::ObjectState, store::StoreError};
use crate::model::{
    ContentItemModification, ContentObjectModification, ItemId, Seen, Settlement, Sight, SightNote, UnlistedItem, Uri,
    is_public,
};

/// What the public saw of an object's items before a change, each once, in order of their URIs.
#[derive(Debug)]
pub(super) struct Before(Vec<(Uri, bool)>);

impl Before {
    /// Of the items that the change lists; of all, where it is a purge, which may take the states of
    /// those that it does not list. Items that nobody has ever told of are not among them, nor those whose states
    /// a walk alone has told: what the public made of these nobody knows.
    pub(super) fn of(state: &ObjectState, told: &ContentObjectModification, settlement: &Settlement) -> Self {
        let known = |uri: &Uri| {
            (state.items.contains_key(uri) && !state.is_unheard(uri)).then(|| (uri.clone(), is_seen(state, uri)))
        };
        if settlement.purge {
            return Self(state.items.keys().filter_map(known).collect());
        }
        let mut items: Vec<_> = told.items.iter().filter_map(|item| known(&item.uri)).collect();
        items.sort_unstable();
        items.dedup();
        Self(items)
    }

    fn saw(&self, uri: &Uri) -> Option<bool> {
        let at = self.0.binary_search_by(|(seen, _)| seen.cmp(uri)).ok()?;
        Some(self.0[at].1)
    }

    /// What is to be noted, now that the registry has taken the change over.
    ///
    /// # Errors
    /// When what the registry keeps of an item cannot be read: the journal is damaged.
    pub(super) fn note(
        self,
        state: &ObjectState,
        told: &ContentObjectModification,
        settlement: &Settlement,
    ) -> Result<Sight, StoreError> {
        let speakers = Speakers::of(&told.items);
        let items = told.items.iter().enumerate();
        let items = items.filter_map(|(at, item)| self.of_item(state, at, item, speakers.is(&item.uri, at)));
        let items = items.collect::<Result<_, _>>()?;
        let mut unlisted = Vec::new();
        if settlement.purge {
            for (uri, was) in self.0.iter().filter(|(uri, _)| !speakers.has(uri)) {
                let is = is_seen(state, uri);
                let seen = if is { Seen::Appears } else { Seen::Disappears };
                if *was != is {
                    let content = state.content(uri).filter(|_| is).map(KeptContent::read).transpose()?;
                    unlisted.push(UnlistedItem { id: ItemId::mint(), uri: uri.clone(), seen, content });
                }
            }
        }
        Ok(Sight { items, unlisted })
    }

    fn of_item(
        &self,
        state: &ObjectState,
        at: usize,
        item: &ContentItemModification,
        speaks: bool,
    ) -> Option<Result<SightNote, StoreError>> {
        let seen = if speaks {
            Seen::between(self.saw(&item.uri), is_seen(state, &item.uri), &item.change)
        } else {
            Seen::Nothing
        };
        let content = state.content(&item.uri).filter(|_| seen == Seen::Appears && item.change.content().is_none());
        let told_alone = seen == Seen::alone(&item.change) && content.is_none();
        let noted = || Ok(SightNote { at, seen, content: content.map(KeptContent::read).transpose()? });
        (!told_alone).then(noted)
    }
}

/// Where a change lists an item twice, one of the two speaks for what became of it altogether: the
/// last with content, or else the last. Each item once, with its speaker, in order of their URIs.
struct Speakers<'a>(Vec<(&'a Uri, usize)>);

impl<'a> Speakers<'a> {
    fn of(items: &'a [ContentItemModification]) -> Self {
        let listed = items.iter().enumerate();
        let mut listed: Vec<_> = listed.map(|(at, item)| (&item.uri, item.change.content().is_some(), at)).collect();
        listed.sort_unstable();
        let mut speakers: Vec<(&Uri, usize)> = Vec::with_capacity(listed.len());
        for (uri, _, at) in listed {
            match speakers.last_mut().filter(|(last, _)| *last == uri) {
                Some((_, speaker)) => *speaker = at,
                None => speakers.push((uri, at)),
            }
        }
        Self(speakers)
    }

    /// Whether the item is listed at all.
    fn has(&self, uri: &Uri) -> bool {
        self.0.binary_search_by_key(&uri, |(listed, _)| listed).is_ok()
    }

    /// Whether the one at this place speaks for the item.
    fn is(&self, uri: &Uri, at: usize) -> bool {
        self.0.binary_search(&(uri, at)).is_ok()
    }
}

fn is_seen(state: &ObjectState, uri: &Uri) -> bool {
    state.is_live(uri) && is_public(state.state(uri))
}

#[cfg(test)]
mod tests {
    use super::{ContentItemModification, ItemId, Speakers, Uri};
    use crate::model::{ContentLocation, ItemChange};

    #[test]
    fn of_an_item_that_is_listed_twice_the_last_with_content_speaks_or_else_the_last() {
        let uri = |name: &str| Uri::parse(&format!("http://h/{name}")).unwrap();
        let item = |name: &str, has_content: bool| {
            let content = has_content.then(|| ContentLocation::at(uri("content")));
            let change = ItemChange::Update { content, before: None, after: None };
            ContentItemModification { id: ItemId::mint(), uri: uri(name), change }
        };
        let items =
            [item("b", true), item("a", false), item("b", true), item("b", false), item("a", false), item("c", false)];
        let speakers = Speakers::of(&items);
        let speaking: Vec<_> = (0..items.len()).filter(|at| speakers.is(&items[*at].uri, *at)).collect();
        assert_eq!(speaking, [2, 4, 5]);
        assert!(speakers.has(&uri("a")) && !speakers.has(&uri("d")));
    }
}
