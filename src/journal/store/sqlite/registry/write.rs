//! Writing of single objects and items.

use rusqlite::{
    CachedStatement, Connection,
    types::{Null, ToSqlOutput},
};

use super::super::value::{params, storable_values};
use super::columns::{item_columns, object_columns, write_initial_state, write_types};
use crate::{
    journal::{
        RawContentLocation,
        acceptance::{AcceptanceTime, ObjectNews},
        registry::{Clock, ItemRecord, ObjectState},
        store::{StoreError, public_items::has_public_item},
    },
    model::{State, Timestamp, Uri},
};

// `OR FAIL` instead of the default `OR ABORT`: for the latter SQLite copies every page, so that it can roll back a
// single statement. The gateway rolls back the whole transaction.
const INSERT_OBJECT: &str = concat!(
    "INSERT OR FAIL INTO objects (",
    object_columns!(),
    ", uri, accepted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);
const UPDATE_OBJECT: &str =
    concat!("UPDATE OR FAIL objects SET (", object_columns!(), ") = (?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE object = ?");
/// Statement that sets the times of acceptance of an object: the second one always (2), if the public sees one of its items
/// (1), or not (0).
const ACCEPT: &str = concat!(
    "UPDATE OR FAIL objects SET accepted = ?1, published = CASE WHEN ?2 = 2 THEN ?1 WHEN ?2 = 1 AND ",
    has_public_item!("objects.object"),
    " THEN ?1 ELSE published END WHERE object = ?3"
);
const PUT_ITEM: &str = concat!(
    "INSERT OR REPLACE INTO items (object, ",
    item_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);

/// Prepared statements that write objects and items.
pub(in super::super) struct RegistryWriter<'c> {
    connection: &'c Connection,
    insert: CachedStatement<'c>,
    update: CachedStatement<'c>,
    accept: CachedStatement<'c>,
    put_item: CachedStatement<'c>,
}

impl<'c> RegistryWriter<'c> {
    pub(in super::super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            insert: connection.prepare_cached(INSERT_OBJECT)?,
            update: connection.prepare_cached(UPDATE_OBJECT)?,
            accept: connection.prepare_cached(ACCEPT)?,
            put_item: connection.prepare_cached(PUT_ITEM)?,
        })
    }

    /// Inserts an object without items; returns its row number.
    pub(in super::super) fn insert(
        &mut self,
        uri: &Uri,
        state: &ObjectState,
        accepted: AcceptanceTime,
    ) -> Result<i64, StoreError> {
        let values = object_values(state)?.into_iter();
        self.insert.execute(storable_values(values.chain([uri.as_str().into(), accepted.0.into()])))?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Updates the row of an object, without its items.
    pub(in super::super) fn update(&mut self, number: i64, state: &ObjectState) -> Result<(), StoreError> {
        let values = object_values(state)?.into_iter();
        self.update.execute(storable_values(values.chain([number.into()])))?;
        Ok(())
    }

    /// Sets the times of acceptance of the object with this row number.
    pub(in super::super) fn accept(
        &mut self,
        number: i64,
        accepted: AcceptanceTime,
        news: ObjectNews,
    ) -> Result<(), StoreError> {
        let published = match news {
            ObjectNews::None => return Ok(()),
            ObjectNews::Hidden => 0,
            ObjectNews::OfObject => 1,
            ObjectNews::Public => 2,
        };
        self.accept.execute(params![accepted.0, published, number])?;
        Ok(())
    }

    /// Inserts or replaces an item of the object with this row number.
    pub(in super::super) fn put_item(&mut self, number: i64, uri: &Uri, record: &ItemRecord) -> Result<(), StoreError> {
        let ItemRecord { existence, content, state, initial_state, unannounced, schedule } = record;
        let [visible_from, visible_until, came, denied] = schedule.times().map(|time| time.map(Timestamp::millis));
        let [existence_at, existence_confirmed] = times(existence.clock);
        let [content_at, content_confirmed] = times(content.clock);
        let [state_at, state_confirmed] = times(state.clock);
        let (initial, initial_at, initial_confirmed) = write_initial_state(initial_state.as_ref());
        self.put_item.execute(params![
            number,
            uri.as_str(),
            existence.value,
            existence_at,
            existence_confirmed,
            content.value.as_ref().map(RawContentLocation::json),
            content_at,
            content_confirmed,
            state.value.as_ref().map(State::as_str),
            state_at,
            state_confirmed,
            initial,
            initial_at,
            initial_confirmed,
            unannounced,
            visible_from,
            visible_until,
            came,
            denied,
        ])?;
        Ok(())
    }
}

/// Returns the values of [`object_columns`].
fn object_values(state: &ObjectState) -> Result<[ToSqlOutput<'_>; 9], StoreError> {
    let ObjectState { parent, types, purged, source, items: _ } = state;
    let [parent_at, parent_confirmed] = times(parent.clock).map(time_value);
    let [types_at, types_confirmed] = times(types.clock).map(time_value);
    let [purged_at, purged_confirmed] = times(*purged).map(time_value);
    let parent = parent.value.as_ref().map_or(Null.into(), |parent| parent.as_str().into());
    let types = write_types(&types.value)?;
    let source = source.as_ref().map_or(Null.into(), |source| source.as_str().into());
    Ok([parent, parent_at, parent_confirmed, types, types_at, types_confirmed, purged_at, purged_confirmed, source])
}

fn time_value(time: Option<i64>) -> ToSqlOutput<'static> {
    time.map_or(Null.into(), ToSqlOutput::from)
}

/// Returns the values of the columns `<fact>_at` and `<fact>_confirmed`.
fn times(clock: Clock) -> [Option<i64>; 2] {
    [clock.at, clock.confirmed].map(|time| time.map(Timestamp::millis))
}
