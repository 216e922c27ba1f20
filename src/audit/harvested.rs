//! An audit of a harvest: lists everything that the repository has, as a run does, and compares the records with the
//! registry.
//!
//! The list is read under another name, so that it knows nothing of former runs, and moves no mark. If anything differs, it
//! is read a second time, and only the same differences count. So a record that has other content in each response differs
//! in nothing. Of several records about an object the newest counts, as in a run. A kill begins the list anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use super::{
    compare,
    deletions::implausible_deletions,
    progress::{Progress, WalkError},
    report::Phase,
    seen::SeenObjects,
    walk::AuditStop,
};
use crate::{
    harvest::{HarvestError, HarvestedRecord, Harvester, Page, PageEnd, Sight},
    journal::harvest::{ListedCounts, ListedRecords},
    model::{Draft, DraftItems, Timestamp, Uri},
    retry::Backoff,
};

/// Maximum number of differing objects. More are a harvest that has never run, which a run repairs.
const MAX_DIFFERING: usize = 50_000;

/// Maximum size of the differing records, in bytes.
const MAX_DIFFERING_BYTES: usize = 64 << 20;

/// Assumed size of the facts about an item, without its URIs, in bytes.
const ITEM_BYTES: usize = 512;

/// Number of failed attempts after which the audit fails.
const MAX_ATTEMPTS: u32 = 5;

/// Maximum number of successive changes of the position without a page.
const MAX_DETOURS: u32 = 200;

/// Waits before a failed request is repeated.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Number of objects of the registry that are read at a time.
const REGISTRY_PAGE: usize = 500;

/// A running audit of a harvest.
pub(super) struct HarvestWalk {
    harvester: Arc<dyn Harvester>,
    progress: Progress,
    max_deleted_percent: u64,
}

/// What a list has shown.
struct Listed {
    seen: SeenObjects,
    /// Objects that differ, with the fingerprints of their differences. Only the first list notes them.
    differing: BTreeMap<Uri, BTreeSet<u64>>,
    /// The newest record about each of these objects, with its date. Only the second list notes them.
    newest: BTreeMap<Uri, (Option<Timestamp>, Draft)>,
    /// Size of these records, in bytes.
    bytes: usize,
    /// Number of records that could not be read, or that the repository does not deliver.
    unreadable: u64,
    /// Whether the list may lack objects that exist.
    has_gaps: bool,
}

impl HarvestWalk {
    pub(super) fn new(harvester: Arc<dyn Harvester>, progress: Progress, max_deleted_percent: u64) -> Self {
        Self { harvester, progress, max_deleted_percent }
    }

    /// Compares everything.
    pub(super) async fn run(mut self, stop: &AuditStop) -> Result<(), WalkError> {
        self.progress.begin().await?;
        let walked = stop.audit.run_until_cancelled(self.phases()).await.unwrap_or(Err(WalkError::Stopped));
        self.harvester.rest();
        self.progress.end(walked, stop.duty.is_cancelled()).await
    }

    async fn phases(&mut self) -> Result<(), WalkError> {
        // Nothing of an interrupted list is known.
        self.progress.forget();
        self.progress.audit.report.phase = Phase::Repository;
        let first = self.list(None).await?;
        self.progress.audit.report.unanswered = first.unreadable;
        let mut extra = self.unlisted(&first).await?;
        if first.differing.is_empty() && extra.is_empty() {
            return Ok(());
        }
        self.progress.audit.report.phase = Phase::Registry;
        self.progress.save().await?;
        let second = self.list(Some(&first.differing)).await?;
        self.progress.audit.report.unanswered = first.unreadable.max(second.unreadable);
        extra.retain(|object| !second.has_gaps && !second.seen.contains(object));
        self.judge_listed(&first.differing, second.newest).await?;
        self.judge_unlisted(extra).await
    }

