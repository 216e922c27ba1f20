//! Conversions from the registry's columns to objects and items.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::super::row::get;
use crate::{
    journal::{
        RawContentLocation,
        registry::{Clock, InitialState, ItemRecord, ObjectState, Register, Schedule},
        store::{StoreError, rows},
    },
    model::{State, Timestamp, Uri, VisibilityDates},
};

/// JSON of an empty list of types, as in most rows.
pub(super) const NO_TYPES: &str = "[]";

/// The columns of an object after its URI.
macro_rules! object_columns {
    () => {
        "parent, parent_at, parent_confirmed, types, types_at, types_confirmed, purged_at, purged_confirmed, source"
    };
}

/// The columns of an item after its object.
macro_rules! item_columns {
    () => {
        "uri, existence, existence_at, existence_confirmed, content, content_at, content_confirmed, \
         state, state_at, state_confirmed, initial_state, initial_state_at, initial_state_confirmed, unannounced, \
         visible_from, visible_until, came, denied"
    };
}

pub(super) use {item_columns, object_columns};

/// Reads [`object_columns`], the first of them at `index`.
pub(super) fn object(row: &Row, index: usize) -> Result<ObjectState, StoreError> {
    let types: &str = get(row, index + 3)?;
    Ok(ObjectState {
        parent: Register {
            value: get::<Option<&str>>(row, index)?.map(rows::uri).transpose()?,
            clock: clock(row, index + 1)?,
        },
        types: Register {
            value: if types == NO_TYPES { Vec::new() } else { rows::json(types)? },
            clock: clock(row, index + 4)?,
        },
        purged: clock(row, index + 6)?,
        source: get::<Option<&str>>(row, index + 8)?.map(rows::source).transpose()?,
        items: BTreeMap::new(),
    })
}

/// Reads [`item_columns`], the first of them at `index`.
pub(super) fn item(row: &Row, index: usize) -> Result<(Uri, Box<ItemRecord>), StoreError> {
    let uri = rows::uri(get(row, index)?)?;
    let content: Option<&str> = get(row, index + 4)?;
    let record = ItemRecord {
        existence: Register { value: get(row, index + 1)?, clock: clock(row, index + 2)? },
        content: Register { value: content.map(RawContentLocation::from_json), clock: clock(row, index + 5)? },
        state: Register { value: state(row, index + 7)?, clock: clock(row, index + 8)? },
        initial_state: initial_state(row, index + 10)?,
        unannounced: get(row, index + 13)?,
        schedule: schedule(row, index + 14)?,
    };
    Ok((uri, Box::new(record)))
}

fn initial_state(row: &Row, index: usize) -> Result<Option<InitialState>, StoreError> {
    let (Some(state), Some(at)) = (state(row, index)?, time(row, index + 1)?) else { return Ok(None) };
    Ok(Some(InitialState { state, at, confirmed: time(row, index + 2)? }))
}

/// Reads the four columns of a schedule, the first of them at `index`.
fn schedule(row: &Row, index: usize) -> Result<Schedule, StoreError> {
    let dates = VisibilityDates::new(time(row, index)?, time(row, index + 1)?).map_err(rows::damaged)?;
    Ok(Schedule { dates, came: time(row, index + 2)?, denied: time(row, index + 3)? })
}

/// Reads the columns `<fact>_at` and `<fact>_confirmed`.
fn clock(row: &Row, index: usize) -> Result<Clock, StoreError> {
    Ok(Clock { at: time(row, index)?, confirmed: time(row, index + 1)? })
}

fn time(row: &Row, index: usize) -> Result<Option<Timestamp>, StoreError> {
    get::<Option<i64>>(row, index)?.map(rows::time).transpose()
}

fn state(row: &Row, index: usize) -> Result<Option<State>, StoreError> {
    get::<Option<&str>>(row, index)?.map(|name| State::parse(name).map_err(rows::damaged)).transpose()
}
