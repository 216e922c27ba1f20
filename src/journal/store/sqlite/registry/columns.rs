//! Conversions between the registry's columns and objects and items. A column that cannot be converted was not
//! written by the gateway: the journal is damaged.

use rusqlite::{Row, types::ToSqlOutput};

use super::super::rows;
use crate::{
    journal::{
        RawContentLocation,
        registry::{Clock, InitialState, ItemRecord, ObjectState, Register, Schedule},
        store::StoreError,
    },
    model::{State, Timestamp, Uri, VisibilityDates},
};

/// The columns of an object after its number.
macro_rules! object_columns {
    () => {
        "parent, parent_at, parent_confirmed, types, types_at, types_confirmed, purged_at, purged_confirmed, source"
    };
}

/// The columns of an item after the number of its object.
macro_rules! item_columns {
    () => {
        "uri, existence, existence_at, existence_confirmed, content, content_at, content_confirmed, \
         state, state_at, state_confirmed, initial_state, initial_state_at, initial_state_confirmed, unannounced, \
         visible_from, visible_until, came, denied"
    };
}

pub(super) use {item_columns, object_columns};

/// JSON of an empty list of types, as in most rows.
const NO_TYPES: &str = "[]";

/// Reads [`object_columns`], the first of them at `index`.
pub(super) fn object(row: &Row<'_>, index: usize) -> Result<ObjectState, StoreError> {
    let types = row.get_ref(index + 3)?.as_str().map_err(rows::damaged)?;
    Ok(ObjectState {
        parent: Register { value: text(row, index)?.map(rows::uri).transpose()?, clock: clock(row, index + 1)? },
        types: Register {
            value: if types == NO_TYPES { Vec::new() } else { rows::json(types)? },
            clock: clock(row, index + 4)?,
        },
        purged: clock(row, index + 6)?,
        source: text(row, index + 8)?.map(rows::source).transpose()?,
        items: std::collections::BTreeMap::new(),
    })
}

/// Reads [`item_columns`].
pub(super) fn item(row: &Row<'_>) -> Result<(Uri, Box<ItemRecord>), StoreError> {
    let uri = rows::uri(row.get_ref(0)?.as_str().map_err(rows::damaged)?)?;
    let record = ItemRecord {
        existence: Register { value: row.get(1)?, clock: clock(row, 2)? },
        content: Register { value: text(row, 4)?.map(RawContentLocation::from_json), clock: clock(row, 5)? },
        state: Register { value: text(row, 7)?.map(state).transpose()?, clock: clock(row, 8)? },
        initial_state: initial_state(row, 10)?,
        unannounced: row.get(13)?,
        schedule: schedule(row, 14)?,
    };
    Ok((uri, Box::new(record)))
}

/// Reads the three columns of an initial state, the first of them at `index`.
fn initial_state(row: &Row<'_>, index: usize) -> Result<Option<InitialState>, StoreError> {
    let (Some(name), Some(at)) = (text(row, index)?, time(row, index + 1)?) else { return Ok(None) };
    Ok(Some(InitialState { state: state(name)?, at, confirmed: time(row, index + 2)? }))
}

/// Reads the four columns of a schedule, the first of them at `index`.
fn schedule(row: &Row<'_>, index: usize) -> Result<Schedule, StoreError> {
    let dates = VisibilityDates::new(time(row, index)?, time(row, index + 1)?).map_err(rows::damaged)?;
    Ok(Schedule { dates, came: time(row, index + 2)?, denied: time(row, index + 3)? })
}

/// Returns the values of the three columns of an initial state.
pub(super) fn write_initial_state(initial_state: Option<&InitialState>) -> (Option<&str>, Option<i64>, Option<i64>) {
    let confirmed = initial_state.and_then(|initial_state| initial_state.confirmed);
    let at = initial_state.map(|initial_state| initial_state.at.millis());
    (initial_state.map(|initial_state| initial_state.state.as_str()), at, confirmed.map(Timestamp::millis))
}

/// Returns the value of the column `types`.
pub(super) fn write_types(types: &[Uri]) -> Result<ToSqlOutput<'static>, StoreError> {
    Ok(if types.is_empty() { NO_TYPES.into() } else { rows::to_json(&types)?.into() })
}

fn text<'r>(row: &'r Row<'_>, index: usize) -> Result<Option<&'r str>, StoreError> {
    row.get_ref(index)?.as_str_or_null().map_err(rows::damaged)
}

fn time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, StoreError> {
    row.get::<_, Option<i64>>(index)?.map(rows::time).transpose()
}

/// Reads the columns `<fact>_at` and `<fact>_confirmed`.
fn clock(row: &Row<'_>, index: usize) -> Result<Clock, StoreError> {
    Ok(Clock { at: time(row, index)?, confirmed: time(row, index + 1)? })
}

fn state(text: &str) -> Result<State, StoreError> {
    State::parse(text).map_err(rows::damaged)
}
