//! Conversions between values of the model and columns, for every SQL store. A column that cannot be converted was not written by the
//! gateway: the journal is damaged.

use std::fmt::Display;

use serde::de::DeserializeOwned;

use crate::{
    journal::store::{StoreError, StoredChange},
    model::{Seq, SourceName, Timestamp, Uri},
};

/// Returns the error for a value that the gateway has not written.
pub(super) fn damaged(what: impl Display) -> StoreError {
    StoreError::Damaged(what.to_string())
}

/// Converts milliseconds since 1970 to a time.
pub(super) fn time(millis: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millis(millis).ok_or_else(|| damaged(format!("{millis} is not a time")))
}

/// Parses a URI.
pub(super) fn uri(text: &str) -> Result<Uri, StoreError> {
    Uri::parse(text).map_err(damaged)
}

/// Parses the name of a source.
pub(super) fn source(text: &str) -> Result<SourceName, StoreError> {
    SourceName::parse(text).map_err(damaged)
}

/// Parses a value from JSON.
pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(damaged)
}

/// Converts a number to SQL's signed integers. A number beyond `i64::MAX` becomes `i64::MAX`, which is beyond
/// every row.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Finds the value with a name in a list of all such values; `what` says what they are.
pub(super) fn named<T: Copy>(
    what: &str,
    found: &str,
    all: impl IntoIterator<Item = T>,
    name: impl Fn(T) -> &'static str,
) -> Result<T, StoreError> {
    let value = all.into_iter().find(|value| name(*value) == found);
    value.ok_or_else(|| damaged(format!("unknown {what}: {found}")))
}

pub(super) fn seq(value: i64) -> Result<Seq, StoreError> {
    u64::try_from(value).map(Seq).map_err(damaged)
}

/// Computes the checksum of a change: CRC-32 (IEEE 802.3) of its number (8 bytes, big-endian), its JSON, and the
/// JSON of its visibility notes, if any. It detects every flipped bit, and costs a reader less than a microsecond.
pub(super) fn checksum(seq: i64, json: &[u8], visibility: Option<&[u8]>) -> i64 {
    let mut crc = flate2::Crc::new();
    crc.update(&seq.to_be_bytes());
    crc.update(json);
    crc.update(visibility.unwrap_or_default());
    i64::from(crc.sum())
}

/// Returns the error for a change that cannot be read.
pub(super) fn damaged_change(seq: Seq, what: impl Display) -> StoreError {
    StoreError::DamagedChange { seq, what: what.to_string() }
}

/// Verifies the checksum of a change, so that no reader gets a damaged change.
pub(super) fn check(change: StoredChange, stored: i64) -> Result<StoredChange, StoreError> {
    if stored == checksum(number(change.seq.0), &change.json, change.visibility.as_deref()) {
        Ok(change)
    } else {
        Err(damaged_change(change.seq, "its checksum is wrong"))
    }
}

/// Serializes a value to JSON.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(damaged)
}
