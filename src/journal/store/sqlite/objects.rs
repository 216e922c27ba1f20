//! The registry in its tables: reading objects, and writing what a batch touched of them.

use rusqlite::{CachedStatement, Connection, params};

use super::rows;
use crate::{
    journal::{
        registry::{ItemRecord, ObjectState},
        store::{ItemsAsked, KnownObject, StoreError, Touched},
    },
    model::{State, Timestamp, Uri},
};

/// The columns of an object after its number.
macro_rules! object_columns {
    () => {
        "parent, parent_at, parent_confirmed, types, types_at, types_confirmed, purged_at, purged_confirmed"
    };
}

/// The columns of an item after its object's number.
macro_rules! item_columns {
    () => {
        "uri, existence, existence_at, existence_confirmed, content, content_at, content_confirmed, \
         state, state_at, state_confirmed, begins_in, begins_in_at, begins_in_confirmed"
    };
}

const READ_OBJECT: &str = concat!("SELECT object, ", object_columns!(), " FROM objects WHERE uri = ?");
const READ_ITEMS: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ?");
const READ_ITEM: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ? AND uri = ?");

/// The batch before may have added the object already.
const ADD_OBJECT: &str = concat!(
    "INSERT INTO objects (uri, ",
    object_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (uri) DO UPDATE SET (",
    object_columns!(),
    ") = (excluded.parent, excluded.parent_at, excluded.parent_confirmed, excluded.types, excluded.types_at, \
     excluded.types_confirmed, excluded.purged_at, excluded.purged_confirmed) RETURNING object"
);
const WRITE_OBJECT: &str =
    concat!("UPDATE objects SET (", object_columns!(), ") = (?, ?, ?, ?, ?, ?, ?, ?) WHERE object = ?");
const WRITE_ITEM: &str = concat!(
    "INSERT OR REPLACE INTO items (object, ",
    item_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);

/// Reads objects, one after the other.
pub(super) struct Reading<'a> {
    object: CachedStatement<'a>,
    items: CachedStatement<'a>,
    item: CachedStatement<'a>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            object: connection.prepare_cached(READ_OBJECT)?,
            items: connection.prepare_cached(READ_ITEMS)?,
            item: connection.prepare_cached(READ_ITEM)?,
        })
    }

    /// What is known of an object and of the items asked for.
    pub(super) fn object(&mut self, uri: &Uri, items: &ItemsAsked) -> Result<Option<KnownObject>, StoreError> {
        let mut found = self.object.query([uri.as_str()])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let (number, mut state) = (row.get::<_, i64>(0)?, rows::object(row, 1)?);
        match items {
            ItemsAsked::All => {
                let mut found = self.items.query([number])?;
                while let Some(row) = found.next()? {
                    state.items.extend([rows::item(row)?]);
                }
            }
            ItemsAsked::Some(wanted) => {
                for item in wanted {
                    if let Some(row) = self.item.query(params![number, item.as_str()])?.next()? {
                        state.items.extend([rows::item(row)?]);
                    }
                }
            }
        }
        Ok(Some(KnownObject { number: Some(number), state }))
    }
}

/// All that is known of an object.
pub(super) fn object(connection: &Connection, uri: &Uri) -> Result<Option<ObjectState>, StoreError> {
    Ok(Reading::new(connection)?.object(uri, &ItemsAsked::All)?.map(|known| known.state))
}

/// Writes what was touched.
pub(super) fn write(connection: &Connection, touched: &[Touched]) -> Result<(), StoreError> {
    let mut items = connection.prepare_cached(WRITE_ITEM)?;
    for Touched { uri, object: KnownObject { number, state }, itself, items: named } in touched {
        let number = match number {
            None => add(connection, uri, state)?,
            Some(number) => {
                if *itself {
                    rewrite(connection, *number, state)?;
                }
                *number
            }
        };
        for uri in named {
            if let Some(record) = state.items.get(uri) {
                write_item(&mut items, number, uri, record)?;
            }
        }
    }
    Ok(())
}

fn add(connection: &Connection, uri: &Uri, state: &ObjectState) -> Result<i64, StoreError> {
    let (parent_at, parent_confirmed) = rows::clock_columns(state.parent.clock);
    let (types_at, types_confirmed) = rows::clock_columns(state.types.clock);
    let (purged_at, purged_confirmed) = rows::clock_columns(state.purged);
    let number = connection.prepare_cached(ADD_OBJECT)?.query_row(
        params![
            uri.as_str(),
            state.parent.value.as_ref().map(Uri::as_str),
            parent_at,
            parent_confirmed,
            rows::to_json(&state.types.value)?,
            types_at,
            types_confirmed,
            purged_at,
            purged_confirmed,
        ],
        |row| row.get(0),
    );
    Ok(number?)
}

fn rewrite(connection: &Connection, number: i64, state: &ObjectState) -> Result<(), StoreError> {
    let (parent_at, parent_confirmed) = rows::clock_columns(state.parent.clock);
    let (types_at, types_confirmed) = rows::clock_columns(state.types.clock);
    let (purged_at, purged_confirmed) = rows::clock_columns(state.purged);
    connection.prepare_cached(WRITE_OBJECT)?.execute(params![
        state.parent.value.as_ref().map(Uri::as_str),
        parent_at,
        parent_confirmed,
        rows::to_json(&state.types.value)?,
        types_at,
        types_confirmed,
        purged_at,
        purged_confirmed,
        number,
    ])?;
    Ok(())
}

fn write_item(
    statement: &mut CachedStatement<'_>,
    object: i64,
    uri: &Uri,
    record: &ItemRecord,
) -> Result<(), StoreError> {
    let (existence_at, existence_confirmed) = rows::clock_columns(record.existence.clock);
    let (content_at, content_confirmed) = rows::clock_columns(record.content.clock);
    let (state_at, state_confirmed) = rows::clock_columns(record.state.clock);
    statement.execute(params![
        object,
        uri.as_str(),
        record.existence.value,
        existence_at,
        existence_confirmed,
        record.content.value.as_ref().map(rows::to_json).transpose()?,
        content_at,
        content_confirmed,
        record.state.value.as_ref().map(State::as_str),
        state_at,
        state_confirmed,
        record.begins_in.as_ref().map(|beginning| beginning.state.as_str()),
        record.begins_in.as_ref().map(|beginning| beginning.at.millis()),
        record.begins_in.as_ref().and_then(|beginning| beginning.confirmed).map(Timestamp::millis),
    ])?;
    Ok(())
}
