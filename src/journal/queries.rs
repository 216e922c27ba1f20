//! What the journal tells those who read: changes by number and by identifier, the registry, the
//! quarantine. The newest changes come from memory, all else from the store.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Journal, JournalError, RecordedChange, metrics,
    quarantine::{QuarantineId, QuarantinedMessage},
    registry::ObjectState,
    seed::CrawlProgress,
    store::{IncompleteChange, Store, StoreError, StoredChange},
};
use crate::model::{ChangeId, Seq, SourceName, Timestamp, Uri};

impl Journal {
    /// The number of the oldest change that was received at `time` or later; `None` when all are older.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn first_since(&self, time: Timestamp) -> Result<Option<Seq>, JournalError> {
        self.read(move |store| store.first_since(time)).await
    }

    /// The number at which the newest `count` changes begin, one at least; `None` when there is none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn first_of_newest(&self, count: u64) -> Result<Option<Seq>, JournalError> {
        self.read(move |store| store.first_of_newest(count)).await
    }

    /// The number of the newest change, asked of the store itself: whether it can be read.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn stored_head(&self) -> Result<Seq, JournalError> {
        self.read(Store::head).await
    }

    /// Up to `limit` changes after `after`, oldest first, without a gap after it.
    ///
    /// # Errors
    /// [`JournalError::Gone`] when changes after `after` have been removed, or when `after` is no number
    /// of this journal, as after a restore from a backup that is older than the reader's place. When
    /// the store fails.
    pub async fn after(&self, after: Seq, limit: usize) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        self.after_within(after, limit, usize::MAX).await
    }

    /// The same, and no more of them once they have `bytes` of JSON; one at least, if there is one.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub async fn after_within(
        &self,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let in_memory = self.tail.after(after, limit, bytes);
        metrics::tail_read(in_memory.is_some());
        if let Some(changes) = in_memory {
            return Ok(changes);
        }
        let found = self.read(move |store| store.after(after, limit, bytes));
        found.await?.map(recorded).ok_or_else(|| JournalError::Gone { after, first: self.first() })
    }

    /// The same of those in memory alone, at once; `None` when the first of them may be older, or `after` is past
    /// the newest. It is not counted.
    #[must_use]
    pub fn cached_after(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        self.tail.after(after, limit, bytes)
    }

    /// Up to `limit` changes before `before`, newest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn before(&self, before: Seq, limit: usize) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        self.before_within(before, limit, usize::MAX).await
    }

    /// The same, and no more of them once they have `bytes` of JSON; one at least, if there is one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn before_within(
        &self,
        before: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let in_memory = self.tail.before(before, limit, bytes);
        metrics::tail_read(in_memory.is_some());
        if let Some(changes) = in_memory {
            return Ok(changes);
        }
        self.read(move |store| store.before(before, limit, bytes).map(recorded)).await
    }

    /// The number of the change before that of `seq`, by the numbering alone, whether either is kept: the number before
    /// it, but where a restore left numbers out. `None` where `seq` is the first of all.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn number_before(&self, seq: Seq) -> Result<Option<Seq>, JournalError> {
        let restored = self.read(move |store| store.before_restore(seq)).await?;
        let before = restored.unwrap_or(Seq(seq.0.saturating_sub(1)));
        Ok(Some(before).filter(|before| *before != Seq::ZERO))
    }

    /// The change with that identifier.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn by_id(&self, id: ChangeId) -> Result<Option<Arc<RecordedChange>>, JournalError> {
        self.read(move |store| Ok(store.by_id(id)?.map(|stored| Arc::new(RecordedChange::from(stored))))).await
    }

    /// All that the registry knows of one object.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn object(&self, object: Uri) -> Result<Option<ObjectState>, JournalError> {
        self.read(move |store| store.object(&object)).await
    }

    /// Up to `limit` objects of the registry after `after`, in order of their URIs, as of one moment. A
    /// page may end early; it is empty only when none is left.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn registry(&self, after: Option<Uri>, limit: usize) -> Result<Vec<(Uri, ObjectState)>, JournalError> {
        self.read(move |store| store.registry(after.as_ref(), limit)).await
    }

    /// How far the newest walk through the repository of a source is; `None` when there has been none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn crawl_progress(&self, source: SourceName) -> Result<Option<CrawlProgress>, JournalError> {
        self.read(move |store| store.crawl_progress(&source)).await
    }

    /// Up to `limit` messages of the quarantine before `before` (all, if `None`), newest first,
    /// without their bodies.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn quarantined_before(
        &self,
        before: Option<QuarantineId>,
        limit: usize,
    ) -> Result<Vec<QuarantinedMessage>, JournalError> {
        self.read(move |store| store.quarantined_before(before, limit)).await
    }

    /// One message of the quarantine, with its body.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn quarantined(&self, id: QuarantineId) -> Result<Option<QuarantinedMessage>, JournalError> {
        self.read(move |store| store.quarantined(id)).await
    }

    /// Up to `limit` changes of a source after `after` about which its repository is to be asked again, oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn incomplete(
        &self,
        source: SourceName,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<IncompleteChange>, JournalError> {
        self.read(move |store| store.incomplete(&source, after, limit)).await
    }

    /// How many such changes there are of each source that has any.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn incomplete_counts(&self) -> Result<BTreeMap<SourceName, u64>, JournalError> {
        self.read(Store::incomplete_counts).await
    }

    /// Reads on a thread that may wait for the disk.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let store = Arc::clone(&self.store);
        let reading = tokio::task::spawn_blocking(move || read(&*store));
        let read = reading.await.map_err(|_| JournalError::Closed);
        read.and_then(|read| read.map_err(JournalError::from)).inspect_err(metrics::failed)
    }
}

fn recorded(changes: Vec<StoredChange>) -> Vec<Arc<RecordedChange>> {
    changes.into_iter().map(|stored| Arc::new(RecordedChange::from(stored))).collect()
}
