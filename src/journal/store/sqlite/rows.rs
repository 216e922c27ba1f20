//! How values of the model are written as columns and read back. What cannot be read back was not
//! written by us: the journal is damaged.

use std::fmt::Display;

use serde::de::DeserializeOwned;

use crate::{
    journal::store::StoreError,
    model::{Seq, Timestamp, Uri},
};

/// Error for a value that the gateway has not written.
pub(super) fn damaged(what: impl Display) -> StoreError {
    StoreError::Damaged(what.to_string())
}

/// Reads a time in milliseconds since 1970.
pub(super) fn time(millis: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millis(millis).ok_or_else(|| damaged(format!("{millis} is not a time")))
}

/// Reads a URI.
pub(super) fn uri(text: &str) -> Result<Uri, StoreError> {
    Uri::parse(text).map_err(damaged)
}

/// Reads a value from JSON.
pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(damaged)
}

/// SQLite has no unsigned numbers; a number past `i64::MAX` is past every row.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn seq(value: i64) -> Result<Seq, StoreError> {
    u64::try_from(value).map(Seq).map_err(damaged)
}

/// The checksum of a change: CRC-32 (IEEE 802.3) of its number, as 8 bytes with the highest first, its JSON, and the JSON of
/// its sight where there is one. It tells every flipped bit, and costs a reader less than a microsecond.
pub(super) fn checksum(seq: i64, json: &[u8], visibility: Option<&[u8]>) -> i64 {
    let mut crc = flate2::Crc::new();
    crc.update(&seq.to_be_bytes());
    crc.update(json);
    crc.update(visibility.unwrap_or_default());
    i64::from(crc.sum())
}

/// A value as JSON text, for writing.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(damaged)
}
