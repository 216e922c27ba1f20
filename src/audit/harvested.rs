//! An audit of a harvest: lists everything that the repository has, as a run does, and compares the records with the
//! registry.
//!
//! The list is read under another name, so that it knows nothing of former runs, and moves no mark. If anything differs, it
//! is read a second time, and only the same differences count. So a record that has other content in each response differs
//! in nothing. Of several records about an object the newest counts, as in a run. A kill begins the list anew.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem,
    sync::Arc,
    time::Duration,
};

use super::{
    compare,
    deletions::implausible_deletions,
    listed::{Differing, ExtraObject, ExtraObjects, Listed, TooMany},
    progress::{Progress, WalkError},
    report::{AuditRequest, Phase},
    walk::AuditStop,
};
use crate::{
    harvest::{HarvestError, HarvestedRecord, Harvester, Page, PageEnd, Sight, UnlistedObject},
    journal::{harvest::ListedCounts, registry::ObjectState},
    model::{Draft, DraftChange, DraftItems, ItemChange, Uri},
    retry::Backoff,
};

/// Number of failed attempts after which the audit fails.
pub(super) const MAX_ATTEMPTS: u32 = 5;

/// Maximum number of successive changes of the position without a page.
const MAX_DETOURS: u32 = 200;

/// Waits before a failed request is repeated.
pub(super) const FIRST_RETRY: Duration = Duration::from_secs(1);
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Number of objects of the registry that are read at a time.
const REGISTRY_PAGE: usize = 500;

/// A running audit of a harvest.
pub(super) struct HarvestWalk {
    pub(super) harvester: Arc<dyn Harvester>,
    pub(super) progress: Progress,
    max_deleted_percent: u64,
    /// Time after which a difference of a sample is looked at again.
    pub(super) pause: Duration,
}

impl HarvestWalk {
    pub(super) fn new(harvester: Arc<dyn Harvester>, progress: Progress, request: &AuditRequest) -> Self {
        let (max_deleted_percent, pause) = (request.max_deleted_percent, Duration::from_secs(request.pause));
        Self { harvester, progress, max_deleted_percent, pause }
    }

    /// Compares everything.
    pub(super) async fn run(mut self, stop: &AuditStop) -> Result<(), WalkError> {
        self.progress.begin().await?;
        let walked = stop.audit.run_until_cancelled(self.phases()).await.unwrap_or(Err(WalkError::Stopped));
        self.harvester.rest();
        self.progress.end(walked, stop.duty.is_cancelled()).await
    }

    async fn phases(&mut self) -> Result<(), WalkError> {
        // Nothing of an interrupted list or sample is known.
        self.progress.forget();
        if let Some(number) = self.progress.audit.report.sample {
            return self.look_at_sample(number).await;
        }
        self.progress.audit.report.phase = Phase::Repository;
        let begin = self.audit_position().await?;
        let first = self.list(begin.clone(), None).await?;
        self.progress.audit.report.unanswered = first.unreadable;
        let mut extra = self.unlisted(&first).await?;
        if first.differing.is_empty() && extra.is_empty() {
            return Ok(());
        }
        self.progress.audit.report.phase = Phase::Registry;
        self.progress.save().await?;
        let second = self.list(begin, Some(&first.differing)).await?;
        self.progress.audit.report.unanswered = first.unreadable.max(second.unreadable);
        self.confirm(&mut extra, &second).await?;
        self.judge_listed(&first.differing, second).await?;
        self.judge_unlisted(extra).await
    }

    /// Returns the position at which the audit begins.
    pub(super) async fn audit_position(&self) -> Result<String, WalkError> {
        let harvest = self.progress.journal.harvest(self.progress.source.name().clone()).await?;
        Ok(self.harvester.audit_position(harvest.as_ref().map_or("", |harvest| &harvest.position)))
    }

    /// Reads the list from its beginning. Without `again`, it notes the objects that differ; otherwise it notes the newest
    /// records about those of `again`.
    async fn list(&mut self, begin: String, again: Option<&Differing>) -> Result<Listed, WalkError> {
        let mut listed = Listed::new(begin);
        let (mut backoff, mut detours) = (Backoff::new(FIRST_RETRY, LONGEST_RETRY), 0);
        loop {
            match self.harvester.page(&listed.position, backoff.failures()).await {
                Ok(Page { records, position: next, end, listed: entries, .. }) => {
                    (backoff, detours) = (Backoff::new(FIRST_RETRY, LONGEST_RETRY), 0);
                    for record in records {
                        self.record(record, again, &mut listed).await?;
                    }
                    listed.note_entries(entries);
                    listed.position = next;
                    match end {
                        PageEnd::More => {}
                        PageEnd::Complete => {
                            self.note_gap(&mut listed);
                            return Ok(listed);
                        }
                        PageEnd::Failed(reason) => return Err(WalkError::Harvest(reason)),
                    }
                }
                Err(HarvestError::Retry { after, .. }) if backoff.failures() < MAX_ATTEMPTS => {
                    let wait = backoff.next_wait().max(after.unwrap_or_default());
                    tokio::time::sleep(wait).await;
                }
                Err(HarvestError::Continue { position: other, .. }) if detours < MAX_DETOURS => {
                    detours += 1;
                    listed.position = other;
                }
                Err(error) => return Err(WalkError::Harvest(error.to_string())),
            }
            self.progress.save_sometimes().await?;
        }
    }

