//! Copies of elements that are well-formed wherever they are embedded.

use std::borrow::Cow;

use super::{Document, Element, Token, attributes::TagAttributes, namespace::Namespace, prefix};
use crate::{
    format::{Rejection, xml_writer},
    text::is_xml_char,
};

/// Namespaces that no document declares (Namespaces in XML 1.0, section 3).
const XML: &str = "http://www.w3.org/XML/1998/namespace";
const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// Maximum length of a name, in bytes. Parsers stop at different lengths.
const MAX_NAME_BYTES: usize = 1000;

/// Maximum depth of nested elements. Parsers stop at 256, and a response has elements around the copy.
const MAX_DEPTH: usize = 200;

impl<'a> Document<'a> {
    /// Reads the rest of an element whose start was just returned, and appends a copy of it that needs nothing around it: the
    /// element declares all namespaces in scope, except `outer` as the default one. Names, namespaces, attributes and text are
    /// those of the original. Comments, processing instructions and characters that XML forbids are left out.
    ///
    /// # Errors
    /// Fails if the document is malformed or truncated here, exceeds a limit, or has a name that XML forbids.
    pub(in crate::format) fn copy(
        &mut self,
        element: &Element<'a>,
        outer: &str,
        copied: &mut String,
    ) -> Result<(), Rejection> {
        let outside = self.depth.saturating_sub(1);
        let inherited = self.inherited(element, outer);
        if let Some((name, _)) = inherited.iter().find(|(name, namespace)| !is_declaration(name, namespace)) {
            return Err(self.malformed(element.offset, format!("the namespace declaration {name:?} is illegal")));
        }
        self.copy_start(element, &inherited, copied)?;
        let mut names = vec![element.name()];
        loop {
            let offset = self.offset();
            match self.token()? {
                Token::Start { name_len } => {
                    let element = self.start(offset, name_len)?;
                    self.copy_start(&element, &[], copied)?;
                    names.push(element.name());
                    if names.len() > MAX_DEPTH {
                        return Err(self.malformed(offset, format!("elements are nested more than {MAX_DEPTH} deep")));
                    }
                }
                Token::End => {
                    self.end();
                    copied.extend(["</", names.pop().unwrap_or_default(), ">"]);
                    if self.depth == outside {
                        return Ok(());
                    }
                }
                Token::Eof => return Err(self.cut_short()),
                Token::Text => copy_text(&with_line_feeds(self.since(offset)), copied),
                Token::CData => {
                    let raw = self.since(offset);
                    let text = raw.strip_prefix("<![CDATA[").and_then(|raw| raw.strip_suffix("]]>"));
                    copy_text(&with_line_feeds(text.unwrap_or(raw)), copied);
                }
                Token::Reference => copy_text(self.resolve(offset)?.encode_utf8(&mut [0; 4]), copied),
                Token::Declaration { .. } | Token::Ignored => {}
            }
        }
    }

    /// Returns the declarations in scope that the element itself does not have: attribute and namespace.
    fn inherited(&self, element: &Element<'a>, outer: &str) -> Vec<(String, String)> {
        let is_own =
            |name: &str| TagAttributes::new(element.tag, element.name_len).flatten().any(|own| own.name == name);
        let mut inherited: Vec<_> = self
            .scopes
            .visible()
            .map(|(prefix, namespace)| {
                let name = prefix.map_or_else(|| "xmlns".to_owned(), |prefix| format!("xmlns:{prefix}"));
                (name, namespace.name().unwrap_or_default().to_owned())
            })
            .collect();
        if matches!(self.scopes.namespace(None), Some(Namespace::None))
            && inherited.iter().all(|(name, _)| name != "xmlns")
        {
            inherited.push(("xmlns".to_owned(), String::new()));
        }
        let is_implied = |name: &str, namespace: &str| match name {
            "xmlns" => namespace == outer,
            "xmlns:xml" => namespace == XML,
            _ => false,
        };
        inherited.retain(|(name, namespace)| !is_own(name) && !is_implied(name, namespace));
        inherited
    }

    fn copy_start(
        &self,
        element: &Element<'a>,
        inherited: &[(String, String)],
        copied: &mut String,
    ) -> Result<(), Rejection> {
        let invalid = |name: &str| self.malformed(element.offset, format!("{name:?} is no name in XML"));
        if !is_qualified_name(element.name()) {
            return Err(invalid(element.name()));
        }
        copied.extend(["<", element.name()]);
        for (name, namespace) in inherited {
            xml_writer::attribute(name, namespace, copied);
        }
        let mut expanded = Vec::new();
        // Attributes are well-formed here; otherwise the element was rejected.
        for attribute in TagAttributes::new(element.tag, element.name_len).flatten() {
            let name = attribute.name;
            let value = attribute.value().map_err(|error| {
                self.malformed(element.offset, format!("an attribute value is not well-formed: {error}"))
            })?;
            let value: String = value.chars().filter(|c| is_xml_char(*c)).collect();
            let is_declared = name == "xmlns" || name.starts_with("xmlns:");
            if name == "xmlns:xml" && value == XML {
                continue;
            }
            if !is_qualified_name(name) || (is_declared && !is_declaration(name, &value)) {
                return Err(invalid(name));
            }
            if let Some((before, local)) = name.split_once(':').filter(|_| !is_declared) {
                let namespace = self.scopes.namespace(prefix(before));
                let namespace = namespace.as_ref().and_then(Namespace::name).ok_or_else(|| invalid(name))?.to_owned();
                if expanded.contains(&(namespace.clone(), local)) {
                    return Err(self.malformed(element.offset, format!("the attribute {name} is there twice")));
                }
                expanded.push((namespace, local));
            }
            xml_writer::attribute(name, &value, copied);
        }
        copied.push('>');
        Ok(())
    }
}

