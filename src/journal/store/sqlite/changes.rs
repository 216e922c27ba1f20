//! The table `changes`.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use super::rows;
use super::value::params;
use crate::{
    journal::store::{NewChange, StoreError, StoredChange, page::ChangePage},
    model::{ChangeId, Seq, Timestamp},
};

/// Returns the number of the newest change and its time of receipt.
pub(super) fn newest(connection: &Connection) -> Result<(Seq, Option<Timestamp>), StoreError> {
    let sql = "SELECT seq, received FROM changes ORDER BY seq DESC LIMIT 1";
    let row = connection.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    match row {
        Some((seq, received)) => Ok((rows::seq(seq)?, Some(rows::time(received)?))),
        None => Ok((Seq::ZERO, None)),
    }
}

pub(super) fn head(connection: &Connection) -> Result<Seq, StoreError> {
    newest(connection).map(|(seq, _)| seq)
}

// `OR FAIL` instead of the default `OR ABORT`: for the latter SQLite copies every page, so that it can roll back a
// single statement. The gateway rolls back the whole transaction.
const INSERT: &str =
    "INSERT OR FAIL INTO changes (seq, id, received, checksum, json, visibility, key) VALUES (?, ?, ?, ?, ?, ?, ?)";

/// Inserts numbered changes.
pub(super) fn insert(connection: &Connection, changes: &[NewChange]) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(INSERT)?;
    let mut before: Option<Seq> = None;
    for NewChange { change, json, visibility, key, .. } in changes {
        if before.is_some_and(|before| change.seq != before.next()) {
            return Err(StoreError::Refused(format!("change {} does not follow the previous change", change.seq)));
        }
        before = Some(change.seq);
        let seq = rows::number(change.seq.0);
        let checksum = rows::checksum(seq, json, visibility.as_deref());
        // The gateway has written the JSON, so it is UTF-8.
        let json = std::str::from_utf8(json).map_err(rows::damaged)?;
        let visibility = visibility.as_deref().map(std::str::from_utf8).transpose().map_err(rows::damaged)?;
        let (id, key) = (change.modification.id.uuid(), key.as_ref().map(|key| key.0.as_slice()));
        let (id, received) = (id.as_bytes().as_slice(), change.received.millis());
        statement.execute(params![seq, id, received, checksum, json, visibility, key])?;
    }
    Ok(())
}

/// Reads changes after a cursor; returns `None` if the cursor is not valid in this journal.
pub(super) fn after(
    connection: &Connection,
    after: Seq,
    limit: usize,
    bytes: usize,
) -> Result<Option<Vec<StoredChange>>, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let sql = "SELECT seq, checksum, json, visibility FROM changes WHERE seq > ? ORDER BY seq LIMIT ?";
    let page = changes(&transaction, sql, after, limit, bytes, || following(&transaction, after))?;
    let is_valid = match page.first() {
        Some(first) if first.seq == after.next() => true,
        None if after == Seq::ZERO => true,
        _ => is_valid_cursor(&transaction, after)?,
    };
    Ok(is_valid.then_some(page))
}

pub(super) fn before(
    connection: &Connection,
    before: Seq,
    limit: usize,
    bytes: usize,
) -> Result<Vec<StoredChange>, StoreError> {
    let sql = "SELECT seq, checksum, json, visibility FROM changes WHERE seq < ? ORDER BY seq DESC LIMIT ?";
    changes(connection, sql, before, limit, bytes, || preceding(connection, before))
}

/// Returns the number that follows `after` in the numbering.
fn following(connection: &Connection, after: Seq) -> Result<Seq, StoreError> {
    let mut statement = connection.prepare_cached("SELECT floor FROM restores WHERE head = ?")?;
    let floor: Option<i64> = statement.query_row([rows::number(after.0)], |row| row.get(0)).optional()?;
    Ok(floor.map(rows::seq).transpose()?.unwrap_or(after).next())
}

/// Returns the number that precedes `before` in the numbering; that of the newest change if `before` is beyond it.
fn preceding(connection: &Connection, before: Seq) -> Result<Seq, StoreError> {
    let before = before.min(head(connection)?.next());
    Ok(before_restore(connection, before)?.unwrap_or(Seq(before.0.saturating_sub(1))))
}

/// Returns the newest number before `seq` if a restore skipped the numbers between the two.
pub(super) fn before_restore(connection: &Connection, seq: Seq) -> Result<Option<Seq>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT head FROM restores WHERE head < ?1 AND floor >= ?1 - 1")?;
    let head: Option<i64> = statement.query_row(params![rows::number(seq.0)], |row| row.get(0)).optional()?;
    head.map(rows::seq).transpose()
}

