//! Reading changes and the registry.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows;
use crate::{
    journal::{
        registry::ObjectState,
        store::{ItemsAsked, StoreError, StoredChange},
    },
    model::{ChangeId, Seq, Timestamp, Uri},
};

/// The newest change's number, and when it was received.
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

pub(super) fn after(connection: &Connection, after: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError> {
    changes(connection, "SELECT seq, json FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
}

pub(super) fn before(connection: &Connection, before: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError> {
    changes(connection, "SELECT seq, json FROM changes WHERE seq < ? ORDER BY seq DESC LIMIT ?", before, limit)
}

fn changes(connection: &Connection, sql: &str, bound: Seq, limit: usize) -> Result<Vec<StoredChange>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![rows::number(bound.0), rows::number(limit as u64)])?;
    let mut changes = Vec::new();
    while let Some(row) = found.next()? {
        changes.push(change(row)?);
    }
    Ok(changes)
}

pub(super) fn by_id(connection: &Connection, id: ChangeId) -> Result<Option<StoredChange>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT seq, json FROM changes WHERE id = ?")?;
    let mut found = statement.query([id.uuid().as_bytes().as_slice()])?;
    found.next()?.map(change).transpose()
}

fn change(row: &Row<'_>) -> Result<StoredChange, StoreError> {
    Ok(StoredChange { seq: rows::seq(row.get(0)?)?, json: Bytes::from(row.get::<_, String>(1)?) })
}

pub(super) fn object(connection: &Connection, uri: &Uri) -> Result<Option<ObjectState>, StoreError> {
    object_with(connection, uri, &ItemsAsked::All)
}

/// What is known of an object and of the items asked for.
pub(super) fn object_with(
    connection: &Connection,
    uri: &Uri,
    items: &ItemsAsked,
) -> Result<Option<ObjectState>, StoreError> {
    let sql = format!("SELECT object, {} FROM objects WHERE uri = ?", rows::OBJECT_COLUMNS);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query([uri.as_str()])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let (number, mut state) = (row.get::<_, i64>(0)?, rows::object(row, 1)?);
    match items {
        ItemsAsked::All => {
            let sql = format!("SELECT {} FROM items WHERE object = ?", rows::ITEM_COLUMNS);
            let mut statement = connection.prepare_cached(&sql)?;
            let mut found = statement.query([number])?;
            while let Some(row) = found.next()? {
                state.items.extend([rows::item(row)?]);
            }
        }
        ItemsAsked::Some(wanted) => {
            let sql = format!("SELECT {} FROM items WHERE object = ? AND uri = ?", rows::ITEM_COLUMNS);
            let mut statement = connection.prepare_cached(&sql)?;
            for item in wanted {
                if let Some(row) = statement.query(params![number, item.as_str()])?.next()? {
                    state.items.extend([rows::item(row)?]);
                }
            }
        }
    }
    Ok(Some(state))
}

pub(super) fn objects(connection: &Connection, after: Option<&Uri>, limit: usize) -> Result<Vec<Uri>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT uri FROM objects WHERE uri > ? ORDER BY uri LIMIT ?")?;
    let mut found = statement.query(params![after.map_or("", Uri::as_str), rows::number(limit as u64)])?;
    let mut uris = Vec::new();
    while let Some(row) = found.next()? {
        uris.push(rows::uri(&row.get::<_, String>(0)?)?);
    }
    Ok(uris)
}