    /// Notes whether a list that has ended may lack objects.
    fn note_gap(&self, listed: &mut Listed) {
        if let Some(reason) = self.harvester.gap(&listed.position) {
            tracing::warn!(source = %self.progress.source.name(), reason, "the list of an audit is not complete");
            (listed.unreadable, listed.has_gaps) = (listed.unreadable + 1, true);
        }
        listed.has_gaps |= listed.seen.is_full();
    }

    /// Notes a record.
    async fn record(
        &mut self,
        record: HarvestedRecord,
        again: Option<&Differing>,
        listed: &mut Listed,
    ) -> Result<(), WalkError> {
        let HarvestedRecord { message, listing } = record;
        let is_undelivered = listing.as_ref().is_some_and(|listing| listing.sight == Sight::Undelivered);
        let drafts = match message {
            None if !is_undelivered => return Ok(()),
            None => None,
            Some(message) => self.progress.source.drafts(message),
        };
        let Some(drafts) = drafts else {
            // It is perhaps about an object that the registry has.
            (listed.unreadable, listed.has_gaps) = (listed.unreadable + 1, true);
            return Ok(());
        };
        let date = listing.and_then(|listing| listing.date);
        // A record of another gateway has a draft for each time at which items of the object have changed.
        let mut newest: BTreeMap<Uri, Vec<Draft>> = BTreeMap::new();
        // An object of which a record says only that it is gone counts as one that is not listed, so the limit of deletions holds
        // for it.
        let existing: BTreeSet<_> =
            drafts.iter().filter(|draft| has_item(draft)).map(|draft| draft.object.clone()).collect();
        for draft in drafts.into_iter().filter(|draft| is_state(draft) && existing.contains(&draft.object)) {
            let is_new = !listed.seen.contains(&draft.object);
            listed.seen.insert(&draft.object);
            match again {
                None => {
                    self.progress.audit.report.objects += u64::from(is_new);
                    self.note_difference(draft, listed).await?;
                }
                Some(again) if again.contains_key(&draft.object) => {
                    newest.entry(draft.object.clone()).or_default().push(draft);
                }
                Some(_) => {}
            }
        }
        for (object, drafts) in newest {
            listed.note_newest(object, date, drafts).map_err(|TooMany| self.too_many())?;
        }
        Ok(())
    }

    /// Notes how a record of the first list differs.
    async fn note_difference(&self, draft: Draft, listed: &mut Listed) -> Result<(), WalkError> {
        let registered = self.progress.registered(&draft.object).await?;
        let object = draft.object.clone();
        let Some(change) = self.progress.preview(draft, &registered) else { return Ok(()) };
        let fingerprints = change.items.iter().map(compare::fingerprint);
        listed
            .note_difference(object, compare::state_mark(&registered), fingerprints)
            .map_err(|TooMany| self.too_many())
    }

    fn too_many(&self) -> WalkError {
        WalkError::Harvest(format!(
            "more objects differ than an audit can hold; list all records with `tidings harvests run {} --full`",
            self.progress.source.name()
        ))
    }

    /// Counts the differences that two lists had, and corrects them if the audit shall.
    async fn judge_listed(&mut self, first: &Differing, second: Listed) -> Result<(), WalkError> {
        let mut corrections = Vec::new();
        for (object, (_, drafts)) in second.newest {
            let registered = self.progress.registered(&object).await?;
            // A run, or a message, has reported the object since. It knows more than the list.
            let Some(first) = first.get(&object).filter(|first| first.state_mark == compare::state_mark(&registered))
            else {
                continue;
            };
            let is_same = |fingerprint| first.fingerprints.contains(&fingerprint);
            let mut differences = Vec::new();
            for draft in drafts {
                let Some(change) = self.progress.preview(draft.clone(), &registered) else { continue };
                let found = compare::differences(&change, &registered, |item| is_same(compare::fingerprint(item)));
                if !found.is_empty() && self.progress.audit.report.repair {
                    corrections.push(compare::as_correction(self.progress.audit.report.id, draft));
                }
                differences.extend(found);
            }
            self.progress.audit.report.add(differences);
            if corrections.len() >= REGISTRY_PAGE {
                self.correct(mem::take(&mut corrections)).await?;
            }
        }
        if corrections.is_empty() { Ok(()) } else { self.correct(corrections).await }
    }

    /// Appends corrections, and writes their number at once: after a kill these objects differ no more.
    async fn correct(&mut self, drafts: Vec<Draft>) -> Result<(), WalkError> {
        self.progress.correct(drafts).await?;
        self.progress.save().await
    }

