//! Draft + registry → change: fills what the source could not know, and drops what changes nothing.
//!
//! Pure: it looks at what the registry holds and says what to append and what to confirm; the
//! writer does both in one transaction.

use std::collections::BTreeSet;

use super::registry::{Confirmations, ObjectState, order_of};
use crate::model::{
    Aspect, AspectSet, ChangeId, ContentItemModification, ContentLocation, ContentObjectModification, Draft,
    DraftChange, DraftItem, DraftItems, DraftTime, EventId, ItemChange, ItemId, ItemNotes, LookupMark, NonEmpty,
    Origin, Settlement, SourceName, State, Timestamp, Uri,
};

/// What is the same for all drafts of a source.
#[derive(Clone, Debug)]
pub struct SourcePolicy {
    /// The source's name.
    pub name: SourceName,
    /// Whether a change of properties alone is told as an UPDATE without content; otherwise it is
    /// acknowledged and not journaled.
    pub metadata_changes: bool,
}

/// What became of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The change to append; `None` when nothing changed.
    pub change: Option<(ContentObjectModification, Settlement)>,
    /// What the draft found as the registry holds it.
    pub confirmations: Confirmations,
    /// The time by which the registry orders the event.
    pub order: Timestamp,
}

/// Settles one draft against what is known of its object and the items it names (all items, where
/// it is a purge). `received` is the gateway's clock.
#[must_use]
pub fn settle(draft: Draft, policy: &SourcePolicy, received: Timestamp, known: &ObjectState) -> Settled {
    let time = draft.time.told().unwrap_or(received);
    let as_of = (draft.time == DraftTime::Arrival).then(|| known.newest(&draft.items).unwrap_or(Timestamp::EPOCH));
    let order = order_of(as_of.unwrap_or(time), received);
    let purge = draft.items == DraftItems::Purge;
    let dated = draft.time.told().is_some();
    let tells_object = is_news_of_object(&draft, known, order);
    let news_of_object = tells_object || draft.lookup.mark == Some(LookupMark::Gone);
    let bearer = if tells_object { bearer_of_news(&draft.items, known, order) } else { None };
    let confirmations = Confirmations::default();
    let mut settling =
        Settling { known, order, dated, news_of_object, policy, confirmations, items: Vec::new(), notes: Vec::new() };
    match draft.items {
        DraftItems::Listed(items) => items.into_vec().into_iter().for_each(|item| settling.item(item)),
        DraftItems::Purge => settling.purge(&draft.object),
    }
    if settling.items.is_empty()
        && let Some((uri, change)) = bearer
    {
        settling.push(None, uri, change, ItemNotes::default());
    }
    let Settling { confirmations, items, notes, .. } = settling;
    let Ok(items) = NonEmpty::try_from(items) else {
        return Settled { change: None, confirmations, order };
    };

    let mut settlement = Settlement { purge, as_of, lookup: draft.lookup.mark, items: notes, ..Settlement::default() };
    let parent = draft.parent.or_else(|| known.parent().cloned().inspect(|_| settlement.filled.insert(Aspect::Parent)));
    let mut types = draft.types;
    if types.is_empty() && !known.types().is_empty() {
        types = known.types().to_vec();
        settlement.filled.insert(Aspect::Types);
    }
    settlement.late = [Aspect::Parent, Aspect::Types]
        .into_iter()
        .filter(|aspect| !settlement.filled.contains(*aspect) && known.is_late(&draft.object, *aspect, order))
        .collect();
    if settlement.items.iter().all(|notes| *notes == ItemNotes::default()) {
        settlement.items.clear();
    }

    let told_id = || draft.id.and_then(|id| EventId::parse(&id.to_string()));
    let modification = ContentObjectModification {
        id: draft.id.unwrap_or_else(ChangeId::mint),
        user: draft.user,
        time,
        object: draft.object,
        parent,
        types,
        description: draft.description,
        origin: Origin {
            source: policy.name.clone(),
            event_id: draft.event_id.or_else(told_id),
            software_version: draft.software_version,
        },
        items,
    };
    Settled { change: Some((modification, settlement)), confirmations, order }
}

