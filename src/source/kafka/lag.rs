//! Number of messages in the cluster that the source has not written yet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::OffsetToken;

/// Progress of all partitions.
#[derive(Debug, Default)]
pub(super) struct Lags(Mutex<HashMap<(Arc<str>, i32), Progress>>);

/// Offsets of one partition.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Offset after the newest record in the cluster.
    end: i64,
    /// Offset after the last record that was read, also if it is no message.
    read: i64,
    /// Offset after the last message that was read.
    passed_on: i64,
    /// Offset after the last message that is on disk.
    written: i64,
}

impl Lags {
    /// Notes the offset from which a partition is read.
    pub(super) fn note_start(&self, topic: &Arc<str>, partition: i32, next: i64) {
        let progress = Progress { end: next, read: next, passed_on: next, written: next };
        self.lock().insert((Arc::clone(topic), partition), progress);
    }

    /// Notes the result of a fetch: the end of the partition, the offset after its last record, and the offset after its
    /// last message.
    pub(super) fn note_read(&self, topic: &Arc<str>, partition: i32, end: i64, read: i64, message: Option<i64>) {
        let mut all = self.lock();
        let progress = all.entry((Arc::clone(topic), partition)).or_default();
        (progress.end, progress.read) = (end, read);
        progress.passed_on = message.unwrap_or(progress.passed_on);
    }

    /// Notes messages that are on disk.
    pub(super) fn note_written(&self, tokens: &[OffsetToken]) {
        let mut all = self.lock();
        for OffsetToken { topic, partition, next } in tokens {
            if let Some(progress) = all.get_mut(&(Arc::clone(topic), *partition)) {
                progress.written = progress.written.max(*next);
            }
        }
    }

    /// Returns the number of offsets between the messages on disk and the ends of the partitions.
    pub(super) fn total(&self) -> u64 {
        let lag = |progress: &Progress| {
            let is_all_written = progress.written >= progress.passed_on;
            let done = if is_all_written { progress.read } else { progress.written };
            u64::try_from(progress.end.saturating_sub(done)).unwrap_or(0)
        };
        self.lock().values().map(lag).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Arc<str>, i32), Progress>> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Lags, OffsetToken};

    #[test]
    fn records_that_are_no_messages_do_not_wait() {
        let (lags, topic) = (Lags::default(), Arc::from("t"));
        lags.note_start(&topic, 0, 5);
        assert_eq!(lags.total(), 0);
        // Offsets 5 to 9, of which 9 is a tombstone, and 10 to 19 are still in the cluster.
        lags.note_read(&topic, 0, 20, 10, Some(9));
        assert_eq!(lags.total(), 15);
        lags.note_written(&[OffsetToken { topic: Arc::clone(&topic), partition: 0, next: 7 }]);
        assert_eq!(lags.total(), 13);
        lags.note_written(&[OffsetToken { topic: Arc::clone(&topic), partition: 0, next: 9 }]);
        assert_eq!(lags.total(), 10);
        lags.note_read(&topic, 0, 20, 20, None);
        assert_eq!(lags.total(), 0);
    }
}
