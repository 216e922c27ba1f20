//! Announced dates of visibility: what an item is before they come, the change when they come, and their replacement.
//!
//! The dates belong to the state of the item. An event that reports a state replaces them, and one that does not says
//! nothing about them. The gateway chooses the state that the dates imply, so that every reader of the journal sees only
//! changes of state, and only a change in the journal changes what the public sees.

use super::DraftSettler;
use crate::model::{
    Aspect, ContentItemModification, ContentLocation, DraftChange, DraftItem, ItemChange, ItemId, ItemNotes, State,
    Timestamp, Uri, VisibilityDates, is_public,
};

/// Time at which drafts are settled, by the journal's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptClock {
    /// Time of receipt of the changes, which never decreases.
    pub received: Timestamp,
    /// Time of the clock. It is earlier than the time of receipt after the clock was set back.
    pub now: Timestamp,
}

impl ReceiptClock {
    /// Returns a clock that was never set back.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { received: now, now }
    }
}

impl DraftSettler<'_> {
    /// Settles an item with dates: as the same item with the state that it has at present.
    pub(super) fn dated(&mut self, id: Option<ItemId>, uri: Uri, change: DraftChange, dates: VisibilityDates) {
        let state = |reported: Option<State>| dates.state_at(self.now, reported);
        let change = match change {
            DraftChange::Reported(ItemChange::Add { content, after }) => {
                DraftChange::Reported(ItemChange::Add { content, after: state(after) })
            }
            DraftChange::Reported(ItemChange::Update { content, before, after }) => {
                DraftChange::Reported(ItemChange::Update { content, before, after: state(after) })
            }
            DraftChange::Reported(ItemChange::State { before, after }) => {
                let after = state(Some(after.clone())).unwrap_or(after);
                DraftChange::Reported(ItemChange::State { before, after })
            }
            DraftChange::AddOrUpdateWithState { content, state: reported } => {
                let state = state(Some(reported.clone())).unwrap_or(reported);
                DraftChange::AddOrUpdateWithState { content, state }
            }
            DraftChange::Properties { after } => DraftChange::Properties { after: state(after) },
            // Only a source that says all dates of an item says, without one to come, that none is left.
            DraftChange::Present { content, state: reported } => {
                let state = state(reported).or_else(|| self.state_without_dates(&uri));
                DraftChange::Present { content, state }
            }
            DraftChange::AddOrUpdate { content, initial_state } => match state(None) {
                Some(after) => return self.add_or_update_dated(id, uri, content, after, dates),
                None => DraftChange::AddOrUpdate { content, initial_state },
            },
            other => other,
        };
        self.dates = dates.after(self.now);
        self.item(DraftItem { id, uri, change });
        self.dates = VisibilityDates::NONE;
    }

    fn add_or_update_dated(
        &mut self,
        id: Option<ItemId>,
        uri: Uri,
        content: Option<ContentLocation>,
        after: State,
        dates: VisibilityDates,
    ) {
        let exists = self.registered.is_live(&uri) || self.is_late(&uri, Aspect::Existence);
        let after = Some(after);
        let change = match exists {
            true => ItemChange::Update { content, before: self.state_before(&uri), after },
            false => ItemChange::Add { content, after },
        };
        let dates = dates.after(self.now);
        self.push(id, uri, change, ItemNotes { inferred: true, dates, ..ItemNotes::default() });
    }

    /// Changes the visibility of an item whose date has come, if it still has that date. If both dates have come, the second
    /// one decides: an item whose time has passed must not appear. The change is never late, because the order of its draft
    /// is that of the announcement.
    pub(super) fn due(&mut self, id: Option<ItemId>, uri: Uri) {
        let dates = self.registered.schedule(&uri).dates;
        if dates.latest_come(self.now) != Some(self.time) {
            return;
        }
        let before = self.registered.state(&uri).cloned();
        // Whatever hid the item until its date, the source has announced that it ends.
        let after = dates.state_at(self.now, None).unwrap_or(State::ACTIVE);
        let notes = ItemNotes { dates: dates.after(self.now), ..ItemNotes::default() };
        let id = id.unwrap_or_else(ItemId::mint);
        self.items.push(ContentItemModification { id, uri, change: ItemChange::State { before, after } });
        self.notes.push(notes);
    }

    /// Returns whether the registry has other dates of the item than the draft, and the draft is not late.
    pub(super) fn has_other_dates(&self, uri: &Uri) -> bool {
        self.registered.schedule(uri).dates != self.dates && !self.is_late(uri, Aspect::State)
    }

    /// Returns the state of an item whose source says all about it, and neither a state nor dates any more: it is public, if
    /// only dates have decided about that.
    pub(super) fn state_without_dates(&self, uri: &Uri) -> Option<State> {
        let is_scheduled = !self.registered.schedule(uri).dates.is_empty();
        let is_late = self.is_late(uri, Aspect::State);
        let lapses = is_scheduled || self.registered.state(uri).is_some_and(State::is_of_dates);
        (lapses && !is_late).then_some(State::ACTIVE)
    }

    /// Returns the date that had come, if the source says after it that it is another one.
    pub(super) fn denied_by(&self, uri: &Uri, change: &ItemChange) -> Option<Timestamp> {
        // An event without a time is ordered by an earlier one.
        let said = if self.dated { self.order } else { self.now };
        let came = self.registered.schedule(uri).came.filter(|came| said > *came)?;
        let after = change.after()?;
        let was_public = is_public(self.registered.state(uri));
        let is_denied = match (was_public, is_public(Some(after))) {
            (true, false) => self.dates.from().is_some() || *after == State::EMBARGOED,
            (false, true) => self.dates.until().is_some(),
            _ => false,
        };
        is_denied.then_some(came)
    }
}
