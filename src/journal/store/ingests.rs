//! The part of a store about ingests: jobs that archive datasets, and the newest results of objects.

use super::StoreError;
use crate::{
    journal::ingest::{IngestJob, JobSelection, ObjectResult},
    model::{SourceName, Timestamp, Uri},
};

/// Jobs and results. Both are written with the changes of a batch ([`WriteBatch`](super::WriteBatch)): jobs with the
/// progress of their harvest, results with the changes that have them.
pub trait IngestStore {
    /// Returns up to `limit` jobs.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn ingest_jobs(&self, selection: &JobSelection, limit: usize) -> Result<Vec<IngestJob>, StoreError>;

    /// Returns the time at which the next job of a source is due.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn next_ingest(&self, source: &SourceName) -> Result<Option<Timestamp>, StoreError>;

    /// Returns the newest result of work on an object.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn object_result(&self, object: &Uri) -> Result<Option<ObjectResult>, StoreError>;
}
