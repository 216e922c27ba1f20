//! The tables `quarantine` and `quarantine_size`.

use bytes::Bytes;
use tokio_postgres::Row;

use super::{
    connection::{Session, Value},
    row::{self, storable},
};
use crate::{
    journal::{
        quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize, QuarantinedMessage},
        store::{QuarantineReceipt, StoreError, StoreLimits, rows},
    },
    model::SourceName,
};

/// Query for the size of the quarantine, which locks it, so that writers take turns and the order of the identifiers
/// is that of the commits.
const LOCK_SIZE: &str = "SELECT messages, bytes FROM quarantine_size FOR UPDATE";

const SIZE: &str = "SELECT messages, bytes FROM quarantine_size";

const SET_SIZE: &str = "UPDATE quarantine_size SET messages = $1, bytes = $2";

const INSERT: &str = "INSERT INTO quarantine (received, source, content_type, headers, location, reason, size, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";

const DELETE_OLDEST: &str = "DELETE FROM quarantine WHERE id = (SELECT min(id) FROM quarantine) RETURNING size";

const DELETE: &str = "DELETE FROM quarantine WHERE id = $1 RETURNING size";

/// Query for a page without bodies, newest first.
const BEFORE: &str = "SELECT id, received, source, content_type, headers, location, reason, size FROM quarantine
    WHERE id < $1 ORDER BY id DESC LIMIT $2";

const GET: &str = "SELECT id, received, source, content_type, headers, location, reason, size, body FROM quarantine
    WHERE id = $1";

/// Inserts messages and drops the oldest beyond the limits.
pub(super) async fn put(
    session: &Session,
    limits: StoreLimits,
    messages: &[NewQuarantinedMessage],
) -> Result<QuarantineReceipt, StoreError> {
    let mut size = read_size(&session.query_one(LOCK_SIZE, &[]).await?)?;
    let mut ids = Vec::with_capacity(messages.len());
    for message in messages {
        ids.push(insert(session, message).await?);
        size.messages += 1;
        size.bytes += message.body.len() as u64;
    }
    let mut dropped = 0;
    // The newest message always stays.
    while size.messages > 1 && (size.messages > limits.quarantine_entries || size.bytes > limits.quarantine_bytes) {
        let oldest = session.query_one(DELETE_OLDEST, &[]).await?;
        subtract(&mut size, row::unsigned(&oldest, 0)?);
        dropped += 1;
    }
    write_size(session, size).await?;
    Ok(QuarantineReceipt { ids, dropped })
}

async fn insert(session: &Session, message: &NewQuarantinedMessage) -> Result<QuarantineId, StoreError> {
    let (received, size) = (message.received.millis(), rows::number(message.body.len() as u64));
    let content_type = message.content_type.as_deref().map(storable);
    let values: &[Value<'_>] = &[
        &received,
        &message.source.as_str(),
        &content_type,
        &rows::to_json(&message.headers)?,
        &storable(&message.location),
        &storable(&message.reason),
        &size,
        &&message.body[..],
    ];
    row::unsigned(&session.query_one(INSERT, values).await?, 0).map(QuarantineId)
}

fn subtract(size: &mut QuarantineSize, bytes: u64) {
    size.messages = size.messages.saturating_sub(1);
    size.bytes = size.bytes.saturating_sub(bytes);
}

fn read_size(size: &Row) -> Result<QuarantineSize, StoreError> {
    Ok(QuarantineSize { messages: row::unsigned(size, 0)?, bytes: row::unsigned(size, 1)? })
}

async fn write_size(session: &Session, size: QuarantineSize) -> Result<(), StoreError> {
    session.execute(SET_SIZE, &[&rows::number(size.messages), &rows::number(size.bytes)]).await.map(drop)
}

/// Returns the size of the quarantine.
pub(super) async fn size(session: &Session) -> Result<QuarantineSize, StoreError> {
    read_size(&session.query_one(SIZE, &[]).await?)
}

/// Reads a page of messages without their bodies, newest first.
pub(super) async fn before(
    session: &Session,
    before: Option<QuarantineId>,
    limit: usize,
) -> Result<Vec<QuarantinedMessage>, StoreError> {
    let bound = before.map_or(i64::MAX, |id| rows::number(id.0));
    let page = session.query(BEFORE, &[&bound, &rows::number(limit as u64)]).await?;
    page.iter().map(|message| read_message(message, Bytes::new())).collect()
}

/// Reads a message with its body.
pub(super) async fn get(session: &Session, id: QuarantineId) -> Result<Option<QuarantinedMessage>, StoreError> {
    let Some(message) = session.query_opt(GET, &[&rows::number(id.0)]).await? else { return Ok(None) };
    let body = Bytes::copy_from_slice(row::get(&message, 8)?);
    read_message(&message, body).map(Some)
}

/// Removes a message; returns whether there was one.
pub(super) async fn remove(session: &Session, id: QuarantineId) -> Result<bool, StoreError> {
    let mut size = read_size(&session.query_one(LOCK_SIZE, &[]).await?)?;
    let Some(removed) = session.query_opt(DELETE, &[&rows::number(id.0)]).await? else { return Ok(false) };
    subtract(&mut size, row::unsigned(&removed, 0)?);
    write_size(session, size).await?;
    Ok(true)
}

fn read_message(message: &Row, body: Bytes) -> Result<QuarantinedMessage, StoreError> {
    Ok(QuarantinedMessage {
        id: QuarantineId(row::unsigned(message, 0)?),
        size: row::unsigned(message, 7)?,
        message: NewQuarantinedMessage {
            received: row::time(message, 1)?,
            source: SourceName::parse(row::get(message, 2)?).map_err(rows::damaged)?,
            content_type: row::get(message, 3)?,
            headers: rows::json(row::get(message, 4)?)?,
            location: row::get(message, 5)?,
            reason: row::get(message, 6)?,
            body,
        },
    })
}
