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
        Journal, JournalError, RecordedChange,
        registry::ObjectState,
        store::{ObjectSelection, StoreError},
    },
    model::{Change, Seq, Timestamp, Uri},
};

/// Maximum number of changes in a page.
const PAGE_CHANGES: usize = 256;

/// Approximate maximum size of the JSON of these changes, in bytes.
const PAGE_BYTES: usize = 256 * 1024;

/// Maximum number of objects in a page of the registry.
const PAGE_OBJECTS: usize = 200;

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
    /// Timestamp of the last record, which the selection may exclude.
    pub(super) last: WireTime,
}

impl ChangesPage {
    /// Returns the changes after a number.
    pub(super) fn after(&self, seq: Seq) -> &[ChangeRecords] {
        &self.changes[self.changes.partition_point(|change| change.seq <= seq)..]
    }

    /// Returns the position after the page.
    fn end(&self) -> Position {
        self.changes.last().map_or(Position::at(self.after), |last| Position {
            after: last.seq,
            done: 0,
            time: last.last,
        })
    }
}

/// A page of the registry: the records of all objects after a URI, up to another one.
#[derive(Debug)]
pub(super) struct RegistryPage {
    after: Option<Uri>,
    /// Head of the journal before the page was read. The page includes all changes up to it.
    head: Seq,
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
        Ok(self.since(second).await?.unwrap_or(Position::at(seq)))
    }

    /// Returns the position before the first change received at a time or later; `None` if all are older. If retention
    /// may have removed earlier changes of that time, the position is after this change.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn since(&self, time: Timestamp) -> Result<Option<Position>, JournalError> {
        let Some(first) = self.journal.first_since(time).await? else { return Ok(None) };
        if first > Seq::ZERO.next() && first <= self.journal.first() {
            return Ok(Some(Position::at(first)));
        }
        let after = self.journal.number_before(first).await?.unwrap_or(Seq::ZERO);
        Ok(Some(Position::at(after)))
    }

    /// Returns the changes after a position with their records; `None` if there are none yet.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn changes_after(&self, position: Position) -> Result<Option<Arc<ChangesPage>>, JournalError> {
        let after = position.after;
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
        let changes = self.journal.after_within(after, PAGE_CHANGES, PAGE_BYTES).await?;
        if changes.is_empty() {
            return Ok(None);
        }
        let page = Arc::new(self.read(after, changes, position.time).await?);
        metrics::count_page("journal");
        self.caches().changes.add(Arc::clone(&page));
        Ok(Some(page))
    }

    /// Reads the page after this one into memory, if there is one.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn prefetch_after(&self, page: &ChangesPage) -> Result<(), JournalError> {
        self.changes_after(page.end()).await.map(|_| ())
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
        let cached = || self.caches().registry.find(|page| page.after.as_ref() == after && page.head >= head);
        if let Some(page) = cached() {
            return Ok(page);
        }
        let _lock = self.lock_of(after).lock().await;
        if let Some(page) = cached() {
            return Ok(page);
        }
        let _permit = self.permits.acquire().await;
        let head = self.journal.head();
        let objects = self.journal.registry(after.cloned(), PAGE_OBJECTS).await?;
        let next = objects.last().map(|(uri, _)| uri.clone());
        let selection = Arc::clone(&self.selection);
        let objects = blocking(move || {
            let records = |(uri, state): (Uri, ObjectState)| {
                records::of_object(&selection, &uri, &state).map(|records| (uri, records))
            };
            objects.into_iter().map(records).collect::<Result<Vec<_>, StoreError>>()
        });
        let objects = objects.await?;
        let bytes = objects.iter().flat_map(|(_, records)| records).map(|record| record.bytes).sum();
        let page = Arc::new(RegistryPage { after: after.cloned(), head, objects, next, bytes });
        metrics::count_page("registry");
        self.caches().registry.add(Arc::clone(&page));
        Ok(page)
    }

    /// Reads the records of changes from the registry.
    async fn read(
        &self,
        after: Seq,
        changes: Vec<Arc<RecordedChange>>,
        time: WireTime,
    ) -> Result<ChangesPage, JournalError> {
        let has_visibility = self.selection.visibility;
        let (changes, rows) = blocking(move || {
            let mut rows = ObjectSelection::default();
            for change in &changes {
                subjects(change.change()?, unlisted(change, has_visibility)?).select(&mut rows);
            }
            Ok((changes, rows))
        })
        .await?;
        let rows = self.journal.objects(rows).await?;
        let incomplete = records::rows_to_complete(&rows, &self.selection);
        let whole = if incomplete.is_empty() { HashMap::default() } else { self.journal.objects(incomplete).await? };
        let selection = Arc::clone(&self.selection);
        blocking(move || {
            let visible = records::visible_objects(rows.iter().chain(&whole), &selection);
            let (mut page, mut before, mut bytes) = (Vec::with_capacity(changes.len()), time, 0);
            for recorded in &changes {
                let change = recorded.change()?;
                let subjects = subjects(change, unlisted(recorded, has_visibility)?);
                let (records, last) = subjects.records(&selection, (&rows, &visible), before)?;
                bytes += records.iter().map(|record| record.bytes).sum::<usize>();
                page.push(ChangeRecords { seq: change.seq, received: change.received, records, last });
                before = last;
            }
            Ok(ChangesPage { after, changes: page, bytes })
        })
        .await
    }

    fn cached_changes(&self, after: Seq) -> Option<Arc<ChangesPage>> {
        // Retention may have removed changes that are still in memory.
        if after.next() < self.journal.first() {
            return None;
        }
        let follows = |page: &ChangesPage| page.after <= after && after < page.end().after;
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

/// Returns the items that a change affects although it does not list them: only the public sees them change.
fn unlisted(change: &RecordedChange, has_visibility: bool) -> Result<Option<&Change>, StoreError> {
    if !has_visibility {
        return Ok(None);
    }
    change.public()?.map(|public| public.change()).transpose()
}

fn subjects<'c>(change: &'c Change, public: Option<&'c Change>) -> ChangedSubjects<'c> {
    let affected = public.into_iter().flat_map(|public| public.modification.items.iter().map(|item| &item.uri));
    ChangedSubjects::of(change, affected)
}

/// Computes on a blocking thread, because the changes may be large.
async fn blocking<T: Send + 'static>(
    compute: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, JournalError> {
    let computed = tokio::task::spawn_blocking(compute).await.map_err(|_| JournalError::Closed)?;
    computed.map_err(JournalError::from)
}
