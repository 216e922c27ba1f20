//! The table `quarantine`.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::rows;
use super::value::{self, params};
use crate::{
    journal::{
        quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize, QuarantinedMessage},
        store::{
            QuarantineReceipt, StoreError, StoreLimits,
            shares::{Eviction, OldestOf, QuarantineShares},
        },
    },
    model::{SourceName, Text},
};

const COLUMNS: &str = "id, received, source, content_type, headers, place, reason, size";

const DELETE: &str = "DELETE FROM quarantine WHERE id = ? RETURNING source, size";

/// Query for the oldest messages of a source after an identifier.
const OLDEST: &str = "SELECT id, size FROM quarantine WHERE source = ? AND id > ? ORDER BY id LIMIT ?";

/// Inserts messages, and drops messages beyond the limits: the oldest of the source with the most first. `shares` has the
/// sizes of the sources, because counting them for each insertion would read the whole table.
pub(super) fn put(
    connection: &mut Connection,
    limits: StoreLimits,
    shares: &mut QuarantineShares,
    messages: &[NewQuarantinedMessage],
) -> Result<QuarantineReceipt, StoreError> {
    let transaction = connection.transaction()?;
    let mut new_shares = shares.clone();
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
                message.content_type.as_ref().map(Text::as_str),
                rows::to_json(&message.headers)?,
                message.location.as_str(),
                message.reason.as_str(),
                rows::number(message.body.len() as u64),
                &message.body[..],
            ])?;
        ids.push(id(transaction.last_insert_rowid())?);
        let size = QuarantineSize { messages: 1, bytes: message.body.len() as u64 };
        new_shares.add(message.source.as_str(), size);
    }
    let dropped = make_room(&transaction, limits, &mut new_shares, &ids)?;
    transaction.commit()?;
    *shares = new_shares;
    Ok(QuarantineReceipt { ids, dropped })
}

/// Drops messages until the size is within the limits; returns the number of dropped messages.
fn make_room(
    transaction: &Transaction<'_>,
    limits: StoreLimits,
    shares: &mut QuarantineShares,
    ids: &[QuarantineId],
) -> Result<u64, StoreError> {
    let Some(newest) = ids.last().filter(|_| shares.total().exceeds(limits)) else { return Ok(0) };
    let mut eviction = Eviction::new(limits, shares, *newest);
    while let Some(OldestOf { source, after, limit }) = eviction.choose() {
        let mut statement = transaction.prepare_cached(OLDEST)?;
        let mut result = statement.query(params![source, rows::number(after.0), rows::number(limit as u64)])?;
        let mut oldest = Vec::new();
        while let Some(row) = result.next()? {
            oldest.push((id(row.get(0)?)?, row.get::<_, i64>(1)?.unsigned_abs()));
        }
        eviction.add(&source, oldest);
    }
    let mut dropped = 0;
    for id in eviction.chosen() {
        dropped += u64::from(delete(transaction, shares, id)?);
    }
    Ok(dropped)
}

/// Removes a message; returns whether there was one.
fn delete(connection: &Connection, shares: &mut QuarantineShares, id: QuarantineId) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(DELETE)?;
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let removed = statement.query_row(params![rows::number(id.0)], read).optional()?;
    if let Some((source, bytes)) = &removed {
        shares.remove(source, bytes.unsigned_abs());
    }
    Ok(removed.is_some())
}

/// Counts the messages of each source and their bytes, which reads the whole table.
pub(super) fn shares(connection: &Connection) -> Result<QuarantineShares, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT source, count(*), sum(size) FROM quarantine GROUP BY source")?;
    let mut result = statement.query([])?;
    let mut shares = QuarantineShares::default();
    while let Some(row) = result.next()? {
        let number = |index| u64::try_from(row.get::<_, i64>(index)?).map_err(rows::damaged);
        let size = QuarantineSize { messages: number(1)?, bytes: number(2)? };
        shares.add(&row.get::<_, String>(0)?, size);
    }
    Ok(shares)
}

pub(super) fn before(
    connection: &Connection,
    before: Option<QuarantineId>,
    limit: usize,
) -> Result<Vec<QuarantinedMessage>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM quarantine WHERE id < ? ORDER BY id DESC LIMIT ?");
    let bound = before.map_or(i64::MAX, |id| rows::number(id.0));
    let mut statement = connection.prepare_cached(&sql)?;
    let mut result = statement.query(params![bound, rows::number(limit as u64)])?;
    let mut messages = Vec::new();
    while let Some(row) = result.next()? {
        messages.push(message(row, Bytes::new())?);
    }
    Ok(messages)
}

