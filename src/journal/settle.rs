//! Draft + registry → change: adds the facts that the source could not know, and drops events without effect.
//!
//! Settling has no side effects: it compares a draft with the registry and returns the change to append and the
//! facts to confirm. The writer stores both in one transaction.

mod copied;
mod due;
mod follow_up;
mod object_facts;
mod restricted;

use std::collections::BTreeSet;

pub use self::due::ReceiptClock;
use self::{
    object_facts::{carrier_item, has_new_object_facts, known_deletion},
    restricted::has_partial_dates,
};
use super::registry::{Confirmations, ObjectState, ordering_time};
use crate::model::{
    Aspect, AspectSet, ChangeId, ContentItemModification, ContentLocation, ContentObjectModification, Draft,
    DraftChange, DraftItem, DraftItems, DraftTime, EventId, ItemChange, ItemId, ItemNotes, LookupMark, NonEmpty,
    Origin, Settlement, SourceName, State, Timestamp, Uri, VisibilityDates, is_public,
};

/// Settings of a source that apply to all its drafts.
#[derive(Clone, Debug)]
pub struct SourcePolicy {
    /// Name of the source.
    pub name: SourceName,
    /// Whether a change of properties alone becomes an UPDATE without content; otherwise it is acknowledged and not
    /// journaled.
    pub metadata_changes: bool,
}

/// Result of settling one draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledDraft {
    /// The change to append; `None` when nothing changed.
    pub change: Option<(ContentObjectModification, Settlement)>,
    /// Facts that the draft reports as the registry has them.
    pub confirmations: Confirmations,
    /// The time by which the registry orders the event.
    pub ordering_time: Timestamp,
}

