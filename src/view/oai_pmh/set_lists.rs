//! `ListSets`: the sets of the records that a reader sees.
//!
//! The sets are collected from the registry in the order of acceptance, and kept in memory. So the first list after a start
//! reads the whole registry, and each later one only the objects that have changed since. A set stays listed when its last
//! object has left it; sets may be empty (section 2.6).

use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use uuid::Uuid;

use super::{catalogue::Catalogue, record::Record, set::SetSpec};
use crate::{
    journal::{
        Journal, JournalError,
        acceptance::{AcceptanceTime, AcceptedPosition, AcceptedQuery},
    },
    model::ReaderView,
    view::registry_view::RegistryView,
};

/// Number of objects that are read at once.
const READ_OBJECTS: usize = 500;

/// Number of sets on a page.
const PAGE_SETS: usize = 500;

/// Maximum number of sets of a view. Others can be harvested, and are not listed.
const MAX_SETS: usize = 100_000;

/// Maximum size of the sets of a view, in bytes of their setSpecs.
const MAX_BYTES: usize = 16 << 20;

/// Maximum number of views whose sets are kept.
const MAX_VIEWS: usize = 8;

/// The sets of all views.
#[derive(Default)]
pub(super) struct SetLists(Mutex<Vec<ViewSets>>);

/// A view with its sets.
struct ViewSets {
    view: Option<Arc<ReaderView>>,
    list: Arc<tokio::sync::Mutex<SetList>>,
}

/// The sets of a view.
#[derive(Default)]
struct SetList {
    /// Identity of the journal.
    journal: Uuid,
    /// Position of the last object whose sets are in the list.
    after: AcceptedPosition,
    sets: BTreeSet<SetSpec>,
    /// Size of the sets, in bytes.
    bytes: usize,
}

/// A page of sets.
pub(super) struct SetPage {
    pub(super) sets: Vec<SetSpec>,
    /// Whether others follow.
    pub(super) has_more: bool,
}

impl SetLists {
    /// Returns the sets after this one, in their order.
    pub(super) async fn page(
        &self,
        journal: &Journal,
        sight: &RegistryView,
        catalogue: &Catalogue,
        after: Option<SetSpec>,
    ) -> Result<SetPage, JournalError> {
        let list = self.of_view(sight);
        let mut list = list.lock().await;
        list.refresh(journal, sight, catalogue).await?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut sets: Vec<_> = list.sets.range((from, Bound::Unbounded)).take(PAGE_SETS + 1).cloned().collect();
        let has_more = sets.len() > PAGE_SETS;
        sets.truncate(PAGE_SETS);
        Ok(SetPage { sets, has_more })
    }

    /// Returns the list of a view, and makes room for it.
    fn of_view(&self, sight: &RegistryView) -> Arc<tokio::sync::Mutex<SetList>> {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = views.iter().position(|sets| sets.view.as_ref() == sight.view());
        let entry = match place {
            Some(place) => views.remove(place),
            None => ViewSets { view: sight.view().cloned(), list: Arc::default() },
        };
        let list = Arc::clone(&entry.list);
        // The last one is that which was used last.
        views.push(entry);
        let excess = views.len().saturating_sub(MAX_VIEWS);
        views.drain(..excess);
        list
    }
}

impl SetList {
    /// Reads the objects that have changed since the last list. A page that is read stays read if the caller gives up.
    async fn refresh(
        &mut self,
        journal: &Journal,
        sight: &RegistryView,
        catalogue: &Catalogue,
    ) -> Result<(), JournalError> {
        if self.journal != journal.identity() {
            *self = Self { journal: journal.identity(), ..Self::default() };
        }
        loop {
            let query = AcceptedQuery {
                public: sight.is_public(),
                after: self.after,
                limit: READ_OBJECTS,
                ..AcceptedQuery::default()
            };
            let (sight, catalogue) = (sight.clone(), catalogue.clone());
            let read = journal.query_in_a_row(move |queries| {
                let page = queries.accepted(&query)?;
                let mut sets = BTreeSet::new();
                for object in page.objects.iter().filter(|object| sight.covers(&object.uri)) {
                    let Some(state) = &object.state else { continue };
                    // The sets do not depend on the time.
                    let time = AcceptanceTime::default();
                    if let Ok(Some(record)) = Record::of(&object.uri, state, time, &sight, &catalogue) {
                        sets.extend(record.sets());
                    }
                }
                Ok((sets, page.objects.last().map(|object| object.position), page.next.is_some()))
            });
            let (sets, last, has_more) = read.await?;
            self.add(sets);
            self.after = last.unwrap_or(self.after);
            if !has_more {
                return Ok(());
            }
        }
    }

    /// Adds sets. Beyond the bounds, the last ones are left out.
    fn add(&mut self, sets: BTreeSet<SetSpec>) {
        for set in sets {
            let size = set.size();
            self.bytes += if self.sets.insert(set) { size } else { 0 };
        }
        while self.sets.len() > MAX_SETS || self.bytes > MAX_BYTES {
            self.bytes -= self.sets.pop_last().map_or(self.bytes, |set| set.size());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, MAX_SETS, SetList, SetSpec};
    use crate::model::Uri;

    #[test]
    fn sets_have_a_bound_in_number_and_bytes() {
        let set = |number: usize, length: usize| {
            SetSpec::Type(Uri::parse(&format!("http://h/{number:06}{}", "x".repeat(length))).unwrap())
        };
        for (length, most) in [(0, MAX_SETS), (1900, MAX_BYTES / 1900)] {
            let mut list = SetList::default();
            for part in 0..12 {
                list.add((part * 10_000..(part + 1) * 10_000).map(|number| set(number, length)).collect());
                list.add([set(0, length)].into());
                assert!(list.sets.len() <= most, "{} of {most}", list.sets.len());
                assert_eq!(list.bytes, list.sets.iter().map(SetSpec::size).sum::<usize>());
            }
            assert!(list.sets.len() > most * 9 / 10 && list.sets.contains(&set(0, length)));
        }
    }
}
