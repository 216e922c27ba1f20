//! The registry as a reader may see it.

use std::sync::Arc;

use crate::{
    journal::{JournalError, RegistryPosition, registry::ObjectState, store::StoreError},
    model::{ContentLocation, ReaderView, Timestamp, Uri, is_public},
    web::{Problem, ProblemCode, ReadPermit},
};

/// Part of the registry that a reader may see.
#[derive(Clone, Default)]
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

    /// Returns whether the object is one of those that the reader may ask for.
    pub(super) fn covers(&self, object: &Uri) -> bool {
        self.0.as_ref().is_none_or(|view| view.covers_object(object))
    }

    /// Returns the view; `None` if the reader sees everything.
    pub(super) fn view(&self) -> Option<&Arc<ReaderView>> {
        self.0.as_ref()
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

    /// Returns the next position from which the reader may see objects; `None` if there are none.
    pub(super) fn seek(&self, position: RegistryPosition) -> Option<RegistryPosition> {
        match &self.0 {
            Some(view) => position.seek(&view.objects),
            None => Some(position),
        }
    }

    /// Returns the damaged object that a failed read has met, if the reader passes it. A reader who sees only some objects
    /// passes one that is none of them. The public also passes one that may be hidden: whether it is, is part of the damage.
    ///
    /// # Errors
    /// Returns any other error.
    pub(super) fn passed(&self, error: JournalError) -> Result<Uri, JournalError> {
        let is_passed = |object: &Uri| self.0.as_ref().is_some_and(|view| view.public || !view.covers_object(object));
        match error {
            JournalError::Store(StoreError::DamagedObject { uri, what }) if is_passed(&uri) => {
                tracing::warn!(object = %uri, what, "a damaged object is left out for readers who may not see it");
                Ok(uri)
            }
            error => Err(error),
        }
    }
}
