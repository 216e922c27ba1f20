//! The objects that a subscriber of a filter should have, with their digests.

use std::sync::Arc;

use crate::{
    journal::{JournalError, RawContentLocation, RegistryPosition, registry::ObjectState, store::StoreError},
    model::{DigestSum, Filter, ItemFacts, ReaderView, Uri, UriPrefix, is_public},
    view::{journal_problem, registry_view::RegistryView},
    web::{Problem, ProblemCode, ReadPermit},
};

/// Selection of objects, and what the subscriber knows of them.
#[derive(Clone)]
pub(super) struct Selection {
    filter: Arc<SelectionFilter>,
    sight: RegistryView,
}

/// Conditions that the registry can answer. Equal ones share their ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SelectionFilter {
    objects: Vec<UriPrefix>,
    parents: Vec<Uri>,
    types: Vec<Uri>,
    /// Whether the subscriber has only what the public sees.
    is_public: bool,
    view: Option<Arc<ReaderView>>,
}

/// Digests of one object or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digests {
    pub(super) objects: u64,
    pub(super) items: u64,
    pub(super) existence: DigestSum,
    pub(super) all: DigestSum,
}

impl Digests {
    pub(super) fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.items += other.items;
        self.existence += other.existence;
        self.all += other.all;
    }
}

impl Selection {
    /// Creates the selection of a filter, within what the reader may see.
    ///
    /// # Errors
    /// `invalid-query` if the filter has a condition on changes, which the registry does not remember; `forbidden` if the
    /// reader may see only some sources.
    pub(super) fn new(filter: Filter, permit: &ReadPermit) -> Result<Self, Problem> {
        let sight = RegistryView::of(permit)?;
        let Filter { sources, objects, parents, types, changes, media_types, states, since, visibility, view } = filter;
        let of_changes = [
            ("source", sources.is_empty()),
            ("change", changes.is_empty()),
            ("media_type", media_types.is_empty()),
            ("state", states.is_empty()),
            ("since", since.is_none()),
        ];
        if let Some((parameter, _)) = of_changes.into_iter().find(|(_, is_empty)| !is_empty) {
            let detail = format!(
                "The condition {parameter:?} selects changes, and the registry has only their result. Compare with the \
                 conditions object, parent, type and visibility."
            );
            return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", parameter));
        }
        let is_public = visibility || sight.is_public();
        Ok(Self { filter: Arc::new(SelectionFilter { objects, parents, types, is_public, view }), sight })
    }

    /// Returns the conditions, by which ranges are shared.
    pub(super) fn filter(&self) -> &Arc<SelectionFilter> {
        &self.filter
    }

    /// Returns the next position from which objects can be selected; `None` if there are none.
    pub(super) fn seek(&self, position: RegistryPosition) -> Option<RegistryPosition> {
        let mut position = position;
        loop {
            let next = self.sight.seek(position.clone().seek(&self.filter.objects)?)?;
            if next == position {
                return Some(position);
            }
            position = next;
        }
    }

    /// Returns the damaged object that a failed read has met, if it cannot be selected.
    ///
    /// # Errors
    /// Returns any other error.
    pub(super) fn passed(&self, error: JournalError) -> Result<Uri, JournalError> {
        match error {
            // Whether another one is selected is part of the damage. Digests without it would call it extra at every mirror.
            JournalError::Store(StoreError::DamagedObject { uri, .. }) if !self.can_have(&uri) => Ok(uri),
            error => Err(error),
        }
    }

    /// Returns the problem of a failed read. The public does not learn which object is damaged, because it may be hidden; the
    /// log has it.
    pub(super) fn problem(&self, error: JournalError) -> Problem {
        match error {
            JournalError::Store(error @ StoreError::DamagedObject { .. }) if self.sight.is_public() => {
                let detail = "The next object of the registry is damaged and cannot be read.";
                Problem::new(ProblemCode::DamagedObject, detail).because(error)
            }
            error => journal_problem(error),
        }
    }

    /// Returns whether an object of this URI can be selected, whatever its state is.
    pub(super) fn can_have(&self, object: &Uri) -> bool {
        let prefixes = &self.filter.objects;
        let is_covered = self.filter.view.as_ref().is_none_or(|view| view.covers_object(object));
        is_covered && (prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.is_prefix_of(object)))
    }

    /// Returns the digests of an object that was read; `None` if it is not selected, or has no item that the subscriber has.
    ///
    /// # Errors
    /// Fails if the object is damaged.
    pub(super) fn digests(&self, object: &Uri, state: &ObjectState) -> Result<Option<Digests>, StoreError> {
        let SelectionFilter { parents, types, is_public: public_only, .. } = &*self.filter;
        let is_selected = self.can_have(object)
            && self.sight.shows(object, state)
            && (parents.is_empty() || state.parent().is_some_and(|parent| parents.contains(parent)))
            && (types.is_empty() || state.types().iter().any(|one| types.contains(one)));
        if !is_selected {
            return Ok(None);
        }
        let mut digests = Digests { objects: 1, ..Digests::default() };
        for (item, _) in state.live_items() {
            let item_state = state.state(item);
            if *public_only && !is_public(item_state) {
                continue;
            }
            let content = state.content(item).map(RawContentLocation::parse).transpose()?;
            let content = content.map(|content| self.sight.content(content));
            let facts = ItemFacts {
                object: object.as_str(),
                item: item.as_str(),
                state: item_state.filter(|_| !public_only),
                content: content.as_ref(),
            };
            digests.items += 1;
            digests.existence += facts.existence();
            digests.all += facts.all();
        }
        Ok(Some(digests).filter(|digests| digests.items > 0))
    }
}
