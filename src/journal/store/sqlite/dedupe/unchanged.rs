//! Keys of events without effect. For sources whose states may recur, the journal must detect a repeat of such an
//! event, because it could undo a later change.

use foldhash::HashSet;
use rusqlite::Connection;

use super::super::rows;
use super::super::value::params;
use crate::journal::store::{EventKey, StoreError, StoreLimits, WriteBatch};

/// Maximum number of outdated keys that a batch removes, so that no batch takes long.
const MAX_REMOVED_KEYS: i64 = 2048;

/// Adds the keys that the table has to `found`.
pub(in super::super) fn find(
    connection: &Connection,
    keys: &[EventKey],
    found: &mut HashSet<EventKey>,
) -> Result<(), StoreError> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached("SELECT 1 FROM unchanged WHERE key = ?")?;
    for key in keys {
        if statement.exists(params![key.0.as_slice()])? {
            found.insert(*key);
        }
    }
    Ok(())
}

/// Writes the new keys, and removes some keys that are out of the deduplication window.
pub(in super::super) fn write(
    connection: &Connection,
    limits: StoreLimits,
    batch: &WriteBatch,
) -> Result<(), StoreError> {
    if batch.unchanged.is_empty() {
        return Ok(());
    }
    let now = batch.received.millis();
    let mut insert = connection.prepare_cached("INSERT OR IGNORE INTO unchanged (key, received) VALUES (?, ?)")?;
    for key in &batch.unchanged {
        insert.execute(params![key.0.as_slice(), now])?;
    }
    let sql = "DELETE FROM unchanged WHERE received < ?1
               AND number <= (SELECT max(number) FROM unchanged) - ?2
               AND number < (SELECT min(number) FROM unchanged) + ?3";
    let max_keys = rows::number(limits.dedupe_events);
    connection.prepare_cached(sql)?.execute(params![now - limits.dedupe_millis, max_keys, MAX_REMOVED_KEYS])?;
    Ok(())
}
