//! The tables `seeds` (facts from crawls, ordered between the changes) and `walks` (progress of crawls).

use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::value::params;
use super::{changes, rows};
use crate::{
    journal::{
        seed::{CrawlProgress, RegistryDelta},
        store::{Seed, StoreError, WriteBatch},
    },
    model::{Seq, SourceName, Uri},
};

const INSERT: &str = "INSERT OR FAIL INTO seeds (number, seq, object, filled) VALUES (?, ?, ?, ?)";

const READ: &str = "SELECT number, seq, object, filled FROM seeds WHERE number > ? ORDER BY number";

/// Query without results, for a journal of an older version that has no table `seeds`.
const READ_NONE: &str = "SELECT number, seq, '', '' FROM (SELECT 0 AS number, 0 AS seq) WHERE number > ?";

const WRITE_WALK: &str = "INSERT OR REPLACE INTO walks (source, id, part, place, objects, began, moved, done) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

const READ_WALK: &str = "SELECT id, part, place, objects, began, moved, done FROM walks WHERE source = ?";

/// Name in `meta` of the number of the newest seed, which outlasts the removal of the seed by retention.
pub(super) const NEWEST: &str = "seeds_moved";

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

/// A row of `seeds`: new facts about one object.
pub(super) struct SeedRow {
    /// Change after which the seed is ordered.
    pub(super) change: Seq,
    pub(super) object: Uri,
    pub(super) delta: RegistryDelta,
}

/// Returns the SQL for [`SeedRows`]. Its parameter is the number of a seed; the query returns later seeds.
pub(super) fn select_sql(connection: &Connection) -> rusqlite::Result<&'static str> {
    let has_table = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'seeds'")?.exists([])?;
    Ok(if has_table { READ } else { READ_NONE })
}

/// Cursor over the seeds, for merging them with the changes.
pub(super) struct SeedRows<'s> {
    rows: rusqlite::Rows<'s>,
    next: Option<SeedRow>,
}

impl<'s> SeedRows<'s> {
    pub(super) fn new(rows: rusqlite::Rows<'s>) -> Result<Self, StoreError> {
        let mut rows = Self { rows, next: None };
        rows.step()?;
        Ok(rows)
    }

    /// Returns the next seed if it is ordered before this change; the next of all seeds if there is no further change.
    pub(super) fn next_before(&mut self, change: Option<Seq>) -> Result<Option<SeedRow>, StoreError> {
        let due = self.next.take_if(|next| change.is_none_or(|change| next.change < change));
        if due.is_some() {
            self.step()?;
        }
        Ok(due)
    }

    fn step(&mut self) -> Result<(), StoreError> {
        self.next = self.rows.next()?.map(read_seed).transpose()?;
        Ok(())
    }
}

fn read_seed(row: &Row<'_>) -> Result<SeedRow, StoreError> {
    Ok(SeedRow {
        change: rows::seq(row.get(1)?)?,
        object: rows::uri(&row.get::<_, String>(2)?)?,
        delta: rows::json(&row.get::<_, String>(3)?)?,
    })
}

/// Writes the progress of crawls.
pub(super) fn write_crawls(connection: &Connection, walks: &[CrawlProgress]) -> Result<(), StoreError> {
    for CrawlProgress { source, id, parts, position, objects, started, updated, finished } in walks {
        connection.prepare_cached(WRITE_WALK)?.execute(params![
            source.as_str(),
            id.as_bytes().as_slice(),
            rows::number(*parts),
            position.as_ref(),
            rows::number(*objects),
            started.millis(),
            updated.millis(),
            finished,
        ])?;
    }
    Ok(())
}

/// Reads the progress of the newest crawl of a source.
pub(super) fn crawl_progress(
    connection: &Connection,
    source: &SourceName,
) -> Result<Option<CrawlProgress>, StoreError> {
    let mut statement = connection.prepare_cached(READ_WALK)?;
    let read = |row: &Row<'_>| -> rusqlite::Result<_> {
        let unsigned = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
        let (id, position): (Vec<u8>, String) = (row.get(0)?, row.get(2)?);
        Ok((id, unsigned(1)?, position, unsigned(3)?, row.get::<_, i64>(4)?, row.get::<_, i64>(5)?, row.get(6)?))
    };
    let row = statement.query_row(params![source.as_str()], read).optional()?;
    let Some((id, parts, position, objects, started, updated, finished)) = row else { return Ok(None) };
    Ok(Some(CrawlProgress {
        source: source.clone(),
        id: Uuid::from_slice(&id).map_err(rows::damaged)?,
        parts,
        position: position.into(),
        objects,
        started: rows::time(started)?,
        updated: rows::time(updated)?,
        finished,
    }))
}
