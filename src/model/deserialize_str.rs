//! Values that are read from a text.
//!
//! A `String` or a `Cow` that is deserialized only to be parsed is a copy for nothing: most texts stand in what is read as
//! they are. Here the text is parsed where it stands.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{Error, Visitor},
};

/// Reads a text and parses it.
///
/// # Errors
/// When there is no text, or it cannot be parsed.
pub(crate) fn deserialize_str<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Parsing { parse, _parsed: PhantomData })
}

struct Parsing<P, T, E> {
    parse: P,
    _parsed: PhantomData<fn() -> Result<T, E>>,
}

impl<P: FnOnce(&str) -> Result<T, E>, T, E: fmt::Display> Visitor<'_> for Parsing<P, T, E> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
        (self.parse)(text).map_err(F::custom)
    }
}
