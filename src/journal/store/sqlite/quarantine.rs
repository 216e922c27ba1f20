//! The table `quarantine`.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::rows;
use crate::{
    journal::{
        quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize, QuarantinedMessage},
        store::{QuarantineReceipt, StoreError, StoreLimits},
    },
    model::SourceName,
};

const COLUMNS: &str = "id, received, source, content_type, headers, place, reason, size";

/// Inserts messages and drops the oldest beyond the limits. `total` is the size of the quarantine, because counting
/// it for each insertion would read the whole table.
pub(super) fn put(
    connection: &mut Connection,
    limits: StoreLimits,
    total: &mut QuarantineSize,
    messages: &[NewQuarantinedMessage],
) -> Result<QuarantineReceipt, StoreError> {
    let transaction = connection.transaction()?;
    let mut size = *total;
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
                message.location,
                message.reason,
                rows::number(message.body.len() as u64),
                &message.body[..],
            ])?;
        ids.push(id(transaction.last_insert_rowid())?);
        size.messages += 1;
        size.bytes += message.body.len() as u64;
    }
    let dropped = make_room(&transaction, limits, &mut size)?;
    transaction.commit()?;
    *total = size;
    Ok(QuarantineReceipt { ids, dropped })
}

/// Drops the oldest messages until the size is within the limits; returns the number of dropped messages. The
/// newest message always stays.
fn make_room(transaction: &Transaction<'_>, limits: StoreLimits, size: &mut QuarantineSize) -> Result<u64, StoreError> {
    let mut dropped = 0;
    while size.messages > 1 && (size.messages > limits.quarantine_entries || size.bytes > limits.quarantine_bytes) {
        let sql = "DELETE FROM quarantine WHERE id = (SELECT min(id) FROM quarantine) RETURNING size";
        let bytes: i64 = transaction.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        size.subtract(bytes);
        dropped += 1;
    }
    Ok(dropped)
}

impl QuarantineSize {
    fn subtract(&mut self, bytes: i64) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes.unsigned_abs());
    }
}

/// Counts the messages and their bytes, which reads the whole table.
pub(super) fn size(connection: &Connection) -> Result<QuarantineSize, StoreError> {
    let sql = "SELECT count(*), coalesce(sum(size), 0) FROM quarantine";
    let (messages, bytes): (i64, i64) = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(QuarantineSize {
        messages: u64::try_from(messages).map_err(rows::damaged)?,
        bytes: u64::try_from(bytes).map_err(rows::damaged)?,
    })
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
    let mut result = statement.query([rows::number(id.0)])?;
    let row = result.next()?;
    row.map(|row| message(row, Bytes::from(row.get::<_, Vec<u8>>(8)?))).transpose()
}

pub(super) fn remove(
    connection: &Connection,
    total: &mut QuarantineSize,
    id: QuarantineId,
) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached("DELETE FROM quarantine WHERE id = ? RETURNING size")?;
    let removed: Option<i64> = statement.query_row([rows::number(id.0)], |row| row.get(0)).optional()?;
    removed.into_iter().for_each(|bytes| total.subtract(bytes));
    Ok(removed.is_some())
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
            content_type: row.get(3)?,
            headers: rows::json(&row.get::<_, String>(4)?)?,
            location: row.get(5)?,
            reason: row.get(6)?,
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
        super::schema, Bytes, Connection, NewQuarantinedMessage, QuarantineSize, SourceName, StoreLimits, put, remove,
        size,
    };
    use crate::model::Timestamp;

    fn message(bytes: usize) -> NewQuarantinedMessage {
        NewQuarantinedMessage {
            received: Timestamp::EPOCH,
            source: SourceName::parse("s").unwrap(),
            content_type: None,
            headers: Vec::new(),
            body: Bytes::from(vec![b'x'; bytes]),
            location: String::new(),
            reason: String::new(),
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
        let mut total = QuarantineSize::default();
        let limits = StoreLimits { quarantine_entries: 3, quarantine_bytes: 1000, ..StoreLimits::default() };
        for (bytes, messages, sum) in [(10, 1, 10), (20, 2, 30), (30, 3, 60), (40, 3, 90), (990, 1, 990), (5, 2, 995)] {
            put(&mut connection, limits, &mut total, &[message(bytes)]).unwrap();
            assert_eq!(total, QuarantineSize { messages, bytes: sum }, "{bytes}");
            assert_eq!(size(&connection).unwrap(), total);
        }
        let ids = put(&mut connection, limits, &mut total, &[message(1)]).unwrap().ids;
        assert!(remove(&connection, &mut total, ids[0]).unwrap());
        assert!(!remove(&connection, &mut total, ids[0]).unwrap());
        assert_eq!(total, QuarantineSize { messages: 2, bytes: 995 });
        assert_eq!(size(&connection).unwrap(), total);
    }

    #[test]
    fn insertion_into_a_full_quarantine_takes_as_long_as_into_an_empty_one() {
        let mut connection = journal();
        let mut total = QuarantineSize::default();
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
