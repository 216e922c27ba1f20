//! Settling a batch: the keys and rows that its drafts need from the store, and the rows that it writes.
//!
//! The batch settles each draft against the registry rows from the store, as changed by the drafts before it.

mod former_spelling;
mod object;
mod repeats;

use std::collections::hash_map::Entry;

use bytes::Bytes;
use foldhash::{HashMap, HashSet};

use self::{former_spelling::SpellingNotes, object::ObjectInBatch, repeats::is_news};
use super::{
    acceptance::AcceptanceTime,
    bounds::ChangeBounds,
    command::{AppendGroup, DraftOutcome, DuplicatePolicy, Submission},
    harvest::{HarvestProgress, Progress, SourcePosition},
    ingest::IngestJob,
    json_of,
    registry::ObjectState,
    seed::{CrawlPart, CrawlPartOutcome, CrawlProgress, RegistryDelta},
    settle::{ReceiptClock, SourcePolicy, settle},
    store::{
        EventKey, FirstChange, ItemSelection, NewChange, ObjectUpdate, PrefetchKeys, PrefetchedObject, PrefetchedRows,
        Seed, StoreError, WriteBatch,
    },
    subscriptions::CursorAdvance,
};
use crate::model::{
    Change, ChangeId, CrawledObject, Draft, LookupMark, MissingFacts, Seq, SourceName, Timestamp, Uri, VisibilityNotes,
};

/// A settled batch.
#[derive(Debug)]
pub(super) struct SettledBatch {
    /// Rows to write.
    pub(super) writes: WriteBatch,
    /// Outcomes of the drafts of each submission.
    pub(super) outcomes: Vec<Vec<DraftOutcome>>,
    /// Outcome of each part of a crawl.
    pub(super) crawl_outcomes: Vec<CrawlPartOutcome>,
    /// Notes about former spellings.
    pub(super) spellings: SpellingNotes,
}

/// Facts that a batch is settled against.
#[derive(Debug)]
pub(super) struct BatchContext {
    /// Rows from the store.
    pub(super) prefetched: PrefetchedRows,
    /// Bounds on one change and on one object.
    pub(super) bounds: ChangeBounds,
    /// Time by the gateway's clock.
    pub(super) now: Timestamp,
    /// Earliest time of acceptance that the batch may have.
    pub(super) earliest: AcceptanceTime,
}

/// Returns the keys of all rows that these submissions and parts of crawls need.
pub(super) fn prefetch_keys(submissions: &[Submission], crawl_parts: &[CrawlPart]) -> PrefetchKeys {
    let mut keys = PrefetchKeys::default();
    let submissions = submissions.iter().chain(crawl_parts.iter().map(|part| &part.submission));
    let drafts = submissions.clone().map(|submission| submission.drafts.len()).sum();
    keys.keys.reserve(drafts);
    keys.objects.reserve(drafts);
    let drafts = submissions.flat_map(|submission| {
        let remembers_all = submission.duplicate_policy.remembers_all();
        submission.drafts.iter().map(move |(key, draft)| (remembers_all, key, draft))
    });
    for (remembers_all, key, draft) in drafts {
        keys.keys.extend(*key);
        keys.unchanged.extend(key.filter(|_| remembers_all));
        keys.ids.extend(draft.id);
        let selection = if draft.items.concerns_all() {
            keys.keys.extend(key.map(|key| key.part(1)));
            ItemSelection::All
        } else {
            ItemSelection::these(draft.items.listed().iter().map(|item| item.uri.clone()))
        };
        keys.select(&draft.object, selection);
        keys.select_former(draft);
    }
    for object in crawl_parts.iter().flat_map(|part| &part.crawled) {
        keys.select(&object.object, ItemSelection::these(object.items.iter().map(|item| item.uri.clone())));
    }
    keys
}

/// Returns the keys of drafts that concern all items of an object, because the journal may have divided such a draft into
/// several changes.
pub(super) fn purge_keys(submissions: &[Submission], crawl_parts: &[CrawlPart]) -> Vec<EventKey> {
    let submissions = submissions.iter().chain(crawl_parts.iter().map(|part| &part.submission));
    let drafts = submissions.flat_map(|submission| &submission.drafts);
    drafts.filter(|(_, draft)| draft.items.concerns_all()).filter_map(|(key, _)| *key).collect()
}

impl PrefetchKeys {
    fn select(&mut self, object: &Uri, selection: ItemSelection) {
        match self.objects.entry(object.clone()) {
            Entry::Occupied(mut selected) => selected.get_mut().widen(selection),
            Entry::Vacant(free) => {
                free.insert(selection);
            }
        }
    }
}

