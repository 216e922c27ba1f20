//! The table of changes about which their repositories are to be asked again.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::rows;
use crate::{
    journal::store::{IncompleteChange, StoreError, WriteBatch},
    model::{MissingFacts, Seq, SourceName},
};

/// Takes over what a decision says of it. The row comes and goes with the change that makes it necessary, and with the
/// one that makes it superfluous.
pub(super) fn write(connection: &Connection, decision: &WriteBatch) -> Result<(), StoreError> {
    for seq in &decision.completed {
        connection.prepare_cached("DELETE FROM incomplete WHERE seq = ?")?.execute([rows::number(seq.0)])?;
    }
    for new in &decision.changes {
        let Some(untold) = new.incomplete else { continue };
        let json = std::str::from_utf8(&new.json).map_err(rows::damaged)?;
        let source = new.change.modification.origin.source.as_str();
        connection
            .prepare_cached("INSERT INTO incomplete (seq, source, untold, json) VALUES (?, ?, ?, ?)")?
            .execute(params![rows::number(new.change.seq.0), source, untold.name(), json])?;
    }
    Ok(())
}

/// Up to `limit` of a source after `after`, oldest first.
pub(super) fn after(
    connection: &Connection,
    source: &SourceName,
    after: Seq,
    limit: usize,
) -> Result<Vec<IncompleteChange>, StoreError> {
    let sql = "SELECT seq, untold, json FROM incomplete WHERE source = ? AND seq > ? ORDER BY seq LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![source.as_str(), rows::number(after.0), rows::number(limit as u64)])?;
    let mut all = Vec::new();
    while let Some(row) = found.next()? {
        let name: String = row.get(1)?;
        let untold = MissingFacts::ALL.into_iter().find(|untold| untold.name() == name);
        all.push(IncompleteChange {
            seq: rows::seq(row.get(0)?)?,
            missing: untold.ok_or_else(|| rows::damaged(format!("nothing is called {name}")))?,
            json: row.get::<_, String>(2)?.into(),
        });
    }
    Ok(all)
}

/// How many there are of each source that has any.
pub(super) fn counts(connection: &Connection) -> Result<BTreeMap<SourceName, u64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT source, count(*) FROM incomplete GROUP BY source")?;
    let mut found = statement.query([])?;
    let mut all = BTreeMap::new();
    while let Some(row) = found.next()? {
        let name = SourceName::parse(&row.get::<_, String>(0)?).map_err(rows::damaged)?;
        all.insert(name, u64::try_from(row.get::<_, i64>(1)?).map_err(rows::damaged)?);
    }
    Ok(all)
}
