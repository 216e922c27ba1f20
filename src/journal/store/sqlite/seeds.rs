//! What walks through repositories told the registry, in its place between the changes; and how far the walks are.

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

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

/// The same of a journal that no newer version has opened yet: none.
const READ_NONE: &str = "SELECT number, seq, '', '' FROM (SELECT 0 AS number, 0 AS seq) WHERE number > ?";

const WRITE_WALK: &str = "INSERT OR REPLACE INTO walks (source, id, part, place, objects, began, moved, done) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

const READ_WALK: &str = "SELECT id, part, place, objects, began, moved, done FROM walks WHERE source = ?";

/// Name in `meta` of the number of the newest seed, which is there after retention has removed the seed.
const NEWEST: &str = "seeds_moved";

/// Number of the newest seed ever written.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(number) FROM seeds), 0), \
                   coalesce((SELECT value FROM meta WHERE name = ?), 0))";
    connection.query_row(sql, [NEWEST], |row| row.get(0))
}

/// Writes the seeds of a batch as the rows after `newest`, in their place after the changes of the batch; gives the number of
/// the last one, if there is any.
pub(super) fn write(connection: &Connection, newest: i64, decision: &WriteBatch) -> Result<Option<i64>, StoreError> {
    if decision.seeds.is_empty() {
        return Ok(None);
    }
    let head = match decision.changes.last() {
        Some(newest) => newest.change.seq,
        None => changes::head(connection)?,
    };
    let mut statement = connection.prepare_cached(INSERT)?;
    let mut number = newest;
    for Seed { object, delta } in &decision.seeds {
        number += 1;
        let delta = rows::to_json(delta)?;
        statement.execute(params![number, rows::number(head.0), object.as_str(), delta])?;
    }
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)")?
        .execute(params![NEWEST, number])?;
    Ok(Some(number))
}

/// A row: what a walk told of an object.
pub(super) struct Told {
    /// The newest change at its moment.
    pub(super) change: Seq,
    pub(super) object: Uri,
    pub(super) delta: RegistryDelta,
}

/// The statement for [`Rows`], whose parameter is the number of the row to begin after.
pub(super) fn reading(connection: &Connection) -> rusqlite::Result<&'static str> {
    let are_kept = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'seeds'")?.exists([])?;
    Ok(if are_kept { READ } else { READ_NONE })
}

/// Rows that are read beside the changes.
pub(super) struct Rows<'s> {
    rows: rusqlite::Rows<'s>,
    next: Option<Told>,
}

impl<'s> Rows<'s> {
    pub(super) fn of(rows: rusqlite::Rows<'s>) -> Result<Self, StoreError> {
        let mut rows = Self { rows, next: None };
        rows.step()?;
        Ok(rows)
    }

    /// The next that has its place before this change; any, where there is no further one.
    pub(super) fn before(&mut self, change: Option<Seq>) -> Result<Option<Told>, StoreError> {
        let due = self.next.take_if(|next| change.is_none_or(|change| next.change < change));
        if due.is_some() {
            self.step()?;
        }
        Ok(due)
    }

    fn step(&mut self) -> Result<(), StoreError> {
        self.next = self.rows.next()?.map(told).transpose()?;
        Ok(())
    }
}

fn told(row: &Row<'_>) -> Result<Told, StoreError> {
    Ok(Told {
        change: rows::seq(row.get(1)?)?,
        object: rows::uri(&row.get::<_, String>(2)?)?,
        delta: rows::json(&row.get::<_, String>(3)?)?,
    })
}

/// Writes how far walks are.
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

/// How far the newest walk of a source is.
pub(super) fn crawl_progress(
    connection: &Connection,
    source: &SourceName,
) -> Result<Option<CrawlProgress>, StoreError> {
    let mut statement = connection.prepare_cached(READ_WALK)?;
    let read = |row: &Row<'_>| -> rusqlite::Result<_> {
        let whole = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
        let (id, position): (Vec<u8>, String) = (row.get(0)?, row.get(2)?);
        Ok((id, whole(1)?, position, whole(3)?, row.get::<_, i64>(4)?, row.get::<_, i64>(5)?, row.get(6)?))
    };
    let found = statement.query_row([source.as_str()], read).optional()?;
    let Some((id, parts, position, objects, started, updated, finished)) = found else { return Ok(None) };
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
