//! The registry in its tables: reading objects, and writing what has gathered of them.

use std::{collections::BTreeMap, sync::Arc};

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::{gathered::Held, rows};
use crate::{
    journal::{
        registry::{ItemRecord, ObjectState},
        store::{ItemsAsked, KnownObject, StoreError},
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

const READ_NUMBER: &str = "SELECT object FROM objects WHERE uri = ?";
const READ_OBJECT: &str = concat!("SELECT object, ", object_columns!(), " FROM objects WHERE uri = ?");
const READ_ITEMS: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ?");
const READ_ITEM: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ? AND uri = ?");

// FAIL and not ABORT, the default: with it SQLite keeps a copy of every page, to take back a part of the
// statement. Here the whole transaction is taken back.
const ADD_OBJECT: &str =
    concat!("INSERT OR FAIL INTO objects (uri, ", object_columns!(), ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
const WRITE_OBJECT: &str =
    concat!("UPDATE OR FAIL objects SET (", object_columns!(), ") = (?, ?, ?, ?, ?, ?, ?, ?) WHERE object = ?");
const WRITE_ITEM: &str = concat!(
    "INSERT OR REPLACE INTO items (object, ",
    item_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);

/// Reads objects, one after the other.
pub(super) struct Reading<'a> {
    number: CachedStatement<'a>,
    object: CachedStatement<'a>,
    items: CachedStatement<'a>,
    item: CachedStatement<'a>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            number: connection.prepare_cached(READ_NUMBER)?,
            object: connection.prepare_cached(READ_OBJECT)?,
            items: connection.prepare_cached(READ_ITEMS)?,
            item: connection.prepare_cached(READ_ITEM)?,
        })
    }

    /// What the tables hold of an object and of the items asked for.
    pub(super) fn object(&mut self, uri: &Uri, items: &ItemsAsked) -> Result<Option<KnownObject>, StoreError> {
        let mut found = self.object.query([uri.as_str()])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let (number, mut state) = (row.get::<_, i64>(0)?, rows::object(row, 1)?);
        drop(found);
        match items {
            ItemsAsked::All => self.items(number, &mut state.items)?,
            ItemsAsked::Some(wanted) => {
                for item in wanted {
                    let record = self.item(number, item)?;
                    state.items.extend(record.map(|record| (item.clone(), record)));
                }
            }
        }
        Ok(Some(KnownObject { number: Some(number), state: Arc::new(state) }))
    }

    /// The number of an object, if it has a row.
    pub(super) fn number(&mut self, uri: &Uri) -> Result<Option<i64>, StoreError> {
        Ok(self.number.query_row([uri.as_str()], |row| row.get(0)).optional()?)
    }

    /// The number that is known already, or else as [`Reading::number`].
    pub(super) fn number_or(&mut self, number: Option<i64>, uri: &Uri) -> Result<Option<i64>, StoreError> {
        number.map_or_else(|| self.number(uri), |number| Ok(Some(number)))
    }

    /// Every item of the object with that number.
    pub(super) fn items(&mut self, number: i64, items: &mut BTreeMap<Uri, Box<ItemRecord>>) -> Result<(), StoreError> {
        let mut found = self.items.query([number])?;
        while let Some(row) = found.next()? {
            items.insert(rows::item_uri(row)?, rows::item(row)?);
        }
        Ok(())
    }

    /// One of them.
    pub(super) fn item(&mut self, number: i64, item: &Uri) -> Result<Option<Box<ItemRecord>>, StoreError> {
        let mut found = self.item.query(params![number, item.as_str()])?;
        found.next()?.map(rows::item).transpose()
    }
}

/// Writes objects, one after the other.
pub(super) struct Writing<'a> {
    connection: &'a Connection,
    number: CachedStatement<'a>,
    add: CachedStatement<'a>,
    rewrite: CachedStatement<'a>,
    item: CachedStatement<'a>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            number: connection.prepare_cached(READ_NUMBER)?,
            add: connection.prepare_cached(ADD_OBJECT)?,
            rewrite: connection.prepare_cached(WRITE_OBJECT)?,
            item: connection.prepare_cached(WRITE_ITEM)?,
        })
    }

    /// Writes what is held of an object.
    pub(super) fn object(&mut self, uri: &Uri, held: &Held) -> Result<(), StoreError> {
        let number = match held.number {
            Some(number) => Some(number),
            None => self.number.query_row([uri.as_str()], |row| row.get(0)).optional()?,
        };
        let number = match number {
            Some(number) => {
                if held.itself {
                    self.rewrite(number, &held.state)?;
                }
                number
            }
            None => self.add(uri, &held.state)?,
        };
        held.state.items.iter().try_for_each(|(uri, record)| self.item(number, uri, record))
    }

    fn add(&mut self, uri: &Uri, state: &ObjectState) -> Result<i64, StoreError> {
        let (parent_at, parent_confirmed) = rows::clock_columns(state.parent.clock);
        let (types_at, types_confirmed) = rows::clock_columns(state.types.clock);
        let (purged_at, purged_confirmed) = rows::clock_columns(state.purged);
        self.add.execute(params![
            uri.as_str(),
            state.parent.value.as_ref().map(Uri::as_str),
            parent_at,
            parent_confirmed,
            rows::to_json(&state.types.value)?,
            types_at,
            types_confirmed,
            purged_at,
            purged_confirmed,
        ])?;
        Ok(self.connection.last_insert_rowid())
    }

    fn rewrite(&mut self, number: i64, state: &ObjectState) -> Result<(), StoreError> {
        let (parent_at, parent_confirmed) = rows::clock_columns(state.parent.clock);
        let (types_at, types_confirmed) = rows::clock_columns(state.types.clock);
        let (purged_at, purged_confirmed) = rows::clock_columns(state.purged);
        self.rewrite.execute(params![
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

    fn item(&mut self, object: i64, uri: &Uri, record: &ItemRecord) -> Result<(), StoreError> {
        let (existence_at, existence_confirmed) = rows::clock_columns(record.existence.clock);
        let (content_at, content_confirmed) = rows::clock_columns(record.content.clock);
        let (state_at, state_confirmed) = rows::clock_columns(record.state.clock);
        self.item.execute(params![
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
}