/// Settles one draft against the state of its object with the items that the draft names (all items for a purge).
/// `clock` has the time of receipt.
#[must_use]
pub fn settle(draft: Draft, policy: &SourcePolicy, clock: ReceiptClock, registered: &ObjectState) -> SettledDraft {
    let ReceiptClock { received, now } = clock;
    let relayed = match &draft.items {
        DraftItems::Relayed { settlement, .. } => (**settlement).clone(),
        DraftItems::Listed(_) | DraftItems::Complete(_) | DraftItems::Purge => Settlement::default(),
    };
    let time = draft.time.reported().unwrap_or(received);
    let as_of = match draft.time {
        DraftTime::Arrival => Some(registered.newest(&draft.items).unwrap_or(Timestamp::EPOCH)),
        DraftTime::Observed(time) => registered.newest(&draft.items).filter(|newest| *newest > time),
        DraftTime::Reported(time) => match relayed.as_of {
            Some(as_of) => Some(registered.newest(&draft.items).map_or(as_of, |newest| newest.max(as_of))),
            None => registered.newest_covered_by(time, &draft.items),
        },
        DraftTime::Due(_) => registered.announced(&draft.items),
    };
    let order = ordering_time(as_of.unwrap_or(time), received);
    let purge = draft.items == DraftItems::Purge || relayed.purge;
    let dated = draft.time.reported().is_some();
    let changes_object = has_new_object_facts(&draft, registered, order);
    let object_news = changes_object || draft.lookup.mark == Some(LookupMark::Gone);
    // Only a change in the journal is looked up again, and an event without any other effect can be about the dates.
    let lacks_dates = draft.lookup.mark == Some(LookupMark::Incomplete) && has_partial_dates(&draft.items);
    let needs_carrier = changes_object || lacks_dates;
    let carrier = if needs_carrier { carrier_item(&draft.items, registered, order) } else { None };
    let deletion = known_deletion(&draft.object, &draft.items, registered, order);
    let mut settler = DraftSettler {
        registered,
        order,
        now,
        time,
        dated,
        object_news,
        dates: VisibilityDates::NONE,
        is_outdated: false,
        policy,
        confirmations: Confirmations::default(),
        items: Vec::new(),
        notes: Vec::new(),
    };
    settler.is_outdated = settler.completes_earlier_event(&draft.items);
    match draft.items {
        DraftItems::Listed(items) => items.into_vec().into_iter().for_each(|item| settler.item(item)),
        DraftItems::Complete(items) => settler.complete(items),
        DraftItems::Purge => settler.purge(&draft.object),
        DraftItems::Relayed { items, settlement } => settler.relayed(items, &settlement),
    }
    if settler.items.is_empty()
        && let Some((uri, change)) = carrier
    {
        settler.push(None, uri, change, ItemNotes::default());
    }
    if settler.only_deletes_others(&draft.object)
        && let Some((id, change)) = deletion
    {
        settler.push(id, draft.object.clone(), change, ItemNotes::default());
    }
    let DraftSettler { confirmations, items, notes, .. } = settler;
    let Ok(items) = NonEmpty::try_from(items) else {
        return SettledDraft { change: None, confirmations, ordering_time: order };
    };

    let due = relayed.due || matches!(draft.time, DraftTime::Due(_));
    let (filled, lookup) = (relayed.filled, draft.lookup.mark);
    let mut settlement = Settlement { filled, late: AspectSet::EMPTY, purge, as_of, lookup, due, items: notes };
    let parent =
        draft.parent.or_else(|| registered.parent().cloned().inspect(|_| settlement.filled.insert(Aspect::Parent)));
    let mut types = draft.types;
    if types.is_empty() && !registered.types().is_empty() {
        types = registered.types().to_vec();
        settlement.filled.insert(Aspect::Types);
    }
    settlement.late = [Aspect::Parent, Aspect::Types]
        .into_iter()
        .filter(|aspect| !settlement.filled.contains(*aspect) && registered.is_late(&draft.object, *aspect, order))
        .chain(relayed.late.iter())
        .collect();
    if settlement.items.iter().all(|notes| *notes == ItemNotes::default()) {
        settlement.items.clear();
    }

    let reported_id = || draft.id.and_then(|id| EventId::parse(&id.to_string()));
    let modification = ContentObjectModification {
        id: draft.id.unwrap_or_else(ChangeId::mint),
        user: draft.user,
        time,
        object: draft.object,
        parent,
        types,
        description: draft.description,
        report: draft.report,
        origin: Origin {
            source: policy.name.clone(),
            event_id: draft.event_id.or_else(reported_id),
            software_version: draft.software_version,
        },
        items,
    };
    SettledDraft { change: Some((modification, settlement)), confirmations, ordering_time: order }
}

/// Settles a draft against an empty registry: the change that the message would make by itself.
#[must_use]
pub fn settle_without_registry(draft: Draft, policy: &SourcePolicy) -> Option<ContentObjectModification> {
    let settled = settle(draft, policy, ReceiptClock::at(Timestamp::now()), &ObjectState::default());
    settled.change.map(|(modification, _)| modification)
}

/// Settles the items of one draft, and collects the items of the change.
struct DraftSettler<'a> {
    registered: &'a ObjectState,
    /// The time by which the registry orders the event.
    order: Timestamp,
    /// Time of the clock, by which dates come. The time of receipt can be ahead for years, and would end an embargo.
    now: Timestamp,
    /// The time that the change shows.
    time: Timestamp,
    /// Whether the source reported the time of the event.
    dated: bool,
    /// Whether the draft has facts about the object itself that the registry lacks, and that no item has carried yet.
    object_news: bool,
    /// Dates to come that the item of the draft has together with its state.
    dates: VisibilityDates,
    /// Whether the draft has the result of a later lookup for an event, and another event came after that one.
    is_outdated: bool,
    policy: &'a SourcePolicy,
    confirmations: Confirmations,
    items: Vec<ContentItemModification>,
    /// Notes about each of `items`.
    notes: Vec<ItemNotes>,
}

