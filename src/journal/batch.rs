//! Settling a batch: the questions of its drafts to the store, and the rows that it writes.
//!
//! Each draft is settled on the facts that the store knows and on the drafts before it in the same batch.

use std::collections::hash_map::Entry;

use bytes::Bytes;
use foldhash::{HashMap, HashSet};

use super::{
    bounds::ChangeBounds,
    json_of,
    order::{KnownKey, Outcome, Submission},
    registry::ObjectState,
    seed::{Filled, Seeded, Seeding, Walk},
    settle::{Settled, SourcePolicy, settle},
    sight::Before,
    store::{
        Decision, EventKey, ItemsAsked, Known, KnownObject, NewChange, Questions, Seed, StoreError, TouchedObject,
    },
};
use crate::model::{
    Aspect, Change, ChangeId, ContentObjectModification, Draft, DraftItems, FoundObject, ItemChange, LookupMark, Seq,
    Settlement, Sight, SubscriptionName, Timestamp, Untold, Uri,
};

/// A batch that is settled.
#[derive(Debug)]
pub(super) struct Batch {
    /// What is to be written.
    pub(super) decision: Decision,
    /// What became of each draft, by submission.
    pub(super) outcomes: Vec<Vec<Outcome>>,
    /// What became of each part of a walk.
    pub(super) seeded: Vec<Seeded>,
}

/// What must be known before these can be settled.
pub(super) fn questions(submissions: &[Submission], seedings: &[Seeding]) -> Questions {
    let mut questions = Questions::default();
    let told = seedings.iter().map(|seeding| &seeding.submission);
    let told = submissions.iter().chain(told);
    let drafts = told.clone().map(|submission| submission.drafts.len()).sum();
    questions.keys.reserve(drafts);
    questions.objects.reserve(drafts);
    let all = told.flat_map(|submission| {
        let remembered = submission.known_key != KnownKey::Same;
        submission.drafts.iter().map(move |(key, draft)| (remembered, key, draft))
    });
    for (remembered, key, draft) in all {
        questions.keys.extend(*key);
        questions.unchanged.extend(key.filter(|_| remembered));
        questions.ids.extend(draft.id);
        let asked = match &draft.items {
            DraftItems::Purge => {
                questions.keys.extend(key.map(|key| key.part(1)));
                ItemsAsked::All
            }
            DraftItems::Listed(items) => ItemsAsked::these(items.iter().map(|item| item.uri.clone())),
        };
        questions.ask(&draft.object, asked);
    }
    for found in seedings.iter().flat_map(|seeding| &seeding.found) {
        questions.ask(&found.object, ItemsAsked::these(found.items.iter().map(|item| item.uri.clone())));
    }
    questions
}

/// The keys of purges, which may have been journaled as several changes.
pub(super) fn purge_keys(submissions: &[Submission], seedings: &[Seeding]) -> Vec<EventKey> {
    let told = submissions.iter().chain(seedings.iter().map(|seeding| &seeding.submission));
    let drafts = told.flat_map(|submission| &submission.drafts);
    drafts.filter(|(_, draft)| draft.items == DraftItems::Purge).filter_map(|(key, _)| *key).collect()
}

/// What a batch is settled on.
#[derive(Debug)]
pub(super) struct Ground {
    /// The answers of the store.
    pub(super) known: Known,
    /// Bounds on one change and on one object.
    pub(super) bounds: ChangeBounds,
    /// The gateway's clock.
    pub(super) now: Timestamp,
}

impl Questions {
    fn ask(&mut self, object: &Uri, asked: ItemsAsked) {
        match self.objects.entry(object.clone()) {
            Entry::Occupied(mut held) => held.get_mut().widen(asked),
            Entry::Vacant(free) => {
                free.insert(asked);
            }
        }
    }
}

impl Batch {
    /// Settles drafts on what is known.
    ///
    /// # Errors
    /// When what is known cannot be read: the journal is damaged.
    pub(super) fn settle(
        submissions: Vec<Submission>,
        seedings: Vec<Seeding>,
        cursors: Vec<(SubscriptionName, Seq)>,
        ground: Ground,
    ) -> Result<Self, StoreError> {
        let told = seedings.iter().map(|seeding| &seeding.submission);
        let drafts = submissions.iter().chain(told).map(|submission| submission.drafts.len()).sum();
        let mut settling = Settlements::new(ground, drafts);
        let outcomes: Result<_, _> =
            submissions.into_iter().map(|submission| settling.submission(submission)).collect();
        let outcomes = outcomes?;
        let seeded = settling.seedings(seedings)?;
        Ok(settling.batch(outcomes, seeded, cursors))
    }
}

/// A batch while it is settled.
struct Settlements {
    head: Seq,
    received: Timestamp,
    seen: HashMap<EventKey, (Seq, Option<ChangeId>)>,
    known_unchanged: HashSet<EventKey>,
    taken: HashSet<ChangeId>,
    objects: HashMap<Uri, Settling>,
    bounds: ChangeBounds,
    changes: Vec<NewChange>,
    unchanged: Vec<EventKey>,
    seeds: Vec<Seed>,
    walks: Vec<Walk>,
    completed: Vec<Seq>,
}

