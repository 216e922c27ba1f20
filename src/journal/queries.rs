//! Queries: changes by number and by identifier, the registry, the quarantine. The newest changes come from memory, all
//! other data from the store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use foldhash::HashMap;

use super::{
    Journal, JournalError, RecordedChange, RegistryPosition,
    acceptance::{AcceptedPage, AcceptedQuery},
    metrics,
    quarantine::{QuarantineId, QuarantineReason, QuarantineShare, QuarantineSize, QuarantinedMessage},
    registry::ObjectState,
    seed::CrawlProgress,
    store::{IncompleteChange, IncompleteStore, ObjectSelection, QuarantineStore, Store, StoreError, StoredChange},
};
use crate::model::{ChangeId, Seq, SourceName, Timestamp, Uri};

/// Pause between two looks at the ranges of numbers that the journal has skipped.
const LOSS_POLL: Duration = Duration::from_millis(20);

/// Maximum time that a query waits for changes that are in the store, but not yet published at this node.
const PUBLICATION_PATIENCE: Duration = Duration::from_secs(1);

impl Journal {
    /// Returns the number of the oldest change received at `time` or later; `None` if all changes are older.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn first_since(&self, time: Timestamp) -> Result<Option<Seq>, JournalError> {
        self.read(move |store| store.first_since(time)).await
    }

    /// Returns the number of the first of the newest `count` changes (at least one); `None` if there are no changes.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn first_of_newest(&self, count: u64) -> Result<Option<Seq>, JournalError> {
        self.read(move |store| store.first_of_newest(count)).await
    }

    /// Reads the number of the newest change from the store, which checks that the store can be read.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn stored_head(&self) -> Result<Seq, JournalError> {
        self.read(Store::head).await
    }

    /// Returns where a reader continues who has everything up to `seq`: after `seq` itself, or after the newest change
    /// before it that a restore or a failover has not lost.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn surviving(&self, seq: Seq) -> Result<Seq, JournalError> {
        self.read(move |store| store.surviving(seq)).await
    }

    /// Waits until this node has dropped the changes that a failover has lost, and knows their numbers. Work for a duty
    /// begins with this, because the duty can arrive before the news of the failover that has ended it. While the store
    /// fails, this waits too.
    pub async fn until_losses_are_known(&self) {
        loop {
            match self.read(Store::skipped_ranges).await {
                Ok(stored) if stored[..] == self.skipped_ranges()[..] => return,
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "cannot read which numbers the journal has skipped; retrying"),
            }
            tokio::time::sleep(LOSS_POLL).await;
        }
    }

    /// Returns up to `limit` changes after `after`, oldest first, without a gap after it.
    ///
    /// # Errors
    /// Returns [`JournalError::Gone`] if changes after `after` have been removed, or if `after` is not a number of
    /// this journal (for example after a restore from a backup that is older than the reader's cursor). Fails if
    /// the store fails.
    pub async fn after(&self, after: Seq, limit: usize) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        self.after_within(after, limit, usize::MAX).await
    }

    /// Returns changes as [`Journal::after`] does, but skips damaged changes, which it logs. For readers in the gateway,
    /// which promise completeness to nobody.
    ///
    /// # Errors
    /// As [`Journal::after`], except for damaged changes.
    pub async fn intact_after(&self, mut after: Seq, limit: usize) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        loop {
            match self.after(after, limit).await {
                Err(JournalError::Store(StoreError::DamagedChange { seq, what })) => {
                    tracing::warn!(seq = seq.0, what, "a damaged change is skipped");
                    after = seq;
                }
                read => return read,
            }
        }
    }

    /// Returns changes as [`Journal::after`] does, but ends once they have `bytes` of JSON. Returns at least one
    /// change if there is one.
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
        let stored = self.read(move |store| store.after(after, limit, bytes));
        stored.await?.map(recorded_changes).ok_or_else(|| JournalError::Gone { after, first: self.first() })
    }

    /// Returns changes as [`Journal::after_within`] does, but only from memory and without waiting; `None` if the
    /// first of them may be older than the tail, or `after` is past the newest. Does not count as a read in the
    /// metrics.
    #[must_use]
    pub fn cached_after(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        self.tail.after(after, limit, bytes)
    }

    /// Returns up to `limit` changes before `before`, newest first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn before(&self, before: Seq, limit: usize) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        self.before_within(before, limit, usize::MAX).await
    }

    /// Returns changes as [`Journal::before`] does, but ends once they have `bytes` of JSON. Returns at least one
    /// change if there is one.
    ///
    /// # Errors
    /// Fails if the store fails.
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
        self.read(move |store| store.before(before, limit, bytes).map(recorded_changes)).await
    }

    /// Returns the number that precedes `seq` in the numbering, even if retention has removed either change: `seq` - 1,
    /// unless a restore skipped numbers there. `None` if `seq` is the first number.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn number_before(&self, seq: Seq) -> Result<Option<Seq>, JournalError> {
        let restored = self.read(move |store| store.before_restore(seq)).await?;
        let before = restored.unwrap_or(Seq(seq.0.saturating_sub(1)));
        Ok(Some(before).filter(|before| *before != Seq::ZERO))
    }

    /// Returns the change with this identifier.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn by_id(&self, id: ChangeId) -> Result<Option<Arc<RecordedChange>>, JournalError> {
        self.read(move |store| Ok(store.by_id(id)?.map(|stored| Arc::new(RecordedChange::from(stored))))).await
    }

    /// Returns the state of one object with all its items.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn object(&self, object: Uri) -> Result<Option<ObjectState>, JournalError> {
        self.read(move |store| store.object(&object)).await
    }

    /// Returns up to `limit` objects of the registry from a position on, in order of their URIs, from one consistent
    /// snapshot. A page may end early; it is empty only if no object is left.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn registry(
        &self,
        from: impl Into<RegistryPosition>,
        limit: usize,
    ) -> Result<Vec<(Uri, ObjectState)>, JournalError> {
        let from = from.into();
        self.read(move |store| store.registry(&from, limit)).await
    }

    /// Returns the objects of up to `limit` crawled facts after this number, each with the number of its fact. Retention
    /// removes the oldest ones.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn seeded_after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Uri)>, JournalError> {
        self.read(move |store| store.seeded_after(number, limit)).await
    }

    /// Returns the progress of the newest crawl of a source's repository; `None` if there has been none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn crawl_progress(&self, source: SourceName) -> Result<Option<CrawlProgress>, JournalError> {
        self.read(move |store| store.crawl_progress(&source)).await
    }

    /// Returns up to `limit` messages of the quarantine before `before` (from the newest if `None`), newest first,
    /// without their bodies: those of one source, or of all.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn quarantined_before(
        &self,
        before: Option<QuarantineId>,
        source: Option<SourceName>,
        limit: usize,
    ) -> Result<Vec<QuarantinedMessage>, JournalError> {
        self.read(move |store| store.quarantined_before(before, source.as_ref(), limit)).await
    }

    /// Returns the size of the quarantine.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn quarantine_size(&self) -> Result<QuarantineSize, JournalError> {
        self.read(Store::quarantine_size).await
    }

    /// Returns how many messages the quarantine has deleted to make room. It is 0 again when the quarantine has fewer messages
    /// than after the last deletion.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn quarantine_loss(&self) -> Result<u64, JournalError> {
        let Some(loss) = self.losses.get() else { return Ok(0) };
        if self.quarantine_size().await?.messages >= loss.left {
            return Ok(loss.messages);
        }
        self.losses.end(loss);
        Ok(0)
    }

    /// Returns the share of each source that has messages in the quarantine, by name. It reads the whole quarantine.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn quarantine_shares(&self) -> Result<BTreeMap<String, QuarantineShare>, JournalError> {
        self.read(QuarantineStore::quarantine_shares).await
    }

    /// Returns the most frequent reasons of the quarantine, with their sources. It reads the whole quarantine.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn quarantine_reasons(&self, limit: usize) -> Result<Vec<QuarantineReason>, JournalError> {
        self.read(move |store| store.quarantine_reasons(limit)).await
    }

    /// Returns one message of the quarantine with its body.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn quarantined(&self, id: QuarantineId) -> Result<Option<QuarantinedMessage>, JournalError> {
        self.read(move |store| store.quarantined(id)).await
    }

    /// Returns up to `limit` changes of a source after `after` whose lookup must be repeated, oldest first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn incomplete(
        &self,
        source: SourceName,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<IncompleteChange>, JournalError> {
        self.read(move |store| store.incomplete(&source, after, limit)).await
    }

    /// Returns the number of changes whose lookup must be repeated, for each source that has any.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn incomplete_counts(&self) -> Result<BTreeMap<SourceName, u64>, JournalError> {
        self.read(IncompleteStore::incomplete_counts).await
    }

    /// Runs several queries in a row on one blocking thread, with the computation between them.
    ///
    /// # Errors
    /// As the queries.
    pub async fn query_in_a_row<T: Send + 'static>(
        &self,
        queries: impl FnOnce(&BlockingQueries) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let journal = BlockingQueries(self.clone());
        tokio::task::spawn_blocking(move || queries(&journal)).await.map_err(|_| JournalError::Closed)?
    }

    /// Waits until this node has published the changes that the store has, but at most a second. A batch is published
    /// after its commit, so somebody who learns of a change from a row of its batch could not read it yet. A view that
    /// shows such rows calls this once, after it has read them.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn until_published(&self) -> Result<(), JournalError> {
        let stored_head = self.read(Store::head).await?;
        let mut head = self.watch();
        let published = head.wait_for(|head| *head >= stored_head);
        // After the time, or without a writer, the caller answers with the published changes.
        let _ = tokio::time::timeout(PUBLICATION_PATIENCE, published).await;
        Ok(())
    }

    /// Runs a query on a blocking thread, because it may wait for the disk.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let store = Arc::clone(&self.store);
        let task = tokio::task::spawn_blocking(move || read(&*store));
        let result = task.await.map_err(|_| JournalError::Closed);
        self.outages.read(result.and_then(|result| result.map_err(JournalError::from)))
    }
}

