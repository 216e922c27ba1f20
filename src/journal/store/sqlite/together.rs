//! What a batch asks of the registry's tables: many objects together, since each statement has its price.
//!
//! Most changes ask for one item of an object. Where the number of the object is known ([`Numbers`]), both are found by it, one
//! object after the other as they stand in the tables; the others are found by their URIs.

use std::sync::Arc;

use foldhash::HashMap;
use rusqlite::{
    CachedStatement, Connection, Statement, params_from_iter,
    types::{ToSqlOutput, Value, ValueRef},
};

use super::{
    numbers::Numbers,
    objects::{Reading, item_columns, object_columns},
    rows,
};
use crate::{
    journal::store::{ItemsAsked, KnownObject, StoreError},
    model::Uri,
};

/// How many objects one statement asks for, where so many are asked for.
const AT_ONCE: usize = 16;

/// Objects that are found by a column, each beside one of its items or beside nothing. The first column says which of those asked
/// for it is, from 0 on.
macro_rules! read_with_item {
    ($by:literal; $($asked:literal)+) => {
        concat!(
            "WITH asked (place, object, item) AS (VALUES (0, ?, ?)", $($asked,)+
            ") SELECT asked.place, o.object, o.uri, ", object_columns!(), ", i.* FROM asked CROSS JOIN objects o ON o.", $by,
            " = asked.object LEFT JOIN (SELECT object, ", item_columns!(),
            " FROM items) i ON i.object = o.object AND i.uri = asked.item"
        )
    };
}

/// The same of [`AT_ONCE`].
macro_rules! read_several_with_item {
    ($by:literal) => {
        read_with_item!(
            $by;
            ", (1, ?, ?)" ", (2, ?, ?)" ", (3, ?, ?)" ", (4, ?, ?)" ", (5, ?, ?)" ", (6, ?, ?)" ", (7, ?, ?)" ", (8, ?, ?)"
            ", (9, ?, ?)" ", (10, ?, ?)" ", (11, ?, ?)" ", (12, ?, ?)" ", (13, ?, ?)" ", (14, ?, ?)" ", (15, ?, ?)"
        )
    };
}

const ONE_BY_NUMBER: &str = read_with_item!("object"; "");
const SEVERAL_BY_NUMBER: &str = read_several_with_item!("object");
const ONE_BY_URI: &str = read_with_item!("uri"; "");
const SEVERAL_BY_URI: &str = read_several_with_item!("uri");

/// Where the columns of the object begin in such a row: after its place, its number and its URI, …
const OBJECT: usize = 3;

/// … and where those of the item do: after them, and the item's object.
const ITEM_URI: usize = 12;

/// An object that is asked for with one item.
#[derive(Clone, Copy)]
struct Asked<'a, K> {
    key: K,
    object: &'a Uri,
    item: &'a Uri,
}

/// Statements that find objects, several at once or one.
struct Finding<'c> {
    several: CachedStatement<'c>,
    one: CachedStatement<'c>,
}

impl<'c> Finding<'c> {
    fn new(connection: &'c Connection, several: &str, one: &str) -> rusqlite::Result<Self> {
        Ok(Self { several: connection.prepare_cached(several)?, one: connection.prepare_cached(one)? })
    }

    /// Adds those that are found; gives the others.
    fn find<'a, K: Copy>(
        &mut self,
        asked: &[Asked<'a, K>],
        key: impl Fn(K) -> ToSqlOutput<'a>,
        found: &mut HashMap<Uri, KnownObject>,
    ) -> Result<Vec<Asked<'a, K>>, StoreError> {
        let mut missing = Vec::new();
        let (together, rest) = asked.as_chunks::<AT_ONCE>();
        for asked in together {
            with_item(&mut self.several, asked, &key, found, &mut missing)?;
        }
        for asked in rest {
            with_item(&mut self.one, std::slice::from_ref(asked), &key, found, &mut missing)?;
        }
        Ok(missing)
    }
}

