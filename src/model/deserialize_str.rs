//! Deserialization of values that are parsed from a string.
//!
//! Deserializing a `String` or a `Cow` only to parse it would copy the text needlessly. This visitor parses the
//! text in the deserializer's buffer.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{Error, Visitor},
};

/// Deserializes a string and parses it.
///
/// # Errors
/// Fails if the value is not a string, or cannot be parsed.
pub(crate) fn deserialize_str<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(ParseVisitor { parse, _result: PhantomData })
}

struct ParseVisitor<P, T, E> {
    parse: P,
    _result: PhantomData<fn() -> Result<T, E>>,
}

impl<P: FnOnce(&str) -> Result<T, E>, T, E: fmt::Display> Visitor<'_> for ParseVisitor<P, T, E> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
        (self.parse)(text).map_err(F::custom)
    }
}
