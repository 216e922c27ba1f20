//! Pages of records, which all crawlers share.
//!
//! A crawler asks for the records after its position. The first one that asks reads them from the journal and the
//! registry, and all others near the same position get the same page from memory. So the crawlers that keep up cost one
//! read together, and one that is behind reads by itself until it meets the others. Nothing is queued for a crawler that
//! does not answer: it keeps a position.

use std::{
    hash::{BuildHasher, Hash},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::{HashMap, fast::FixedState};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    cache::{Cache, Page},
    metrics,
    records::{self, ChangedSubjects, Record, Selection},
    timestamps::WireTime,
};
use crate::{
    journal::{
        BlockingQueries, Journal, JournalError, RecordedChange,
        registry::ObjectState,
        store::{ObjectSelection, StoreError},
    },
    model::{Seq, Timestamp, Uri},
};

/// Maximum number of changes in a page.
const PAGE_CHANGES: usize = 256;

/// Approximate maximum size of the JSON of these changes, in bytes.
const PAGE_BYTES: usize = 256 * 1024;

/// Maximum number of objects in a page of the registry.
const PAGE_OBJECTS: usize = 200;

/// Number of pages that are read ahead for a crawler that is behind.
const PAGES_AHEAD: usize = 2;

/// Number of locks: readers of different positions rarely share one.
const LOCKS: usize = 16;

/// Maximum number of concurrent reads, so that other readers of the journal get their turn.
const CONCURRENT_READS: usize = 2;

/// Position of a crawler in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the last change whose records are done.
    pub(super) after: Seq,
    /// Number of records of the next change that are done.
    pub(super) done: usize,
    /// Timestamp of the last record.
    pub(super) time: WireTime,
}

impl Position {
    /// Returns the position after all records of a change.
    pub(super) fn at(after: Seq) -> Self {
        Self { after, ..Self::default() }
    }
}

/// Consecutive changes of the journal with their records.
#[derive(Debug)]
pub(super) struct ChangesPage {
    after: Seq,
    changes: Vec<ChangeRecords>,
    bytes: usize,
}

/// The records of a change.
#[derive(Debug)]
pub(super) struct ChangeRecords {
    pub(super) seq: Seq,
    pub(super) received: Timestamp,
    pub(super) records: Vec<Record>,
}

impl ChangeRecords {
    /// Reads the records of changes from the registry.
    fn read(
        journal: &BlockingQueries,
        selection: &Selection,
        changes: &[Arc<RecordedChange>],
    ) -> Result<Vec<Self>, JournalError> {
        let changes = changes.iter().map(|change| Ok((change.seq(), subjects(change, selection.visibility)?)));
        let changes = changes.collect::<Result<Vec<_>, StoreError>>()?;
        let mut rows = ObjectSelection::default();
        changes.iter().for_each(|(_, subjects)| subjects.select(&mut rows));
        let rows = journal.objects(&rows)?;
        let incomplete = records::rows_to_complete(&rows, selection);
        let whole = if incomplete.is_empty() { HashMap::default() } else { journal.objects(&incomplete)? };
        let visible = records::visible_objects(rows.iter().chain(&whole), selection);
        let read = |(seq, subjects): (Seq, ChangedSubjects)| {
            let records = subjects.records(selection, &rows, &visible)?;
            Ok(Self { seq, received: subjects.received, records })
        };
        changes.into_iter().map(read).collect()
    }

    /// Returns the position after the change, from a position before it or within it.
    pub(super) fn end(&self, position: Position) -> Position {
        let time = match self.records.len().saturating_sub(position.done) {
            0 => position.time,
            rest => position.time.next_in(self.received).plus(rest - 1),
        };
        Position { after: self.seq, done: 0, time }
    }
}

impl ChangesPage {
    /// Returns the changes after a number.
    pub(super) fn after(&self, seq: Seq) -> &[ChangeRecords] {
        &self.changes[self.changes.partition_point(|change| change.seq <= seq)..]
    }

    /// Returns the page after a number.
    fn new(after: Seq, changes: Vec<ChangeRecords>) -> Self {
        let bytes = changes.iter().flat_map(|change| &change.records).map(|record| record.bytes).sum();
        Self { after, changes, bytes }
    }

    /// Returns the number of the last change.
    pub(super) fn last(&self) -> Seq {
        self.changes.last().map_or(self.after, |last| last.seq)
    }
}

/// A page of the registry: the records of all objects after a URI, up to another one.
#[derive(Debug)]
pub(super) struct RegistryPage {
    after: Option<Uri>,
    /// Head of the journal before the page was read. The page includes all changes up to it.
    head: Seq,
    /// Number of times that a crawl of a repository had added an object without a change.
    seeds: u64,
    /// Objects with their records, in order of their URIs: the object itself, and its items in order of their URIs.
    pub(super) objects: Vec<(Uri, Vec<Record>)>,
    /// URI after which the next page begins; `None` at the end of the registry.
    pub(super) next: Option<Uri>,
    bytes: usize,
}

