//! Digest of an element that does not depend on its spelling.

use sha2::{Digest as _, Sha256};

use super::{Document, Element, Token, attributes::TagAttributes, prefix};
use crate::format::Rejection;

impl<'a> Document<'a> {
    /// Reads the rest of the current element, and returns the SHA-256 of a canonical form of the element, in lower-case
    /// hexadecimal. Elements and attributes count with their namespaces, and text without white space at its ends.
    /// Prefixes, the order of attributes, comments, processing instructions and white space between elements do not
    /// count. (Canonical XML keeps prefixes and white space, which repositories change without a change of content.)
    /// `visit` gets each text and each value of an attribute.
    ///
    /// # Errors
    /// Fails if the document is malformed or truncated here, or exceeds a limit.
    pub(in crate::format) fn digest(
        &mut self,
        element: &Element<'a>,
        visit: &mut dyn FnMut(&str),
    ) -> Result<String, Rejection> {
        let outside = self.depth.saturating_sub(1);
        let mut canonical = CanonicalHash { hash: Sha256::default(), text: String::new(), visit };
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
            (canonical.visit)(value);
            canonical.part(b'@', &[namespace, local, value]);
        }
        Ok(())
    }
}

/// Hash over the parts of an element. Every text has its length in front, so that different elements never have the
/// same input.
struct CanonicalHash<'v> {
    hash: Sha256,
    /// Text since the last tag.
    text: String,
    /// Called with each text and each value of an attribute.
    visit: &'v mut dyn FnMut(&str),
}

impl CanonicalHash<'_> {
    fn start(&mut self, namespace: &str, local: &str) {
        self.flush();
        self.part(b'<', &[namespace, local]);
    }

    fn end(&mut self) {
        self.flush();
        self.hash.update(b">");
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        match text.trim() {
            "" => {}
            text => {
                (self.visit)(text);
                self.part(b'T', &[text]);
            }
        }
    }

    fn part(&mut self, kind: u8, texts: &[&str]) {
        self.hash.update([kind]);
        for text in texts {
            self.hash.update((text.len() as u64).to_be_bytes());
            self.hash.update(text);
        }
    }

    fn finish(self) -> String {
        hex::encode(self.hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{Limits, xml::Document};

    fn digest(body: &str) -> String {
        let mut document = Document::open(body.as_bytes(), Limits::default()).unwrap();
        let root = document.root().unwrap();
        document.digest(&root, &mut |_| ()).unwrap()
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
