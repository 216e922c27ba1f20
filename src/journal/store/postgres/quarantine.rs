//! The tables `quarantine` and `quarantine_size`.

use bytes::Bytes;
use tokio_postgres::Row;

use super::{changes::STATEMENT_BYTES, connection::Session, row, value::Value};
use crate::{
    journal::{
        quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize, QuarantinedMessage},
        store::{
            QuarantineReceipt, StoreError, StoreLimits, rows,
            shares::{Eviction, OldestOf, QuarantineShares},
        },
    },
    model::{SourceName, Text},
};

/// Query for the size of the quarantine, which locks it, so that writers take turns and the order of the identifiers
/// is that of the commits.
const LOCK_SIZE: &str = "SELECT messages, bytes FROM quarantine_size FOR UPDATE";

const SIZE: &str = "SELECT messages, bytes FROM quarantine_size";

const SET_SIZE: &str = "UPDATE quarantine_size SET messages = $1, bytes = $2";

/// Statement that inserts messages. Their identifiers are in the order of the messages.
const INSERT: &str = "INSERT INTO quarantine (received, source, content_type, headers, location, reason, size, body)
    SELECT received, source, content_type, headers, location, reason, size, body
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bytea[])
        WITH ORDINALITY AS n(received, source, content_type, headers, location, reason, size, body, position)
    ORDER BY position RETURNING id";

const SHARES: &str = "SELECT source, count(*), sum(size)::bigint FROM quarantine GROUP BY source";

/// Query for the oldest messages of a source after an identifier.
const OLDEST: &str = "SELECT id, size FROM quarantine WHERE source = $1 AND id > $2 ORDER BY id LIMIT $3";

const DELETE_ALL: &str = "DELETE FROM quarantine WHERE id = ANY ($1::bigint[]) RETURNING size";

const DELETE: &str = "DELETE FROM quarantine WHERE id = $1 RETURNING size";

/// Query for a page without bodies, newest first.
const BEFORE: &str = "SELECT id, received, source, content_type, headers, location, reason, size FROM quarantine
    WHERE id < $1 ORDER BY id DESC LIMIT $2";

const GET: &str = "SELECT id, received, source, content_type, headers, location, reason, size, body FROM quarantine
    WHERE id = $1";

/// Inserts messages, and drops messages beyond the limits: the oldest of the source with the most first. The number of round
/// trips does not depend on the number of new messages.
pub(super) async fn put(
    session: &Session,
    limits: StoreLimits,
    messages: &[NewQuarantinedMessage],
) -> Result<QuarantineReceipt, StoreError> {
    let mut size = read_size(&session.query_one(LOCK_SIZE, &[]).await?)?;
    let mut ids = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while !rest.is_empty() {
        let (part, others) = rest.split_at(part_length(rest));
        insert(session, part, &mut ids).await?;
        rest = others;
    }
    size.messages += messages.len() as u64;
    size.bytes += messages.iter().map(|message| message.body.len() as u64).sum::<u64>();
    let mut dropped = 0;
    if let Some(newest) = ids.last().filter(|_| size.exceeds(limits)) {
        for bytes in make_room(session, limits, *newest).await? {
            size.remove(bytes);
            dropped += 1;
        }
    }
    write_size(session, size).await?;
    Ok(QuarantineReceipt { ids, dropped })
}

/// Returns the number of messages of the next statement: at least one, and as many as fit.
fn part_length(messages: &[NewQuarantinedMessage]) -> usize {
    let mut bytes = 0;
    let fits = |message: &&NewQuarantinedMessage| {
        bytes += message.body.len();
        bytes <= STATEMENT_BYTES
    };
    messages.iter().take_while(fits).count().max(1)
}

async fn insert(
    session: &Session,
    messages: &[NewQuarantinedMessage],
    ids: &mut Vec<QuarantineId>,
) -> Result<(), StoreError> {
    let (mut received, mut sources, mut content_types) = (Vec::new(), Vec::new(), Vec::new());
    let (mut headers, mut locations, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sizes, mut bodies) = (Vec::new(), Vec::new());
    for message in messages {
        received.push(message.received.millis());
        sources.push(message.source.as_str());
        content_types.push(message.content_type.as_ref().map(Text::as_str));
        headers.push(rows::to_json(&message.headers)?);
        locations.push(message.location.as_str());
        reasons.push(message.reason.as_str());
        sizes.push(rows::number(message.body.len() as u64));
        bodies.push(&message.body[..]);
    }
    let values: &[Value<'_>] = &[&received, &sources, &content_types, &headers, &locations, &reasons, &sizes, &bodies];
    for inserted in session.query(INSERT, values).await? {
        ids.push(row::unsigned(&inserted, 0).map(QuarantineId)?);
    }
    Ok(())
}

/// Removes messages until the size is within the limits; returns the sizes of the removed messages.
async fn make_room(session: &Session, limits: StoreLimits, newest: QuarantineId) -> Result<Vec<u64>, StoreError> {
    let mut shares = QuarantineShares::default();
    for found in session.query(SHARES, &[]).await? {
        let size = QuarantineSize { messages: row::unsigned(&found, 1)?, bytes: row::unsigned(&found, 2)? };
        shares.add(row::get(&found, 0)?, size);
    }
    let mut eviction = Eviction::new(limits, &shares, newest);
    while let Some(OldestOf { source, after, limit }) = eviction.choose() {
        let values: &[Value<'_>] = &[&source, &rows::number(after.0), &rows::number(limit as u64)];
        let oldest = session.query(OLDEST, values).await?;
        let read = |found: &Row| Ok((QuarantineId(row::unsigned(found, 0)?), row::unsigned(found, 1)?));
        eviction.add(&source, oldest.iter().map(read).collect::<Result<_, StoreError>>()?);
    }
    let chosen: Vec<i64> = eviction.chosen().into_iter().map(|id| rows::number(id.0)).collect();
    session.query(DELETE_ALL, &[&chosen]).await?.iter().map(|removed| row::unsigned(removed, 0)).collect()
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
    size.remove(row::unsigned(&removed, 0)?);
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
            content_type: row::text(message, 3)?,
            headers: rows::json(row::get(message, 4)?)?,
            location: row::get::<&str>(message, 5)?.into(),
            reason: row::get::<&str>(message, 6)?.into(),
            body,
        },
    })
}
