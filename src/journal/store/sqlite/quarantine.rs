//! The quarantine's table.

use bytes::Bytes;
use rusqlite::{Connection, Row, Transaction, params};

use super::{Bounds, rows};
use crate::{
    journal::{
        metrics,
        quarantine::{NewQuarantined, QuarantineId, QuarantineSize, Quarantined},
        store::StoreError,
    },
    model::SourceName,
};

const COLUMNS: &str = "id, received, source, content_type, headers, place, reason, size";

pub(super) fn put(
    connection: &mut Connection,
    bounds: Bounds,
    messages: &[NewQuarantined],
) -> Result<Vec<QuarantineId>, StoreError> {
    let transaction = connection.transaction()?;
    let mut ids = Vec::with_capacity(messages.len());
    for message in messages {
        transaction
            .prepare_cached(
                "INSERT INTO quarantine (received, source, content_type, headers, place, reason, size, body)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                message.received.millis(),
                message.source.as_str(),
                message.content_type,
                rows::to_json(&message.headers)?,
                message.place,
                message.reason,
                rows::number(message.body.len() as u64),
                &message.body[..],
            ])?;
        ids.push(id(transaction.last_insert_rowid())?);
    }
    let dropped = make_room(&transaction, bounds)?;
    transaction.commit()?;
    metrics::dropped(dropped);
    Ok(ids)
}

/// Drops the oldest messages until the bounds hold; says how many. The newest message always stays.
fn make_room(transaction: &Transaction<'_>, bounds: Bounds) -> Result<u64, StoreError> {
    let (mut entries, mut size) = count_and_sum(transaction)?;
    let mut dropped = 0;
    let full = |entries: i64, size: i64| {
        entries > rows::number(bounds.quarantine_entries) || size > rows::number(bounds.quarantine_bytes)
    };
    while entries > 1 && full(entries, size) {
        let sql = "DELETE FROM quarantine WHERE id = (SELECT min(id) FROM quarantine) RETURNING size";
        size -= transaction.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0))?;
        entries -= 1;
        dropped += 1;
    }
    Ok(dropped)
}

pub(super) fn size(connection: &Connection) -> Result<QuarantineSize, StoreError> {
    let (messages, bytes) = count_and_sum(connection)?;
    Ok(QuarantineSize {
        messages: u64::try_from(messages).map_err(rows::damaged)?,
        bytes: u64::try_from(bytes).map_err(rows::damaged)?,
    })
}

fn count_and_sum(connection: &Connection) -> Result<(i64, i64), StoreError> {
    let sql = "SELECT count(*), coalesce(sum(size), 0) FROM quarantine";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

pub(super) fn before(
    connection: &Connection,
    before: Option<QuarantineId>,
    limit: usize,
) -> Result<Vec<Quarantined>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM quarantine WHERE id < ? ORDER BY id DESC LIMIT ?");
    let bound = before.map_or(i64::MAX, |id| rows::number(id.0));
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query(params![bound, rows::number(limit as u64)])?;
    let mut messages = Vec::new();
    while let Some(row) = found.next()? {
        messages.push(message(row, Bytes::new())?);
    }
    Ok(messages)
}

pub(super) fn get(connection: &Connection, id: QuarantineId) -> Result<Option<Quarantined>, StoreError> {
    let sql = format!("SELECT {COLUMNS}, body FROM quarantine WHERE id = ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query([rows::number(id.0)])?;
    let row = found.next()?;
    row.map(|row| message(row, Bytes::from(row.get::<_, Vec<u8>>(8)?))).transpose()
}

pub(super) fn remove(connection: &Connection, id: QuarantineId) -> Result<bool, StoreError> {
    let removed = connection.execute("DELETE FROM quarantine WHERE id = ?", [rows::number(id.0)])?;
    Ok(removed > 0)
}

fn message(row: &Row<'_>, body: Bytes) -> Result<Quarantined, StoreError> {
    let source = row.get::<_, String>(2)?;
    Ok(Quarantined {
        id: id(row.get(0)?)?,
        size: u64::try_from(row.get::<_, i64>(7)?).map_err(rows::damaged)?,
        message: NewQuarantined {
            received: rows::time(row.get(1)?)?,
            source: SourceName::parse(&source).map_err(rows::damaged)?,
            content_type: row.get(3)?,
            headers: rows::json(&row.get::<_, String>(4)?)?,
            place: row.get(5)?,
            reason: row.get(6)?,
            body,
        },
    })
}

fn id(value: i64) -> Result<QuarantineId, StoreError> {
    u64::try_from(value).map(QuarantineId).map_err(rows::damaged)
}
