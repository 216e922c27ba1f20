//! Results of downloads.

use super::DraftSettler;
use crate::{
    journal::registry::Schedule,
    model::{ContentLocation, ItemChange, ItemId, ItemNotes, OriginalContent, State, Uri},
};

impl DraftSettler<'_> {
    /// Replaces the content by its copy. A failed copy sets a state only if the content has none of its source.
    pub(super) fn copied(
        &mut self,
        id: Option<ItemId>,
        uri: Uri,
        original: &OriginalContent,
        copy: Option<ContentLocation>,
    ) {
        let registered = self.registered.content(&uri).and_then(|content| content.parse().ok());
        if registered.is_none_or(|content| content.reported() != *original || content.original.is_some()) {
            return;
        }
        let before = self.state_before(&uri);
        let was_unavailable = before == Some(State::UNAVAILABLE);
        // The state says nothing about access, so the dates stay, and so does what has become of earlier ones.
        let Schedule { dates, came, denied } = self.registered.schedule(&uri);
        let notes = ItemNotes { dates, came, denies: denied, ..ItemNotes::default() };
        match copy {
            Some(copy) => {
                let after = was_unavailable.then_some(State::ACTIVE);
                let notes = if was_unavailable { notes } else { ItemNotes::default() };
                self.push(id, uri, ItemChange::Update { content: Some(copy), before, after }, notes);
            }
            None if before.as_ref().is_none_or(|before| *before == State::ACTIVE) => {
                self.push(id, uri, ItemChange::State { before, after: State::UNAVAILABLE }, notes);
            }
            None => {}
        }
    }
}
