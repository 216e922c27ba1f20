//! Digest of an element that does not depend on its spelling.

use sha2::{Digest as _, Sha256};

use super::{Document, Element, Token, attributes::TagAttributes, prefix};
use crate::format::{Rejection, xml_writer::XSI};

/// Namespace of `oai_dc:dc`.
const OAI_DC: &str = "http://www.openarchives.org/OAI/2.0/oai_dc/";

/// Local names of the attributes with the locations of schemas (XML Schema Part 1, section 2.6.3).
const SCHEMA_LOCATIONS: [&str; 2] = ["schemaLocation", "noNamespaceSchemaLocation"];

impl<'a> Document<'a> {
    /// Reads the rest of the current element, and returns the SHA-256 of a canonical form of the element, in lower-case
    /// hexadecimal. Elements and attributes count with their namespaces, and text without white space at its ends.
    /// Prefixes, the order of attributes, comments, processing instructions, white space between elements and locations of
    /// schemas do not count, and neither does the order of the elements in `oai_dc:dc`, which has none. (Canonical XML keeps
    /// prefixes and white space, which repositories change without a change of content.)
    /// `visit` gets each text and each value of an attribute, with its place.
    ///
    /// # Errors
    /// Fails if the document is malformed or truncated here, or exceeds a limit.
    pub(in crate::format) fn digest(
        &mut self,
        element: &Element<'a>,
        visit: &mut dyn FnMut(TextPlace<'_>, &str),
    ) -> Result<ElementDigest, Rejection> {
        let outside = self.depth.saturating_sub(1);
        let mut canonical = CanonicalHash::new(element.is(OAI_DC, "dc"), visit);
        self.hash_start(element, &mut canonical)?;
        loop {
            let offset = self.offset();
            match self.token()? {
                Token::Start { name_len } => {
                    let element = self.start(offset, name_len)?;
                    self.hash_start(&element, &mut canonical)?;
                }
                Token::End => {
                    self.end();
                    canonical.end();
                    if self.depth == outside {
                        return Ok(canonical.finish());
                    }
                }
                Token::Eof => return Err(self.cut_short()),
                Token::Text => canonical.text.push_str(self.since(offset)),
                Token::CData => {
                    let raw = self.since(offset);
                    let text = raw.strip_prefix("<![CDATA[").and_then(|raw| raw.strip_suffix("]]>"));
                    canonical.text.push_str(text.unwrap_or(raw));
                }
                Token::Reference => canonical.text.push(self.resolve(offset)?),
                Token::Declaration { .. } | Token::Ignored => {}
            }
        }
    }

    fn hash_start(&self, element: &Element<'a>, canonical: &mut CanonicalHash<'_>) -> Result<(), Rejection> {
        let mut attributes = Vec::new();
        // Attributes are well-formed here; otherwise the element was rejected.
        for attribute in TagAttributes::new(element.tag, element.name_len).flatten() {
            let name = attribute.name;
            if name == "xmlns" || name.starts_with("xmlns:") {
                continue;
            }
            let value = attribute.value().map_err(|error| {
                self.malformed(element.offset, format!("an attribute value is not well-formed: {error}"))
            })?;
            let (namespace, local) = match name.split_once(':') {
                Some((before, local)) => {
                    let namespace = self.scopes.namespace(prefix(before)).ok_or_else(|| {
                        let reason = format!("the namespace prefix {before:?} is not declared");
                        self.malformed(element.offset, reason)
                    })?;
                    (namespace.name().unwrap_or_default().to_owned(), local)
                }
                None => (String::new(), name),
            };
            attributes.push((namespace, local, value));
        }
        attributes.sort_unstable();
        canonical.start(element.namespace.name().unwrap_or_default(), element.local);
        for (namespace, local, value) in &attributes {
            canonical.attribute(namespace, local, value);
        }
        Ok(())
    }
}

/// Place of a text in an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) struct TextPlace<'t> {
    /// Namespace of the innermost element; empty if it has none, or other elements in it come before the text.
    pub(in crate::format) namespace: &'t str,
    /// Local name of this element; empty if other elements in it come before the text.
    pub(in crate::format) element: &'t str,
    /// Number of the element in the order of the begins.
    pub(in crate::format) number: usize,
    /// Local name of the attribute; `None` for the text of the element.
    pub(in crate::format) attribute: Option<&'t str>,
}

