//! The table `seeds`: facts from crawls. The stores write it with their batches.

use super::{Records, Statement, StoreError, read_all, statements, value::values};
use crate::model::Uri;

statements! {
    AFTER = "SELECT number, object FROM seeds WHERE number > $1 ORDER BY number LIMIT $2";
}

/// Facts from crawls that no change contains.
pub trait SeedStore: Records {
    /// Returns the objects of up to `limit` facts after this number, in their order, each with the number of its fact.
    /// Numbers have no gaps, but retention removes the oldest facts.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn seeded_after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Uri)>, StoreError> {
        let query = Statement::new(AFTER, values![number, limit]);
        read_all(self, &[query], |row| Ok((row.unsigned(0)?, row.uri(1)?)))
    }
}

impl<S: Records + ?Sized> SeedStore for S {}
