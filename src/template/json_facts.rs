//! Facts from JSON documents: their parts by JSON pointer, and the texts of these parts.

use std::{collections::BTreeMap, fmt, str::FromStr};

use minijinja::value::{Value, ValueKind};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

use super::Facts;

/// JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer {
    text: String,
    tokens: Vec<String>,
}

/// Reason why a text is not a JSON pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPointer {
    /// The first character is not a slash.
    #[error("a JSON pointer begins with a slash, as in /data/id; an empty one is the whole document")]
    NoSlash,
    /// A tilde is not an escape.
    #[error("in a JSON pointer, write ~0 for a tilde and ~1 for a slash")]
    Tilde,
}

impl JsonPointer {
    /// Parses a pointer.
    ///
    /// # Errors
    /// Fails if the text does not begin with a slash, or has a tilde that is not an escape.
    pub fn parse(text: &str) -> Result<Self, InvalidPointer> {
        let mut tokens = text.split('/');
        if tokens.next().is_some_and(|before| !before.is_empty()) {
            return Err(InvalidPointer::NoSlash);
        }
        let tokens = tokens.map(unescape).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), tokens })
    }
}

fn unescape(token: &str) -> Result<String, InvalidPointer> {
    let mut escapes = token.split('~').skip(1);
    if escapes.any(|after| !after.starts_with(['0', '1'])) {
        return Err(InvalidPointer::Tilde);
    }
    // The order matters: ~01 is the text ~1.
    Ok(token.replace("~1", "/").replace("~0", "~"))
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for JsonPointer {
    type Err = InvalidPointer;

    fn from_str(text: &str) -> Result<Self, InvalidPointer> {
        Self::parse(text)
    }
}

/// Reads any JSON document. A member that is null is not there: a template must not write it as a word.
impl<'de> Deserialize<'de> for Facts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FactsVisitor)
    }
}

struct FactsVisitor;

impl<'de> Visitor<'de> for FactsVisitor {
    type Value = Facts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Facts, E> {
        Ok(Facts(value.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Facts, E> {
        Ok(Facts(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Facts, E> {
        Ok(Facts(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Facts, E> {
        Ok(Facts(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Facts, E> {
        Ok(Facts::of_text(text))
    }

    fn visit_unit<E>(self) -> Result<Facts, E> {
        Ok(Facts(Value::from(())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Facts, A::Error> {
        let mut elements = Vec::new();
        while let Some(Facts(element)) = list.next_element()? {
            elements.push(element);
        }
        Ok(Facts(elements.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Facts, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, Facts(value))) = object.next_entry::<String, Facts>()? {
            if !value.is_none() {
                members.insert(name, value);
            }
        }
        Ok(Facts(members.into()))
    }
}

impl Facts {
    /// Creates facts with these names.
    #[must_use]
    pub fn named<'n>(members: impl IntoIterator<Item = (&'n str, Self)>) -> Self {
        Self(Value::from_pairs(members.into_iter().map(|(name, facts)| (name, facts.0))))
    }

    /// Creates a fact that is a text.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self(Value::from(text))
    }

    /// Creates a fact that is a text of the configuration, which every place takes as it is.
    #[must_use]
    pub fn of_trusted_text(text: &str) -> Self {
        Self(Value::from_safe_string(text.to_owned()))
    }

    /// Returns the part at a pointer; `None` if there is none or if it is null.
    #[must_use]
    pub fn at(&self, pointer: &JsonPointer) -> Option<Self> {
        pointer.tokens.iter().try_fold(self.clone(), |part, token| part.member(token)).filter(|part| !part.0.is_none())
    }

    /// Returns the member of an object, or the element of a list by its index; `None` if there is none or if it is null.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Self> {
        let value = match self.0.kind() {
            ValueKind::Map => self.0.get_attr(name).ok()?,
            ValueKind::Seq => self.0.get_item_by_index(name.parse().ok()?).ok()?,
            _ => return None,
        };
        let is_there = !value.is_undefined() && !value.is_none();
        is_there.then_some(Self(value))
    }

    /// Returns the elements of a list; `None` if the fact is not a list.
    #[must_use]
    pub fn elements(&self) -> Option<impl ExactSizeIterator<Item = Self> + use<>> {
        let is_list = self.0.kind() == ValueKind::Seq;
        let elements: Vec<_> = is_list.then(|| self.0.try_iter().ok())??.map(Self).collect();
        Some(elements.into_iter())
    }

    /// Returns a text, a number or a truth value as text; `None` for lists and objects.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self.0.kind() {
            ValueKind::String | ValueKind::Number | ValueKind::Bool => Some(self.0.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, InvalidPointer, JsonPointer};
    use crate::template::{Place, Template};

    #[test]
    fn pointers_find_the_parts_of_the_standard() {
        // The examples of RFC 6901, section 5.
        let document = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
        let facts: Facts = serde_json::from_str(document).unwrap();
        let text = |pointer: &str| facts.at(&JsonPointer::parse(pointer).unwrap()).and_then(|part| part.text());
        for (pointer, expected) in [
            ("/foo/0", "bar"),
            ("/", "0"),
            ("/a~1b", "1"),
            ("/c%d", "2"),
            ("/e^f", "3"),
            ("/g|h", "4"),
            ("/i\\j", "5"),
            ("/k\"l", "6"),
            ("/ ", "7"),
            ("/m~0n", "8"),
        ] {
            assert_eq!(text(pointer).as_deref(), Some(expected), "{pointer}");
        }
        for missing in ["", "/foo", "/foo/2", "/foo/-", "/foo/-1", "/foo/0/0", "/none", "/none/none"] {
            assert_eq!(text(missing), None, "{missing}");
        }
        assert_eq!(facts.at(&JsonPointer::parse("/foo").unwrap()).unwrap().elements().unwrap().len(), 2);
        assert!(facts.elements().is_none());
    }

    #[test]
    fn null_is_not_there() {
        let facts: Facts = serde_json::from_str(r#"{"a":null,"b":[null,1]}"#).unwrap();
        for pointer in ["/a", "/b/0"] {
            assert!(facts.at(&JsonPointer::parse(pointer).unwrap()).is_none(), "{pointer}");
        }
        assert!(Template::parse("{{ a }}", Place::Text).unwrap().render(&facts, 9).is_err());
    }

    #[test]
    fn malformed_pointers_are_refused() {
        for (text, error) in [
            ("data", InvalidPointer::NoSlash),
            ("#/data", InvalidPointer::NoSlash),
            ("/a~2", InvalidPointer::Tilde),
            ("/a~", InvalidPointer::Tilde),
        ] {
            assert_eq!(JsonPointer::parse(text), Err(error), "{text}");
        }
        assert_eq!(JsonPointer::parse("/~01").unwrap().tokens, ["~1"]);
    }
}
