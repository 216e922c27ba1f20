//! The table `seeds`: facts from crawls, ordered between the changes.

use rusqlite::Connection;

use super::value::params;
use super::{changes, rows};
use crate::journal::store::{Seed, StoreError, WriteBatch};

const INSERT: &str = "INSERT OR FAIL INTO seeds (number, seq, object, delta) VALUES (?, ?, ?, ?)";

/// Name in `meta` of the number of the newest seed, which outlasts the removal of the seed by retention.
pub(super) const NEWEST: &str = "newest_seed";

/// Returns the number of the newest seed ever written.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(number) FROM seeds), 0), \
                   coalesce((SELECT value FROM meta WHERE name = ?), 0))";
    connection.query_row(sql, [NEWEST], |row| row.get(0))
}

/// Writes the seeds of a batch as the rows after `newest`, ordered after the changes of the batch; returns the
/// number of the last seed, if there is one.
pub(super) fn write(connection: &Connection, newest: i64, batch: &WriteBatch) -> Result<Option<i64>, StoreError> {
    if batch.seeds.is_empty() {
        return Ok(None);
    }
    let head = match batch.changes.last() {
        Some(newest) => newest.change.seq,
        None => changes::head(connection)?,
    };
    let mut statement = connection.prepare_cached(INSERT)?;
    let mut number = newest;
    for Seed { object, delta } in &batch.seeds {
        number += 1;
        let delta = rows::to_json(delta)?;
        statement.execute(params![number, rows::number(head.0), object.as_str(), delta])?;
    }
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)")?
        .execute(params![NEWEST, number])?;
    Ok(Some(number))
}
