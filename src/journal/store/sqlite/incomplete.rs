//! The table `incomplete`: changes whose lookup must be repeated.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::rows;
use super::value::params;
use crate::{
    journal::store::{IncompleteChange, StoreError, WriteBatch},
    model::{MissingFacts, Seq, SourceName},
};

/// Inserts rows for the incomplete changes of a batch, and deletes the rows of the changes that the batch completes.
pub(super) fn write(connection: &Connection, batch: &WriteBatch) -> Result<(), StoreError> {
    for seq in &batch.completed {
        connection.prepare_cached("DELETE FROM incomplete WHERE seq = ?")?.execute(params![rows::number(seq.0)])?;
    }
    for new in &batch.changes {
        let Some(missing) = new.incomplete else { continue };
        let json = std::str::from_utf8(&new.json).map_err(rows::damaged)?;
        let source = new.change.modification.origin.source.as_str();
        connection
            .prepare_cached("INSERT INTO incomplete (seq, source, untold, json) VALUES (?, ?, ?, ?)")?
            .execute(params![rows::number(new.change.seq.0), source, missing.name(), json])?;
    }
    Ok(())
}

/// Reads up to `limit` incomplete changes of a source after `after`, oldest first.
pub(super) fn after(
    connection: &Connection,
    source: &SourceName,
    after: Seq,
    limit: usize,
) -> Result<Vec<IncompleteChange>, StoreError> {
    let sql = "SELECT seq, untold, json FROM incomplete WHERE source = ? AND seq > ? ORDER BY seq LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut result = statement.query(params![source.as_str(), rows::number(after.0), rows::number(limit as u64)])?;
    let mut changes = Vec::new();
    while let Some(row) = result.next()? {
        let name: String = row.get(1)?;
        let missing = MissingFacts::ALL.into_iter().find(|missing| missing.name() == name);
        changes.push(IncompleteChange {
            seq: rows::seq(row.get(0)?)?,
            missing: missing.ok_or_else(|| rows::damaged(format!("unknown kind of missing facts: {name}")))?,
            json: row.get::<_, String>(2)?.into(),
        });
    }
    Ok(changes)
}

/// Returns the number of incomplete changes of each source that has any.
pub(super) fn counts(connection: &Connection) -> Result<BTreeMap<SourceName, u64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT source, count(*) FROM incomplete GROUP BY source")?;
    let mut result = statement.query([])?;
    let mut counts = BTreeMap::new();
    while let Some(row) = result.next()? {
        let name = SourceName::parse(&row.get::<_, String>(0)?).map_err(rows::damaged)?;
        counts.insert(name, u64::try_from(row.get::<_, i64>(1)?).map_err(rows::damaged)?);
    }
    Ok(counts)
}
