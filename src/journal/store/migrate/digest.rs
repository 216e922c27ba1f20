//! Digests of tables, by which the copy of a journal is compared with its source.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{MigrationError, MigrationSource, MigrationTarget};
use crate::{
    journal::store::{
        StoreError,
        tables::{Cell, Row, Table, TableReader, TableRows},
    },
    text::storable,
};

/// Number and digest of the rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDigest {
    /// Number of rows.
    pub rows: u64,
    /// SHA-256 over the rows in order of their keys.
    pub digest: [u8; 32],
}

/// A table of the source and its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableComparison {
    /// Name of the table.
    pub table: &'static str,
    /// The table of the source.
    pub source: TableDigest,
    /// The table of the target.
    pub target: TableDigest,
}

impl TableComparison {
    pub(super) fn new(
        table: Table,
        source: &dyn MigrationSource,
        target: &dyn MigrationTarget,
        progress: &mut dyn FnMut(),
    ) -> Result<Self, MigrationError> {
        Ok(Self {
            table: table.name(),
            source: TableDigest::new(table, source, progress).map_err(MigrationError::Source)?,
            target: TableDigest::new(table, target, progress).map_err(MigrationError::Target)?,
        })
    }

    /// Returns whether both sides have the same rows.
    pub(super) fn is_equal(&self) -> bool {
        self.source == self.target
    }
}

impl TableDigest {
    /// Reads all rows. Calls `progress` for each.
    fn new(table: Table, reader: &dyn TableReader, progress: &mut dyn FnMut()) -> Result<Self, StoreError> {
        let (mut hash, mut rows) = (Sha256::new(), 0);
        for row in TableRows::new(reader, table) {
            update(&mut hash, table, &row?);
            rows += 1;
            progress();
        }
        Ok(Self { rows, digest: hash.finalize().into() })
    }
}

impl fmt::Display for TableDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows, {}", self.rows, hex::encode(&self.digest[..8]))
    }
}

/// Adds a row to a digest. The type and the length of each value precede it, so that different rows never give the same
/// octets.
fn update(hash: &mut Sha256, table: Table, row: &Row) {
    let mut part = |kind: u8, bytes: &[u8]| {
        hash.update([kind]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for cell in &row.cells()[..table.exact_columns()] {
        match cell {
            Cell::Null => part(0, &[]),
            Cell::Integer(value) => part(1, &value.to_be_bytes()),
            // An older SQLite journal may have a NUL, which the target stores in another form.
            Cell::Text(text) => part(2, storable(text).as_bytes()),
            Cell::Bytes(bytes) => part(3, bytes),
        }
    }
}
