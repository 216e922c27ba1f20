//! Reads untrusted XML: a cursor over quick-xml events that resolves namespaces, limits all sizes and locates
//! every error.
//!
//! The Atom dialects use it in place of atom_syndication's reader, which cannot locate errors, rejects prefixed
//! Atom, drops the text of categories, and overflows the stack on deep nesting. DTDs are rejected, so only the
//! five predefined entities exist.

mod attributes;
mod copy;
mod digest;
mod element;
mod namespace;
mod token;

use std::borrow::Cow;

use quick_xml::{Reader, events::BytesRef};

use super::{Limits, Location, MessageLimit, Rejection, utf8::utf8};

use attributes::{AttributeIndex, TagAttributes};
pub(super) use digest::{ElementDigest, TextPlace};
pub(super) use element::Element;
use namespace::{Scopes, prefix};
use token::Token;

/// Namespace of Atom (RFC 4287 section 2).
pub(super) const ATOM: &str = "http://www.w3.org/2005/Atom";

/// A document, read from front to back. After [`Document::root`] or [`Document::child`] has returned an
/// element, its content must be consumed by `child` until `None`, by `text` or by `skip`.
pub(super) struct Document<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
    scopes: Scopes<'a>,
    depth: usize,
    limits: Limits,
    /// Attribute names of the current element.
    names: Vec<&'a str>,
}

impl<'a> Document<'a> {
    /// Opens `body`, which must be UTF-8, with or without a byte order mark.
    ///
    /// # Errors
    /// Fails if the body is empty or not UTF-8.
    pub(super) fn open(body: &'a [u8], limits: Limits) -> Result<Self, Rejection> {
        let text = utf8(body)?;
        if text.trim().is_empty() {
            return Err(Rejection::malformed(Location::Message, "the body is empty; an XML document was expected"));
        }
        // quick-xml skips a second mark without counting it, which would shift all locations.
        if text.starts_with('\u{FEFF}') {
            let reason = "there are two byte order marks; this is not XML";
            return Err(Rejection::malformed(Location::in_text(text, 0), reason));
        }
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        Ok(Self { text, reader, scopes: Scopes::default(), depth: 0, limits, names: Vec::new() })
    }