pub(super) fn get(connection: &Connection, id: QuarantineId) -> Result<Option<QuarantinedMessage>, StoreError> {
    let sql = format!("SELECT {COLUMNS}, body FROM quarantine WHERE id = ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut result = statement.query(params![rows::number(id.0)])?;
    let row = result.next()?;
    row.map(|row| message(row, Bytes::from(row.get::<_, Vec<u8>>(8)?))).transpose()
}

pub(super) fn remove(
    connection: &Connection,
    shares: &mut QuarantineShares,
    id: QuarantineId,
) -> Result<bool, StoreError> {
    delete(connection, shares, id)
}

/// Reads a row of [`COLUMNS`].
fn message(row: &Row<'_>, body: Bytes) -> Result<QuarantinedMessage, StoreError> {
    let source = row.get::<_, String>(2)?;
    Ok(QuarantinedMessage {
        id: id(row.get(0)?)?,
        size: u64::try_from(row.get::<_, i64>(7)?).map_err(rows::damaged)?,
        message: NewQuarantinedMessage {
            received: rows::time(row.get(1)?)?,
            source: SourceName::parse(&source).map_err(rows::damaged)?,
            content_type: value::text(row, 3)?,
            headers: rows::json(&row.get::<_, String>(4)?)?,
            location: row.get::<_, String>(5)?.into(),
            reason: row.get::<_, String>(6)?.into(),
            body,
        },
    })
}

fn id(value: i64) -> Result<QuarantineId, StoreError> {
    u64::try_from(value).map(QuarantineId).map_err(rows::damaged)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::{
        super::schema, Bytes, Connection, NewQuarantinedMessage, QuarantineShares, QuarantineSize, SourceName,
        StoreLimits, Text, before, put, remove, shares,
    };
    use crate::model::Timestamp;

    fn message(bytes: usize) -> NewQuarantinedMessage {
        from("s", bytes)
    }

    fn from(source: &str, bytes: usize) -> NewQuarantinedMessage {
        NewQuarantinedMessage {
            received: Timestamp::EPOCH,
            source: SourceName::parse(source).unwrap(),
            content_type: None,
            headers: Vec::new(),
            body: Bytes::from(vec![b'x'; bytes]),
            location: Text::default(),
            reason: Text::default(),
        }
    }

    fn journal() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        connection
    }

    #[test]
    fn size_matches_the_table_after_insertions_and_removals() {
        let mut connection = journal();
        let mut total = QuarantineShares::default();
        let limits = StoreLimits { quarantine_entries: 3, quarantine_bytes: 1000, ..StoreLimits::default() };
        for (bytes, messages, sum) in [(10, 1, 10), (20, 2, 30), (30, 3, 60), (40, 3, 90), (990, 1, 990), (5, 2, 995)] {
            put(&mut connection, limits, &mut total, &[message(bytes)]).unwrap();
            assert_eq!(total.total(), QuarantineSize { messages, bytes: sum }, "{bytes}");
            assert_eq!(shares(&connection).unwrap(), total);
        }
        let ids = put(&mut connection, limits, &mut total, &[message(1)]).unwrap().ids;
        assert!(remove(&connection, &mut total, ids[0]).unwrap());
        assert!(!remove(&connection, &mut total, ids[0]).unwrap());
        assert_eq!(total.total(), QuarantineSize { messages: 2, bytes: 995 });
        assert_eq!(shares(&connection).unwrap(), total);
    }

    #[test]
    fn a_source_with_many_messages_pushes_out_its_own() {
        let mut connection = journal();
        let mut total = QuarantineShares::default();
        let limits = StoreLimits { quarantine_entries: 300, ..StoreLimits::default() };
        let quiet = put(&mut connection, limits, &mut total, &[from("quiet", 5)]).unwrap().ids[0];
        let flood: Vec<_> = (0..1000).map(|_| from("loud", 1)).collect();
        assert_eq!(put(&mut connection, limits, &mut total, &flood).unwrap().dropped, 701);
        let kept: Vec<_> = before(&connection, None, 1000).unwrap().into_iter().map(|message| message.id).collect();
        assert!(kept.contains(&quiet) && kept.len() == 300, "{kept:?}");
        assert_eq!(shares(&connection).unwrap(), total);
    }

    #[test]
    fn insertion_into_a_full_quarantine_takes_as_long_as_into_an_empty_one() {
        let mut connection = journal();
        let mut total = QuarantineShares::default();
        let limits = StoreLimits { quarantine_entries: 1000, ..StoreLimits::default() };
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(1, Some(count)).unwrap();
        let mut steps_of_one = |connection: &mut Connection| {
            steps.store(0, Ordering::Relaxed);
            put(connection, limits, &mut total, &[message(1)]).unwrap();
            steps.load(Ordering::Relaxed)
        };
        let into_empty = steps_of_one(&mut connection);
        for _ in 0..1000 {
            steps_of_one(&mut connection);
        }
        let into_full = steps_of_one(&mut connection);
        assert!(into_full < into_empty + 100, "{into_empty} steps of statements, and {into_full} when it is full");
    }
}