/// What the tables hold of these objects, as far as they are there, and of the items asked for.
pub(super) fn objects(
    connection: &Connection,
    reading: &mut Reading<'_>,
    numbers: &mut Numbers,
    asked: &[(&Uri, &ItemsAsked)],
    found: &mut HashMap<Uri, KnownObject>,
) -> Result<(), StoreError> {
    let (mut by_number, mut by_uri) = (Vec::with_capacity(asked.len()), Vec::new());
    for (object, items) in asked {
        if let ItemsAsked::Some(wanted) = items
            && let [item] = wanted.as_slice()
        {
            match numbers.of(object) {
                Some(key) => by_number.push(Asked { key, object, item }),
                None => by_uri.push(Asked { key: object.as_str(), object, item }),
            }
        } else {
            found.extend(reading.object(object, items)?.map(|known| ((*object).clone(), known)));
        }
    }
    by_number.sort_unstable_by_key(|asked| asked.key);
    let mut finding = Finding::new(connection, SEVERAL_BY_NUMBER, ONE_BY_NUMBER)?;
    let elsewhere = finding.find(&by_number, |number| ToSqlOutput::Owned(Value::Integer(number)), found)?;
    by_uri.extend(elsewhere.into_iter().map(|Asked { object, item, .. }| Asked { key: object.as_str(), object, item }));
    let mut finding = Finding::new(connection, SEVERAL_BY_URI, ONE_BY_URI)?;
    finding.find(&by_uri, |uri| ToSqlOutput::Borrowed(uri.into()), found)?;
    for Asked { object, .. } in by_uri {
        if let Some(number) = found.get(object).and_then(|known| known.number) {
            numbers.found(object, number);
        }
    }
    Ok(())
}

/// Asks for as many objects, each with one item, as the statement does.
fn with_item<'a, K: Copy>(
    statement: &mut Statement<'_>,
    asked: &[Asked<'a, K>],
    key: impl Fn(K) -> ToSqlOutput<'a>,
    found: &mut HashMap<Uri, KnownObject>,
    missing: &mut Vec<Asked<'a, K>>,
) -> Result<(), StoreError> {
    let mut is_there = [false; AT_ONCE];
    let parameters = asked.iter().flat_map(|asked| [key(asked.key), ToSqlOutput::Borrowed(asked.item.as_str().into())]);
    let mut rows = statement.query(params_from_iter(parameters))?;
    while let Some(row) = rows.next()? {
        let place = usize::from(row.get::<_, u8>(0)?);
        let (Some(Asked { object, item, .. }), Some(is_there)) = (asked.get(place), is_there.get_mut(place)) else {
            return Err(rows::damaged("a row that was not asked for"));
        };
        if row.get_ref(2)? != ValueRef::Text(object.as_str().as_bytes()) {
            continue;
        }
        *is_there = true;
        let (number, mut state) = (row.get::<_, i64>(1)?, rows::object(row, OBJECT)?);
        if row.get_ref(ITEM_URI)? != ValueRef::Null {
            state.items.insert((*item).clone(), rows::item(row, ITEM_URI + 1)?);
        }
        found.insert((*object).clone(), KnownObject { number: Some(number), state: Arc::new(state) });
    }
    missing.extend(asked.iter().zip(is_there).filter(|(_, is_there)| !is_there).map(|(asked, _)| *asked));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Arc, Connection, HashMap, ItemsAsked, KnownObject, Numbers, Reading, Uri, objects};
    use crate::{
        journal::{
            registry::{ItemRecord, ObjectState},
            store::{
                Touched,
                sqlite::{Bounds, SqliteStore, held::Held, objects::Writing},
            },
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

    /// Of 50 objects every fifth is not there, and of each seventh another item is asked for.
    fn is_there(number: i64) -> bool {
        number % 5 != 0
    }

    fn has_item(number: i64) -> bool {
        number % 7 != 0
    }

    /// Asks for all of them, and looks at each answer.
    fn ask(connection: &Connection, numbers: &mut Numbers) {
        let item = |number: i64| format!("http://h/{number}/{}", if has_item(number) { "a" } else { "b" });
        let asked: Vec<_> = (0..50).map(|number| (held(number).0, ItemsAsked::these([uri(&item(number))]))).collect();
        let asked: Vec<_> = asked.iter().map(|(uri, items)| (uri, items)).collect();
        let mut found = HashMap::default();
        objects(connection, &mut Reading::new(connection).unwrap(), numbers, &asked, &mut found).unwrap();
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

    #[test]
    fn each_of_many_that_are_asked_for_together_is_answered_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), Bounds::default()).unwrap();
        let connection = store.writing();
        let mut writing = Writing::new(&connection).unwrap();
        for (uri, held) in (0..50).filter(|number| is_there(*number)).map(held) {
            writing.object(&uri, &held).unwrap();
        }
        let mut numbers = Numbers::default();
        ask(&connection, &mut numbers);
        let told: Vec<_> = (0..50).map(|number| numbers.of(&held(number).0)).collect();
        assert_eq!(told.iter().filter(|number| number.is_some()).count(), 40);
        // By their numbers now.
        ask(&connection, &mut numbers);
        // A hint may be that of another object, or of none, and is put right.
        for number in 0..50 {
            let wrong = if number % 2 == 0 { told[1].unwrap() } else { 1_000 };
            numbers.found(&held(number).0, wrong);
        }
        ask(&connection, &mut numbers);
        for number in (0..50).filter(|number| is_there(*number)) {
            assert_eq!(numbers.of(&held(number).0), told[usize::try_from(number).unwrap()], "{number}");
        }
    }
}