/// Returns literal text with the ends of lines that every parser reads (XML 1.0 section 2.11).
fn with_line_feeds(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n").into() } else { text.into() }
}

fn copy_text(text: &str, copied: &mut String) {
    if text.chars().all(is_xml_char) {
        xml_writer::text(text, copied);
    } else {
        xml_writer::text(&text.chars().filter(|c| is_xml_char(*c)).collect::<String>(), copied);
    }
}

/// Returns whether a document can have a namespace declaration (Namespaces in XML 1.0, sections 2.2 and 3).
fn is_declaration(name: &str, namespace: &str) -> bool {
    let prefix = name.strip_prefix("xmlns:");
    let is_legal =
        prefix.is_none_or(|prefix| is_name(prefix) && !matches!(prefix, "xml" | "xmlns") && !namespace.is_empty());
    is_legal && namespace != XML && namespace != XMLNS && namespace.chars().all(is_xml_char)
}

/// Returns whether a text is a qualified name (Namespaces in XML 1.0, section 4).
fn is_qualified_name(name: &str) -> bool {
    match name.split_once(':') {
        Some((prefix, local)) => is_name(prefix) && is_name(local),
        None => is_name(name),
    }
}

/// Returns whether a text is a name without a colon (XML 1.0 section 2.3, production `Name`).
fn is_name(name: &str) -> bool {
    let begins = |c: char| {
        matches!(c,
            'A'..='Z' | '_' | 'a'..='z' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
            | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
            | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'
            | '\u{10000}'..='\u{EFFFF}')
    };
    let continues = |c: char| {
        begins(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
    };
    name.len() <= MAX_NAME_BYTES && name.starts_with(begins) && name.chars().all(continues)
}

#[cfg(test)]
mod tests {
    use crate::format::{Limits, xml::Document};

    /// Copies the first child of the root.
    fn copy(body: &str) -> Result<String, String> {
        let mut document = Document::open(body.as_bytes(), Limits::default()).unwrap();
        document.root().unwrap();
        let child = document.child().map_err(|error| error.to_string())?.unwrap();
        let mut copied = String::new();
        document.copy(&child, "urn:outer", &mut copied).map_err(|error| error.to_string())?;
        assert!(document.child().unwrap().is_none(), "the position is after the element");
        document.finish().unwrap();
        Ok(copied)
    }

    #[test]
    fn copy_is_complete_and_needs_nothing_around_it() {
        let body = "<o:r xmlns:o='urn:o' xmlns='urn:d'><a b='1&lt;&#10;\"' o:c='2'>x<!-- y --><?z?>\
                    <![CDATA[<&]]>&amp;&#233;<o:e xmlns='urn:e'/>\r\n</a></o:r>";
        let expected = "<a xmlns:o=\"urn:o\" xmlns=\"urn:d\" b=\"1&lt;&#10;&quot;\" o:c=\"2\">x&lt;&amp;&amp;é\
                        <o:e xmlns=\"urn:e\"></o:e>\n</a>";
        assert_eq!(copy(body).unwrap(), expected);
        assert_eq!(copy("<r xmlns='urn:outer'><a/></r>").unwrap(), "<a></a>");
        assert_eq!(copy("<o:r xmlns:o='urn:outer'><a/></o:r>").unwrap(), "<a xmlns:o=\"urn:outer\" xmlns=\"\"></a>");
        assert_eq!(
            copy("<r xmlns='urn:a' xmlns:p='urn:p'><a xmlns='' xmlns:p='urn:q'/></r>").unwrap(),
            "<a xmlns=\"\" xmlns:p=\"urn:q\"></a>"
        );
        // The declaration of a document in the middle of a document is no XML.
        assert_eq!(copy("<r xmlns='urn:outer'><a><?xml version='1.0'?>b</a></r>").unwrap(), "<a>b</a>");
        assert_eq!(copy("<r xmlns='urn:outer'><a>b\u{1}</a></r>").unwrap(), "<a>b</a>");
    }

    #[test]
    fn element_that_no_document_can_have_is_refused() {
        for root in ["<r xmlns:p=''>", "<r xmlns:1='urn:a'>", "<r xmlns:xml='urn:a'>"] {
            let found = copy(&format!("{root}<a/></r>"));
            assert!(found.as_ref().is_err_and(|error| error.contains("illegal")), "{root}: {found:?}");
        }
        let long = "a".repeat(1001);
        assert!(copy(&format!("<r><a><{long}/></a></r>")).is_err());
        let xml = "xmlns:xml='http://www.w3.org/XML/1998/namespace'";
        assert_eq!(
            copy(&format!("<r xmlns='urn:outer' {xml}><a {xml} xml:lang='de'/></r>")).unwrap(),
            "<a xml:lang=\"de\"></a>"
        );
        for (element, reason) in [
            ("<a b:c:d='1' xmlns:b='urn:b'/>", "no name"),
            ("<a><1/></a>", "no name"),
            ("<a 1='b'/>", "no name"),
            ("<a xmlns:xml='urn:b'/>", "no name"),
            ("<a xmlns:b=''/>", "no name"),
            ("<a xmlns:b='http://www.w3.org/XML/1998/namespace'/>", "no name"),
            ("<a xmlns='http://www.w3.org/2000/xmlns/'/>", "no name"),
            ("<a b:c='1'/>", "no name"),
            ("<a xmlns:b='urn:b' xmlns:c='urn:b' b:d='1' c:d='2'/>", "there twice"),
            ("<a>&e;</a>", "no entity"),
        ] {
            let found = copy(&format!("<r>{element}</r>")).unwrap_err();
            assert!(found.contains(reason), "{element}: {found}");
        }
    }
}
