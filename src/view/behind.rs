//! What streams read that are behind the newest changes, which are in memory.
//!
//! When more comes at once than is held in memory, a thousand streams fall behind together, and all of them want
//! the same changes from the disk within a moment. So what one of them has read stays here for a while for the
//! others, with its encodings: it is read and encoded once for all that are close together.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Semaphore;

use crate::{
    journal::{Journal, JournalError, RecordedChange, take_within},
    model::Seq,
};

/// How many streams read from the disk at the same time: others want to read as well.
const READ_AT_ONCE: usize = 2;

/// How many changes are read at once, and about how many bytes of their JSON.
const STRETCH: usize = 256;
const STRETCH_BYTES: usize = 256 * 1024;

/// How many bytes of JSON stay here at the most, but for what was read last, which may be a large change. Their encodings, and what they say, take some times as much.
const KEPT_BYTES: usize = 2 * 1024 * 1024;

/// How many stretches stay here at the most: where one is short, there may be many.
const KEPT: usize = 64;

/// What was read last of the journal, and whose turn it is to read.
pub(super) struct Behind {
    turns: Semaphore,
    kept: Mutex<Kept>,
}

/// Stretches of the journal, each without a gap, in the order in which they were read.
#[derive(Default)]
struct Kept {
    stretches: VecDeque<Stretch>,
    bytes: usize,
}

struct Stretch {
    changes: Vec<Arc<RecordedChange>>,
    bytes: usize,
}

impl Default for Behind {
    fn default() -> Self {
        Self { turns: Semaphore::new(READ_AT_ONCE), kept: Mutex::default() }
    }
}

impl Behind {
    /// Up to `limit` changes after `after`, oldest first, and no more of them once they have `bytes` of JSON; one at
    /// least, if there is one. What the journal has in memory anyway is not kept here.
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
        let _turn = self.turns.acquire().await;
        // Another may have read them meanwhile.
        if let Some(changes) = in_memory() {
            return Ok(changes);
        }
        let read = journal.after_within(after, STRETCH, STRETCH_BYTES).await?;
        let changes = take_within(&read, limit, bytes);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).add(read);
        Ok(changes)
    }

    /// The same of what is in memory: in the journal's tail, or here.
    pub(super) fn in_memory(
        &self,
        journal: &Journal,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Option<Vec<Arc<RecordedChange>>> {
        let in_tail = journal.cached_after(after, limit, bytes);
        in_tail.or_else(|| self.kept_after(journal, after, limit, bytes))
    }

    /// The same of what was read already, unless the journal no longer keeps it.
    fn kept_after(
        &self,
        journal: &Journal,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Option<Vec<Arc<RecordedChange>>> {
        if after.next() < journal.first() {
            return None;
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).after(after, limit, bytes)
    }
}

impl Kept {
    fn after(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        let following = |stretch: &Stretch| {
            let first = stretch.changes.first()?.seq();
            let skipped = usize::try_from(after.next().0.checked_sub(first.0)?).ok()?;
            stretch.changes.get(skipped..).filter(|rest| !rest.is_empty()).map(|rest| take_within(rest, limit, bytes))
        };
        self.stretches.iter().rev().find_map(following)
    }

    /// Adds what was read, if anything was, and drops what was read longest ago.
    fn add(&mut self, changes: Vec<Arc<RecordedChange>>) {
        if changes.is_empty() {
            return;
        }
        let bytes = changes.iter().map(|change| change.json().len()).sum();
        self.bytes += bytes;
        self.stretches.push_back(Stretch { changes, bytes });
        while self.stretches.len() > 1
            && (self.bytes > KEPT_BYTES || self.stretches.len() > KEPT)
            && let Some(oldest) = self.stretches.pop_front()
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

    use super::{KEPT, KEPT_BYTES, Kept, RecordedChange};
    use crate::model::Seq;

    fn stretch(numbers: std::ops::Range<u64>, size: usize) -> Vec<Arc<RecordedChange>> {
        numbers.map(|n| Arc::new(RecordedChange::from_json(Seq(n), Bytes::from(vec![b' '; size])))).collect()
    }

    fn numbers(changes: Option<Vec<Arc<RecordedChange>>>) -> Option<Vec<u64>> {
        changes.map(|changes| changes.iter().map(|change| change.seq().0).collect())
    }

    #[test]
    fn what_was_read_is_there_for_others() {
        let mut kept = Kept::default();
        kept.add(stretch(10..20, 100));
        kept.add(stretch(50..60, 100));
        assert_eq!(numbers(kept.after(Seq(12), 3, usize::MAX)), Some(vec![13, 14, 15]));
        assert_eq!(numbers(kept.after(Seq(9), 99, 250)), Some(vec![10, 11, 12]));
        assert_eq!(numbers(kept.after(Seq(9), 99, 1)), Some(vec![10]));
        assert_eq!(numbers(kept.after(Seq(57), 99, usize::MAX)), Some(vec![58, 59]));
        for nowhere in [0, 8, 19, 30, 48, 59, u64::MAX] {
            assert_eq!(numbers(kept.after(Seq(nowhere), 3, usize::MAX)), None, "after {nowhere}");
        }
    }

    #[test]
    fn no_more_than_so_many_stretches_stay_however_short_they_are() {
        let mut kept = Kept::default();
        for n in 1..=KEPT as u64 + 5 {
            kept.add(stretch(n..n + 1, 1));
            kept.add(Vec::new());
        }
        assert_eq!((kept.stretches.len(), kept.bytes), (KEPT, KEPT));
        assert_eq!(numbers(kept.after(Seq(4), 1, 1)), None);
        assert_eq!(numbers(kept.after(Seq(5), 1, 1)), Some(vec![6]));
    }

    proptest! {
        #[test]
        fn no_more_than_so_many_bytes_stay(sizes in proptest::collection::vec(0..KEPT_BYTES * 2 / 3, 1..12)) {
            let mut kept = Kept::default();
            for (n, size) in (1..).zip(&sizes) {
                kept.add(stretch(n..n + 1, *size));
                let held: usize = kept.stretches.iter().map(|stretch| stretch.changes[0].json().len()).sum();
                prop_assert!(held <= KEPT_BYTES && held == kept.bytes);
                prop_assert_eq!(numbers(kept.after(Seq(n - 1), 1, 1)), Some(vec![n]));
            }
        }
    }
}
