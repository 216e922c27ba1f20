//! The registry in its tables: reading objects, and writing what has gathered of them.

use std::{collections::BTreeMap, sync::Arc};

use foldhash::HashMap;
use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, params, params_from_iter, types::ValueRef};

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

/// Objects, each beside one of its items or beside nothing. The first column says which of those asked for it is, from 0 on.
macro_rules! read_with_item {
    ($item_columns:expr; $($asked:literal),+) => {
        concat!(
            "WITH asked (place, object, item) AS (VALUES ", $($asked),+, ") SELECT asked.place, o.object, ",
            object_columns!(),
            ", i.* FROM asked CROSS JOIN objects o ON o.uri = asked.object LEFT JOIN (SELECT object, ",
            $item_columns,
            " FROM items) i ON i.object = o.object AND i.uri = asked.item"
        )
    };
}

/// The same of one, and of [`ASKED_AT_ONCE`].
macro_rules! read_one_with_item {
    ($item_columns:expr) => {
        read_with_item!($item_columns; "(0, ?, ?)")
    };
}
macro_rules! read_several_with_item {
    ($item_columns:expr) => {
        read_with_item!(
            $item_columns;
            "(0, ?, ?), (1, ?, ?), (2, ?, ?), (3, ?, ?), (4, ?, ?), (5, ?, ?), (6, ?, ?), (7, ?, ?), ",
            "(8, ?, ?), (9, ?, ?), (10, ?, ?), (11, ?, ?), (12, ?, ?), (13, ?, ?), (14, ?, ?), (15, ?, ?)"
        )
    };
}

/// How many objects one statement asks for, where so many are asked for: each statement has its price.
const ASKED_AT_ONCE: usize = 16;

const READ_NUMBER: &str = "SELECT object FROM objects WHERE uri = ?";
const READ_OBJECT: &str = concat!("SELECT object, ", object_columns!(), " FROM objects WHERE uri = ?");

const READ_ITEMS: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ?");
const READ_ITEM: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ? AND uri = ?");
const READ_WITH_ITEM: &str = read_one_with_item!(item_columns!());
const READ_SEVERAL: &str = read_several_with_item!(item_columns!());

const READ_ITEMS_OF_OLD: &str = concat!("SELECT ", item_columns_of_old!(), " FROM items WHERE object = ?");
const READ_ITEM_OF_OLD: &str = concat!("SELECT ", item_columns_of_old!(), " FROM items WHERE object = ? AND uri = ?");
const READ_WITH_ITEM_OF_OLD: &str = read_one_with_item!(item_columns_of_old!());
const READ_SEVERAL_OF_OLD: &str = read_several_with_item!(item_columns_of_old!());

