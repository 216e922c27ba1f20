//! Removal of the oldest changes, a few at a time, so that no append waits for long.

use rusqlite::{Connection, TransactionBehavior};

use super::value::params;
use super::{SqliteStore, rows};
use crate::{journal::store::StoreError, model::Seq};

/// Number of free pages that stay in the file for later changes: 2 MiB. Under a steady load the file therefore
/// keeps its size, and no page is moved.
const SPARE_PAGES: i64 = 256;

/// Maximum number of pages that one removal returns to the file system: 1 MiB.
const MAX_VACUUM_PAGES: i64 = 128;

/// Maximum number of seeds in one removal.
const MAX_REMOVED_SEEDS: i64 = 1024;

/// Deletes seeds that are ordered before the oldest change. The numbers and the positions of seeds increase together.
const DELETE_SEEDS: &str = "DELETE FROM seeds WHERE number IN (
         SELECT number FROM (SELECT number, seq FROM seeds ORDER BY number LIMIT ?)
         WHERE seq + 1 < (SELECT min(seq) FROM changes))";

/// Query for the newest change to remove. It selects by number, because only the oldest changes may be removed.
macro_rules! last_to_remove {
    () => {
        "SELECT max(seq) FROM (
             SELECT seq FROM changes WHERE seq < min(?, (SELECT max(seq) FROM changes)) ORDER BY seq LIMIT ?)"
    };
}

impl SqliteStore {
    pub(super) fn prune_changes(&self, before: Seq, at_most: usize) -> Result<usize, StoreError> {
        let side = &mut *self.write_side()?;
        if let Some(last) = last_to_remove(&side.connection, before, at_most)? {
            // A key that is in no run yet would be lost with the row of its change.
            let transaction = side.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let key_updates = side.keys.flush_up_to(&transaction, self.options, last)?;
            transaction.commit()?;
            side.keys.apply(key_updates);
        }
        prune(&mut side.connection, before, at_most)
    }
}

/// Returns the newest of the changes to remove.
fn last_to_remove(connection: &Connection, before: Seq, at_most: usize) -> Result<Option<Seq>, StoreError> {
    let last = connection
        .prepare_cached(last_to_remove!())?
        .query_row(params![rows::number(before.0), rows::number(at_most as u64)], |row| row.get::<_, Option<i64>>(0))?;
    last.map(rows::seq).transpose()
}

fn prune(connection: &mut Connection, before: Seq, at_most: usize) -> Result<usize, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let sql = concat!("DELETE FROM changes WHERE seq <= (", last_to_remove!(), ")");
    let bounds = params![rows::number(before.0), rows::number(at_most as u64)];
    let removed = transaction.prepare_cached(sql)?.execute(bounds)?;
    transaction.prepare_cached(DELETE_SEEDS)?.execute(params![MAX_REMOVED_SEEDS])?;
    let free: i64 = transaction.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    let excess = (free - SPARE_PAGES).min(MAX_VACUUM_PAGES);
    if excess > 0 {
        // The pragma returns a row for each page, and stops when no further row is read.
        let mut vacuum = transaction.prepare(&format!("PRAGMA incremental_vacuum({excess})"))?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {}
    }
    transaction.commit()?;
    Ok(removed)
}
