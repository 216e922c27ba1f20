//! Dates that a repository states beside the state of an item: what they say about the item at present.
//!
//! The dates and the state are independent: an item that its state hides is hidden before the dates and after them. So the
//! dates count only while nothing else hides the item.

use super::DraftSettler;
use crate::model::{
    Aspect, DraftChange, DraftItem, ItemChange, ItemId, State, StatedDates, Uri, VisibilityDates, is_public,
};

impl DraftSettler<'_> {
    /// Settles an item whose repository states its dates: as the same item with the state that it has at present.
    pub(super) fn restricted(&mut self, id: Option<ItemId>, uri: Uri, change: DraftChange, stated: StatedDates) {
        let reported = change.state().cloned();
        let known = self.registered.state(&uri);
        let own = reported.as_ref().or(known).filter(|state| !state.is_of_dates());
        if self.is_late(&uri, Aspect::State) || !is_public(own) {
            return self.item(DraftItem { id, uri, change });
        }
        let (dates, state) = match stated {
            StatedDates::All(dates) => {
                let state = dates.state_at(self.now, reported);
                (dates, state.or_else(|| self.state_without_dates(&uri)))
            }
            StatedDates::Partial(dates) => (dates, dates.state_at(self.now, reported)),
            StatedDates::Embargo => (VisibilityDates::NONE, Some(State::EMBARGOED)),
        };
        self.dates = dates.after(self.now);
        match change {
            DraftChange::FollowUp(change) => {
                let state = self.news_of_state(&uri, state);
                self.follow_up(id, uri, change, None, state);
            }
            DraftChange::FollowUpTo { reported, change } => {
                let state = self.news_of_state(&uri, state);
                self.follow_up(id, uri, change, Some(&reported), state);
            }
            DraftChange::Reported(ItemChange::Update { content, before, .. }) => {
                let after = self.news_of_state(&uri, state);
                let change = DraftChange::Reported(ItemChange::Update { content, before, after });
                self.item(DraftItem { id, uri, change });
            }
            change => self.item(DraftItem { id, uri, change: change.with_state(state) }),
        }
        self.dates = VisibilityDates::NONE;
    }

    /// Returns the state, unless the registry has it already with the same dates.
    fn news_of_state(&self, uri: &Uri, state: Option<State>) -> Option<State> {
        state.filter(|state| self.has_other_dates(uri) || self.registered.state(uri) != Some(state))
    }
}

impl DraftChange {
    /// Returns the state after the change, if the source reports it.
    fn state(&self) -> Option<&State> {
        match self {
            Self::Reported(change) | Self::FollowUp(change) | Self::FollowUpTo { change, .. } => change.after(),
            Self::AddOrUpdateWithState { state, .. } => Some(state),
            Self::Present { state, .. } => state.as_ref(),
            Self::Properties { after } => after.as_ref(),
            _ => None,
        }
    }

    /// Returns the change with the state that the item has at present. A deletion stays as it is.
    fn with_state(self, present: Option<State>) -> Self {
        match self {
            Self::Reported(ItemChange::Add { content, .. }) => {
                Self::Reported(ItemChange::Add { content, after: present })
            }
            Self::Reported(ItemChange::State { before, after }) => {
                Self::Reported(ItemChange::State { before, after: present.unwrap_or(after) })
            }
            Self::AddOrUpdate { content, initial_state } => match present {
                Some(state) => Self::AddOrUpdateWithState { content, state },
                None => Self::AddOrUpdate { content, initial_state },
            },
            Self::AddOrUpdateWithState { content, state } => {
                Self::AddOrUpdateWithState { content, state: present.unwrap_or(state) }
            }
            Self::Present { content, .. } => Self::Present { content, state: present },
            Self::Properties { .. } => Self::Properties { after: present },
            other => other,
        }
    }
}