impl SettledBatch {
    /// Settles drafts and crawled facts in order.
    ///
    /// # Errors
    /// Fails if a prefetched value cannot be parsed: the journal is damaged.
    pub(super) fn build(
        submissions: Vec<Submission>,
        appends: Vec<AppendGroup>,
        crawl_parts: Vec<CrawlPart>,
        cursors: Vec<CursorAdvance>,
        context: BatchContext,
    ) -> Result<Self, StoreError> {
        let crawl_submissions = crawl_parts.iter().map(|part| &part.submission);
        let drafts = submissions.iter().chain(crawl_submissions).map(|submission| submission.drafts.len()).sum();
        let mut settler = BatchSettler::new(context, drafts);
        let outcomes: Result<Vec<_>, _> =
            submissions.into_iter().map(|submission| settler.submission(submission)).collect();
        let outcomes = outcomes?;
        let crawl_outcomes = settler.crawl_parts(crawl_parts)?;
        let progress = SourceProgress::of(appends, &outcomes);
        Ok(settler.finish(outcomes, crawl_outcomes, cursors, progress))
    }
}

/// Progress of the sources whose messages a batch contains.
#[derive(Default)]
struct SourceProgress {
    harvests: Vec<HarvestProgress>,
    positions: Vec<SourcePosition>,
    jobs: Vec<IngestJob>,
}

impl SourceProgress {
    /// Returns the progress of these appends, that of harvests with the changes that their pages made. Where a message was
    /// refused, the caller writes the progress when the quarantine has the message.
    fn of(appends: Vec<AppendGroup>, outcomes: &[Vec<DraftOutcome>]) -> Self {
        let (mut outcomes, mut all) = (outcomes.iter(), Self::default());
        for AppendGroup { submissions, progress, .. } in appends {
            let (mut changes, mut is_refused) = (0, false);
            for outcome in outcomes.by_ref().take(submissions).flatten() {
                changes += u64::from(matches!(outcome, DraftOutcome::Accepted { .. }));
                is_refused |= outcome.is_refusal();
            }
            match progress.filter(|_| !is_refused) {
                Some(Progress::Harvest(mut progress)) => {
                    progress.run.counts.changes += changes;
                    all.harvests.push(*progress);
                }
                Some(Progress::Position(position)) => all.positions.push(position),
                Some(Progress::Jobs(progress)) => {
                    all.positions.push(progress.position);
                    all.jobs.extend(progress.jobs);
                }
                None => {}
            }
        }
        all
    }
}

/// State of a batch while its drafts are settled.
struct BatchSettler {
    head: Seq,
    clock: ReceiptClock,
    accepted: AcceptanceTime,
    /// First change of each event that the store or this batch has.
    first_changes: HashMap<EventKey, (Seq, Option<FirstChange>)>,
    /// Keys of events without effect, from the store and from this batch.
    unchanged: HashSet<EventKey>,
    used_ids: HashSet<ChangeId>,
    objects: HashMap<Uri, ObjectInBatch>,
    bounds: ChangeBounds,
    changes: Vec<NewChange>,
    /// Keys of events without effect that only this batch has.
    new_unchanged: Vec<EventKey>,
    seeds: Vec<Seed>,
    crawls: Vec<CrawlProgress>,
    completed: Vec<Seq>,
    spellings: SpellingNotes,
}

