//! Cache of changes for streams that are behind the changes in memory.
//!
//! When more changes arrive at once than fit in memory, a thousand streams fall behind together and want the same
//! changes from disk within a moment. Therefore the changes that one stream has read are cached for the others, with
//! their encodings: they are read and encoded once for all streams near the same position.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    journal::{Journal, JournalError, RecordedChange, take_within},
    model::Seq,
};

/// Maximum number of streams that read from disk at the same time, so that others can read, too.
const CONCURRENT_READS: usize = 2;

/// Maximum number of changes that are read at once.
const SEGMENT_CHANGES: usize = 256;

/// Approximate maximum size of the JSON of these changes, in bytes.
const SEGMENT_BYTES: usize = 256 * 1024;

/// Maximum size of the cached JSON, in bytes, except that the newest segment is always cached. The parsed changes and
/// their encodings take several times as much.
const MAX_CACHED_BYTES: usize = 2 * 1024 * 1024;

/// Maximum number of segments, because short segments are possible.
const MAX_SEGMENTS: usize = 64;

/// Cache of changes, with a limit on concurrent reads.
pub(super) struct CatchUpCache {
    permits: Semaphore,
    cache: Mutex<SegmentCache>,
}

/// Segments in the order in which they were read.
#[derive(Default)]
struct SegmentCache {
    segments: VecDeque<Segment>,
    bytes: usize,
    /// Identity of the journal that the changes belong to.
    journal: Uuid,
}

/// Consecutive changes of the journal.
struct Segment {
    changes: Vec<Arc<RecordedChange>>,
    bytes: usize,
}

impl Default for CatchUpCache {
    fn default() -> Self {
        Self { permits: Semaphore::new(CONCURRENT_READS), cache: Mutex::default() }
    }
}

impl CatchUpCache {
    /// Returns up to `limit` changes after `after`, oldest first. Stops once they have `bytes` of JSON, but returns
    /// at least one change, if there is one. Changes that the journal has in memory are not cached here.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn after(
        &self,
        journal: &Journal,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let in_memory = || self.in_memory(journal, after, limit, bytes);
        if let Some(changes) = in_memory() {
            return Ok(changes);
        }
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        // Another stream may have read them meanwhile.
        if let Some(changes) = in_memory() {
            return Ok(changes);
        }
        let read = journal.after_within(after, SEGMENT_CHANGES, SEGMENT_BYTES).await?;
        let changes = take_within(&read, limit, bytes);
        self.cache_of(journal).add(read);
        Ok(changes)
    }

    /// Returns the changes after a cursor if they are in memory: in the journal's tail or in this cache. Reads
    /// nothing from the store.
    pub(super) fn in_memory(
        &self,
        journal: &Journal,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Option<Vec<Arc<RecordedChange>>> {
        let in_tail = journal.cached_after(after, limit, bytes);
        in_tail.or_else(|| self.cached_after(journal, after, limit, bytes))
    }

    /// Returns the changes after a cursor if this cache has them, and the journal still has the first.
    fn cached_after(
        &self,
        journal: &Journal,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Option<Vec<Arc<RecordedChange>>> {
        if after.next() < journal.first() {
            return None;
        }
        self.cache_of(journal).after(after, limit, bytes)
    }

    /// Returns the cache, without changes that the journal had under another identity: a failover of its database may
    /// have lost them.
    fn cache_of(&self, journal: &Journal) -> MutexGuard<'_, SegmentCache> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = journal.identity();
        if cache.journal != identity {
            *cache = SegmentCache { journal: identity, ..SegmentCache::default() };
        }
        cache
    }
}

impl SegmentCache {
    fn after(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        let following = |segment: &Segment| {
            let first = segment.changes.first()?.seq();
            let skipped = usize::try_from(after.next().0.checked_sub(first.0)?).ok()?;
            segment.changes.get(skipped..).filter(|rest| !rest.is_empty()).map(|rest| take_within(rest, limit, bytes))
        };
        self.segments.iter().rev().find_map(following)
    }

    /// Adds changes, if there are any, and drops the oldest segments.
    fn add(&mut self, changes: Vec<Arc<RecordedChange>>) {
        if changes.is_empty() {
            return;
        }
        let bytes = changes.iter().map(|change| change.json().len()).sum();
        self.bytes += bytes;
        self.segments.push_back(Segment { changes, bytes });
        while self.segments.len() > 1
            && (self.bytes > MAX_CACHED_BYTES || self.segments.len() > MAX_SEGMENTS)
            && let Some(oldest) = self.segments.pop_front()
        {
            self.bytes -= oldest.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{MAX_CACHED_BYTES, MAX_SEGMENTS, RecordedChange, SegmentCache};
    use crate::model::Seq;

    fn segment(numbers: std::ops::Range<u64>, size: usize) -> Vec<Arc<RecordedChange>> {
        numbers.map(|n| Arc::new(RecordedChange::from_json(Seq(n), Bytes::from(vec![b' '; size])))).collect()
    }

    fn numbers(changes: Option<Vec<Arc<RecordedChange>>>) -> Option<Vec<u64>> {
        changes.map(|changes| changes.iter().map(|change| change.seq().0).collect())
    }

    #[test]
    fn cached_changes_are_found() {
        let mut cache = SegmentCache::default();
        cache.add(segment(10..20, 100));
        cache.add(segment(50..60, 100));
        assert_eq!(numbers(cache.after(Seq(12), 3, usize::MAX)), Some(vec![13, 14, 15]));
        assert_eq!(numbers(cache.after(Seq(9), 99, 250)), Some(vec![10, 11, 12]));
        assert_eq!(numbers(cache.after(Seq(9), 99, 1)), Some(vec![10]));
        assert_eq!(numbers(cache.after(Seq(57), 99, usize::MAX)), Some(vec![58, 59]));
        for uncached in [0, 8, 19, 30, 48, 59, u64::MAX] {
            assert_eq!(numbers(cache.after(Seq(uncached), 3, usize::MAX)), None, "after {uncached}");
        }
    }

    #[test]
    fn number_of_segments_is_limited() {
        let mut cache = SegmentCache::default();
        for n in 1..=MAX_SEGMENTS as u64 + 5 {
            cache.add(segment(n..n + 1, 1));
            cache.add(Vec::new());
        }
        assert_eq!((cache.segments.len(), cache.bytes), (MAX_SEGMENTS, MAX_SEGMENTS));
        assert_eq!(numbers(cache.after(Seq(4), 1, 1)), None);
        assert_eq!(numbers(cache.after(Seq(5), 1, 1)), Some(vec![6]));
    }

    proptest! {
        #[test]
        fn size_of_cache_is_limited(sizes in proptest::collection::vec(0..MAX_CACHED_BYTES * 2 / 3, 1..12)) {
            let mut cache = SegmentCache::default();
            for (n, size) in (1..).zip(&sizes) {
                cache.add(segment(n..n + 1, *size));
                let total: usize = cache.segments.iter().map(|segment| segment.changes[0].json().len()).sum();
                prop_assert!(total <= MAX_CACHED_BYTES && total == cache.bytes);
                prop_assert_eq!(numbers(cache.after(Seq(n - 1), 1, 1)), Some(vec![n]));
            }
        }
    }
}
