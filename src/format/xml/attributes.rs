//! The attributes of an element, as they stand in its tag.
//!
//! They are found here and not by quick-xml: it gives bytes, and each value that is asked for would be
//! checked to be UTF-8 and looked through for references once more. What is well-formed, and the words
//! for what is not, are quick-xml's; a test compares.

use std::borrow::Cow;

use quick_xml::{
    Error, XmlVersion,
    events::attributes::{AttrError, Attribute as RawAttribute},
    name::QName,
};

/// An attribute as written.
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    written: &'a str,
    /// Where they begin in the tag.
    name_at: usize,
    written_at: usize,
    /// Whether the value is what is written: there is nothing in it that stands for something else.
    pub(super) is_verbatim: bool,
}

impl<'a> Attribute<'a> {
    /// The value (XML 1.0 section 3.3.3).
    ///
    /// # Errors
    /// When a reference in it is not well-formed, or to no entity of XML.
    pub(super) fn value(&self) -> Result<Cow<'a, str>, Error> {
        if self.is_verbatim {
            return Ok(Cow::Borrowed(self.written));
        }
        let raw = RawAttribute { key: QName(self.name.as_bytes()), value: Cow::Borrowed(self.written.as_bytes()) };
        raw.normalized_value(XmlVersion::Implicit1_0)
    }
}

/// The attributes in a tag, in order; after an error there are no more to be asked for.
pub(super) struct TagAttributes<'a> {
    /// The tag between its angle brackets.
    tag: &'a str,
    at: usize,
}

impl<'a> TagAttributes<'a> {
    pub(super) fn new(tag: &'a str, name_len: usize) -> Self {
        Self { tag, at: name_len }
    }

    /// Where the first byte from `start` is that is no white space.
    fn past_space(&self, start: usize) -> Option<usize> {
        let rest = self.tag.as_bytes().get(start..)?;
        rest.iter().position(|byte| !is_space(*byte)).map(|skipped| start + skipped)
    }

    /// The attribute whose name begins at `start`.
    fn attribute(&mut self, start: usize) -> Result<Attribute<'a>, AttrError> {
        let (tag, bytes) = (self.tag, self.tag.as_bytes());
        // The first byte is of the name, whatever it is.
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
        let written = &rest[..value_len];
        self.at = opening + 1 + value_len + 1;
        Ok(Attribute { name, written, name_at: start, written_at: opening + 1, is_verbatim: is_verbatim(written) })
    }
}

impl<'a> Iterator for TagAttributes<'a> {
    type Item = Result<Attribute<'a>, AttrError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.past_space(self.at)?;
        Some(self.attribute(start))
    }
}

/// XML 1.0 section 2.3, production `S`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// To look at every byte is faster than to stop at the first that is not: several are looked at at once.
fn is_verbatim(written: &str) -> bool {
    written.bytes().fold(true, |is_verbatim, byte| is_verbatim & !matches!(byte, b'&' | b'\t' | b'\r' | b'\n'))
}

/// Where the attributes of an element are in its tag, if they are few and the tag is short: nearly all
/// elements are so, and need not be looked through again for each. It is kept small, since elements
/// are moved a lot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FewAttributes {
    held: [Held; 3],
    count: u8,
    are_more: bool,
}

/// Where an attribute is in its tag.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    name: (u16, u16),
    written: (u16, u16),
    is_verbatim: bool,
}

/// There are more attributes than are held.
pub(super) struct TooMany;

impl FewAttributes {
    pub(super) fn push(&mut self, attribute: &Attribute<'_>) {
        match (self.held.get_mut(usize::from(self.count)), Held::new(attribute)) {
            (Some(place), Some(held)) => {
                *place = held;
                self.count += 1;
            }
            _ => self.are_more = true,
        }
    }

    /// The attribute of that name in `tag`.
    pub(super) fn get<'a>(&self, tag: &'a str, name: &str) -> Result<Option<Attribute<'a>>, TooMany> {
        if self.are_more {
            return Err(TooMany);
        }
        let held = self.held[..usize::from(self.count)].iter();
        Ok(held.map(|held| held.attribute(tag)).find(|attribute| attribute.name == name))
    }
}

impl Held {
    /// `None` where it is too far into its tag.
    fn new(attribute: &Attribute<'_>) -> Option<Self> {
        let range = |at: usize, len: usize| Some((u16::try_from(at).ok()?, u16::try_from(at + len).ok()?));
        Some(Self {
            name: range(attribute.name_at, attribute.name.len())?,
            written: range(attribute.written_at, attribute.written.len())?,
            is_verbatim: attribute.is_verbatim,
        })
    }

    fn attribute<'a>(&self, tag: &'a str) -> Attribute<'a> {
        let (name_at, written_at) = (usize::from(self.name.0), usize::from(self.written.0));
        Attribute {
            name: &tag[name_at..usize::from(self.name.1)],
            written: &tag[written_at..usize::from(self.written.1)],
            name_at,
            written_at,
            is_verbatim: self.is_verbatim,
        }
    }
}

#[cfg(test)]
mod tests {
    use quick_xml::events::attributes::Attributes;

    use super::TagAttributes;

    /// Names and values, up to the first error.
    fn ours(tag: &str, name_len: usize) -> Vec<String> {
        let mut told = Vec::new();
        for attribute in TagAttributes::new(tag, name_len) {
            match attribute {
                Ok(attribute) => told.push(format!("{}={:?}", attribute.name, attribute.value().ok())),
                Err(error) => {
                    told.push(error.to_string());
                    break;
                }
            }
        }
        told
    }

    /// The same by quick-xml.
    fn theirs(tag: &str, name_len: usize) -> Vec<String> {
        let mut told = Vec::new();
        for attribute in Attributes::new(tag, name_len).with_checks(false) {
            match attribute {
                Ok(attribute) => {
                    let name = str::from_utf8(attribute.key.0).unwrap();
                    let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).ok();
                    told.push(format!("{name}={value:?}"));
                }
                Err(error) => {
                    told.push(error.to_string());
                    break;
                }
            }
        }
        told
    }

    #[test]
    fn are_those_that_quick_xml_finds_with_the_same_complaints() {
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
        fn are_those_that_quick_xml_finds_in_whatever_tag(tag in "[a= '\"\t&;é/]{0,24}") {
            proptest::prop_assert_eq!(ours(&tag, 0), theirs(&tag, 0));
        }
    }
}