/// Digests of an element, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::format) struct ElementDigest {
    pub(in crate::format) digest: String,
    /// Digest by the rules of versions until 0.1.0, in which `xsi:schemaLocation` and the order of Dublin Core count.
    /// Registries have it for records that have not changed since.
    pub(in crate::format) former: String,
}

/// Maximum number of children without order that are in memory. More of them are sorted in groups.
const MAX_CHILDREN: usize = 4096;

/// Hash over the parts of an element. Every text has its length in front, so that different elements never have the
/// same input.
struct CanonicalHash<'v> {
    hash: Sha256,
    former: Sha256,
    /// Whether the order of the children does not count.
    is_unordered: bool,
    /// Number of open elements.
    depth: usize,
    /// Hash of the present child of an element without order.
    child: Sha256,
    /// Hashes of its children before that.
    children: Vec<[u8; 32]>,
    /// Text since the last tag.
    text: String,
    /// Namespace and local name of the element that has begun last; empty if it has ended.
    element: (String, String),
    /// Number of elements that have begun.
    elements: usize,
    /// Called with each text and each value of an attribute.
    visit: &'v mut dyn FnMut(TextPlace<'_>, &str),
}

impl<'v> CanonicalHash<'v> {
    fn new(is_unordered: bool, visit: &'v mut dyn FnMut(TextPlace<'_>, &str)) -> Self {
        let (hash, former, child) = (Sha256::default(), Sha256::default(), Sha256::default());
        let (text, element) = (String::new(), (String::new(), String::new()));
        Self { hash, former, is_unordered, depth: 0, child, children: Vec::new(), text, element, elements: 0, visit }
    }

    fn start(&mut self, namespace: &str, local: &str) {
        self.flush();
        self.depth += 1;
        self.elements += 1;
        namespace.clone_into(&mut self.element.0);
        local.clone_into(&mut self.element.1);
        self.part(b'<', &[namespace, local]);
    }

    fn end(&mut self) {
        self.flush();
        self.element.0.clear();
        self.element.1.clear();
        self.update(b">");
        if self.is_unordered && self.depth == 2 {
            self.children.push(std::mem::take(&mut self.child).finalize().into());
            if self.children.len() == MAX_CHILDREN {
                self.add_children();
            }
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        match text.trim() {
            "" => {}
            text => {
                let (namespace, element) = (&*self.element.0, &*self.element.1);
                (self.visit)(TextPlace { namespace, element, number: self.elements, attribute: None }, text);
                self.part(b'T', &[text]);
            }
        }
    }

    /// Adds an attribute, whose location of a schema counts only in the former digest.
    fn attribute(&mut self, namespace: &str, local: &str, value: &str) {
        let (of, element) = (&*self.element.0, &*self.element.1);
        (self.visit)(TextPlace { namespace: of, element, number: self.elements, attribute: Some(local) }, value);
        let (kind, texts) = (b'@', [namespace, local, value]);
        if namespace == XSI && SCHEMA_LOCATIONS.contains(&local) {
            add_part(&mut |bytes| self.former.update(bytes), kind, &texts);
        } else {
            self.part(kind, &texts);
        }
    }

    fn part(&mut self, kind: u8, texts: &[&str]) {
        add_part(&mut |bytes| self.update(bytes), kind, texts);
    }

    fn update(&mut self, bytes: &[u8]) {
        self.former.update(bytes);
        if self.is_unordered && self.depth >= 2 { self.child.update(bytes) } else { self.hash.update(bytes) }
    }

    fn add_children(&mut self) {
        self.children.sort_unstable();
        self.children.drain(..).for_each(|child| self.hash.update(child));
    }

    fn finish(mut self) -> ElementDigest {
        self.add_children();
        ElementDigest { digest: hex::encode(self.hash.finalize()), former: hex::encode(self.former.finalize()) }
    }
}

