//! The registry in its tables: reading objects, and writing what has gathered of them.

use std::{collections::BTreeMap, sync::Arc};

use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, params};

use super::{held::Held, rows};
use crate::{
    journal::{
        registry::ItemRecord,
        store::{
            ItemsAsked, KnownObject, StoreError,
            packed::{ItemColumns, ObjectColumns},
        },
    },
    model::Uri,
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
         state, state_at, state_confirmed, begins_in, begins_in_at, begins_in_confirmed, unheard"
    };
}

/// The same of a journal that no newer version has opened yet.
macro_rules! item_columns_of_old {
    () => {
        "uri, existence, existence_at, existence_confirmed, content, content_at, content_confirmed, \
         state, state_at, state_confirmed, begins_in, begins_in_at, begins_in_confirmed, 0"
    };
}

pub(super) use {item_columns, object_columns};

const READ_NUMBER: &str = "SELECT object FROM objects WHERE uri = ?";
const READ_OBJECT: &str = concat!("SELECT object, ", object_columns!(), " FROM objects WHERE uri = ?");

const READ_ITEMS: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ?");
const READ_ITEM: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ? AND uri = ?");

const READ_ITEMS_OF_OLD: &str = concat!("SELECT ", item_columns_of_old!(), " FROM items WHERE object = ?");
const READ_ITEM_OF_OLD: &str = concat!("SELECT ", item_columns_of_old!(), " FROM items WHERE object = ? AND uri = ?");

// FAIL and not ABORT, the default: with it SQLite keeps a copy of every page, to take back a part of the
// statement. Here the whole transaction is taken back.
const ADD_OBJECT: &str =
    concat!("INSERT OR FAIL INTO objects (uri, ", object_columns!(), ") VALUES (?9, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
const WRITE_OBJECT: &str = concat!(
    "UPDATE OR FAIL objects SET (",
    object_columns!(),
    ") = (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) WHERE object = ?9"
);
const WRITE_ITEM: &str = concat!(
    "INSERT OR REPLACE INTO items (object, ",
    item_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
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
            items: connection.prepare_cached(READ_ITEMS).or_else(|_| connection.prepare_cached(READ_ITEMS_OF_OLD))?,
            item: connection.prepare_cached(READ_ITEM).or_else(|_| connection.prepare_cached(READ_ITEM_OF_OLD))?,
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
                for item in wanted.as_slice() {
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
            items.insert(rows::item_uri(row)?, rows::item(row, 1)?);
        }
        Ok(())
    }

    /// One of them.
    pub(super) fn item(&mut self, number: i64, item: &Uri) -> Result<Option<Box<ItemRecord>>, StoreError> {
        let mut found = self.item.query(params![number, item.as_str()])?;
        found.next()?.map(|row| rows::item(row, 1)).transpose()
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
                    write(&mut self.rewrite, held.object.object_columns()?, &number)?;
                }
                number
            }
            None => {
                write(&mut self.add, held.object.object_columns()?, &uri.as_str())?;
                self.connection.last_insert_rowid()
            }
        };
        held.items.iter().try_for_each(|(uri, packed)| self.item(number, uri, packed.item_columns()?))
    }

    fn item(&mut self, object: i64, uri: &Uri, columns: ItemColumns<'_>) -> Result<(), StoreError> {
        let ItemColumns { existence, existence_times, content, content_times, state, state_times, .. } = columns;
        let ItemColumns { beginning, unheard, .. } = columns;
        self.item.execute(params![
            object,
            uri.as_str(),
            existence,
            existence_times.at,
            existence_times.confirmed,
            content,
            content_times.at,
            content_times.confirmed,
            state,
            state_times.at,
            state_times.confirmed,
            beginning.state,
            beginning.at,
            beginning.confirmed,
            unheard,
        ])?;
        Ok(())
    }
}

/// Writes the columns of an object with a statement whose last parameter says which it is.
fn write(statement: &mut CachedStatement<'_>, columns: ObjectColumns<'_>, key: &dyn ToSql) -> rusqlite::Result<usize> {
    let ObjectColumns { parent, parent_times, types, types_times, purged } = columns;
    statement.execute(params![
        parent,
        parent_times.at,
        parent_times.confirmed,
        types,
        types_times.at,
        types_times.confirmed,
        purged.at,
        purged.confirmed,
        key,
    ])
}
