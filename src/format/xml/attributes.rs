//! Attributes of an element, parsed from its tag.
//!
//! quick-xml's parser is not used, because it returns bytes; each requested value would be validated as UTF-8
//! and searched for references again. Syntax rules and error texts are those of quick-xml; a test compares
//! them.

use std::borrow::Cow;

use quick_xml::{
    Error, XmlVersion,
    events::attributes::{AttrError, Attribute as RawAttribute},
    name::QName,
};

/// An attribute as written.
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    raw_value: &'a str,
    /// Offsets of the name and the value in the tag.
    name_at: usize,
    raw_value_at: usize,
    /// Whether the value is the raw text, without references or white space to normalize.
    pub(super) is_verbatim: bool,
}

impl<'a> Attribute<'a> {
    /// Returns the value (XML 1.0 section 3.3.3).
    ///
    /// # Errors
    /// Fails if a reference is malformed or names an unknown entity.
    pub(super) fn value(&self) -> Result<Cow<'a, str>, Error> {
        if self.is_verbatim {
            return Ok(Cow::Borrowed(self.raw_value));
        }
        let raw = RawAttribute { key: QName(self.name.as_bytes()), value: Cow::Borrowed(self.raw_value.as_bytes()) };
        raw.normalized_value(XmlVersion::Implicit1_0)
    }
}

/// Iterator over the attributes of a tag. It must not be used after an error.
pub(super) struct TagAttributes<'a> {
    /// Tag between its angle brackets.
    tag: &'a str,
    at: usize,
}

impl<'a> TagAttributes<'a> {
    pub(super) fn new(tag: &'a str, name_len: usize) -> Self {
        Self { tag, at: name_len }
    }

    /// Returns the offset of the first byte from `start` that is not white space.
    fn past_space(&self, start: usize) -> Option<usize> {
        let rest = self.tag.as_bytes().get(start..)?;
        rest.iter().position(|byte| !is_space(*byte)).map(|skipped| start + skipped)
    }

    /// Parses the attribute whose name begins at `start`.
    fn attribute(&mut self, start: usize) -> Result<Attribute<'a>, AttrError> {
        let (tag, bytes) = (self.tag, self.tag.as_bytes());
        // The first byte always belongs to the name.
        let ends_name = |byte: &u8| *byte == b'=' || is_space(*byte);
        let name_len = 1 + bytes[start + 1..].iter().position(ends_name).ok_or(AttrError::ExpectedEq(tag.len()))?;
        let name = &tag[start..start + name_len];
        let equals = self.past_space(start + name_len).ok_or(AttrError::ExpectedEq(tag.len()))?;
        if bytes[equals] != b'=' {
            return Err(AttrError::ExpectedEq(equals));
        }
        let opening = self.past_space(equals + 1).ok_or(AttrError::ExpectedValue(tag.len()))?;
        let quote = bytes[opening];
        if !matches!(quote, b'"' | b'\'') {
            return Err(AttrError::UnquotedValue(opening));
        }
        let rest = &tag[opening + 1..];
        let value_len = rest.find(char::from(quote)).ok_or(AttrError::ExpectedQuote(tag.len(), quote))?;
        let raw_value = &rest[..value_len];
        self.at = opening + 1 + value_len + 1;
        Ok(Attribute {
            name,
            raw_value,
            name_at: start,
            raw_value_at: opening + 1,
            is_verbatim: is_verbatim(raw_value),
        })
    }
}

impl<'a> Iterator for TagAttributes<'a> {
    type Item = Result<Attribute<'a>, AttrError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.past_space(self.at)?;
        Some(self.attribute(start))
    }
}

/// Returns whether a byte is white space (XML 1.0 section 2.3, production `S`).
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Tests all bytes, which is faster than stopping at the first match, because it is vectorized.
fn is_verbatim(raw_value: &str) -> bool {
    raw_value.bytes().fold(true, |is_verbatim, byte| is_verbatim & !matches!(byte, b'&' | b'\t' | b'\r' | b'\n'))
}

/// Index of the first attributes of an element, for elements with few attributes and a short tag. Nearly all
/// elements are so, and their tags need not be parsed again for each lookup. It is small, because elements are
/// moved often.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttributeIndex {
    spans: [AttributeSpan; 3],
    count: u8,
    is_incomplete: bool,
}