/// An object, and what of it was touched.
#[derive(Default)]
struct Settling {
    state: ObjectState,
    /// Number of items that the registry has of it besides those in `state`, if the store has counted them.
    others: Option<usize>,
    /// Whether the object itself was touched.
    itself: bool,
    /// The items that were touched, perhaps some more than once.
    items: Vec<Uri>,
}

/// A change that is settled, before it has its number.
type Told = (ContentObjectModification, Settlement, Sight);

impl Settlements {
    fn new(ground: Ground, drafts: usize) -> Self {
        let Ground { known, bounds, now } = ground;
        let Known { head, received, mut seen, unchanged: known_unchanged, mut taken, objects } = known;
        // A clock that was set back must not make what comes now older than what came before.
        let received = received.map_or(now, |newest| newest.max(now));
        let settling = |(uri, KnownObject { state, others }): (Uri, KnownObject)| {
            (uri, Settling { state, others, ..Settling::default() })
        };
        let objects = objects.into_iter().map(settling).collect();
        seen.reserve(drafts);
        taken.reserve(drafts);
        let changes = Vec::with_capacity(drafts);
        let (unchanged, completed, seeds, walks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            head,
            received,
            seen,
            known_unchanged,
            taken,
            objects,
            bounds,
            changes,
            unchanged,
            completed,
            seeds,
            walks,
        }
    }

    fn submission(&mut self, submission: Submission) -> Result<Vec<Outcome>, StoreError> {
        let Submission { policy, drafts, known_key, completes } = submission;
        self.completed.extend(completes);
        let news = drafts.iter().filter(|(key, _)| key.and_then(|key| self.first(key)).is_none());
        let growth = news.filter_map(|(_, draft)| match &draft.items {
            DraftItems::Listed(items) => Some((&draft.object, items.iter().map(|item| &item.uri))),
            DraftItems::Purge => None,
        });
        if self.is_too_much(growth) {
            return Ok(vec![Outcome::TooManyItems; drafts.len()]);
        }
        let mut outcomes = Vec::with_capacity(drafts.len());
        for (key, draft) in drafts {
            self.draft(&policy, key, known_key, draft, &mut outcomes)?;
        }
        Ok(outcomes)
    }