/// Queries that block the thread.
pub struct BlockingQueries(Journal);

impl BlockingQueries {
    /// Returns changes as [`Journal::after_within`] does.
    ///
    /// # Errors
    /// As [`Journal::after_within`].
    pub fn after_within(
        &self,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let journal = &self.0;
        let in_memory = journal.tail.after(after, limit, bytes);
        metrics::tail_read(in_memory.is_some());
        if let Some(changes) = in_memory {
            return Ok(changes);
        }
        let stored = journal.outages.read(journal.store.after(after, limit, bytes).map_err(JournalError::from))?;
        stored.map(recorded_changes).ok_or_else(|| JournalError::Gone { after, first: journal.first() })
    }

    /// Returns changes as [`Journal::before_within`] does.
    ///
    /// # Errors
    /// As [`Journal::before_within`].
    pub fn before_within(
        &self,
        before: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let journal = &self.0;
        let in_memory = journal.tail.before(before, limit, bytes);
        metrics::tail_read(in_memory.is_some());
        match in_memory {
            Some(changes) => Ok(changes),
            None => journal
                .outages
                .read(journal.store.before(before, limit, bytes).map(recorded_changes).map_err(JournalError::from)),
        }
    }

    /// Returns the state of several objects, each with the selected items, from one consistent snapshot. Objects that the
    /// registry does not have are absent.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn objects(&self, selected: &ObjectSelection) -> Result<HashMap<Uri, ObjectState>, JournalError> {
        self.0.outages.read(self.0.store.objects(selected).map_err(JournalError::from))
    }

    /// Returns a page of objects in the order of their times of acceptance, as [`Journal::accepted`] does.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn accepted(&self, query: &AcceptedQuery) -> Result<AcceptedPage, JournalError> {
        self.0.outages.read(self.0.store.accepted(query).map_err(JournalError::from))
    }

    /// Returns up to `limit` objects of the registry, as [`Journal::registry`] does.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn registry(&self, after: Option<&Uri>, limit: usize) -> Result<Vec<(Uri, ObjectState)>, JournalError> {
        let from = RegistryPosition::from(after.cloned());
        self.0.outages.read(self.0.store.registry(&from, limit).map_err(JournalError::from))
    }
}

fn recorded_changes(changes: Vec<StoredChange>) -> Vec<Arc<RecordedChange>> {
    changes.into_iter().map(|stored| Arc::new(RecordedChange::from(stored))).collect()
}