/// Reads a page. A damaged change ends it; if it is the first one, it is the error. `first` computes its number where
/// the file itself is damaged, so that the row cannot be read.
fn changes(
    connection: &Connection,
    sql: &str,
    bound: Seq,
    limit: usize,
    bytes: usize,
    first: impl FnOnce() -> Result<Seq, StoreError>,
) -> Result<Vec<StoredChange>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut result = statement.query(params![rows::number(bound.0), rows::number(limit as u64)])?;
    let mut page = ChangePage::default();
    while page.bytes < bytes {
        let read = match result.next() {
            Ok(Some(row)) => change(row),
            Ok(None) => break,
            Err(error) => Err(error.into()),
        };
        match read {
            Err(StoreError::Damaged(what)) if page.is_empty() => {
                return Err(StoreError::DamagedChange { seq: first()?, what });
            }
            read => {
                if !page.add(read)? {
                    break;
                }
            }
        }
    }
    Ok(page.into_changes())
}

pub(super) fn by_id(connection: &Connection, id: ChangeId) -> Result<Option<StoredChange>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT seq, checksum, json, visibility FROM changes WHERE id = ?")?;
    let mut result = statement.query(params![id.uuid().as_bytes().as_slice()])?;
    result.next()?.map(change).transpose()
}

/// Reads a change and verifies its checksum, so that no reader gets a damaged change.
pub(super) fn change(row: &Row<'_>) -> Result<StoredChange, StoreError> {
    let seq = rows::seq(row.get(0)?)?;
    let columns = || -> rusqlite::Result<(i64, String, Option<String>)> { Ok((row.get(1)?, row.get(2)?, row.get(3)?)) };
    let (checksum, json, visibility) = columns().map_err(|error| rows::damaged_change(seq, error))?;
    let change = StoredChange { seq, json: Bytes::from(json), visibility: visibility.map(Bytes::from) };
    rows::check(change, checksum)
}

/// Returns whether a reader with this cursor has missed nothing: the change with this number is available, or it
/// was the newest one before a restore and the first change after the restore is available.
fn is_valid_cursor(connection: &Connection, seq: Seq) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM changes WHERE seq = ?1
               UNION ALL
               SELECT 1 FROM restores JOIN changes ON changes.seq = restores.floor + 1 WHERE restores.head = ?1";
    Ok(connection.prepare_cached(sql)?.exists(params![rows::number(seq.0)])?)
}

/// Returns the number of the oldest change.
pub(super) fn first(connection: &Connection) -> Result<Option<Seq>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT seq FROM changes ORDER BY seq LIMIT 1")?;
    let first: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
    first.map(rows::seq).transpose()
}

/// Returns the first change received at `time` or later. Numbers and times of receipt increase together, so a
/// binary search finds the change without an index of the times.
pub(super) fn first_since(connection: &Connection, time: Timestamp) -> Result<Option<Seq>, StoreError> {
    let Some(first) = first(connection)? else { return Ok(None) };
    let (newest, received) = newest(connection)?;
    if received < Some(time) {
        return Ok(None);
    }
    let sql = "SELECT received FROM changes WHERE seq >= ? ORDER BY seq LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let (mut low, mut high) = (rows::number(first.0), rows::number(newest.0));
    while low < high {
        let middle = low + (high - low) / 2;
        let received: i64 = statement.query_row(params![middle], |row| row.get(0))?;
        if received < time.millis() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    rows::seq(low).map(Some)
}

/// Returns the number of the first of the newest `count` changes. Only restores leave gaps in the numbering.
pub(super) fn first_of_newest(connection: &Connection, count: u64) -> Result<Option<Seq>, StoreError> {
    let (mut newest, received) = newest(connection)?;
    if received.is_none() {
        return Ok(None);
    }
    let mut older = count.saturating_sub(1);
    let mut statement = connection.prepare_cached("SELECT head, floor FROM restores ORDER BY head DESC")?;
    let mut restores = statement.query([])?;
    while let Some(row) = restores.next()? {
        let (head, floor) = (rows::seq(row.get(0)?)?, rows::seq(row.get(1)?)?);
        let since_restore = newest.0.saturating_sub(floor.0);
        if older < since_restore {
            break;
        }
        older -= since_restore;
        newest = newest.min(head);
    }
    Ok(Some(Seq(newest.0.saturating_sub(older))))
}

/// Returns the ranges of numbers that restores have skipped.
pub(super) fn skipped_ranges(connection: &Connection) -> Result<Vec<(Seq, Seq)>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT head, floor FROM restores ORDER BY head")?;
    let mut result = statement.query([])?;
    let mut ranges = Vec::new();
    while let Some(row) = result.next()? {
        ranges.push((rows::seq(row.get(0)?)?, rows::seq(row.get(1)?)?));
    }
    Ok(ranges)
}