fn add_part(add: &mut dyn FnMut(&[u8]), kind: u8, texts: &[&str]) {
    add(&[kind]);
    for text in texts {
        add(&(text.len() as u64).to_be_bytes());
        add(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{Limits, xml::Document};

    fn digest(body: &str) -> String {
        let mut document = Document::open(body.as_bytes(), Limits::default()).unwrap();
        let root = document.root().unwrap();
        document.digest(&root, &mut |_, _| ()).unwrap().digest
    }

    #[test]
    fn location_of_a_schema_does_not_count() {
        let with = |location: &str| {
            digest(&format!(
                "<a xmlns:x='http://www.w3.org/2001/XMLSchema-instance' x:schemaLocation='{location}' x:type='b'>c</a>"
            ))
        };
        assert_eq!(with("urn:a http://h/a.xsd"), with("urn:a https://h/a.xsd"));
        let without = "<a xmlns:x='http://www.w3.org/2001/XMLSchema-instance' x:type='b'>c</a>";
        assert_eq!(with("urn:a http://h/a.xsd"), digest(without));
        assert_ne!(with("urn:a http://h/a.xsd"), digest("<a>c</a>"));
    }

    #[test]
    fn order_of_dublin_core_does_not_count() {
        let record = |root: &str, elements: &[&str]| {
            let content: String = elements.iter().map(|element| format!("<t>{element}</t>")).collect();
            digest(&format!("<d:{root} xmlns:d='http://www.openarchives.org/OAI/2.0/oai_dc/'>{content}</d:{root}>"))
        };
        assert_eq!(record("dc", &["a", "b", "c"]), record("dc", &["c", "a", "b"]));
        assert_ne!(record("dc", &["a", "b"]), record("dc", &["a", "b", "b"]));
        assert_ne!(record("dc", &["a", "b"]), record("dc", &["ab", ""]));
        assert_ne!(record("other", &["a", "b"]), record("other", &["b", "a"]));
    }

    /// Digest of version 0.1.0, which registries have.
    #[test]
    fn former_digest_stays() {
        let body = "<d:dc xmlns:d='http://www.openarchives.org/OAI/2.0/oai_dc/' \
                    xmlns:x='http://www.w3.org/2001/XMLSchema-instance' x:schemaLocation='a b'><t>a</t></d:dc>";
        let mut document = Document::open(body.as_bytes(), Limits::default()).unwrap();
        let root = document.root().unwrap();
        let found = document.digest(&root, &mut |_, _| ()).unwrap().former;
        assert_eq!(found, "7c989b09235b7ea3ff61bd870cd12897517452651c322834a50924e331722f7d");
    }

    #[test]
    fn spelling_does_not_count() {
        let one = digest("<a xmlns='urn:a' xmlns:x='urn:x' k='1' x:k='2'><b>c &amp; d</b><e/></a>");
        for other in [
            "<p:a xmlns:p='urn:a' xmlns:y='urn:x' y:k='2' k=\"1\">\n  <p:b> c &#38; d\n</p:b><!-- ! --><p:e></p:e></p:a>",
            "<a xmlns='urn:a' k='1' z:k='2' xmlns:z='urn:x'><b>c <![CDATA[&]]> d</b><?p?><e> </e></a>",
        ] {
            assert_eq!(digest(other), one, "{other}");
        }
    }

    #[test]
    fn content_counts() {
        let all = [
            "<a/>",
            "<a xmlns='urn:a'/>",
            "<b/>",
            "<a>b</a>",
            "<a><b/></a>",
            "<a b='c'/>",
            "<a b='d'/>",
            "<a c='d' b='c'/>",
            "<a><b/><b/></a>",
            "<a><b><b/></b></a>",
            "<a>b<b/></a>",
            "<a><b/>b</a>",
            "<a xmlns:x='urn:x' x:b='c'/>",
        ];
        let digests: std::collections::BTreeSet<_> = all.into_iter().map(digest).collect();
        assert_eq!(digests.len(), all.len());
    }
}
