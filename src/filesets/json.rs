//! Parts of JSON documents of platforms, whose memory is bounded whatever a document holds.
//!
//! Platforms write the same member as a text, a list or an object. A generic tree of values would hold all of them, and takes
//! up to eighty times the size of its document. These types keep what is used and skip the rest while they parse.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

/// Maximum number of entries of a list that are used. One more is kept, so that its reader sees that there are more.
pub(super) const MAX_ENTRIES: usize = 10_000;

/// Reason why a body is not the expected document.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoDocument {
    /// It is no JSON, so that it may be of somebody else than the platform, or cut.
    #[error("{0}")]
    Syntax(String),
    /// It has another form. The text says where.
    #[error("{0}")]
    Form(String),
}

/// Reads a JSON document.
///
/// # Errors
/// Fails if it is no JSON or has another form. The text says where and why.
pub(super) fn document<T: DeserializeOwned>(body: &[u8]) -> Result<T, NoDocument> {
    // Some platforms write a byte order mark.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut document = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let start = &body[..body.len().min(4 * QUOTED_CHARS)];
        let start: String = String::from_utf8_lossy(start).chars().take(QUOTED_CHARS).collect();
        let place = error.path().to_string();
        if error.inner().is_data() {
            NoDocument::Form(format!("{}: {}", quoted(&place), quoted(&error.inner().to_string())))
        } else {
            NoDocument::Syntax(format!("it is no JSON: {start:?}"))
        }
    })
}

/// Reads a document as one type and drops it; returns whether it is one. Each module lists its types as `DOCUMENTS`, so that
/// fuzzing measures the memory of all of them.
pub(super) fn is<T: DeserializeOwned>(body: &[u8]) -> bool {
    document::<T>(body).is_ok()
}

/// Reader of one type of document.
pub(super) type Reads = fn(&[u8]) -> bool;

/// Number of characters of a document that a message quotes.
pub(super) const QUOTED_CHARS: usize = 80;

fn quoted(text: &str) -> String {
    text.chars().take(2 * QUOTED_CHARS).collect()
}

/// The first entries of a list: at most one more than [`MAX_ENTRIES`].
#[derive(Clone, Debug)]
pub(super) struct List<T> {
    entries: Vec<T>,
    /// Number of all entries, those that are not kept too.
    pub(super) count: usize,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), count: 0 }
    }
}

impl<T> std::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.entries
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<T> List<T> {
    /// Returns whether another entry is kept.
    fn has_room(&self) -> bool {
        self.entries.len() <= MAX_ENTRIES
    }

    fn push(&mut self, entry: T) {
        self.count += 1;
        if self.has_room() {
            self.entries.push(entry);
        }
    }

    /// Reads a list. Of the entries after the last one that is kept, nothing is stored.
    pub(super) fn of_seq<'de, A: SeqAccess<'de>>(mut entries: A) -> Result<Self, A::Error>
    where
        T: Deserialize<'de>,
    {
        let mut list = Self::default();
        while list.has_room() {
            let Some(entry) = entries.next_element()? else { return Ok(list) };
            list.push(entry);
        }
        list.count += skip_entries(entries)?;
        Ok(list)
    }

    /// Reads the values of an object as a list.
    pub(super) fn of_values<'de, A: MapAccess<'de>>(mut members: A) -> Result<Self, A::Error>
    where
        T: Deserialize<'de>,
    {
        let mut list = Self::default();
        while list.has_room() {
            let Some((IgnoredAny, entry)) = members.next_entry()? else { return Ok(list) };
            list.push(entry);
        }
        list.count += skip_members(members)?;
        Ok(list)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<List<T>, A::Error> {
                List::of_seq(entries)
            }
        }
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// The first members of an object with texts, by their names: at most [`MAX_ENTRIES`].
#[derive(Debug, Default)]
pub(super) struct TextMap(pub(super) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextMapVisitor;
        impl<'de> Visitor<'de> for TextMapVisitor {
            type Value = TextMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<TextMap, A::Error> {
                let mut map = BTreeMap::new();
                while map.len() < MAX_ENTRIES {
                    let Some((name, text)) = members.next_entry()? else { return Ok(TextMap(map)) };
                    map.insert(name, text);
                }
                skip_members(members)?;
                Ok(TextMap(map))
            }
        }
        deserializer.deserialize_map(TextMapVisitor)
    }
}

/// A text, or the first one of a list. A number or a truth value is its text; everything else is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Text(pub(super) Option<String>);

/// All texts of a list, or a single text.
#[derive(Debug, Default)]
pub(super) struct Texts(pub(super) List<String>);

/// A number, which may be written as a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Number(pub(super) Option<u64>);

/// A text, an object, or something else that is not used.
#[derive(Debug, Default)]
pub(super) enum TextOr<T> {
    Text(String),
    Object(T),
    #[default]
    Other,
}

impl<T> TextOr<T> {
    /// Returns the text, or the value that a function reads from the object.
    pub(super) fn text(self, of_object: impl FnOnce(T) -> Option<String>) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Object(object) => of_object(object),
            Self::Other => None,
        }
    }

    /// Returns the object.
    pub(super) fn object(self) -> Option<T> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }
}

/// A text, a list, or something else that is not used.
#[derive(Debug, Default)]
pub(super) enum TextOrList<T> {
    Text(String),
    List(List<T>),
    #[default]
    Other,
}

