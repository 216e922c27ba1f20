//! Reading of columns. A column that cannot be read was not written by the gateway: the journal is damaged.

use tokio_postgres::{Row, types::FromSql};

use crate::{
    journal::store::{StoreError, rows},
    model::{Seq, Timestamp},
};

/// Reads a column.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(|error| rows::damaged(super::error::describe(&error)))
}

/// Reads a column with a number of a change.
pub(super) fn seq(row: &Row, index: usize) -> Result<Seq, StoreError> {
    rows::seq(get(row, index)?)
}

/// Reads a column with a number that is not negative.
pub(super) fn unsigned(row: &Row, index: usize) -> Result<u64, StoreError> {
    u64::try_from(get::<i64>(row, index)?).map_err(rows::damaged)
}

/// Reads a column with a time.
pub(super) fn time(row: &Row, index: usize) -> Result<Timestamp, StoreError> {
    rows::time(get(row, index)?)
}