    /// Whether an object would have more items than it may, with these.
    fn is_too_much<'a, I: Iterator<Item = &'a Uri>>(&self, growth: impl Iterator<Item = (&'a Uri, I)>) -> bool {
        let mut new: HashMap<&Uri, HashSet<&Uri>> = HashMap::default();
        for (object, items) in growth {
            let known = self.objects.get(object).map(|settling| &settling.state.items);
            let mut unknown = items.filter(|item| known.is_none_or(|known| !known.contains_key(*item))).peekable();
            if unknown.peek().is_some() {
                new.entry(object).or_default().extend(unknown);
            }
        }
        new.into_iter().any(|(object, items)| {
            let known =
                self.objects.get(object).map_or(0, |known| known.state.items.len() + known.others.unwrap_or_default());
            known + items.len() > self.bounds.object_items
        })
    }

    /// All that is told comes first, since a seed has its place after the changes of its batch.
    fn seedings(&mut self, seedings: Vec<Seeding>) -> Result<Vec<Seeded>, StoreError> {
        let mut seeded = Vec::with_capacity(seedings.len());
        let mut found = Vec::with_capacity(seedings.len());
        for seeding in seedings {
            let growth = seeding.found.iter().map(|found| (&found.object, found.items.iter().map(|item| &item.uri)));
            let is_too_much = self.is_too_much(growth);
            let outcomes = if is_too_much { Vec::new() } else { self.submission(seeding.submission)? };
            if is_too_much || outcomes.contains(&Outcome::TooManyItems) {
                seeded.push(Seeded { too_many_items: true, ..Seeded::default() });
                found.push(Vec::new());
                continue;
            }
            seeded.push(Seeded { outcomes, ..Seeded::default() });
            found.push(seeding.found);
            self.walks.push(seeding.walk);
        }
        for (seeded, found) in seeded.iter_mut().zip(found) {
            seeded.filled = found.iter().filter(|found| self.fill(found)).count();
        }
        Ok(seeded)
    }

    /// Takes over what was found of an object; says whether any of it was news.
    fn fill(&mut self, found: &FoundObject) -> bool {
        let settling = self.objects.entry(found.object.clone()).or_default();
        let filled = Filled::news(found, self.received, &settling.state);
        if filled.is_empty() {
            return false;
        }
        settling.state.fill(&filled);
        settling.itself |= filled.is_of_the_object();
        settling.items.extend(filled.items().cloned());
        self.seeds.push(Seed { object: found.object.clone(), filled });
        true
    }

    fn draft(
        &mut self,
        policy: &SourcePolicy,
        key: Option<EventKey>,
        known_key: KnownKey,
        mut draft: Draft,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), StoreError> {
        let first = key.and_then(|key| self.first(key));
        if let Some(first) = first.filter(|_| known_key != KnownKey::RememberedUnlessNews) {
            let is_purge = draft.items == DraftItems::Purge;
            let parts = key.filter(|_| is_purge).into_iter().flat_map(|key| (1..).map(move |part| key.part(part)));
            outcomes.push(first);
            outcomes.extend(parts.map_while(|part| self.first(part)));
            return Ok(());
        }
        // An identifier that another event has taken is not this one's, whatever its source says.
        draft.id = draft.id.filter(|id| !self.taken.contains(id));
        let settling = self.objects.entry(draft.object.clone()).or_default();
        let untold = draft.lookup.untold;
        let settled = settle(draft, policy, self.received, &settling.state);
        if let Some(first) = first.filter(|_| !settled.change.as_ref().is_some_and(is_news)) {
            outcomes.push(first);
            return Ok(());
        }
        let parts = settling.take_over(settled, &self.bounds)?;
        if parts.is_empty() {
            let new = key.filter(|key| known_key != KnownKey::Same && self.known_unchanged.insert(*key));
            self.unchanged.extend(new);
            outcomes.push(Outcome::Unchanged);
        }
        let last = parts.len().saturating_sub(1);
        for (part, (modification, settlement, sight)) in parts.into_iter().enumerate() {
            self.head = self.head.next();
            let is_incomplete = untold != Untold::Nothing && settlement.lookup == Some(LookupMark::Incomplete);
            let incomplete = Some(untold).filter(|_| is_incomplete && part == last);
            let key = key.map(|key| if part == 0 { key } else { key.part(part) });
            let change = Change { seq: self.head, received: self.received, modification, settlement };
            outcomes.push(self.number(key, change, &sight, incomplete));
        }
        Ok(())
    }

    /// What became of the event when it was first told, if it is known.
    fn first(&self, key: EventKey) -> Option<Outcome> {
        let changed = self.seen.get(&key).map(|(seq, id)| Outcome::Duplicate { seq: *seq, id: *id });
        changed.or_else(|| self.known_unchanged.contains(&key).then_some(Outcome::Unchanged))
    }

    fn number(&mut self, key: Option<EventKey>, change: Change, sight: &Sight, incomplete: Option<Untold>) -> Outcome {
        let (seq, id) = (change.seq, change.modification.id);
        self.taken.insert(id);
        // Of one event that was told twice the first is remembered.
        let key = key.filter(|key| !self.seen.contains_key(key));
        if let Some(key) = key {
            self.seen.insert(key, (seq, Some(id)));
        }
        let json = Bytes::from(json_of(&change));
        let sight = (!sight.is_empty()).then(|| Bytes::from(json_of(sight)));
        self.changes.push(NewChange { change, json, sight, key, incomplete });
        Outcome::Accepted { seq, id }
    }

    fn batch(self, outcomes: Vec<Vec<Outcome>>, seeded: Vec<Seeded>, cursors: Vec<(SubscriptionName, Seq)>) -> Batch {
        let is_touched = |(_, settling): &(Uri, Settling)| settling.itself || !settling.items.is_empty();
        let mut touched: Vec<_> = self.objects.into_iter().filter(is_touched).collect();
        touched.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let object = |(uri, Settling { state, others, itself, items })| {
            let item_count = others.map(|others| others + state.items.len());
            TouchedObject { uri, itself, state, items: items.into_iter().collect(), item_count }
        };
        let objects = touched.into_iter().map(object).collect();
        let Self { changes, unchanged, received, completed, seeds, walks, .. } = self;
        let decision = Decision { changes, unchanged, received, objects, cursors, completed, seeds, walks };
        Batch { decision, outcomes, seeded }
    }
}

impl Settling {
    /// Takes over what a draft of this object says; gives the changes that tell it, in order.
    fn take_over(&mut self, settled: Settled, bounds: &ChangeBounds) -> Result<Vec<Told>, StoreError> {
        let state = &mut self.state;
        let Settled { change, confirmations, order } = settled;
        state.confirm(order, &confirmations);
        self.itself |= confirmations.purged;
        self.items.extend(confirmations.items.into_iter().map(|(uri, _)| uri));
        let Some((modification, settlement)) = change else { return Ok(Vec::new()) };
        let parts = bounds.divide(modification, settlement).into_iter();
        let part = |(modification, settlement)| {
            let before = Before::of(state, &modification, &settlement);
            state.apply(order, &modification, &settlement);
            let sight = before.note(state, &modification, &settlement)?;
            self.itself |= ObjectState::is_told_by(&modification, &settlement);
            self.items.extend(modification.items.iter().map(|item| item.uri.clone()));
            Ok((modification, settlement, sight))
        };
        parts.map(part).collect()
    }
}

/// Whether a state is told that is not the one before, and not too late.
fn is_news((modification, settlement): &(ContentObjectModification, Settlement)) -> bool {
    modification.items.iter().enumerate().any(|(index, item)| {
        let on_time = !settlement.item(index).late.contains(Aspect::State);
        on_time && matches!(item.change, ItemChange::State { .. })
    })
}

#[cfg(test)]
mod tests;