/// Defines the methods of a visitor for values without parts: all of them give `$other`.
macro_rules! other_values {
    ($other:expr, $($method:ident: $kind:ty),*) => {
        $(fn $method<E>(self, _: $kind) -> Result<Self::Value, E> { Ok($other) })*

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($other)
        }

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any value")
        }
    };
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;

            other_values!(Text(None),);

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(Some(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Text, E> {
                Ok(Text(Some(text)))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
                Ok(Text(Some(value.to_string())))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Text, E> {
                Ok(Text(Some(number.to_string())))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
                Ok(Text(Some(number.to_string())))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Text, E> {
                Ok(Text(Some(number.to_string())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Text, A::Error> {
                let first = entries.next_element::<Text>()?.unwrap_or_default();
                skip_entries(entries)?;
                Ok(first)
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Text, A::Error> {
                skip_members(members)?;
                Ok(Text(None))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut texts = List::default();
        match TextOrList::<Text>::deserialize(deserializer)? {
            TextOrList::Text(text) => texts.push(text),
            TextOrList::List(list) => list.into_iter().filter_map(|text| text.0).for_each(|text| texts.push(text)),
            TextOrList::Other => {}
        }
        Ok(Self(texts))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Text::deserialize(deserializer)?.0.and_then(|text| text.parse().ok())))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
            type Value = TextOr<T>;

            other_values!(TextOr::Other, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);

            fn visit_str<E>(self, text: &str) -> Result<TextOr<T>, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<TextOr<T>, A::Error> {
                skip_entries(entries)?;
                Ok(TextOr::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<TextOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(TextOr::Object)
            }
        }
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOrList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrListVisitor<T> {
            type Value = TextOrList<T>;

            other_values!(TextOrList::Other, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);

            fn visit_str<E>(self, text: &str) -> Result<TextOrList<T>, E> {
                Ok(TextOrList::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<TextOrList<T>, A::Error> {
                List::of_seq(entries).map(TextOrList::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<TextOrList<T>, A::Error> {
                skip_members(members)?;
                Ok(TextOrList::Other)
            }
        }
        deserializer.deserialize_any(TextOrListVisitor(PhantomData))
    }
}

/// Reads the rest of a list without storing it; returns its number of entries.
pub(super) fn skip_entries<'de, A: SeqAccess<'de>>(mut entries: A) -> Result<usize, A::Error> {
    let mut count = 0;
    while entries.next_element::<IgnoredAny>()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Reads the rest of an object without storing it; returns its number of members.
pub(super) fn skip_members<'de, A: MapAccess<'de>>(mut members: A) -> Result<usize, A::Error> {
    let mut count = 0;
    while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Members {
        text: Text,
        texts: Texts,
        number: Number,
        mixed: List<TextOr<Inner>>,
        list: TextOrList<TextOr<Inner>>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Inner {
        name: Text,
    }

    fn members(json: &str) -> Members {
        document(json.as_bytes()).unwrap()
    }

    #[test]
    fn members_are_read_in_each_of_their_forms() {
        for (json, text) in [
            (r#""a\u0301""#, Some("a\u{301}")),
            (r#"["b", {}, 1]"#, Some("b")),
            ("1.5", Some("1.5")),
            ("true", Some("true")),
            ("null", None),
            ("[]", None),
            (r#"{"a": ["b"]}"#, None),
        ] {
            let members = members(&format!("{{\"unknown\": [{{}}], \"text\": {json}}}"));
            assert_eq!(members.text.0.as_deref(), text, "{json}");
        }
        for (json, texts) in [(r#""a""#, &["a"][..]), (r#"["a", {}, "b"]"#, &["a", "b"]), ("{}", &[]), ("7", &[])] {
            assert_eq!(&*members(&format!("{{\"texts\": {json}}}")).texts.0, texts, "{json}");
        }
        for (json, number) in [("7", Some(7)), (r#""8""#, Some(8)), ("-1", None), (r#""x""#, None), ("[]", None)] {
            assert_eq!(members(&format!("{{\"number\": {json}}}")).number.0, number, "{json}");
        }
        let mixed = members(r#"{"mixed": ["a", {"name": "b", "x": {}}, {}, 1, null, [[]], true]}"#).mixed;
        let names: Vec<_> = mixed.into_iter().filter_map(|one| one.text(|inner| inner.name.0)).collect();
        assert_eq!(names, ["a", "b"]);
        let TextOrList::List(list) = members(r#"{"list": [{"name": "a"}, "b"]}"#).list else { panic!("it is a list") };
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn lists_keep_their_first_entries_and_count_all() {
        let many = format!("[{}]", vec!["0"; 3 * MAX_ENTRIES].join(","));
        let list: List<Number> = document(many.as_bytes()).unwrap();
        assert_eq!((list.len(), list.count), (MAX_ENTRIES + 1, 3 * MAX_ENTRIES));
        let members: Vec<_> = (0..3 * MAX_ENTRIES).map(|n| format!("\"{n}\":\"t\"")).collect();
        let map: TextMap = document(format!("{{{}}}", members.join(",")).as_bytes()).unwrap();
        assert_eq!(map.0.len(), MAX_ENTRIES);
    }

    #[test]
    fn reasons_name_the_place_and_are_short() {
        let reason = document::<List<Members>>(br#"[{}, {"mixed": 1}]"#).unwrap_err().to_string();
        assert!(reason.starts_with("[1].mixed: invalid type"), "{reason}");
        let deep = "[".repeat(1 << 20);
        for body in [deep.as_str(), "<html>", "", &format!("{{\"text\":\"{}", "x".repeat(1 << 20))] {
            let reason = document::<Members>(body.as_bytes()).unwrap_err().to_string();
            assert!(reason.len() < 500, "{reason}");
        }
    }
}
