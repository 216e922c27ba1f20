//! How values of the model are written as columns and read back. What cannot be read back was not
//! written by us: the journal is damaged.

use std::fmt::Display;

use rusqlite::Row;
use serde::de::DeserializeOwned;

use crate::{
    journal::{
        registry::{Beginning, Clock, ItemRecord, ObjectState, Register},
        store::StoreError,
    },
    model::{Seq, State, Timestamp, Uri},
};

/// SQLite has no unsigned numbers; a number past `i64::MAX` is past every row.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn seq(value: i64) -> Result<Seq, StoreError> {
    u64::try_from(value).map(Seq).map_err(damaged)
}

/// The checksum of a change: CRC-32 (IEEE 802.3) of its number, as 8 bytes with the highest first, its JSON, and the JSON of
/// its sight where there is one. It tells every flipped bit, and costs a reader less than a microsecond.
pub(super) fn checksum(seq: i64, json: &[u8], sight: Option<&[u8]>) -> i64 {
    let mut crc = flate2::Crc::new();
    crc.update(&seq.to_be_bytes());
    crc.update(json);
    crc.update(sight.unwrap_or_default());
    i64::from(crc.sum())
}

pub(super) fn time(millis: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millis(millis).ok_or_else(|| damaged(format!("{millis} is not a time")))
}

pub(super) fn uri(text: &str) -> Result<Uri, StoreError> {
    Uri::parse(text).map_err(damaged)
}

pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(damaged)
}

pub(super) fn damaged(what: impl Display) -> StoreError {
    StoreError::Damaged(what.to_string())
}

fn text<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r str, StoreError> {
    row.get_ref(index)?.as_str().map_err(damaged)
}

fn text_or_none<'r>(row: &'r Row<'_>, index: usize) -> Result<Option<&'r str>, StoreError> {
    row.get_ref(index)?.as_str_or_null().map_err(damaged)
}

/// Columns `<fact>_at` and `<fact>_confirmed`, beginning at `index`.
fn clock(row: &Row<'_>, index: usize) -> Result<Clock, StoreError> {
    let at = |index| row.get::<_, Option<i64>>(index)?.map(time).transpose();
    Ok(Clock { at: at(index)?, confirmed: at(index + 1)? })
}

/// Reads the columns of an object, after its number, beginning at `index`.
pub(super) fn object(row: &Row<'_>, index: usize) -> Result<ObjectState, StoreError> {
    let parent = text_or_none(row, index)?;
    Ok(ObjectState {
        parent: Register { value: parent.map(uri).transpose()?, clock: clock(row, index + 1)? },
        types: Register { value: json(text(row, index + 3)?)?, clock: clock(row, index + 4)? },
        purged: clock(row, index + 6)?,
        items: std::collections::BTreeMap::new(),
    })
}

/// Reads the URI of an item, the first column after its object's number.
pub(super) fn item_uri(row: &Row<'_>) -> Result<Uri, StoreError> {
    uri(text(row, 0)?)
}

/// Reads the columns of an item, after its object's number.
pub(super) fn item(row: &Row<'_>) -> Result<Box<ItemRecord>, StoreError> {
    let content = text_or_none(row, 4)?;
    let told = state(row, 7)?;
    let record = ItemRecord {
        existence: Register { value: row.get(1)?, clock: clock(row, 2)? },
        content: Register { value: content.map(json).transpose()?, clock: clock(row, 5)? },
        state: Register { value: told, clock: clock(row, 8)? },
        begins_in: beginning(row, 10)?,
    };
    Ok(Box::new(record))
}

fn state(row: &Row<'_>, index: usize) -> Result<Option<State>, StoreError> {
    text_or_none(row, index)?.map(|state| State::parse(state).map_err(damaged)).transpose()
}

/// Reads the columns of what an item begins in, beginning at `index`.
pub(super) fn beginning(row: &Row<'_>, index: usize) -> Result<Option<Beginning>, StoreError> {
    let at = |index| row.get::<_, Option<i64>>(index)?.map(time).transpose();
    let (Some(state), Some(begun)) = (state(row, index)?, at(index + 1)?) else { return Ok(None) };
    Ok(Some(Beginning { state, at: begun, confirmed: at(index + 2)? }))
}

/// The two columns of a clock, for writing.
pub(super) fn clock_columns(clock: Clock) -> (Option<i64>, Option<i64>) {
    (clock.at.map(Timestamp::millis), clock.confirmed.map(Timestamp::millis))
}

/// A value as JSON text, for writing.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(damaged)
}