impl BatchSettler {
    fn new(context: BatchContext, drafts: usize) -> Self {
        let BatchContext { prefetched, bounds, now, earliest } = context;
        let PrefetchedRows { head, received, accepted, mut first_changes, unchanged, mut used_ids, objects, .. } =
            prefetched;
        // Times of receipt never decrease, even if the clock was set back.
        let received = received.map_or(now, |newest| newest.max(now));
        let accepted = AcceptanceTime::of_batch(received, accepted).max(earliest);
        let object = |(uri, PrefetchedObject { state, other_items }): (Uri, PrefetchedObject)| {
            (uri, ObjectInBatch { state, other_items, ..ObjectInBatch::default() })
        };
        let objects = objects.into_iter().map(object).collect();
        first_changes.reserve(drafts);
        used_ids.reserve(drafts);
        let changes = Vec::with_capacity(drafts);
        let (new_unchanged, completed, seeds, crawls) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            head,
            clock: ReceiptClock { received, now },
            accepted,
            first_changes,
            unchanged,
            used_ids,
            objects,
            bounds,
            changes,
            new_unchanged,
            completed,
            seeds,
            crawls,
            spellings: SpellingNotes::default(),
        }
    }

    fn submission(&mut self, submission: Submission) -> Result<Vec<DraftOutcome>, StoreError> {
        let Submission { policy, mut drafts, duplicate_policy, completes } = submission;
        self.completed.extend(completes);
        drafts.iter_mut().for_each(|(_, draft)| self.keep_former_spellings(draft));
        if let Some(seq) = drafts.iter().find_map(|(key, draft)| self.other_object(*key, draft)) {
            return Ok(vec![DraftOutcome::OtherObject { seq }; drafts.len()]);
        }
        let is_repeat = |key: &EventKey| duplicate_policy.drops_all_repeats() && self.earlier_outcome(*key).is_some();
        let new = drafts.iter().filter(|(key, _)| !key.as_ref().is_some_and(is_repeat));
        let listed_items = new.map(|(_, draft)| (&draft.object, draft.items.listed().iter().map(|item| &item.uri)));
        if self.exceeds_item_bound(listed_items) {
            return Ok(vec![DraftOutcome::TooManyItems; drafts.len()]);
        }
        let mut outcomes = Vec::with_capacity(drafts.len());
        for (key, draft) in drafts {
            let retired = self.retired_object(&draft);
            self.draft(&policy, key, duplicate_policy, draft, &mut outcomes)?;
            if let Some(retired) = retired {
                self.draft(&policy, None, duplicate_policy, retired, &mut outcomes)?;
            }
        }
        Ok(outcomes)
    }

    /// Returns whether these items would bring an object beyond its maximum number of items.
    fn exceeds_item_bound<'a, I: Iterator<Item = &'a Uri>>(
        &self,
        listed_items: impl Iterator<Item = (&'a Uri, I)>,
    ) -> bool {
        let mut new_items: HashMap<&Uri, HashSet<&Uri>> = HashMap::default();
        for (object, items) in listed_items {
            let existing = self.objects.get(object).map(|object| &object.state.items);
            let mut new = items.filter(|item| existing.is_none_or(|existing| !existing.contains_key(*item))).peekable();
            if new.peek().is_some() {
                new_items.entry(object).or_default().extend(new);
            }
        }
        new_items.into_iter().any(|(object, new)| {
            let existing = self.objects.get(object);
            let count = |object: &ObjectInBatch| object.state.items.len() + object.other_items.unwrap_or_default();
            existing.map_or(0, count) + new.len() > self.bounds.object_items
        })
    }

    /// Settles the drafts of all parts before it seeds the registry, because a seed is ordered after the changes of its
    /// batch.
    fn crawl_parts(&mut self, parts: Vec<CrawlPart>) -> Result<Vec<CrawlPartOutcome>, StoreError> {
        let mut part_outcomes = Vec::with_capacity(parts.len());
        let mut crawled = Vec::with_capacity(parts.len());
        for part in parts {
            let listed_items =
                part.crawled.iter().map(|object| (&object.object, object.items.iter().map(|item| &item.uri)));
            let exceeds_bound = self.exceeds_item_bound(listed_items);
            let outcomes = if exceeds_bound { Vec::new() } else { self.submission(part.submission)? };
            if exceeds_bound || outcomes.iter().any(DraftOutcome::is_refusal) {
                part_outcomes.push(CrawlPartOutcome { too_many_items: true, ..CrawlPartOutcome::default() });
                crawled.push((part.progress.source, Vec::new()));
                continue;
            }
            part_outcomes.push(CrawlPartOutcome { outcomes, ..CrawlPartOutcome::default() });
            crawled.push((part.progress.source.clone(), part.crawled));
            self.crawls.push(part.progress);
        }
        for (outcome, (source, crawled)) in part_outcomes.iter_mut().zip(crawled) {
            outcome.updated_objects = crawled.iter().filter(|object| self.seed(&source, object)).count();
        }
        Ok(part_outcomes)
    }

    /// Applies the new facts about a crawled object; returns whether there were any.
    fn seed(&mut self, source: &SourceName, crawled: &CrawledObject) -> bool {
        let object = self.objects.entry(crawled.object.clone()).or_default();
        let delta = RegistryDelta::from_crawl(source, crawled, self.clock.received, &object.state);
        if delta.is_empty() {
            return false;
        }
        object.apply_delta(&delta);
        self.seeds.push(Seed { object: crawled.object.clone(), delta });
        true
    }

    fn draft(
        &mut self,
        policy: &SourcePolicy,
        key: Option<EventKey>,
        duplicate_policy: DuplicatePolicy,
        mut draft: Draft,
        outcomes: &mut Vec<DraftOutcome>,
    ) -> Result<(), StoreError> {
        let is_compared = duplicate_policy != DuplicatePolicy::RememberForRedelivery;
        let earlier = key.filter(|_| is_compared).and_then(|key| self.earlier_outcome(key));
        if let Some(earlier) = earlier.filter(|_| duplicate_policy.drops_all_repeats()) {
            let may_have_parts = draft.items.concerns_all();
            let parts =
                key.filter(|_| may_have_parts).into_iter().flat_map(|key| (1..).map(move |part| key.part(part)));
            outcomes.push(earlier);
            outcomes.extend(parts.map_while(|part| self.earlier_outcome(part)));
            return Ok(());
        }
        let is_known = draft.id.is_some_and(|id| self.used_ids.contains(&id));
        if is_known && duplicate_policy == DuplicatePolicy::DropKnownChanges {
            outcomes.push(DraftOutcome::Unchanged);
            return Ok(());
        }
        // A change that repeats the identifier of another change gets a new one, whatever its source claims.
        draft.id = draft.id.filter(|id| !self.used_ids.contains(id));
        let object = self.objects.entry(draft.object.clone()).or_default();
        let missing = draft.lookup.missing;
        let settled = settle(draft, policy, self.clock, &object.state);
        if let Some(earlier) = earlier.filter(|_| !is_news(&settled, duplicate_policy, &object.state)) {
            outcomes.push(earlier);
            return Ok(());
        }
        let parts = object.apply(settled, &self.bounds)?;
        if parts.is_empty() {
            let new = key.filter(|key| duplicate_policy.remembers_all() && self.unchanged.insert(*key));
            self.new_unchanged.extend(new);
            outcomes.push(DraftOutcome::Unchanged);
        }
        let last = parts.len().saturating_sub(1);
        for (part, (modification, settlement, visibility)) in parts.into_iter().enumerate() {
            self.head = self.head.next();
            let is_incomplete = missing != MissingFacts::Nothing && settlement.lookup == Some(LookupMark::Incomplete);
            let incomplete = Some(missing).filter(|_| is_incomplete && part == last);
            let key = key.map(|key| if part == 0 { key } else { key.part(part) });
            let change = Change { seq: self.head, received: self.clock.received, modification, settlement };
            outcomes.push(self.append(key, change, &visibility, incomplete));
        }
        Ok(())
    }

    fn append(
        &mut self,
        key: Option<EventKey>,
        change: Change,
        visibility: &VisibilityNotes,
        incomplete: Option<MissingFacts>,
    ) -> DraftOutcome {
        let (seq, id) = (change.seq, change.modification.id);
        self.used_ids.insert(id);
        // A key stays with the first change of its event.
        let key = key.filter(|key| !self.first_changes.contains_key(key));
        if let Some(key) = key {
            let object = Some(change.modification.object.clone());
            self.first_changes.insert(key, (seq, Some(FirstChange { id, object })));
        }
        let json = Bytes::from(json_of(&change));
        let visibility = (!visibility.is_empty()).then(|| Bytes::from(json_of(visibility)));
        self.changes.push(NewChange { change, json, visibility, key, incomplete });
        DraftOutcome::Accepted { seq, id }
    }

    fn finish(
        self,
        outcomes: Vec<Vec<DraftOutcome>>,
        crawl_outcomes: Vec<CrawlPartOutcome>,
        cursors: Vec<CursorAdvance>,
        SourceProgress { harvests, positions, jobs }: SourceProgress,
    ) -> SettledBatch {
        let is_changed = |(_, object): &(Uri, ObjectInBatch)| object.object_changed || !object.changed_items.is_empty();
        let mut changed: Vec<_> = self.objects.into_iter().filter(is_changed).collect();
        changed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let update = |(uri, object)| {
            let ObjectInBatch { state, other_items, object_changed, news, changed_items } = object;
            let item_count = other_items.map(|other_items| other_items + state.items.len());
            let changed_items = changed_items.into_iter().collect();
            ObjectUpdate { uri, object_changed, news, state, changed_items, item_count }
        };
        let objects = changed.into_iter().map(update).collect();
        let (received, accepted) = (self.clock.received, self.accepted);
        let Self { changes, new_unchanged: unchanged, completed, seeds, crawls, spellings, .. } = self;
        let rows = WriteBatch { changes, unchanged, objects, cursors, completed, ..WriteBatch::nothing(received) };
        let writes = WriteBatch { accepted, seeds, crawls, harvests, positions, jobs, ..rows };
        SettledBatch { writes, outcomes, crawl_outcomes, spellings }
    }
}

#[cfg(test)]
mod tests;