/// Settles a draft of which nothing is known: what would come out of a message on its own.
#[must_use]
pub fn settle_alone(draft: Draft, policy: &SourcePolicy) -> Option<ContentObjectModification> {
    let settled = settle(draft, policy, Timestamp::now(), &ObjectState::default());
    settled.change.map(|(modification, _)| modification)
}

struct Settling<'a> {
    known: &'a ObjectState,
    order: Timestamp,
    /// Whether the source told the time.
    dated: bool,
    /// Whether the draft says of the object what the registry does not hold.
    news_of_object: bool,
    policy: &'a SourcePolicy,
    confirmations: Confirmations,
    items: Vec<ContentItemModification>,
    /// Of each item what was noted.
    notes: Vec<ItemNotes>,
}

impl Settling<'_> {
    fn item(&mut self, item: DraftItem) {
        let DraftItem { id, uri, change } = item;
        match change {
            DraftChange::Told(ItemChange::State { before, after }) => self.state(id, uri, before, after),
            DraftChange::Told(ItemChange::Delete { before, after }) => self.delete(id, uri, before, after),
            DraftChange::Told(ItemChange::Update { content, before, after }) => {
                let before = before.or_else(|| self.state_before(&uri));
                self.push(id, uri, ItemChange::Update { content, before, after }, ItemNotes::default());
            }
            DraftChange::Told(add @ ItemChange::Add { .. }) => self.push(id, uri, add, ItemNotes::default()),
            DraftChange::AddOrUpdate { content, begins_in } => self.add_or_update(id, uri, content, begins_in),
            DraftChange::There { content } => self.there(id, uri, content),
            DraftChange::Found { content, state, at } => self.found(id, uri, content, state, at),
            DraftChange::Completed(change) => self.completed(id, uri, change),
            DraftChange::Activity { after, over } => self.activity(id, uri, after, over),
            DraftChange::Properties { after } => self.properties(id, uri, after),
        }
    }

    fn state(&mut self, id: Option<ItemId>, uri: Uri, told_before: Option<State>, after: State) {
        // What only a walk has told nobody has heard, so it is news even if it is known to be so.
        let is_news = |state: &State| *state == after && self.known.is_unheard(&uri);
        let known = self.state_before(&uri).filter(|known| !is_news(known));
        let told_no_change = told_before.as_ref() == Some(&after);
        if known.as_ref() == Some(&after) && (told_before.is_none() || told_no_change) {
            return self.confirm(uri, &[Aspect::Existence, Aspect::State]);
        }
        if told_no_change && known.is_none() {
            return;
        }
        let before = told_before.filter(|_| !told_no_change).or(known);
        self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default());
    }

    fn delete(&mut self, id: Option<ItemId>, uri: Uri, before: Option<State>, after: Option<State>) {
        if self.known.is_gone(&uri) && !self.is_late(&uri, Aspect::Existence) {
            return self.confirm(uri, &[Aspect::Existence, Aspect::Content, Aspect::State]);
        }
        let before = before.or_else(|| self.state_before(&uri));
        self.push(id, uri, ItemChange::Delete { before, after }, ItemNotes::default());
    }

    fn add_or_update(
        &mut self,
        id: Option<ItemId>,
        uri: Uri,
        content: Option<ContentLocation>,
        begins_in: Option<State>,
    ) {
        let known = self.known.is_live(&uri) || self.is_late(&uri, Aspect::Existence);
        let change = if known {
            ItemChange::Update { content, before: self.state_before(&uri), after: None }
        } else {
            ItemChange::Add { content, after: begins_in.clone() }
        };
        self.push(id, uri, change, ItemNotes { inferred: true, begins_in, ..ItemNotes::default() });
    }

    fn activity(&mut self, id: Option<ItemId>, uri: Uri, after: State, over: &[State]) {
        let is_over = self.known.state(&uri).is_some_and(|held| over.contains(held));
        let is_newer = self.dated && self.known.is_newer(&uri, Aspect::State, self.order);
        if !is_over || is_newer {
            self.state(id, uri, None, after);
        }
    }

    fn there(&mut self, id: Option<ItemId>, uri: Uri, content: Option<ContentLocation>) {
        if !self.known.is_live(&uri) {
            self.push(id, uri, ItemChange::Add { content, after: None }, ItemNotes::default());
        } else if content.as_ref().is_none_or(|content| self.holds(&uri, content)) {
            self.confirm(uri, &[Aspect::Existence, Aspect::Content]);
        } else {
            let before = self.state_before(&uri);
            self.push(id, uri, ItemChange::Update { content, before, after: None }, ItemNotes::default());
        }
    }

    /// What the registry holds since then, or longer, is known; and what is gone since then is gone.
    fn found(
        &mut self,
        id: Option<ItemId>,
        uri: Uri,
        content: Option<ContentLocation>,
        state: Option<State>,
        at: Timestamp,
    ) {
        let known = self.known;
        let is_newer = |aspect| known.is_newer(&uri, aspect, at);
        let before = known.state(&uri).cloned();
        if !known.is_live(&uri) {
            if is_newer(Aspect::Existence) {
                self.push(id, uri, ItemChange::Add { content, after: state }, ItemNotes::default());
            }
            return;
        }
        let after = state.filter(|state| before.as_ref() != Some(state) && is_newer(Aspect::State));
        let content = content.filter(|content| !self.holds(&uri, content) && is_newer(Aspect::Content));
        match (content, after) {
            (None, None) => {}
            (None, Some(after)) => self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default()),
            (content, after) => {
                self.push(id, uri, ItemChange::Update { content, before, after }, ItemNotes::default());
            }
        }
    }

    /// What the registry holds, or knows anything newer of, is not told again. What is news of the object alone is told
    /// with the first item that is as it was.
    fn completed(&mut self, id: Option<ItemId>, uri: Uri, change: ItemChange) {
        let is_outdated = self.is_late(&uri, Aspect::Existence) || self.is_late(&uri, Aspect::Content);
        let is_known = self.known.is_live(&uri);
        let is_same = change.content().is_none_or(|content| is_known && self.holds(&uri, content));
        let change = match change {
            ItemChange::Delete { before, after } if !is_outdated => return self.delete(id, uri, before, after),
            _ if is_outdated || is_same || matches!(change, ItemChange::State { .. }) => {
                if !std::mem::take(&mut self.news_of_object) {
                    return;
                }
                ItemChange::Update { content: None, before: self.state_before(&uri), after: None }
            }
            ItemChange::Add { content, .. } if is_known => {
                ItemChange::Update { content, before: self.state_before(&uri), after: None }
            }
            ItemChange::Update { content, before, after } => {
                let before = before.or_else(|| self.state_before(&uri));
                ItemChange::Update { content, before, after }
            }
            add => add,
        };
        self.news_of_object = false;
        self.push(id, uri, change, ItemNotes::default());
    }

    fn properties(&mut self, id: Option<ItemId>, uri: Uri, after: Option<State>) {
        let before = self.state_before(&uri);
        match after {
            Some(after) if before.as_ref() != Some(&after) => {
                self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default());
            }
            after if self.policy.metadata_changes => {
                self.push(id, uri, ItemChange::Update { content: None, before, after }, ItemNotes::default());
            }
            Some(_) => self.confirm(uri, &[Aspect::Existence, Aspect::State]),
            None if self.known.is_live(&uri) => self.confirm(uri, &[Aspect::Existence]),
            None => {}
        }
    }

    /// A DELETE for every item that was there at the time. Where none is known, the object itself
    /// stands for what it had, unless it is known to have been purged already.
    fn purge(&mut self, object: &Uri) {
        let known = self.known;
        let listed = known.live_items().filter(|(uri, _)| !known.is_late(uri, Aspect::Existence, self.order));
        let listed: Vec<Uri> = listed.map(|(uri, _)| uri.clone()).collect();
        let purged = known.purged.latest();
        if listed.is_empty() && purged.is_some() && purged <= Some(self.order) && known.live_items().next().is_none() {
            self.confirmations.purged = true;
            return;
        }
        let listed = if listed.is_empty() { vec![object.clone()] } else { listed };
        for uri in listed {
            let before = self.state_before(&uri);
            self.push(None, uri, ItemChange::Delete { before, after: None }, ItemNotes::default());
        }
    }

    fn push(&mut self, id: Option<ItemId>, uri: Uri, change: ItemChange, notes: ItemNotes) {
        let late = aspects_of(&change).filter(|aspect| self.is_late(&uri, *aspect)).collect();
        self.items.push(ContentItemModification { id: id.unwrap_or_else(ItemId::mint), uri, change });
        self.notes.push(ItemNotes { late, ..notes });
    }

    fn confirm(&mut self, uri: Uri, aspects: &[Aspect]) {
        let aspects: AspectSet = aspects.iter().copied().collect();
        self.confirmations.items.push((uri, aspects));
    }

    /// The state that the registry holds, if the event is not older: what was held before an old
    /// event is not known any more.
    fn state_before(&self, uri: &Uri) -> Option<State> {
        let known = self.known.state(uri).filter(|_| !self.is_late(uri, Aspect::State));
        known.cloned()
    }

    /// Whether the registry holds just this place of the item's content.
    fn holds(&self, uri: &Uri, content: &ContentLocation) -> bool {
        self.known.content(uri).is_some_and(|held| held == content)
    }

    fn is_late(&self, uri: &Uri, aspect: Aspect) -> bool {
        self.known.is_late(uri, aspect, self.order)
    }
}

