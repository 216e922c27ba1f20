//! The error of the journal.

use std::time::Duration;

use super::store::StoreError;
use crate::model::Seq;

/// Reasons why the journal could not execute a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The writer did not execute the command in time: its queue is full, or the disk is slow.
    #[error("the journal is busy: there was no answer within {} seconds; try again", .0.as_secs())]
    Busy(Duration),
    /// Retention has removed changes after a reader's cursor, or the journal never gave that number.
    #[error("changes after {after} are no longer available: the oldest available change has the number {first}")]
    Gone {
        /// The reader's cursor.
        after: Seq,
        /// Number of the oldest available change; of the next change, while there is none.
        first: Seq,
    },
    /// The gateway is stopping.
    #[error("the gateway is stopping; try again after its restart")]
    Closed,
}

impl JournalError {
    /// Returns whether the same call may succeed later, without a repair of the journal.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Busy(_) | Self::Closed => true,
            Self::Gone { .. } => false,
        }
    }

    /// Returns whether the write was refused because another node has the duty now, which is no failure.
    #[must_use]
    pub fn is_lost_duty(&self) -> bool {
        matches!(self, Self::Store(StoreError::DutyLost))
    }

    /// Returns whether the storage has failed for a while, or is too slow. The journal logs that by itself.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store(StoreError::DutyLost) | Self::Closed | Self::Gone { .. } => false,
            Self::Store(error) => error.is_transient(),
            Self::Busy(_) => true,
        }
    }
}