    /// Returns the root element.
    ///
    /// # Errors
    /// Fails if there is none, or invalid content precedes it.
    pub(super) fn root(&mut self) -> Result<Element<'a>, Rejection> {
        loop {
            let offset = self.offset();
            match self.token()? {
                Token::Start { name_len } => return self.start(offset, name_len),
                Token::Declaration { is_utf8: false } => {
                    return Err(self.malformed(offset, "only UTF-8 is read; send the document in UTF-8"));
                }
                Token::Eof => return Err(self.malformed(offset, "there is no element; an XML document was expected")),
                Token::Text if self.is_blank_since(offset) => {}
                Token::Text | Token::CData | Token::Reference => {
                    return Err(self.malformed(offset, "there is text before the first element; this is not XML"));
                }
                Token::Declaration { .. } | Token::Ignored | Token::End => {}
            }
        }
    }

    /// Returns the next child of the current element; `None` at its end.
    ///
    /// # Errors
    /// Fails if the document is malformed or truncated here, or exceeds a limit.
    pub(super) fn child(&mut self) -> Result<Option<Element<'a>>, Rejection> {
        loop {
            let offset = self.offset();
            match self.token()? {
                Token::Start { name_len } => return self.start(offset, name_len).map(Some),
                Token::End => {
                    self.end();
                    return Ok(None);
                }
                Token::Eof => return Err(self.cut_short()),
                Token::Reference => {
                    self.resolve(offset)?;
                }
                Token::Text | Token::CData | Token::Declaration { .. } | Token::Ignored => {}
            }
        }
    }

    /// Returns the text of the current element and of all elements inside it, and consumes its end.
    ///
    /// # Errors
    /// Fails if the document is malformed or truncated here, or exceeds a limit.
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, Rejection> {
        let outside = self.depth.saturating_sub(1);
        let mut collected = Cow::Borrowed("");
        loop {
            let offset = self.offset();
            let text = match self.token()? {
                Token::Start { name_len } => {
                    self.start(offset, name_len)?;
                    continue;
                }
                Token::End => {
                    self.end();
                    if self.depth == outside {
                        return Ok(collected);
                    }
                    continue;
                }
                Token::Eof => return Err(self.cut_short()),
                Token::Text => Cow::Borrowed(self.since(offset)),
                Token::CData => {
                    let raw = self.since(offset);
                    Cow::Borrowed(raw.strip_prefix("<![CDATA[").and_then(|raw| raw.strip_suffix("]]>")).unwrap_or(raw))
                }
                Token::Reference => Cow::Owned(self.resolve(offset)?.to_string()),
                Token::Declaration { .. } | Token::Ignored => continue,
            };
            if collected.is_empty() {
                collected = text;
            } else {
                collected.to_mut().push_str(&text);
            }
        }
    }

    /// Skips the rest of the current element.
    ///
    /// # Errors
    /// Fails if the document is malformed or truncated here, or exceeds a limit.
    pub(super) fn skip(&mut self) -> Result<(), Rejection> {
        self.text().map(|_| ())
    }

    /// Checks that only comments follow the root element.
    ///
    /// # Errors
    /// Fails if other content follows.
    pub(super) fn finish(mut self) -> Result<(), Rejection> {
        loop {
            let offset = self.offset();
            match self.token()? {
                Token::Eof => return Ok(()),
                Token::Ignored => {}
                Token::Text if self.is_blank_since(offset) => {}
                _ => return Err(self.malformed(offset, "something follows the end of the document")),
            }
        }
    }

    fn token(&mut self) -> Result<Token, Rejection> {
        match &self.reader.read_event() {
            Ok(event) => Token::of(event).ok_or_else(|| {
                let reason = "a document type declaration is refused; send the document without it";
                self.malformed(self.offset(), reason)
            }),
            Err(error) => {
                let offset = usize::try_from(self.reader.error_position()).unwrap_or(self.text.len());
                Err(self.malformed(offset, format!("this is not well-formed XML: {error}")))
            }
        }
    }

    fn start(&mut self, offset: usize, name_len: usize) -> Result<Element<'a>, Rejection> {
        self.depth += 1;
        let Limits { xml_depth, .. } = self.limits;
        if self.depth > xml_depth {
            let reason = format!("elements are nested more than {xml_depth} deep");
            return Err(Rejection::over_limit(MessageLimit::XmlDepth, self.location(offset), reason));
        }
        let tag = &self.text[offset + 1..self.offset() - 1];
        let tag = tag.strip_suffix('/').unwrap_or(tag);
        let attributes = self.check_attributes(offset, tag, name_len)?;
        let name = &tag[..name_len];
        let colon = name.bytes().position(|byte| byte == b':');
        let (prefix, local) = colon.map_or((None, name), |colon| (prefix(&name[..colon]), &name[colon + 1..]));
        let Some(namespace) = self.scopes.namespace(prefix) else {
            let prefix = prefix.unwrap_or_default();
            return Err(self.malformed(offset, format!("the namespace prefix {prefix:?} is not declared")));
        };
        Ok(Element { namespace, local, attributes, tag, name_len, offset, text: self.text })
    }

    /// Checks that all attributes are well-formed, unique and not too many, and records namespace declarations.
    fn check_attributes(&mut self, offset: usize, tag: &'a str, name_len: usize) -> Result<AttributeIndex, Rejection> {
        let xml_attributes = self.limits.xml_attributes;
        let mut attributes = AttributeIndex::default();
        // The library's own check for duplicates would allocate for every element.
        self.names.clear();
        for (index, attribute) in TagAttributes::new(tag, name_len).enumerate() {
            let attribute = attribute
                .map_err(|error| self.malformed(offset, format!("an attribute is not well-formed: {error}")))?;
            let name = attribute.name;
            if index == xml_attributes {
                let reason = format!("an element has more than {xml_attributes} attributes");
                return Err(Rejection::over_limit(MessageLimit::XmlAttributes, self.location(offset), reason));
            }
            if self.names.contains(&name) {
                return Err(
                    self.malformed(offset, format!("the attribute {name} is there twice: this is not well-formed XML"))
                );
            }
            self.names.push(name);
            attributes.push(&attribute);
            let declared = match name {
                "xmlns" => Some(None),
                name => name.strip_prefix("xmlns:").map(prefix),
            };
            // The value is decoded later, if it is requested.
            if declared.is_none() && attribute.is_verbatim {
                continue;
            }
            let value = attribute
                .value()
                .map_err(|error| self.malformed(offset, format!("an attribute value is not well-formed: {error}")))?;
            if let Some(prefix) = declared {
                // Lookups of a prefix are linear in the number of declarations.
                if self.scopes.len() == xml_attributes {
                    let reason = format!("more than {xml_attributes} namespaces are declared in each other");
                    return Err(Rejection::over_limit(MessageLimit::XmlAttributes, self.location(offset), reason));
                }
                self.scopes.declare(prefix, &value, self.depth);
            }
        }
        Ok(attributes)
    }

    fn end(&mut self) {
        self.scopes.leave(self.depth);
        self.depth = self.depth.saturating_sub(1);
    }

    fn resolve(&self, offset: usize) -> Result<char, Rejection> {
        let name = &self.text[offset + 1..self.offset() - 1];
        let named = match name {
            "lt" => Some('<'),
            "gt" => Some('>'),
            "amp" => Some('&'),
            "apos" => Some('\''),
            "quot" => Some('"'),
            name => BytesRef::new(name).resolve_char_ref().ok().flatten(),
        };
        named.ok_or_else(|| {
            let name = name.chars().take(40).collect::<String>();
            self.malformed(offset, format!("&{name}; is no entity of XML; write the character itself"))
        })
    }

    /// Returns the text from `offset` to the current position.
    fn since(&self, offset: usize) -> &'a str {
        &self.text[offset..self.offset()]
    }

    fn is_blank_since(&self, offset: usize) -> bool {
        self.since(offset).bytes().all(|byte| byte.is_ascii_whitespace())
    }

    fn offset(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(self.text.len())
    }

    fn malformed(&self, offset: usize, reason: impl Into<String>) -> Rejection {
        Rejection::malformed(self.location(offset), reason)
    }

    fn location(&self, offset: usize) -> Location {
        Location::in_text(self.text, offset)
    }

    fn cut_short(&self) -> Rejection {
        self.malformed(self.text.len(), "the document ends before its last element does")
    }
}