/// Whether a draft tells a parent or types that the registry does not hold, and that are not outdated.
fn is_news_of_object(draft: &Draft, known: &ObjectState, order: Timestamp) -> bool {
    let on_time = |aspect| !known.is_late(&draft.object, aspect, order);
    let parent = draft.parent.is_some() && draft.parent.as_ref() != known.parent() && on_time(Aspect::Parent);
    let types = !draft.types.is_empty() && !are_same(&draft.types, known.types()) && on_time(Aspect::Types);
    parent || types
}

/// Whether these are the same types, in whatever order.
fn are_same(types: &[Uri], others: &[Uri]) -> bool {
    let sorted = |types: &[Uri]| types.iter().cloned().collect::<BTreeSet<_>>();
    types == others || sorted(types) == sorted(others)
}

/// What to tell of an item so that news of its object alone can be told: an UPDATE without content of the first item that is there,
/// or else the DELETE of the first that is gone. Neither changes what the registry holds of the item.
fn bearer_of_news(items: &DraftItems, known: &ObjectState, order: Timestamp) -> Option<(Uri, ItemChange)> {
    let DraftItems::Listed(items) = items else { return None };
    let on_time = |item: &&DraftItem| !known.is_late(&item.uri, Aspect::Existence, order);
    if let Some(item) = items.iter().filter(on_time).find(|item| known.is_live(&item.uri)) {
        let before = known.state(&item.uri).filter(|_| !known.is_late(&item.uri, Aspect::State, order)).cloned();
        return Some((item.uri.clone(), ItemChange::Update { content: None, before, after: None }));
    }
    items.iter().filter(on_time).find_map(|item| match &item.change {
        DraftChange::Told(ItemChange::Delete { .. }) if known.is_gone(&item.uri) => {
            Some((item.uri.clone(), ItemChange::Delete { before: None, after: None }))
        }
        _ => None,
    })
}

/// The aspects of an item that a change speaks of.
fn aspects_of(change: &ItemChange) -> impl Iterator<Item = Aspect> + use<> {
    let begins_or_ends = matches!(change, ItemChange::Add { .. } | ItemChange::Delete { .. });
    let content = begins_or_ends || change.content().is_some();
    let state = begins_or_ends || change.after().is_some();
    [(Aspect::Existence, true), (Aspect::Content, content), (Aspect::State, state)]
        .into_iter()
        .filter_map(|(aspect, moved)| moved.then_some(aspect))
}

#[cfg(test)]
mod tests;
