//! Reading of tables page by page.

use std::vec::IntoIter;

use super::{Cell, Row, Table};
use crate::journal::store::{StoreError, rows};

/// Maximum number of rows of a page.
pub(in crate::journal::store) const PAGE_ROWS: usize = 2048;

/// Size of the rows in memory after which a page ends, in bytes.
pub(in crate::journal::store) const PAGE_BYTES: usize = 4 << 20;

/// Reader of a store's tables, all from one consistent snapshot.
pub(in crate::journal::store) trait TableReader {
    /// Returns the number of rows.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn count(&self, table: Table) -> Result<u64, StoreError>;

    /// Returns the rows after the key `after` in order of their keys, at most [`PAGE_ROWS`]. A page ends early at
    /// [`PAGE_BYTES`], and is empty only if no row is left. An empty key is before all rows.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn page(&self, table: Table, after: &[Cell]) -> Result<Vec<Row>, StoreError>;
}

/// Iterator over the rows of a table. It ends after an error.
pub(in crate::journal::store) struct TableRows<'r> {
    reader: &'r dyn TableReader,
    table: Table,
    page: IntoIter<Row>,
    /// Key of the last row.
    after: Vec<Cell>,
    has_ended: bool,
}

impl<'r> TableRows<'r> {
    /// Creates an iterator over all rows.
    pub(in crate::journal::store) fn new(reader: &'r dyn TableReader, table: Table) -> Self {
        Self { reader, table, page: Vec::new().into_iter(), after: Vec::new(), has_ended: false }
    }

    fn step(&mut self) -> Result<Option<Row>, StoreError> {
        if self.page.len() == 0 {
            self.page = self.reader.page(self.table, &self.after)?.into_iter();
        }
        let Some(row) = self.page.next() else { return Ok(None) };
        // Without this check, an index that contradicts its table could make the iteration endless.
        if row.key() <= self.after.as_slice() {
            return Err(rows::damaged(format!("the rows of {} are not in the order of their keys", self.table.name())));
        }
        self.after.clear();
        self.after.extend_from_slice(row.key());
        Ok(Some(row))
    }
}

impl Iterator for TableRows<'_> {
    type Item = Result<Row, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.step().transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}
