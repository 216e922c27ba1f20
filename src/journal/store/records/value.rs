//! Values of statements, and the columns of rows as values of the model. A column that cannot be converted was not written by
//! the gateway: the journal is damaged.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::Row;
use crate::{
    journal::store::{StoreError, rows},
    model::{Seq, SourceName, SubscriptionName, Text, Timestamp, Uri},
};

/// Value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::journal::store) enum Value<'v> {
    /// SQL's null.
    Null,
    /// Number.
    Int(i64),
    /// Truth value; 0 or 1 in SQLite.
    Flag(bool),
    /// Text. The executor replaces what a database cannot store in one.
    Text(Cow<'v, str>),
    /// Octets.
    Bytes(&'v [u8]),
    /// Texts, for each of which the statement is executed.
    Texts(Vec<&'v str>),
    /// Numbers, for each of which the statement is executed.
    Ints(Vec<i64>),
}

impl Value<'_> {
    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Texts(texts) => texts.iter().map(|text| text.len()).sum(),
            Self::Ints(numbers) => size_of_val(numbers.as_slice()),
            Self::Null | Self::Int(_) | Self::Flag(_) => size_of::<i64>(),
        }
    }
}

/// Returns the values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::journal::store::records::Value::from($value)),*] };
}
pub(super) use values;

impl Value<'_> {
    /// Returns the number of elements of a list; `None` for a single value.
    pub(in crate::journal::store) fn list_length(&self) -> Option<usize> {
        match self {
            Self::Texts(texts) => Some(texts.len()),
            Self::Ints(numbers) => Some(numbers.len()),
            Self::Null | Self::Int(_) | Self::Flag(_) | Self::Text(_) | Self::Bytes(_) => None,
        }
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Int(rows::number(number))
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        Self::from(number as u64)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<Seq> for Value<'_> {
    fn from(seq: Seq) -> Self {
        Self::from(seq.0)
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(time: Timestamp) -> Self {
        Self::Int(time.millis())
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'v> From<&'v String> for Value<'v> {
    fn from(text: &'v String) -> Self {
        Self::from(text.as_str())
    }
}

impl<'v> From<&'v Text> for Value<'v> {
    fn from(text: &'v Text) -> Self {
        Self::from(text.as_str())
    }
}

impl<'v> From<&'v Arc<str>> for Value<'v> {
    fn from(text: &'v Arc<str>) -> Self {
        Self::from(&**text)
    }
}

impl<'v> From<&'v Uri> for Value<'v> {
    fn from(uri: &'v Uri) -> Self {
        Self::from(uri.as_str())
    }
}

impl<'v> From<&'v SourceName> for Value<'v> {
    fn from(name: &'v SourceName) -> Self {
        Self::from(name.as_str())
    }
}

impl<'v> From<&'v SubscriptionName> for Value<'v> {
    fn from(name: &'v SubscriptionName) -> Self {
        Self::from(name.as_str())
    }
}

impl<'v> From<&'v [String]> for Value<'v> {
    fn from(texts: &'v [String]) -> Self {
        Self::Texts(texts.iter().map(String::as_str).collect())
    }
}

impl<'v> From<Vec<&'v str>> for Value<'v> {
    fn from(texts: Vec<&'v str>) -> Self {
        Self::Texts(texts)
    }
}

impl From<Vec<i64>> for Value<'_> {
    fn from(numbers: Vec<i64>) -> Self {
        Self::Ints(numbers)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(bytes: &'v [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'v> From<&'v Bytes> for Value<'v> {
    fn from(bytes: &'v Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'v, T: Into<Value<'v>>> From<Option<T>> for Value<'v> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The columns of a row.
#[derive(Clone, Copy)]
pub(super) struct Cells<'r>(pub(super) &'r dyn Row);

impl<'r> Cells<'r> {
    pub(super) fn text(self, column: usize) -> Result<&'r str, StoreError> {
        self.optional_text(column)?.ok_or_else(|| unexpected_null(column))
    }

    pub(super) fn optional_text(self, column: usize) -> Result<Option<&'r str>, StoreError> {
        self.0.text(column)
    }

    /// Reads a text of a partner, or null.
    pub(super) fn partner_text(self, column: usize) -> Result<Option<Text>, StoreError> {
        Ok(self.0.text(column)?.map(Text::new))
    }

    pub(super) fn bytes(self, column: usize) -> Result<Bytes, StoreError> {
        self.0.bytes(column)?.map(Bytes::copy_from_slice).ok_or_else(|| unexpected_null(column))
    }

    pub(super) fn flag(self, column: usize) -> Result<bool, StoreError> {
        self.0.flag(column)
    }

    /// Reads a number that is not negative.
    pub(super) fn unsigned(self, column: usize) -> Result<u64, StoreError> {
        u64::try_from(self.int(column)?).map_err(rows::damaged)
    }

    pub(super) fn seq(self, column: usize) -> Result<Seq, StoreError> {
        rows::seq(self.int(column)?)
    }

    pub(super) fn time(self, column: usize) -> Result<Timestamp, StoreError> {
        rows::time(self.int(column)?)
    }

    pub(super) fn optional_time(self, column: usize) -> Result<Option<Timestamp>, StoreError> {
        self.0.int(column)?.map(rows::time).transpose()
    }

    pub(super) fn source(self, column: usize) -> Result<SourceName, StoreError> {
        rows::source(self.text(column)?)
    }

    pub(super) fn uri(self, column: usize) -> Result<Uri, StoreError> {
        rows::uri(self.text(column)?)
    }

    pub(super) fn uuid(self, column: usize) -> Result<Uuid, StoreError> {
        Uuid::parse_str(self.text(column)?).map_err(rows::damaged)
    }

    pub(super) fn json<T: DeserializeOwned>(self, column: usize) -> Result<T, StoreError> {
        rows::json(self.text(column)?)
    }

    /// Reads the name of a value from a list of all such values.
    pub(super) fn named<T: Copy>(
        self,
        column: usize,
        what: &str,
        all: impl IntoIterator<Item = T>,
        name: impl Fn(T) -> &'static str,
    ) -> Result<T, StoreError> {
        rows::named(what, self.text(column)?, all, name)
    }

    pub(super) fn int(self, column: usize) -> Result<i64, StoreError> {
        self.0.int(column)?.ok_or_else(|| unexpected_null(column))
    }
}

fn unexpected_null(column: usize) -> StoreError {
    rows::damaged(format!("column {column} of a row is null"))
}
