//! The part of a store about harvests: positions, runs, listed records and definitions.

use std::collections::HashMap;

use super::StoreError;
use crate::{
    journal::harvest::{Claim, HarvestDefinition, HarvestRecord, HarvestRun, HarvestWrite, ListedCounts, RunId},
    model::{SourceName, Timestamp},
};

/// Progress and definitions of harvests. Their progress is written with the changes of a batch
/// ([`WriteBatch`](super::WriteBatch)).
pub trait HarvestStore {
    /// Returns the position of a source's harvest; `None` if the source was never harvested and no run was requested.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn harvest(&self, source: &SourceName) -> Result<Option<HarvestRecord>, StoreError>;

    /// Returns up to `limit` runs of a source's harvest before `before` (from the newest if `None`), newest first. The
    /// store keeps the newest [`KEPT_RUNS`](crate::journal::harvest::KEPT_RUNS) of each source.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn harvest_runs(
        &self,
        source: &SourceName,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<HarvestRun>, StoreError>;

    /// Returns the numbers of a source's listed records: of all, and of those that no run since `since` has listed.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn listed_counts(&self, source: &SourceName, since: Timestamp) -> Result<ListedCounts, StoreError>;

    /// Returns up to `limit` identifiers after `after` that no run since `since` has listed, in order of their octets.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn missing_records(
        &self,
        source: &SourceName,
        since: Timestamp,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError>;

    /// Returns the validators of those of a source's listed records that have these identifiers.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn validators(&self, source: &SourceName, identifiers: &[String]) -> Result<HashMap<String, String>, StoreError>;

    /// Returns the records of other sources with these identifiers, at most
    /// [`MAX_CLAIMS`](crate::journal::harvest::MAX_CLAIMS) for each, those of the first sources.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn claims(&self, source: &SourceName, identifiers: &[String]) -> Result<Vec<Claim>, StoreError>;

    /// Returns up to `limit` records of other sources that this source lists too, in order of identifiers and sources.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn shared_records(&self, source: &SourceName, limit: usize) -> Result<Vec<Claim>, StoreError>;

    /// Modifies a source's harvest. Only its removal moves the position.
    ///
    /// # Errors
    /// Fails if the storage fails; then nothing was modified.
    fn write_harvest(&self, source: &SourceName, write: &HarvestWrite) -> Result<(), StoreError>;

    /// Returns the harvests that were made over HTTP, in order of their sources.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn harvest_definitions(&self) -> Result<Vec<HarvestDefinition>, StoreError>;
}
