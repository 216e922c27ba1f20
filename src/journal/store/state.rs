//! Facts about a journal that other nodes may change.

use uuid::Uuid;

use super::StoreError;
use crate::model::Seq;

/// State of a journal that several nodes share, read in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalState {
    /// Identity of the journal.
    pub identity: Uuid,
    /// Number of the newest change.
    pub head: Seq,
    /// Number of the oldest available change; `None` if there is no change yet.
    pub first: Option<Seq>,
    /// Ranges of numbers that restores and failovers have skipped: after the first number, up to the second.
    pub skipped_ranges: Vec<(Seq, Seq)>,
}

impl JournalState {
    /// Returns the newest number that a restore or a failover has skipped. The number only grows.
    #[must_use]
    pub fn floor(&self) -> Seq {
        self.skipped_ranges.last().map_or(Seq::ZERO, |(_, floor)| *floor)
    }
}

/// Follows the writes of other nodes.
pub trait StateWatch {
    /// Waits until another node has written, at most for a short time, and reads the state. After an error, the next
    /// call waits longer.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn next(&mut self) -> Result<JournalState, StoreError>;
}
