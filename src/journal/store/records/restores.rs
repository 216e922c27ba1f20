//! The table `restores`: the identities that a restore or a failover has ended.

use uuid::Uuid;

use super::{Records, Statement, StoreError, read_all, statements};
use crate::model::Seq;

statements! {
    ENDED = "SELECT identity, head FROM restores WHERE identity IS NOT NULL ORDER BY head";
}

/// Restores and failovers of the journal.
pub trait RestoreStore: Records {
    /// Returns the former identities of the journal, each with the number of the last change that it still has.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn ended_identities(&self) -> Result<Vec<(Uuid, Seq)>, StoreError> {
        read_all(self, &[Statement::new(ENDED, [])], |row| Ok((row.uuid(0)?, row.seq(1)?)))
    }
}

impl<S: Records + ?Sized> RestoreStore for S {}