impl DraftSettler<'_> {
    fn item(&mut self, item: DraftItem) {
        let DraftItem { id, uri, change } = item;
        match change {
            DraftChange::Reported(ItemChange::State { before, after }) => self.state(id, uri, before, after),
            DraftChange::Reported(ItemChange::Delete { before, after }) => self.delete(id, uri, before, after),
            DraftChange::Reported(ItemChange::Update { content, before, after }) => {
                let before = before.or_else(|| self.state_before(&uri));
                self.push(id, uri, ItemChange::Update { content, before, after }, ItemNotes::default());
            }
            DraftChange::Reported(add @ ItemChange::Add { .. }) => self.push(id, uri, add, ItemNotes::default()),
            DraftChange::AddOrUpdate { content, initial_state } => {
                self.add_or_update(id, uri, content, initial_state, None);
            }
            DraftChange::AddOrUpdateWithState { content, state } => {
                self.add_or_update(id, uri, content, None, Some(state));
            }
            DraftChange::Present { content, state } => self.present(id, uri, content, state),
            DraftChange::Redigested { content, former } => {
                let known = ContentLocation { digest: Some(former), ..content.clone() };
                let content = if self.has_content(&uri, &known) { known } else { content };
                self.present(id, uri, Some(content), None);
            }
            DraftChange::Absent => self.absent(id, uri),
            DraftChange::Crawled { content, state, at } => self.crawled(id, uri, content, state, at),
            DraftChange::Copied { original, copy } => self.copied(id, uri, &original, copy),
            DraftChange::FollowUp(change) => self.follow_up(id, uri, change, None, None),
            DraftChange::FollowUpTo { reported, change } => self.follow_up(id, uri, change, Some(&reported), None),
            DraftChange::Activity { after, over } => self.activity(id, uri, after, over),
            DraftChange::Dated { change, dates } => self.dated(id, uri, *change, dates),
            DraftChange::Restricted { change, dates } => self.restricted(id, uri, *change, dates),
            DraftChange::Due => self.due(id, uri),
            DraftChange::Properties { after } => self.properties(id, uri, after),
        }
    }

    fn state(&mut self, id: Option<ItemId>, uri: Uri, reported_before: Option<State>, after: State) {
        // No subscriber has seen a state that only a crawl has found, so it is news even if the registry has it.
        let is_unannounced = |state: &State| *state == after && self.registered.is_unannounced(&uri);
        let known_before = self.state_before(&uri).filter(|before| !is_unannounced(before));
        let reports_no_change = reported_before.as_ref() == Some(&after);
        if self.has_other_dates(&uri) {
            let before = reported_before.or(known_before);
            return self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default());
        }
        if known_before.as_ref() == Some(&after) && (reported_before.is_none() || reports_no_change) {
            return self.confirm(uri, &[Aspect::Existence, Aspect::State]);
        }
        if reports_no_change && known_before.is_none() {
            return;
        }
        let before = reported_before.filter(|_| !reports_no_change).or(known_before);
        self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default());
    }

    fn delete(&mut self, id: Option<ItemId>, uri: Uri, before: Option<State>, after: Option<State>) {
        if self.registered.is_gone(&uri) && !self.is_late(&uri, Aspect::Existence) {
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
        initial_state: Option<State>,
        state: Option<State>,
    ) {
        let exists = self.registered.is_live(&uri) || self.is_late(&uri, Aspect::Existence);
        let change = if exists {
            let before = self.state_before(&uri);
            let has_other_dates = self.has_other_dates(&uri);
            let after = state.filter(|state| has_other_dates || before.as_ref() != Some(state));
            ItemChange::Update { content, before, after }
        } else {
            ItemChange::Add { content, after: state.or_else(|| initial_state.clone()) }
        };
        self.push(id, uri, change, ItemNotes { inferred: true, initial_state, ..ItemNotes::default() });
    }

    fn activity(&mut self, id: Option<ItemId>, uri: Uri, after: State, over: &[State]) {
        let is_over = self.registered.state(&uri).is_some_and(|state| over.contains(state));
        let is_newer = self.dated && self.registered.is_newer(&uri, Aspect::State, self.order);
        if !is_over || is_newer {
            self.state(id, uri, None, after);
        }
    }

    fn present(&mut self, id: Option<ItemId>, uri: Uri, content: Option<ContentLocation>, state: Option<State>) {
        if !self.registered.is_live(&uri) {
            return self.push(id, uri, ItemChange::Add { content, after: state }, ItemNotes::default());
        }
        let before = self.state_before(&uri);
        let aspects: &[_] = match state {
            Some(_) => &[Aspect::Existence, Aspect::Content, Aspect::State],
            None => &[Aspect::Existence, Aspect::Content],
        };
        let has_other_dates = self.has_other_dates(&uri);
        let after = state.filter(|state| has_other_dates || before.as_ref() != Some(state));
        let content = content.filter(|content| !self.has_content(&uri, content));
        let change = match (content, after) {
            (None, None) => return self.confirm(uri, aspects),
            (None, Some(after)) => ItemChange::State { before, after },
            (content, after) => ItemChange::Update { content, before, after },
        };
        self.push(id, uri, change, ItemNotes::default());
    }

    /// Settles the listed items, and the absence of all others.
    fn complete(&mut self, items: Vec<DraftItem>) {
        let listed: BTreeSet<Uri> = items.iter().map(|item| item.uri.clone()).collect();
        items.into_iter().for_each(|item| self.item(item));
        let registered = self.registered;
        registered.items.keys().filter(|uri| !listed.contains(*uri)).for_each(|uri| self.absent(None, uri.clone()));
    }

    /// Ignores an item that the registry has never had, because no subscriber has heard of it.
    fn absent(&mut self, id: Option<ItemId>, uri: Uri) {
        if self.registered.is_live(&uri) || self.registered.is_gone(&uri) {
            self.delete(id, uri, None, None);
        }
    }

    /// Adds the facts that are newer than those of the registry. A deletion that is at least as new as the crawl's date
    /// stays.
    fn crawled(
        &mut self,
        id: Option<ItemId>,
        uri: Uri,
        content: Option<ContentLocation>,
        state: Option<State>,
        at: Timestamp,
    ) {
        let registered = self.registered;
        let is_newer = |aspect| registered.is_newer(&uri, aspect, at);
        let before = registered.state(&uri).cloned();
        if !registered.is_live(&uri) {
            if is_newer(Aspect::Existence) {
                self.push(id, uri, ItemChange::Add { content, after: state }, ItemNotes::default());
            }
            return;
        }
        let says_nothing = |state: &State| is_public(Some(state)) && registered.is_decided_by_dates(&uri);
        let is_news = |state: &State| before.as_ref() != Some(state) && !says_nothing(state);
        let after = state.filter(|state| is_news(state) && is_newer(Aspect::State));
        let content = content.filter(|content| !self.has_content(&uri, content) && is_newer(Aspect::Content));
        match (content, after) {
            (None, None) => {}
            (None, Some(after)) => self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default()),
            (content, after) => {
                self.push(id, uri, ItemChange::Update { content, before, after }, ItemNotes::default());
            }
        }
    }

    fn properties(&mut self, id: Option<ItemId>, uri: Uri, after: Option<State>) {
        let before = self.state_before(&uri);
        match after {
            Some(after) if before.as_ref() != Some(&after) || self.has_other_dates(&uri) => {
                self.push(id, uri, ItemChange::State { before, after }, ItemNotes::default());
            }
            after if self.policy.metadata_changes => {
                self.push(id, uri, ItemChange::Update { content: None, before, after }, ItemNotes::default());
            }
            Some(_) => self.confirm(uri, &[Aspect::Existence, Aspect::State]),
            None if self.registered.is_live(&uri) => self.confirm(uri, &[Aspect::Existence]),
            None => {}
        }
    }

    /// Adds a DELETE for every item that existed at the time of the purge. If the registry knows none, the DELETE
    /// names the object itself, unless the registry already has the purge.
    fn purge(&mut self, object: &Uri) {
        let registered = self.registered;
        let listed = registered.live_items().filter(|(uri, _)| !registered.is_late(uri, Aspect::Existence, self.order));
        let listed: Vec<Uri> = listed.map(|(uri, _)| uri.clone()).collect();
        let purged = registered.purged.latest();
        let is_known = purged.is_some() && purged <= Some(self.order);
        if listed.is_empty() && is_known && registered.live_items().next().is_none() {
            self.confirmations.purged = true;
            return;
        }
        let listed = if listed.is_empty() { vec![object.clone()] } else { listed };
        for uri in listed {
            let before = self.state_before(&uri);
            self.push(None, uri, ItemChange::Delete { before, after: None }, ItemNotes::default());
        }
    }

    /// Takes over the items that another gateway has settled.
    fn relayed(&mut self, items: NonEmpty<DraftItem>, settlement: &Settlement) {
        for (index, DraftItem { id, uri, change }) in items.into_vec().into_iter().enumerate() {
            match change {
                // The other gateway makes the changes that come due.
                DraftChange::Reported(change) => {
                    let notes = settlement.item(index);
                    self.push(
                        id,
                        uri,
                        change,
                        ItemNotes { dates: VisibilityDates::NONE, denies: None, came: None, ..notes },
                    );
                }
                change => self.item(DraftItem { id, uri, change }),
            }
        }
    }

    /// Adds an item to the change. Facts that are older than those of the registry are late, besides those of the notes.
    fn push(&mut self, id: Option<ItemId>, uri: Uri, change: ItemChange, notes: ItemNotes) {
        let late = aspects_of(&change).filter(|aspect| self.is_late(&uri, *aspect));
        let late: AspectSet = late.chain(notes.late.iter()).collect();
        // A deleted item has no dates, whatever its source says of the state: they would bring it back.
        let is_delete = matches!(change, ItemChange::Delete { .. });
        let has_dates = !is_delete && change.after().is_some() && !self.dates.is_empty();
        let dates = if has_dates { self.dates } else { notes.dates };
        let denies = self.denied_by(&uri, &change).filter(|_| !late.contains(Aspect::State)).or(notes.denies);
        let notes = ItemNotes { dates, denies, ..notes };
        self.items.push(ContentItemModification { id: id.unwrap_or_else(ItemId::mint), uri, change });
        self.notes.push(ItemNotes { late, ..notes });
    }

    fn confirm(&mut self, uri: Uri, aspects: &[Aspect]) {
        let aspects: AspectSet = aspects.iter().copied().collect();
        self.confirmations.items.push((uri, aspects));
    }

    /// Returns the state in the registry unless the event is late, because the registry has no earlier states.
    fn state_before(&self, uri: &Uri) -> Option<State> {
        let state = self.registered.state(uri).filter(|_| !self.is_late(uri, Aspect::State));
        state.cloned()
    }

    /// Returns whether the registry has exactly this content location for the item, or a copy of it.
    fn has_content(&self, uri: &Uri, content: &ContentLocation) -> bool {
        self.registered.content(uri).is_some_and(|registered| {
            registered == content || registered.parse().is_ok_and(|registered| registered.is_copy_of(content))
        })
    }

    fn is_late(&self, uri: &Uri, aspect: Aspect) -> bool {
        self.registered.is_late(uri, aspect, self.order)
    }
}

/// Returns the aspects of an item that a change affects.
fn aspects_of(change: &ItemChange) -> impl Iterator<Item = Aspect> + use<> {
    let adds_or_deletes = matches!(change, ItemChange::Add { .. } | ItemChange::Delete { .. });
    let content = adds_or_deletes || change.content().is_some();
    let state = adds_or_deletes || change.after().is_some();
    [(Aspect::Existence, true), (Aspect::Content, content), (Aspect::State, state)]
        .into_iter()
        .filter_map(|(aspect, is_affected)| is_affected.then_some(aspect))
}

#[cfg(test)]
mod tests;
