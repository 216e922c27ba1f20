//! Objects of a batch, with the parts of them that it has changed.

use super::super::{
    acceptance::ObjectNews,
    bounds::ChangeBounds,
    registry::ObjectState,
    seed::RegistryDelta,
    settle::SettledDraft,
    store::StoreError,
    visibility::{VisibilityBefore, is_visible, shows_an_item},
};
use crate::model::{ContentObjectModification, Settlement, SourceName, Uri, VisibilityNotes};

/// A settled change that has no number yet.
pub(super) type UnnumberedChange = (ContentObjectModification, Settlement, VisibilityNotes);

/// An object of the registry, and the parts of it that the batch has changed.
#[derive(Default)]
pub(super) struct ObjectInBatch {
    pub(super) state: ObjectState,
    /// Number of items in the registry besides those in `state`, if the store has counted them.
    pub(super) other_items: Option<usize>,
    /// Whether source, parent, types or time of purge changed.
    pub(super) object_changed: bool,
    /// Effect of the batch on the object, for readers who harvest the registry.
    pub(super) news: ObjectNews,
    /// URIs of the changed items, possibly with repetitions.
    pub(super) changed_items: Vec<Uri>,
}

impl ObjectInBatch {
    /// Applies a settled draft to the object; returns the changes to append, in order.
    pub(super) fn apply(
        &mut self,
        settled: SettledDraft,
        bounds: &ChangeBounds,
    ) -> Result<Vec<UnnumberedChange>, StoreError> {
        let SettledDraft { change, confirmations, ordering_time } = settled;
        self.state.confirm(ordering_time, &confirmations);
        self.object_changed |= confirmations.purged;
        self.changed_items.extend(confirmations.items.into_iter().map(|(uri, _)| uri));
        let Some((modification, settlement)) = change else { return Ok(Vec::new()) };
        let mut applied = Vec::new();
        for (modification, settlement) in bounds.divide(modification, settlement) {
            let state = &mut self.state;
            let before = VisibilityBefore::of(state, &modification, &settlement);
            let was_public = shows_an_item(state, &modification, &settlement);
            let former = facts(state);
            self.object_changed |= state.is_changed_by(&modification, &settlement);
            self.changed_items.extend(state.unscheduled_by(&settlement));
            state.apply(ordering_time, &modification, &settlement);
            let visibility = before.compare(state, &modification, &settlement)?;
            let is_public = was_public || shows_an_item(state, &modification, &settlement);
            self.changed_items.extend(modification.items.iter().map(|item| item.uri.clone()));
            let is_news = former != facts(state);
            self.note(is_public, is_news);
            applied.push((modification, settlement, visibility));
        }
        Ok(applied)
    }

    /// Applies new facts from a crawl.
    pub(super) fn apply_delta(&mut self, delta: &RegistryDelta) {
        let shows_an_item = |state: &ObjectState| delta.items().any(|item| is_visible(state, item));
        let was_public = shows_an_item(&self.state);
        self.state.apply_delta(delta);
        let is_public = was_public || shows_an_item(&self.state);
        self.object_changed |= delta.changes_object();
        self.note(is_public, delta.changes_object());
        self.changed_items.extend(delta.items().cloned());
    }

    /// Notes new facts. `is_public` says whether the public sees one of the items, or has seen it until now; `is_of_object`,
    /// whether the object itself has other facts.
    fn note(&mut self, is_public: bool, is_of_object: bool) {
        let news = match (is_public, is_of_object) {
            (true, _) => ObjectNews::Public,
            (false, true) => ObjectNews::OfObject,
            (false, false) => ObjectNews::Hidden,
        };
        self.news = self.news.max(news);
    }
}

/// Returns the facts of an object that records have. A message that repeats them is no news.
fn facts(state: &ObjectState) -> (Option<SourceName>, Option<Uri>, Vec<Uri>) {
    (state.source.clone(), state.parent().cloned(), state.types().to_vec())
}
