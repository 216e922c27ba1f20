//! Repeats: events that the store or the batch has already.

use super::{BatchSettler, DraftOutcome, DuplicatePolicy, EventKey, FirstChange, ObjectState};
use crate::journal::settle::SettledDraft;
use crate::model::{Aspect, ContentObjectModification, Draft, ItemChange, Seq, Settlement};

impl BatchSettler {
    /// Returns the outcome of an event that the store or this batch has already.
    pub(super) fn earlier_outcome(&self, key: EventKey) -> Option<DraftOutcome> {
        let duplicate = |(seq, first): &(Seq, Option<FirstChange>)| {
            let id = first.as_ref().map(|first| first.id);
            DraftOutcome::Duplicate { seq: *seq, id }
        };
        let change = self.first_changes.get(&key).map(duplicate);
        change.or_else(|| self.unchanged.contains(&key).then_some(DraftOutcome::Unchanged))
    }

    /// Returns the first change of an event with this key, if it is about another object.
    pub(super) fn other_object(&self, key: Option<EventKey>, draft: &Draft) -> Option<Seq> {
        let (seq, first) = self.first_changes.get(&key?)?;
        first.as_ref()?.object.as_ref().filter(|object| **object != draft.object).map(|_| *seq)
    }
}

/// Returns whether a repeat says something that its policy accepts as news.
pub(super) fn is_news(settled: &SettledDraft, policy: DuplicatePolicy, registered: &ObjectState) -> bool {
    settled.change.as_ref().is_some_and(|(modification, settlement)| match policy {
        DuplicatePolicy::RememberUnlessNews => registered.learns_from(settled.ordering_time, modification, settlement),
        _ => is_new_state(modification, settlement),
    })
}

/// Returns whether the change reports a state that differs from the state before and is not late.
fn is_new_state(modification: &ContentObjectModification, settlement: &Settlement) -> bool {
    modification.items.iter().enumerate().any(|(index, item)| {
        let on_time = !settlement.item(index).late.contains(Aspect::State);
        on_time && matches!(item.change, ItemChange::State { .. })
    })
}