/// Where the columns of the item begin in the row of an object beside it: after its place, its number, its columns, and the
/// item's object.
const ITEM_URI: usize = 11;

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
    with_item: CachedStatement<'a>,
    several: CachedStatement<'a>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            number: connection.prepare_cached(READ_NUMBER)?,
            object: connection.prepare_cached(READ_OBJECT)?,
            items: connection.prepare_cached(READ_ITEMS).or_else(|_| connection.prepare_cached(READ_ITEMS_OF_OLD))?,
            item: connection.prepare_cached(READ_ITEM).or_else(|_| connection.prepare_cached(READ_ITEM_OF_OLD))?,
            with_item: connection
                .prepare_cached(READ_WITH_ITEM)
                .or_else(|_| connection.prepare_cached(READ_WITH_ITEM_OF_OLD))?,
            several: connection
                .prepare_cached(READ_SEVERAL)
                .or_else(|_| connection.prepare_cached(READ_SEVERAL_OF_OLD))?,
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

    /// The same of several, as far as they are there. Most changes ask for one item of an object: those are asked for together.
    pub(super) fn objects(
        &mut self,
        asked: &[(&Uri, &ItemsAsked)],
        found: &mut HashMap<Uri, KnownObject>,
    ) -> Result<(), StoreError> {
        let mut with_one = Vec::with_capacity(asked.len());
        for (uri, items) in asked {
            if let ItemsAsked::Some(wanted) = items
                && let [item] = wanted.as_slice()
            {
                with_one.push((*uri, item));
            } else {
                found.extend(self.object(uri, items)?.map(|object| ((*uri).clone(), object)));
            }
        }
        let (together, rest) = with_one.as_chunks::<ASKED_AT_ONCE>();
        together.iter().try_for_each(|asked| with_item(&mut self.several, asked, found))?;
        rest.iter().try_for_each(|asked| with_item(&mut self.with_item, std::slice::from_ref(asked), found))
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

/// Asks for as many objects, each with one item, as the statement does.
fn with_item(
    statement: &mut CachedStatement<'_>,
    asked: &[(&Uri, &Uri)],
    found: &mut HashMap<Uri, KnownObject>,
) -> Result<(), StoreError> {
    let texts = asked.iter().flat_map(|(object, item)| [object.as_str(), item.as_str()]);
    let mut rows = statement.query(params_from_iter(texts))?;
    while let Some(row) = rows.next()? {
        let place = usize::from(row.get::<_, u8>(0)?);
        let (uri, item) = asked.get(place).ok_or_else(|| rows::damaged("a row that was not asked for"))?;
        let (number, mut state) = (row.get::<_, i64>(1)?, rows::object(row, 2)?);
        if row.get_ref(ITEM_URI)? != ValueRef::Null {
            state.items.insert((*item).clone(), rows::item(row, ITEM_URI + 1)?);
        }
        found.insert((*uri).clone(), KnownObject { number: Some(number), state: Arc::new(state) });
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::{super::Bounds, Arc, HashMap, Held, ItemsAsked, Reading, Uri, Writing};
    use crate::{
        journal::{
            registry::{ItemRecord, ObjectState},
            store::{KnownObject, Touched, sqlite::SqliteStore},
        },
        model::Timestamp,
    };

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    /// The object of that number, whose one item says the number.
    fn held(number: i64) -> (Uri, Held) {
        let time = Timestamp::from_millis(number);
        let mut state = ObjectState::default();
        state.purged.at = time;
        let mut record = ItemRecord::default();
        record.state.clock.at = time;
        state.items.insert(uri(&format!("http://h/{number}/a")), Box::new(record));
        let items = state.items.keys().cloned().collect();
        let known = KnownObject { number: None, state: Arc::new(state) };
        let touched = Touched::new(uri(&format!("http://h/{number}")), &known, true, items, None);
        (touched.uri, Held { number: None, itself: true, object: touched.object, items: touched.items })
    }

    #[test]
    fn each_of_many_that_are_asked_for_together_is_answered_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), Bounds::default()).unwrap();
        let connection = store.writing();
        let mut writing = Writing::new(&connection).unwrap();
        // Of 50 objects every fifth is not there, and of each seventh another item is asked for.
        let is_there = |number: i64| number % 5 != 0;
        let has_item = |number: i64| number % 7 != 0;
        for (uri, held) in (0..50).filter(|number| is_there(*number)).map(held) {
            writing.object(&uri, &held).unwrap();
        }
        let item = |number: i64| format!("http://h/{number}/{}", if has_item(number) { "a" } else { "b" });
        let asked: Vec<_> = (0..50).map(|number| (held(number).0, ItemsAsked::these([uri(&item(number))]))).collect();
        let asked: Vec<_> = asked.iter().map(|(uri, items)| (uri, items)).collect();
        let mut found = HashMap::default();
        Reading::new(&connection).unwrap().objects(&asked, &mut found).unwrap();
        for number in 0..50 {
            let time = Timestamp::from_millis(number);
            let found = found.remove(&held(number).0);
            assert_eq!(found.is_some(), is_there(number), "{number}");
            let Some(KnownObject { state, .. }) = found else { continue };
            assert_eq!(state.purged.at, time);
            let items = state.items.iter().map(|(uri, item)| (uri.as_str().to_owned(), item.state.clock.at));
            let expected = has_item(number).then(|| (item(number), time));
            assert_eq!(items.collect::<Vec<_>>(), Vec::from_iter(expected), "{number}");
        }
    }
}