impl Page for ChangesPage {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Page for RegistryPage {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Pages in memory, of the journal with this identity.
#[derive(Debug, Default)]
struct Caches {
    journal: Uuid,
    changes: Cache<ChangesPage>,
    registry: Cache<RegistryPage>,
}

/// Reads pages and keeps the newest ones.
pub(super) struct Pages {
    journal: Journal,
    selection: Arc<Selection>,
    caches: Mutex<Caches>,
    /// Locked during a read, so that a page is read once. The position determines the lock.
    locks: [tokio::sync::Mutex<()>; LOCKS],
    permits: Semaphore,
}

impl Pages {
    pub(super) fn new(journal: Journal, selection: Selection) -> Self {
        Self {
            journal,
            selection: Arc::new(selection),
            caches: Mutex::default(),
            locks: Default::default(),
            permits: Semaphore::new(CONCURRENT_READS),
        }
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the position before the first change of the second in which a change was received. Timestamps after it
    /// depend on no earlier change.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn second_of(&self, seq: Seq) -> Result<Position, JournalError> {
        let Some(newest) = self.journal.before_within(seq.next(), 1, 1).await?.pop() else {
            return Ok(Position::at(seq));
        };
        let received = newest.change()?.received.millis();
        let second = Timestamp::from_millis(received - received.rem_euclid(1000)).unwrap_or(Timestamp::EPOCH);
        match self.since(second).await? {
            // Retention may have removed the change before it. The timestamps then depend on the rest of the second.
            Some((_, first)) if first > Seq::ZERO.next() && first <= self.journal.first() => Ok(Position::at(first)),
            Some((position, _)) => Ok(position),
            None => Ok(Position::at(seq)),
        }
    }

    /// Returns the position before the first change received at a time or later, and the number of this change; `None` if
    /// all are older.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn since(&self, time: Timestamp) -> Result<Option<(Position, Seq)>, JournalError> {
        let Some(first) = self.journal.first_since(time).await? else { return Ok(None) };
        let after = self.journal.number_before(first).await?.unwrap_or(Seq::ZERO);
        Ok(Some((Position::at(after), first)))
    }

    /// Returns changes after a number with their records; `None` if there are none yet.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn changes_after(&self, after: Seq) -> Result<Option<Arc<ChangesPage>>, JournalError> {
        if after >= self.journal.head() {
            return Ok(None);
        }
        if let Some(page) = self.cached_changes(after) {
            return Ok(Some(page));
        }
        let _lock = self.lock_of(after).lock().await;
        // Another crawler may have read them meanwhile.
        if let Some(page) = self.cached_changes(after) {
            return Ok(Some(page));
        }
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let selection = Arc::clone(&self.selection);
        let page = self.journal.query_in_a_row(move |journal| {
            let changes = journal.after_within(after, PAGE_CHANGES, PAGE_BYTES)?;
            Ok(ChangesPage::new(after, ChangeRecords::read(journal, &selection, &changes)?))
        });
        let page = Arc::new(page.await?);
        if page.changes.is_empty() {
            return Ok(None);
        }
        metrics::count_page("journal");
        self.caches().changes.add(Arc::clone(&page));
        Ok(Some(page))
    }

    /// Reads the next pages after a number into memory, as far as there are any, so that a crawler need not wait for them.
    pub(super) async fn prefetch_after(&self, mut after: Seq) {
        for _ in 0..PAGES_AHEAD {
            // The crawler meets an error when it asks for the page.
            let Ok(Some(page)) = self.changes_after(after).await else { return };
            after = page.last();
        }
    }

    /// Returns a page of the registry that includes all changes up to `head`.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub(super) async fn registry_after(
        &self,
        after: Option<&Uri>,
        head: Seq,
    ) -> Result<Arc<RegistryPage>, JournalError> {
        let seeds = self.journal.seed_count();
        let cached = || {
            self.caches().registry.find(|page| page.after.as_ref() == after && page.head >= head && page.seeds == seeds)
        };
        if let Some(page) = cached() {
            return Ok(page);
        }
        let _lock = self.lock_of(after).lock().await;
        if let Some(page) = cached() {
            return Ok(page);
        }
        let _permit = self.permits.acquire().await;
        let (head, seeds) = (self.journal.head(), self.journal.seed_count());
        let (selection, from) = (Arc::clone(&self.selection), after.cloned());
        let objects = self.journal.query_in_a_row(move |journal| {
            let objects = journal.registry(from.as_ref(), PAGE_OBJECTS)?;
            let next = objects.last().map(|(uri, _)| uri.clone());
            let records = |(uri, state): (Uri, ObjectState)| {
                records::of_object(&selection, &uri, &state).map(|records| (uri, records))
            };
            Ok((objects.into_iter().map(records).collect::<Result<Vec<_>, StoreError>>()?, next))
        });
        let (objects, next) = objects.await?;
        let bytes = objects.iter().flat_map(|(_, records)| records).map(|record| record.bytes).sum();
        let page = Arc::new(RegistryPage { after: after.cloned(), head, seeds, objects, next, bytes });
        metrics::count_page("registry");
        self.caches().registry.add(Arc::clone(&page));
        Ok(page)
    }

    fn cached_changes(&self, after: Seq) -> Option<Arc<ChangesPage>> {
        // Retention may have removed changes that are still in memory.
        if after.next() < self.journal.first() {
            return None;
        }
        let follows = |page: &ChangesPage| page.after <= after && after < page.last();
        self.caches().changes.find(follows)
    }

    fn lock_of(&self, position: impl Hash) -> &tokio::sync::Mutex<()> {
        let hash = FixedState::default().hash_one(position);
        &self.locks[usize::try_from(hash % LOCKS as u64).unwrap_or_default()]
    }

    /// Returns the pages, without those that the journal had under another identity: a failover of its database may have
    /// lost changes.
    fn caches(&self) -> MutexGuard<'_, Caches> {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = self.journal.identity();
        if caches.journal != identity {
            *caches = Caches { journal: identity, ..Caches::default() };
        }
        caches
    }
}

/// Returns the subjects of a change. Only the public sees items change that the change does not list.
fn subjects(recorded: &RecordedChange, has_visibility: bool) -> Result<ChangedSubjects, StoreError> {
    let public = if has_visibility { recorded.public()? } else { None };
    let public = public.map(|public| public.change()).transpose()?;
    let affected = public.into_iter().flat_map(|public| public.modification.items.iter().map(|item| &item.uri));
    Ok(ChangedSubjects::of(recorded.outline()?, affected))
}
