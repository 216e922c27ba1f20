//! Losses of the newest changes, by a restore from a backup or a failover of the database. The numbering continues far above,
//! under another identity of the journal.

use std::sync::Arc;

use uuid::Uuid;

use super::{
    Journal, JournalError,
    store::{RestoreStore, StoreError, time_of_loss},
};
use crate::model::{Seq, Timestamp};

impl Journal {
    /// Returns the ranges of numbers that restores and failovers have skipped: after the first number, up to the second.
    #[must_use]
    pub fn skipped_ranges(&self) -> Arc<[(Seq, Seq)]> {
        self.facts.skipped_ranges()
    }

    /// Returns the last loss of changes, by a restore or a failover: the number after which the numbering continued, and the time;
    /// `None` if the journal has lost none.
    #[must_use]
    pub fn last_loss(&self) -> Option<(Seq, Timestamp)> {
        let floor = self.skipped_ranges().iter().map(|(_, floor)| *floor).max()?;
        Some((floor, time_of_loss(floor)?))
    }

    /// Returns whether a reader's position is one of this journal: `is_of` says which identity the reader knows, and `after` is
    /// the newest change that it has. A restore and a failover end an identity at a number, and positions up to there stay.
    ///
    /// # Errors
    /// Fails if the store fails. It is unavailable if this node does not know the identity, and has not read the news of a
    /// failover yet, from which the reader may have it.
    pub async fn has_position(&self, is_of: impl Fn(Uuid) -> bool, after: Seq) -> Result<bool, JournalError> {
        let present = self.identity();
        if is_of(present) {
            return Ok(true);
        }
        let ended = self.read(RestoreStore::ended_identities).await?;
        let has_position = ended.iter().any(|(identity, last)| is_of(*identity) && after <= *last);
        if !has_position && ended.iter().any(|(identity, _)| *identity == present) {
            let reason = "the database has failed over, and this node reads the news at this moment";
            return Err(StoreError::Unavailable(reason.to_owned()).into());
        }
        Ok(has_position)
    }
}