/// Position of an attribute in its tag.
#[derive(Clone, Copy, Debug, Default)]
struct AttributeSpan {
    name: (u16, u16),
    raw_value: (u16, u16),
    is_verbatim: bool,
}

/// The element has more attributes than the index.
pub(super) struct NotIndexed;

impl AttributeIndex {
    pub(super) fn push(&mut self, attribute: &Attribute<'_>) {
        match (self.spans.get_mut(usize::from(self.count)), AttributeSpan::new(attribute)) {
            (Some(place), Some(spans)) => {
                *place = spans;
                self.count += 1;
            }
            _ => self.is_incomplete = true,
        }
    }

    /// Returns an attribute in `tag`.
    pub(super) fn get<'a>(&self, tag: &'a str, name: &str) -> Result<Option<Attribute<'a>>, NotIndexed> {
        if self.is_incomplete {
            return Err(NotIndexed);
        }
        let spans = self.spans[..usize::from(self.count)].iter();
        Ok(spans.map(|spans| spans.attribute(tag)).find(|attribute| attribute.name == name))
    }
}

impl AttributeSpan {
    /// Returns `None` if the attribute is too far into its tag.
    fn new(attribute: &Attribute<'_>) -> Option<Self> {
        let range = |at: usize, len: usize| Some((u16::try_from(at).ok()?, u16::try_from(at + len).ok()?));
        Some(Self {
            name: range(attribute.name_at, attribute.name.len())?,
            raw_value: range(attribute.raw_value_at, attribute.raw_value.len())?,
            is_verbatim: attribute.is_verbatim,
        })
    }

    fn attribute<'a>(&self, tag: &'a str) -> Attribute<'a> {
        let (name_at, raw_value_at) = (usize::from(self.name.0), usize::from(self.raw_value.0));
        Attribute {
            name: &tag[name_at..usize::from(self.name.1)],
            raw_value: &tag[raw_value_at..usize::from(self.raw_value.1)],
            name_at,
            raw_value_at,
            is_verbatim: self.is_verbatim,
        }
    }
}

#[cfg(test)]
mod tests {
    use quick_xml::events::attributes::Attributes;

    use super::TagAttributes;

    /// Returns names and values up to the first error.
    fn ours(tag: &str, name_len: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for attribute in TagAttributes::new(tag, name_len) {
            match attribute {
                Ok(attribute) => lines.push(format!("{}={:?}", attribute.name, attribute.value().ok())),
                Err(error) => {
                    lines.push(error.to_string());
                    break;
                }
            }
        }
        lines
    }

    /// Returns the attributes as quick-xml parses them, for comparison.
    fn theirs(tag: &str, name_len: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for attribute in Attributes::new(tag, name_len).with_checks(false) {
            match attribute {
                Ok(attribute) => {
                    let name = str::from_utf8(attribute.key.0).unwrap();
                    let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).ok();
                    lines.push(format!("{name}={value:?}"));
                }
                Err(error) => {
                    lines.push(error.to_string());
                    break;
                }
            }
        }
        lines
    }

    #[test]
    fn attributes_and_errors_match_quick_xml() {
        for tag in [
            "a",
            "a ",
            "a b",
            "a b ",
            "a b c",
            "a b=",
            "a b= ",
            "a b=c",
            "a b=\"",
            "a b='",
            "a b='c",
            "a b=\"c'",
            "a b='c'",
            "a b=\"\"",
            "a  b\t=\n'c'\r",
            "a b='c'd='e'",
            "a b='c' d=\"e'\" f='\"'",
            "a ='c'",
            "a =",
            "a ==''",
            "a é='ñ\n&amp;&#233;'",
            "a b='&' c='&x;' d='\t'",
            "a b = c",
            "a b='c' d",
            "a b='c'/",
            "a 'b'='c'",
        ] {
            assert_eq!(ours(tag, 1), theirs(tag, 1), "{tag}");
        }
    }

    proptest::proptest! {
        #[test]
        fn random_tags_match_quick_xml(tag in "[a= '\"\t&;é/]{0,24}") {
            proptest::prop_assert_eq!(ours(&tag, 0), theirs(&tag, 0));
        }
    }
}
