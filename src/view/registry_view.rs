//! The registry as a reader may see it.

use std::sync::Arc;

use super::journal_problem;
use crate::{
    journal::{JournalError, registry::ObjectState, store::StoreError},
    model::{ContentLocation, ReaderView, Timestamp, Uri, is_public},
    web::{Problem, ProblemCode, ReadPermit},
};

/// Part of the registry that a reader may see.
#[derive(Clone)]
pub(super) struct RegistryView(Option<Arc<ReaderView>>);

impl RegistryView {
    /// Returns the part of the registry for a permit.
    ///
    /// # Errors
    /// `forbidden` if the reader may see only some sources: the registry does not know which source has reported a fact.
    pub(super) fn of(permit: &ReadPermit) -> Result<Self, Problem> {
        let view = permit.view().cloned();
        if view.as_ref().is_some_and(|view| !view.sources.is_empty()) {
            let detail = "You may see the changes of some sources only, and the registry combines those of all sources. \
                          Read the changes from the beginning instead: /changes.";
            return Err(Problem::new(ProblemCode::Forbidden, detail));
        }
        Ok(Self(view))
    }

    /// Returns whether the reader sees everything.
    pub(super) fn is_whole(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the reader sees only what the public sees.
    pub(super) fn is_public(&self) -> bool {
        self.0.as_ref().is_some_and(|view| view.public)
    }

    /// Returns whether the reader sees the object. The public sees it while it has an item that the public sees.
    pub(super) fn shows(&self, object: &Uri, state: &ObjectState) -> bool {
        let Some(view) = &self.0 else { return true };
        view.covers_object(object) && (!view.public || state.items.keys().any(|item| self.shows_item(item, state)))
    }

    /// Returns whether the reader sees the item of an object that the reader sees.
    pub(super) fn shows_item(&self, item: &Uri, state: &ObjectState) -> bool {
        !self.is_public() || (state.is_live(item) && is_public(state.state(item)))
    }

    /// Returns the location of content as the reader sees it.
    pub(super) fn content(&self, content: ContentLocation) -> ContentLocation {
        if self.is_public() { content.anonymous() } else { content }
    }

    /// Returns the time of the last purge of an object, which the public does not see.
    pub(super) fn purged(&self, state: &ObjectState) -> Option<Timestamp> {
        state.purged.latest().filter(|_| !self.is_public())
    }

    /// Returns the problem of a failed read. It does not name a damaged object that the reader may not see; the log does.
    pub(super) fn problem(&self, error: JournalError) -> Problem {
        match error {
            JournalError::Store(error @ StoreError::DamagedObject { .. }) if !self.is_whole() => {
                let detail = "The next object of the registry is damaged and cannot be read.";
                Problem::new(ProblemCode::DamagedObject, detail).because(error)
            }
            error => journal_problem(error),
        }
    }
}
