//! How values of the model are written as columns and read back. What cannot be read back was not
//! written by us: the journal is damaged.

use rusqlite::Row;

pub(super) use crate::journal::store::packed::{damaged, json, time, uri};
use crate::{
    journal::{
        registry::{Beginning, ItemRecord, ObjectState},
        store::{
            StoreError,
            packed::{BeginningColumns, ItemColumns, ObjectColumns, Times},
        },
    },
    model::{Seq, Uri},
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

/// A value as JSON text, for writing.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(damaged)
}

fn text<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r str, StoreError> {
    row.get_ref(index)?.as_str().map_err(damaged)
}

fn text_or_none<'r>(row: &'r Row<'_>, index: usize) -> Result<Option<&'r str>, StoreError> {
    row.get_ref(index)?.as_str_or_null().map_err(damaged)
}

/// Columns `<fact>_at` and `<fact>_confirmed`, beginning at `index`.
fn times(row: &Row<'_>, index: usize) -> Result<Times, StoreError> {
    Ok(Times { at: row.get(index)?, confirmed: row.get(index + 1)? })
}

/// Reads the columns of an object, after its number, beginning at `index`.
pub(super) fn object(row: &Row<'_>, index: usize) -> Result<ObjectState, StoreError> {
    let columns = ObjectColumns {
        parent: text_or_none(row, index)?,
        parent_times: times(row, index + 1)?,
        types: text(row, index + 3)?,
        types_times: times(row, index + 4)?,
        purged: times(row, index + 6)?,
    };
    columns.state()
}

/// Reads the URI of an item, the first column after its object's number.
pub(super) fn item_uri(row: &Row<'_>) -> Result<Uri, StoreError> {
    uri(text(row, 0)?)
}

/// Reads the columns of an item after its URI, beginning at `index`.
pub(super) fn item(row: &Row<'_>, index: usize) -> Result<Box<ItemRecord>, StoreError> {
    let columns = ItemColumns {
        existence: row.get(index)?,
        existence_times: times(row, index + 1)?,
        content: text_or_none(row, index + 3)?,
        content_times: times(row, index + 4)?,
        state: text_or_none(row, index + 6)?,
        state_times: times(row, index + 7)?,
        beginning: beginning_columns(row, index + 9)?,
        unheard: row.get(index + 12)?,
    };
    columns.record()
}

/// Reads the columns of what an item begins in, beginning at `index`.
pub(super) fn beginning(row: &Row<'_>, index: usize) -> Result<Option<Beginning>, StoreError> {
    beginning_columns(row, index)?.beginning()
}

fn beginning_columns<'r>(row: &'r Row<'_>, index: usize) -> Result<BeginningColumns<'r>, StoreError> {
    Ok(BeginningColumns { state: text_or_none(row, index)?, at: row.get(index + 1)?, confirmed: row.get(index + 2)? })
}