    /// Keeps only the objects that the second list says are gone too.
    async fn confirm(&self, extra: &mut Vec<ExtraObject>, second: &Listed) -> Result<(), WalkError> {
        let unlisted = extra.iter().map(|extra| &extra.unlisted);
        let unlisted: Vec<_> = unlisted.filter(|unlisted| !second.seen.contains(&unlisted.object)).cloned().collect();
        let gone = if second.has_gaps { Vec::new() } else { self.harvester.gone(&second.position, unlisted).await? };
        let gone: HashSet<_> = gone.into_iter().collect();
        extra.retain(|extra| gone.contains(&extra.unlisted.object));
        Ok(())
    }

    /// Returns the objects of the registry that no longer exist, because a list did not have them. Counts those of the source
    /// about which the list says nothing.
    async fn unlisted(&mut self, listed: &Listed) -> Result<Vec<ExtraObject>, WalkError> {
        let (mut extra, mut after) = (ExtraObjects::default(), None);
        loop {
            let page = self.progress.journal.registry(after, REGISTRY_PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            let (mut unlisted, mut marks) = (Vec::new(), BTreeMap::new());
            for (object, state) in page.into_iter().filter(|(_, state)| state.live_items().next().is_some()) {
                let is_own = self.progress.is_own(&state);
                self.progress.audit.report.registered += u64::from(is_own);
                if !listed.seen.contains(&object) {
                    marks.insert(object.clone(), (is_own, compare::state_mark(&state)));
                    unlisted.push(UnlistedObject { object, is_own });
                }
            }
            let gone =
                if listed.has_gaps { Vec::new() } else { self.harvester.gone(&listed.position, unlisted).await? };
            let mut found = Vec::with_capacity(gone.len());
            for object in gone {
                if let Some((is_own, state_mark)) = marks.remove(&object) {
                    found.push(ExtraObject { unlisted: UnlistedObject { object, is_own }, state_mark });
                }
            }
            let unjudged = marks.values().filter(|(is_own, _)| *is_own).count();
            self.progress.audit.report.unlisted += unjudged as u64;
            extra.add(found)?;
            self.progress.save_sometimes().await?;
        }
        Ok(extra.into_objects())
    }

    /// Counts the objects that two lists did not have, and deletes them if the audit shall.
    async fn judge_unlisted(&mut self, mut extra: Vec<ExtraObject>) -> Result<(), WalkError> {
        for found in &extra {
            let Some(registered) = self.still_extra(found).await? else { continue };
            let object = &found.unlisted.object;
            let id = self.progress.audit.report.id;
            let draft = compare::draft_of_absent(id, object, &registered);
            let change = draft.and_then(|draft| self.progress.source.preview(draft, &registered));
            let Some(change) = change else { continue };
            self.progress.audit.add(object, compare::differences(&change, &registered, |_| true));
            self.progress.audit.gone += 1;
        }
        if !self.progress.audit.report.repair || self.progress.audit.gone == 0 {
            return Ok(());
        }
        let counts = ListedCounts { all: self.progress.audit.report.registered, missing: self.progress.audit.gone };
        if let Some(reason) = implausible_deletions(counts, self.max_deleted_percent, 0) {
            self.progress.audit.report.reason = Some(reason);
            return Ok(());
        }
        self.progress.audit.report.phase = Phase::Deletions;
        while !extra.is_empty() {
            let rest = extra.split_off(extra.len().min(REGISTRY_PAGE));
            let part = mem::replace(&mut extra, rest);
            self.delete(part).await?;
        }
        Ok(())
    }

    /// Deletes objects.
    async fn delete(&mut self, objects: Vec<ExtraObject>) -> Result<(), WalkError> {
        let mut corrections = Vec::with_capacity(objects.len());
        for found in objects {
            let Some(registered) = self.still_extra(&found).await? else { continue };
            let object = &found.unlisted.object;
            corrections.extend(compare::draft_of_absent(self.progress.audit.report.id, object, &registered));
        }
        self.correct(corrections).await
    }

    /// Returns the registry's facts about an object, unless it was reported since the list.
    async fn still_extra(&self, found: &ExtraObject) -> Result<Option<ObjectState>, WalkError> {
        let registered = self.progress.registered(&found.unlisted.object).await?;
        Ok(Some(registered).filter(|registered| compare::state_mark(registered) == found.state_mark))
    }
}

/// Returns whether a draft says that an item exists.
fn has_item(draft: &Draft) -> bool {
    let is_gone =
        |change: &DraftChange| matches!(change, DraftChange::Absent | DraftChange::Reported(ItemChange::Delete { .. }));
    draft.items.listed().iter().any(|item| !is_gone(&item.change))
}

/// Returns whether a draft says what exists. An absent record counts as one that is not listed, because another set may have
/// it; and a change of another gateway happened after its snapshot.
pub(super) fn is_state(draft: &Draft) -> bool {
    let is_absent = matches!(&draft.items, DraftItems::Complete(items) if items.is_empty());
    draft.id.is_none() && !is_absent
}