    /// Reads the list from its beginning. Without `again`, it notes the objects that differ; otherwise it notes the newest
    /// records about those of `again`.
    async fn list(&mut self, again: Option<&BTreeMap<Uri, BTreeSet<u64>>>) -> Result<Listed, WalkError> {
        let (differing, newest) = (BTreeMap::new(), BTreeMap::new());
        let mut listed =
            Listed { seen: SeenObjects::new(), differing, newest, bytes: 0, unreadable: 0, has_gaps: false };
        let mut position = String::new();
        let (mut backoff, mut detours) = (Backoff::new(FIRST_RETRY, LONGEST_RETRY), 0);
        loop {
            match self.harvester.page(&position, backoff.failures()).await {
                Ok(Page { records, position: next, end, listed: entries, .. }) => {
                    (backoff, detours) = (Backoff::new(FIRST_RETRY, LONGEST_RETRY), 0);
                    for record in records {
                        self.record(record, again, &mut listed).await?;
                    }
                    listed.note_entries(entries);
                    position = next;
                    match end {
                        PageEnd::More => {}
                        PageEnd::Complete => {
                            self.note_gap(&position, &mut listed);
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
                    position = other;
                }
                Err(error) => return Err(WalkError::Harvest(error.to_string())),
            }
            self.progress.save_sometimes().await?;
        }
    }

    /// Notes whether a list that has ended may lack objects.
    fn note_gap(&self, position: &str, listed: &mut Listed) {
        if let Some(reason) = self.harvester.gap(position) {
            tracing::warn!(source = %self.progress.source.name(), reason, "the list of an audit is not complete");
            (listed.unreadable, listed.has_gaps) = (listed.unreadable + 1, true);
        }
        listed.has_gaps |= listed.seen.is_full();
    }

    /// Notes a record.
    async fn record(
        &mut self,
        record: HarvestedRecord,
        again: Option<&BTreeMap<Uri, BTreeSet<u64>>>,
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
        for draft in drafts.into_iter().filter(is_state) {
            let is_new = !listed.seen.contains(&draft.object);
            listed.seen.insert(&draft.object);
            match again {
                None => {
                    self.progress.audit.report.objects += u64::from(is_new);
                    self.note_difference(draft, listed).await?;
                }
                Some(again) if again.contains_key(&draft.object) => self.note_newest(date, draft, listed)?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Notes how a record of the first list differs.
    async fn note_difference(&self, draft: Draft, listed: &mut Listed) -> Result<(), WalkError> {
        let registered = self.progress.registered(&draft.object).await?;
        let object = draft.object.clone();
        let Some(change) = self.progress.source.preview(draft, &registered) else { return Ok(()) };
        let fingerprints = change.items.iter().map(compare::fingerprint);
        listed.differing.entry(object).or_default().extend(fingerprints);
        if listed.differing.len() > MAX_DIFFERING {
            return Err(self.too_many());
        }
        Ok(())
    }

    /// Notes a record of the second list. Of equally new ones the first counts.
    fn note_newest(&self, date: Option<Timestamp>, draft: Draft, listed: &mut Listed) -> Result<(), WalkError> {
        if listed.newest.get(&draft.object).is_some_and(|(newest, _)| date <= *newest) {
            return Ok(());
        }
        listed.bytes += draft.items.listed().iter().map(|item| ITEM_BYTES + item.uri.as_str().len()).sum::<usize>();
        if listed.bytes > MAX_DIFFERING_BYTES {
            return Err(self.too_many());
        }
        listed.newest.insert(draft.object.clone(), (date, draft));
        Ok(())
    }

    fn too_many(&self) -> WalkError {
        WalkError::Harvest(format!(
            "more objects differ than an audit can hold; list all records with `tidings harvests run {} --full`",
            self.progress.source.name()
        ))
    }

    /// Counts the differences that two lists had, and corrects them if the audit shall.
    async fn judge_listed(
        &mut self,
        first: &BTreeMap<Uri, BTreeSet<u64>>,
        newest: BTreeMap<Uri, (Option<Timestamp>, Draft)>,
    ) -> Result<(), WalkError> {
        let mut corrections = Vec::new();
        for (object, (_, draft)) in newest {
            let registered = self.progress.registered(&object).await?;
            let Some(change) = self.progress.source.preview(draft.clone(), &registered) else { continue };
            let is_same = |fingerprint| first.get(&object).is_some_and(|first| first.contains(&fingerprint));
            let differences = compare::differences(&change, &registered, |item| is_same(compare::fingerprint(item)));
            if differences.is_empty() {
                continue;
            }
            self.progress.audit.report.add(differences);
            if self.progress.audit.report.repair {
                corrections.push(compare::as_correction(self.progress.audit.report.id, draft));
            }
            if corrections.len() >= REGISTRY_PAGE {
                self.progress.correct(mem::take(&mut corrections)).await?;
            }
        }
        if corrections.is_empty() { Ok(()) } else { self.progress.correct(corrections).await }
    }

    /// Returns the objects of the source in the registry that a list did not have.
    async fn unlisted(&mut self, listed: &Listed) -> Result<Vec<Uri>, WalkError> {
        let (mut extra, mut after) = (Vec::new(), None);
        loop {
            let page = self.progress.journal.registry(after, REGISTRY_PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            let own: Vec<_> =
                page.into_iter().filter(|(_, state)| self.progress.is_own(state)).map(|(uri, _)| uri).collect();
            self.progress.audit.report.registered += own.len() as u64;
            extra.extend(own.into_iter().filter(|object| !listed.seen.contains(object)));
            if extra.len() > MAX_DIFFERING {
                return Err(WalkError::Harvest(format!(
                    "more than {MAX_DIFFERING} objects are no longer listed; see whether the list is complete"
                )));
            }
        }
        if listed.has_gaps {
            extra.clear();
        }
        Ok(extra)
    }

    /// Counts the objects that two lists did not have, and deletes them if the audit shall.
    async fn judge_unlisted(&mut self, extra: Vec<Uri>) -> Result<(), WalkError> {
        let mut corrections = Vec::new();
        for object in extra {
            let registered = self.progress.registered(&object).await?;
            let Some(draft) = compare::draft_of_absent(self.progress.audit.report.id, &object, &registered) else {
                continue;
            };
            let Some(change) = self.progress.source.preview(draft.clone(), &registered) else { continue };
            self.progress.audit.add(&object, compare::differences(&change, &registered, |_| true));
            self.progress.audit.gone += 1;
            corrections.push(draft);
        }
        if !self.progress.audit.report.repair || corrections.is_empty() {
            return Ok(());
        }
        let counts = ListedCounts { all: self.progress.audit.report.registered, missing: self.progress.audit.gone };
        if let Some(reason) = implausible_deletions(counts, self.max_deleted_percent, 0) {
            self.progress.audit.report.reason = Some(reason);
            return Ok(());
        }
        self.progress.audit.report.phase = Phase::Deletions;
        while !corrections.is_empty() {
            let rest = corrections.split_off(corrections.len().min(REGISTRY_PAGE));
            self.progress.correct(mem::replace(&mut corrections, rest)).await?;
        }
        Ok(())
    }
}

impl Listed {
    /// Notes the entries of a page, some of which may exist without being readable.
    fn note_entries(&mut self, entries: ListedRecords) {
        for object in entries.present.into_iter().filter_map(|entry| Uri::parse(&entry.identifier).ok()) {
            if !self.seen.contains(&object) {
                self.seen.insert(&object);
                self.unreadable += 1;
            }
        }
    }
}

/// Returns whether a draft says what exists. An absent record counts as one that is not listed, because another set may have
/// it; and a change of another gateway happened after its snapshot.
fn is_state(draft: &Draft) -> bool {
    let is_absent = matches!(&draft.items, DraftItems::Complete(items) if items.is_empty());
    draft.id.is_none() && !is_absent
}
