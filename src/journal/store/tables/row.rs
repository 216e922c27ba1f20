//! Rows of tables, with cells by the names of their columns.

use std::fmt;

use uuid::Uuid;

use super::Table;
use crate::{
    journal::store::{StoreError, rows},
    model::{Seq, Timestamp},
};

/// Value of a column. The order of texts is that of their octets. The `Debug` output has no value, because some values
/// are secrets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::journal::store) enum Cell {
    /// No value.
    Null,
    /// Integer, or 0 or 1 for a truth value.
    Integer(i64),
    /// Text.
    Text(String),
    /// Octets.
    Bytes(Vec<u8>),
}

impl Cell {
    /// Returns the approximate size in memory, in bytes.
    pub(in crate::journal::store) fn size(&self) -> usize {
        match self {
            Self::Null | Self::Integer(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "Null",
            Self::Integer(_) => "Integer",
            Self::Text(_) => "Text",
            Self::Bytes(_) => "Bytes",
        })
    }
}

/// Row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::journal::store) struct Row {
    table: Table,
    cells: Vec<Cell>,
}

impl Row {
    /// Creates a row from a cell for each column of the table.
    pub(in crate::journal::store) fn new(table: Table, cells: Vec<Cell>) -> Self {
        Self { table, cells }
    }

    /// Returns the cells in the order of the columns.
    pub(in crate::journal::store) fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the cells of the key.
    pub(in crate::journal::store) fn key(&self) -> &[Cell] {
        &self.cells[..self.table.key_length().min(self.cells.len())]
    }

    /// Returns the approximate size in memory, in bytes.
    pub(in crate::journal::store) fn size(&self) -> usize {
        self.cells.iter().map(Cell::size).sum()
    }

    fn cell(&self, column: &str) -> &Cell {
        let index = self.table.columns().iter().position(|(name, _)| *name == column);
        debug_assert!(index.is_some(), "{} has no column {column}", self.table.name());
        index.and_then(|index| self.cells.get(index)).unwrap_or(&Cell::Null)
    }

    fn wrong(&self, column: &str) -> StoreError {
        rows::damaged(format!("the column {column} of {} has a value of a wrong type", self.table.name()))
    }

    /// Reads an integer, if there is one.
    pub(in crate::journal::store) fn optional_integer(&self, column: &str) -> Result<Option<i64>, StoreError> {
        match self.cell(column) {
            Cell::Null => Ok(None),
            Cell::Integer(value) => Ok(Some(*value)),
            _ => Err(self.wrong(column)),
        }
    }

    /// Reads an integer.
    pub(in crate::journal::store) fn integer(&self, column: &str) -> Result<i64, StoreError> {
        self.optional_integer(column)?.ok_or_else(|| self.wrong(column))
    }

    /// Reads an integer that is not negative.
    pub(in crate::journal::store) fn unsigned(&self, column: &str) -> Result<u64, StoreError> {
        u64::try_from(self.integer(column)?).map_err(rows::damaged)
    }

    /// Reads the number of a change.
    pub(in crate::journal::store) fn seq(&self, column: &str) -> Result<Seq, StoreError> {
        rows::seq(self.integer(column)?)
    }

    /// Reads a time.
    pub(in crate::journal::store) fn time(&self, column: &str) -> Result<Timestamp, StoreError> {
        rows::time(self.integer(column)?)
    }

    /// Reads a time, if there is one.
    pub(in crate::journal::store) fn optional_time(&self, column: &str) -> Result<Option<Timestamp>, StoreError> {
        self.optional_integer(column)?.map(rows::time).transpose()
    }

    /// Reads a truth value.
    pub(in crate::journal::store) fn boolean(&self, column: &str) -> Result<bool, StoreError> {
        Ok(self.integer(column)? != 0)
    }

    /// Reads a text, if there is one.
    pub(in crate::journal::store) fn optional_text(&self, column: &str) -> Result<Option<&str>, StoreError> {
        match self.cell(column) {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            _ => Err(self.wrong(column)),
        }
    }

    /// Reads a text.
    pub(in crate::journal::store) fn text(&self, column: &str) -> Result<&str, StoreError> {
        self.optional_text(column)?.ok_or_else(|| self.wrong(column))
    }

    /// Reads a UUID.
    pub(in crate::journal::store) fn uuid(&self, column: &str) -> Result<Uuid, StoreError> {
        Uuid::from_slice(self.bytes(column)).map_err(rows::damaged)
    }

    /// Returns the octets of a text or of another value; nothing for a number.
    pub(in crate::journal::store) fn bytes(&self, column: &str) -> &[u8] {
        match self.cell(column) {
            Cell::Text(text) => text.as_bytes(),
            Cell::Bytes(bytes) => bytes,
            Cell::Null | Cell::Integer(_) => &[],
        }
    }
}
