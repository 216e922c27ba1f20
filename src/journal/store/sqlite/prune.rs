//! Taking away the oldest changes, a few at a time, so that an append never waits for long.

use rusqlite::{Connection, TransactionBehavior, params};

use super::{SqliteStore, rows};
use crate::{journal::store::StoreError, model::Seq};

/// How many free pages stay in the file for the changes to come: 2 MiB. Under a steady load the file
/// keeps its size, and nothing is moved about.
const SPARE_PAGES: i64 = 256;

/// How many pages are given back to the file system at once at the most: 1 MiB.
const PAGES_GIVEN_BACK: i64 = 128;

/// How many seeds go at once at the most.
const SEEDS_AT_ONCE: i64 = 1024;

/// Seeds whose place is among changes that are gone; seeds and their places both go up.
const SEEDS_TO_GO: &str = "DELETE FROM seeds WHERE number IN (
         SELECT number FROM (SELECT number, seq FROM seeds ORDER BY number LIMIT ?)
         WHERE seq + 1 < (SELECT min(seq) FROM changes))";

/// By number and not by count alone: what is to go is a beginning of the journal.
macro_rules! last_to_go {
    () => {
        "SELECT max(seq) FROM (
             SELECT seq FROM changes WHERE seq < min(?, (SELECT max(seq) FROM changes)) ORDER BY seq LIMIT ?)"
    };
}

impl SqliteStore {
    pub(super) fn prune_changes(&self, before: Seq, at_most: usize) -> Result<usize, StoreError> {
        let side = &mut *self.write_side();
        if let Some(last) = last_to_go(&side.connection, before, at_most)? {
            // The key of an event that is in no run stands in the row of its change alone.
            let transaction = side.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let written = side.keys.write_up_to(&transaction, self.options, last)?;
            transaction.commit()?;
            side.keys.committed(written);
        }
        prune(&mut side.connection, before, at_most)
    }
}

/// The newest of the changes that are to go.
fn last_to_go(connection: &Connection, before: Seq, at_most: usize) -> Result<Option<Seq>, StoreError> {
    let last = connection
        .prepare_cached(last_to_go!())?
        .query_row(params![rows::number(before.0), rows::number(at_most as u64)], |row| row.get::<_, Option<i64>>(0))?;
    last.map(rows::seq).transpose()
}

fn prune(connection: &mut Connection, before: Seq, at_most: usize) -> Result<usize, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let sql = concat!("DELETE FROM changes WHERE seq <= (", last_to_go!(), ")");
    let bounds = params![rows::number(before.0), rows::number(at_most as u64)];
    let removed = transaction.prepare_cached(sql)?.execute(bounds)?;
    transaction.prepare_cached(SEEDS_TO_GO)?.execute([SEEDS_AT_ONCE])?;
    let free: i64 = transaction.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    let excess = (free - SPARE_PAGES).min(PAGES_GIVEN_BACK);
    if excess > 0 {
        // It gives a row for each page, and stops when nobody asks for the next.
        let mut vacuum = transaction.prepare(&format!("PRAGMA incremental_vacuum({excess})"))?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {}
    }
    transaction.commit()?;
    Ok(removed)
}
