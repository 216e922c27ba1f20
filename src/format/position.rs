//! Positions in the body of a message: where the error of a quarantined message is.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Location;

/// Position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TextPosition {
    /// Number of bytes before it.
    pub offset: usize,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl TextPosition {
    /// Returns the position of a location, as [`Location`] shows it, in a body. A location in JSON is that of the value, or
    /// of the innermost value around it that exists. Returns `None` if the location is not in the body, or the body is not
    /// UTF-8.
    #[must_use]
    pub fn find(location: &str, body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let offset = match line_and_column(location) {
            Some((line, column)) => offset_of(text, line, column)?,
            None if location == Location::Pointer(String::new()).to_string() => value_at(text, "")?,
            None => value_at(text, Some(location).filter(|pointer| pointer.starts_with('/'))?)?,
        };
        match Location::in_text(text, offset) {
            Location::Line { line, column } => Some(Self { offset, line, column }),
            Location::Pointer(_) | Location::Header(_) | Location::Message => None,
        }
    }
}

/// Parses the text of [`Location::Line`].
fn line_and_column(location: &str) -> Option<(usize, usize)> {
    let (line, column) = location.strip_prefix("line ")?.split_once(", column ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// Returns the offset of a line and a column, both from 1. A column after the end of the line is the end of the line.
fn offset_of(text: &str, line: usize, column: usize) -> Option<usize> {
    let begin = match line.checked_sub(1)? {
        0 => 0,
        breaks => text.match_indices('\n').nth(breaks - 1)?.0 + 1,
    };
    let content = text[begin..].split('\n').next().unwrap_or_default();
    let in_line = content.char_indices().nth(column.checked_sub(1)?).map_or(content.len(), |(offset, _)| offset);
    Some(begin + in_line)
}

/// Returns the offset of the value with a JSON pointer (RFC 6901), or of the innermost value around it that exists; `None`
/// if the text is not JSON.
fn value_at(text: &str, pointer: &str) -> Option<usize> {
    let mut value: &RawValue = serde_json::from_str(text).ok()?;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        match Child(&token).deserialize(&mut serde_json::Deserializer::from_str(value.get())) {
            Ok(Some(child)) => value = child,
            Ok(None) | Err(_) => break,
        }
    }
    value.get().as_ptr().addr().checked_sub(text.as_ptr().addr())
}

/// Finds a member of an object, or an element of an array, without storing the others.
struct Child<'t>(&'t str);

impl<'de> DeserializeSeed<'de> for Child<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Child<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Name<'de>>()? {
            // Of equal names, parsers take the last one.
            match name.0 == self.0 {
                true => found = Some(map.next_value()?),
                false => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let Ok(index) = self.0.parse::<usize>() else { return Ok(None) };
        for _ in 0..index {
            if sequence.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = sequence.next_element()?;
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

/// Name of a member.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::TextPosition;

    fn found(location: &str, body: &str) -> Option<(usize, usize, usize)> {
        TextPosition::find(location, body.as_bytes())
            .map(|TextPosition { offset, line, column }| (offset, line, column))
    }

    #[test]
    fn positions_of_lines_are_found() {
        let text = "añb\ncd\n";
        for (location, expected) in [
            ("line 1, column 1", Some((0, 1, 1))),
            ("line 1, column 3", Some((3, 1, 3))),
            ("line 2, column 2", Some((6, 2, 2))),
            ("line 2, column 9", Some((7, 2, 3))),
            ("line 3, column 1", Some((8, 3, 1))),
            ("line 4, column 1", None),
            ("line 0, column 0", None),
            ("header x", None),
            ("the message", None),
        ] {
            assert_eq!(found(location, text), expected, "{location}");
        }
        assert_eq!(TextPosition::find("line 1, column 1", b"\xff"), None);
    }

    #[test]
    fn positions_of_pointers_are_found() {
        let text = "{\"a~b/c\": [1,\n {\"ñ\": \"x\", \"d\": 1, \"d\": 2}], \"e\\u0066\": true}";
        let at = |part: &str| text.find(part).unwrap();
        for (location, expected) in [
            ("the JSON document", 0),
            ("/a~0b~1c", at("[1")),
            ("/a~0b~1c/0", at("1,\n")),
            ("/a~0b~1c/1/ñ", at("\"x\"")),
            ("/a~0b~1c/1/d", at("2}")),
            ("/a~0b~1c/1/missing/x", at("{\"ñ")),
            ("/a~0b~1c/7", at("[1")),
            ("/a~0b~1c/x", at("[1")),
            ("/ef", at("true")),
            ("/ef/x", at("true")),
            ("/missing", 0),
        ] {
            assert_eq!(found(location, text).unwrap().0, expected, "{location}");
        }
        assert_eq!(found("/a~0b~1c/1/ñ", text), Some((at("\"x\""), 2, 8)));
        assert_eq!(found("/a", "{"), None);
        assert_eq!(found("/a", "  [] x"), None);
    }
}