#[cfg(test)]
mod tests {
    use super::{ATOM, Document, Limits, Location, Rejection};

    /// Reads a whole document and returns "name{text}" of the children of its root.
    fn read(body: &[u8]) -> Result<Vec<String>, Rejection> {
        let mut document = Document::open(body, Limits::default())?;
        document.root()?;
        let mut children = Vec::new();
        while let Some(child) = document.child()? {
            children.push(format!("{}{{{}}}", child.name(), document.text()?));
        }
        document.finish()?;
        Ok(children)
    }

    fn complaint(body: &[u8]) -> String {
        read(body).unwrap_err().to_string()
    }

    #[test]
    fn namespaces_are_resolved_for_any_prefix() {
        let body = format!("<a:feed xmlns:a='{ATOM}'><a:id k='1 &lt;&#10;2' a:k='3'/><id xmlns='urn:other'/></a:feed>");
        let mut document = Document::open(body.as_bytes(), Limits::default()).unwrap();
        assert_eq!(document.root().unwrap().atom(), Some("feed"));
        let id = document.child().unwrap().unwrap();
        assert!(id.is(ATOM, "id"));
        assert_eq!(id.attribute("k").as_deref(), Some("1 <\n2"));
        document.skip().unwrap();
        assert_eq!(document.child().unwrap().unwrap().atom(), None);
        document.skip().unwrap();
        assert!(document.child().unwrap().is_none());
        document.finish().unwrap();
    }

    #[test]
    fn text_combines_all_its_forms() {
        let body = "\u{FEFF}<?xml version='1.0' encoding='utf-8'?><!-- c --><r><t> a&amp;<![CDATA[<b>]]>&#233;<i>c</i><!-- d --></t><u/></r>\n<!-- e -->";
        assert_eq!(read(body.as_bytes()).unwrap(), ["t{ a&<b>éc}", "u{}"]);
    }

    #[test]
    fn errors_have_locations() {
        for (body, complaint_holds) in [
            (&b""[..], "the message: the body is empty"),
            (b"  \n", "the body is empty"),
            (b"hello", "this is not XML"),
            (b"\xEF\xBB\xBF\xEF\xBB\xBF<r/>", "two byte order marks"),
            (b"\xFF\xFE<\0", "UTF-16"),
            (b"<r>\n <t>\xff</t></r>", "line 2, column 5: the body is not UTF-8"),
            (b"<?xml version='1.0' encoding='ISO-8859-1'?><r/>", "only UTF-8"),
            (b"<!DOCTYPE r [<!ENTITY e 'x'>]><r>&e;</r>", "document type declaration is refused"),
            (b"<r><t>&e;</t></r>", "line 1, column 7: &e; is no entity"),
            (b"<r>&e;<t/></r>", "&e; is no entity"),
            (b"<r><t></r>", "not well-formed"),
            (b"<r><t>", "ends before"),
            (b"<r><t a='1' a='2'/></r>", "not well-formed"),
            (b"<r><p:t/></r>", "prefix \"p\" is not declared"),
            (b"<r/><s/>", "something follows"),
            (b"<r/>s", "something follows"),
        ] {
            let complaint = complaint(body);
            assert!(complaint.contains(complaint_holds), "{}: {complaint}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn depth_and_attributes_are_bounded() {
        let deep = format!("<r>{}", "<a>".repeat(100_000));
        assert!(complaint(deep.as_bytes()).contains("more than 64 deep"));
        let wide: String = (0..100).map(|n| format!(" a{n}='1'")).collect();
        assert!(complaint(format!("<r><a{wide}/></r>").as_bytes()).contains("more than 64 attributes"));
        let declared = |element: char| (0..40).map(|n| format!(" xmlns:{element}{n}='u'")).collect::<String>();
        let nested = format!("<r{}><a{}/></r>", declared('r'), declared('a'));
        assert!(complaint(nested.as_bytes()).contains("more than 64 namespaces"));
        let beside = format!("<r><a{}/><a{}/></r>", declared('r'), declared('a'));
        assert!(read(beside.as_bytes()).is_ok());
    }

    #[test]
    fn element_has_its_location() {
        let mut document = Document::open(b"<r>\n  <t/></r>", Limits::default()).unwrap();
        document.root().unwrap();
        assert_eq!(document.child().unwrap().unwrap().location(), Location::Line { line: 2, column: 3 });
    }
}
