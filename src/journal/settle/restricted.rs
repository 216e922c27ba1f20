//! Dates that a repository states beside the state of an item: what they say about the item at present.
//!
//! The dates and the state are independent: an item that its state hides is hidden before the dates and after them. So the
//! dates count only while nothing else hides the item.

use super::DraftSettler;
use crate::model::{
    Aspect, DraftChange, DraftItem, DraftItems, InvalidVisibilityDates, ItemChange, ItemId, ItemNotes, State,
    StatedDates, Uri, VisibilityDates, is_public,
};

impl DraftSettler<'_> {
    /// Settles an item whose repository states its dates: as the same item with the state that it has at present.
    pub(super) fn restricted(&mut self, id: Option<ItemId>, uri: Uri, change: DraftChange, stated: StatedDates) {
        let is_unnamed = matches!(change, DraftChange::Present { content: None, state: None });
        let is_new = matches!(change, DraftChange::Reported(ItemChange::Add { .. }));
        let reported = change.state().cloned();
        let known = self.registered.state(&uri).filter(|_| !is_new);
        let own = reported.as_ref().or(known).filter(|state| !state.is_of_dates());
        if self.is_late(&uri, Aspect::State) || !is_public(own) || (is_unnamed && !self.registered.is_live(&uri)) {
            if !is_unnamed {
                self.item(DraftItem { id, uri, change });
            }
            return;
        }
        // The lookup of a later event may have read other dates, so those of an earlier one can only hide the item longer.
        let stated = match stated {
            StatedDates::All(dates) if self.is_outdated => StatedDates::Partial(dates),
            stated => stated,
        };
        let (dates, state) = match stated {
            StatedDates::All(dates) => {
                let state = dates.state_at(self.now, reported);
                (dates, state.or_else(|| self.state_without_dates(&uri)))
            }
            StatedDates::Partial(dates) => self.partly_known(&uri, dates, reported),
            StatedDates::Embargo => (VisibilityDates::NONE, Some(State::EMBARGOED)),
        };
        self.dates = dates.after(self.now);
        match change {
            DraftChange::FollowUp(change) => {
                let state = self.news_of_state(&uri, state);
                self.follow_up(id, uri, without_state(change), None, state);
            }
            DraftChange::FollowUpTo { reported, change } => {
                let state = self.news_of_state(&uri, state);
                self.follow_up(id, uri, without_state(change), Some(&reported), state);
            }
            DraftChange::Reported(ItemChange::Update { content, before, .. }) => {
                let after = self.news_of_state(&uri, state);
                let change = DraftChange::Reported(ItemChange::Update { content, before, after });
                self.item(DraftItem { id, uri, change });
            }
            DraftChange::Present { content: None, state: None } => {
                if let Some(after) = self.news_of_state(&uri, state) {
                    let before = self.state_before(&uri);
                    self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default());
                }
            }
            change => self.item(DraftItem { id, uri, change: change.with_state(state) }),
        }
        self.dates = VisibilityDates::NONE;
    }

    /// Returns the dates and the state of an item some of whose dates cannot be read. The dates that the registry has fill in
    /// for those. So an item that is hidden stays hidden, unless a date that the registry has ends that.
    fn partly_known(
        &self,
        uri: &Uri,
        readable: VisibilityDates,
        reported: Option<State>,
    ) -> (VisibilityDates, Option<State>) {
        let known = self.registered.schedule(uri).dates;
        let hidden = self.registered.state(uri).filter(|state| !is_public(Some(state)));
        match (hidden, known.and(readable)) {
            (Some(state), _) if known.from().is_none() => {
                let by_dates = Some(state).filter(|state| state.is_of_dates());
                (known, by_dates.cloned().or(Some(State::EMBARGOED)))
            }
            (_, Ok(dates)) => (dates, dates.state_at(self.now, reported)),
            (_, Err(InvalidVisibilityDates)) => (VisibilityDates::NONE, Some(State::EMBARGOED)),
        }
    }

    /// Returns the state, unless the registry has it already with the same dates.
    fn news_of_state(&self, uri: &Uri, state: Option<State>) -> Option<State> {
        state.filter(|state| self.has_other_dates(uri) || self.registered.state(uri) != Some(state))
    }
}

/// Returns whether some dates of an item are unknown. A deleted item has no dates.
pub(super) fn has_partial_dates(items: &DraftItems) -> bool {
    let is_deleted =
        |item: &DraftItem| matches!(item.change.undated(), DraftChange::Reported(ItemChange::Delete { .. }));
    let is_partial = |item: &DraftItem| {
        matches!(item.change, DraftChange::Restricted { dates: StatedDates::Partial(_), .. }) && !is_deleted(item)
    };
    items.listed().iter().any(is_partial)
}

/// Returns the change of a follow-up without its state, which the dates have decided.
fn without_state(change: ItemChange) -> ItemChange {
    match change {
        ItemChange::Add { content, .. } => ItemChange::Add { content, after: None },
        ItemChange::Update { content, before, .. } => ItemChange::Update { content, before, after: None },
        change @ (ItemChange::State { .. } | ItemChange::Delete { .. }) => change,
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
