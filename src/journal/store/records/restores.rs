//! The table `restores`: the identities that a restore or a failover has ended.

use uuid::Uuid;

use super::{super::rows, Records, Statement, StoreError, read_all, statements};
use crate::model::Seq;

statements! {
    ENDED = "SELECT identities, head FROM restores WHERE identities IS NOT NULL ORDER BY head";
}

/// Restores and failovers of the journal.
pub trait RestoreStore: Records {
    /// Returns the former identities of the journal, each with the number of the last change that it still has.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn ended_identities(&self) -> Result<Vec<(Uuid, Seq)>, StoreError> {
        let ended = read_all(self, &[Statement::new(ENDED, [])], |row| {
            let last = row.seq(1)?;
            let identity = |text: &str| Ok((Uuid::parse_str(text).map_err(rows::damaged)?, last));
            row.text(0)?.split(' ').map(identity).collect::<Result<Vec<_>, StoreError>>()
        })?;
        Ok(ended.into_iter().flatten().collect())
    }
}

impl<S: Records + ?Sized> RestoreStore for S {}
