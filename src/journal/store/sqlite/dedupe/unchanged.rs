//! The events that changed nothing: of sources whose states may come back, a repeat of one must be
//! known, or it would undo what has changed since.

use foldhash::HashSet;
use rusqlite::{Connection, params};

use super::super::rows;
use crate::journal::store::{EventKey, StoreError, StoreLimits, WriteBatch};

/// How many outdated keys an append removes at the most, so that none takes long.
const PRUNED_AT_ONCE: i64 = 2048;

/// Adds those of the keys that are known.
pub(in super::super) fn find(
    connection: &Connection,
    keys: &[EventKey],
    found: &mut HashSet<EventKey>,
) -> Result<(), StoreError> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut known = connection.prepare_cached("SELECT 1 FROM unchanged WHERE key = ?")?;
    for key in keys {
        if known.exists([key.0.as_slice()])? {
            found.insert(*key);
        }
    }
    Ok(())
}

/// Writes the new ones, and forgets some that are out of the window in which repeats are known.
pub(in super::super) fn write(
    connection: &Connection,
    limits: StoreLimits,
    decision: &WriteBatch,
) -> Result<(), StoreError> {
    if decision.unchanged.is_empty() {
        return Ok(());
    }
    let now = decision.received.millis();
    let mut insert = connection.prepare_cached("INSERT OR IGNORE INTO unchanged (key, received) VALUES (?, ?)")?;
    for key in &decision.unchanged {
        insert.execute(params![key.0.as_slice(), now])?;
    }
    let sql = "DELETE FROM unchanged WHERE received < ?1
               AND number <= (SELECT max(number) FROM unchanged) - ?2
               AND number < (SELECT min(number) FROM unchanged) + ?3";
    let kept = rows::number(limits.dedupe_events);
    connection.prepare_cached(sql)?.execute(params![now - limits.dedupe_millis, kept, PRUNED_AT_ONCE])?;
    Ok(())
}
