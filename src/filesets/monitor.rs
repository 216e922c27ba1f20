//! Progress of the jobs that this process runs.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::journal::ingest::JobId;

/// Progress of an ingest, for people.
#[derive(Debug)]
pub struct IngestProgress {
    /// Number of files of the dataset.
    pub files: AtomicU64,
    /// Number of files that are stored.
    pub done_files: AtomicU64,
    /// Sum of the sizes in the list of the platform, in bytes.
    pub bytes: AtomicU64,
    /// Number of bytes that are stored.
    pub done_bytes: AtomicU64,
    /// Number of these bytes that were stored before the ingest began.
    pub known_bytes: AtomicU64,
    /// Number of files that this attempt has downloaded.
    pub gained_files: AtomicU64,
    began: Instant,
}

impl Default for IngestProgress {
    fn default() -> Self {
        let [files, done_files, bytes, done_bytes, known_bytes, gained_files] = [const { AtomicU64::new(0) }; 6];
        Self { files, done_files, bytes, done_bytes, known_bytes, gained_files, began: Instant::now() }
    }
}

/// Numbers of an ingest at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestNumbers {
    /// Number of files of the dataset; 0 before its platform has answered.
    pub files: u64,
    /// Number of files that are stored.
    pub done_files: u64,
    /// Sum of the sizes in the list of the platform, in bytes.
    pub bytes: u64,
    /// Number of bytes that are stored.
    pub done_bytes: u64,
    /// Mean number of bytes that were downloaded in a second.
    pub bytes_per_second: u64,
}

impl IngestProgress {
    /// Counts the bytes of a file that was stored before the ingest began.
    pub(super) fn add_known(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.known_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the numbers at this moment.
    #[must_use]
    pub fn numbers(&self) -> IngestNumbers {
        let Self { files, done_files, bytes, done_bytes, known_bytes, began, .. } = self;
        let [files, done_files, bytes, done_bytes, known_bytes] =
            [files, done_files, bytes, done_bytes, known_bytes].map(|count| count.load(Ordering::Relaxed));
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let bytes_per_second = done_bytes.saturating_sub(known_bytes).saturating_mul(1000) / millis;
        IngestNumbers { files, done_files, bytes, done_bytes, bytes_per_second }
    }
}

/// Progress of the jobs that this process runs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct IngestMonitor(Arc<Mutex<HashMap<JobId, Arc<IngestProgress>>>>);

impl IngestMonitor {
    /// Returns the numbers of a job; `None` if this process does not run it.
    #[must_use]
    pub fn numbers(&self, job: JobId) -> Option<IngestNumbers> {
        self.jobs().get(&job).map(|progress| progress.numbers())
    }

    pub(super) fn insert(&self, job: JobId, progress: &Arc<IngestProgress>) {
        self.jobs().insert(job, Arc::clone(progress));
    }

    pub(super) fn remove(&self, job: JobId) {
        self.jobs().remove(&job);
    }

    pub(super) fn remove_all<'a>(&self, jobs: impl Iterator<Item = &'a JobId>) {
        let mut running = self.jobs();
        jobs.for_each(|job| drop(running.remove(job)));
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, Arc<IngestProgress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
