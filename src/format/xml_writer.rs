//! Writes XML in one pass, indented like the 0.1 page. All values are escaped so that a reader gets the same
//! characters.
//!
//! quick-xml's writer is not used, because it copies tags that must be assembled elsewhere, which took longer
//! than everything else. Names come from the formats of this crate and are not checked.

/// Namespace of the attributes that name schemas (XML Schema Part 1, section 2.6).
pub(crate) const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// An attribute: name and value.
pub(crate) type Pair<'a> = (&'a str, &'a str);

/// A document, written from front to back.
pub(crate) struct XmlWriter {
    written: String,
    /// Number of open elements.
    depth: usize,
}

impl XmlWriter {
    /// Begins a document of about `size` bytes.
    pub(crate) fn document(size: usize) -> Self {
        let mut written = String::with_capacity(size);
        written.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        Self { written, depth: 0 }
    }

    /// Begins an element that contains other elements.
    pub(crate) fn open(&mut self, name: &str, attributes: &[Pair<'_>]) {
        self.start(name, attributes);
        self.depth += 1;
    }

    /// Ends the element that was begun last.
    pub(crate) fn close(&mut self, name: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.line();
        self.end(name);
    }

    /// Writes an element with text or without content. It is never self-closed, as on the 0.1 page.
    pub(crate) fn leaf(&mut self, name: &str, attributes: &[Pair<'_>], text: &str) {
        self.start(name, attributes);
        self::text(text, &mut self.written);
        self.end(name);
    }

    /// Writes an element that is written already.
    pub(crate) fn element(&mut self, xml: &str) {
        self.line();
        self.written.push_str(xml);
    }

    /// Returns the number of bytes written.
    pub(crate) fn length(&self) -> usize {
        self.written.len()
    }

    /// Removes what was written after a length, which must be complete elements.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.written.truncate(length);
    }

    /// Returns the document with a final newline.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.into_text().into_bytes()
    }

    /// Returns the document with a final newline, as text.
    pub(crate) fn into_text(mut self) -> String {
        self.written.push('\n');
        self.written
    }

    fn start(&mut self, name: &str, attributes: &[Pair<'_>]) {
        self.line();
        self.written.push('<');
        self.written.push_str(name);
        for (key, value) in attributes {
            attribute(key, value, &mut self.written);
        }
        self.written.push('>');
    }

    fn end(&mut self, name: &str) {
        self.written.push_str("</");
        self.written.push_str(name);
        self.written.push('>');
    }

    fn line(&mut self) {
        self.written.push('\n');
        (0..self.depth).for_each(|_| self.written.push_str("  "));
    }
}

/// Appends an attribute with white space before it. The value has only characters that XML allows.
pub(crate) fn attribute(name: &str, value: &str, written: &mut String) {
    written.extend([" ", name, "=\""]);
    escape(value, is_special_in_attribute, written);
    written.push('"');
}

/// Appends text, which has only characters that XML allows.
pub(crate) fn text(text: &str, written: &mut String) {
    escape(text, is_special_in_text, written);
}

/// Returns whether a byte must be escaped in text. A literal carriage return would be read as a newline (XML
/// 1.0 section 2.11), and a literal `>` could complete the sequence `]]>`.
fn is_special_in_text(byte: u8) -> bool {
    matches!(byte, b'&' | b'<' | b'>' | b'\r')
}

/// Returns whether a byte must be escaped in an attribute, where literal white space would be read as spaces
/// (XML 1.0 section 3.3.3).
fn is_special_in_attribute(byte: u8) -> bool {
    is_special_in_text(byte) || matches!(byte, b'"' | b'\n' | b'\t')
}

/// Returns the reference for a byte that must be escaped.
fn reference(byte: u8) -> &'static str {
    match byte {
        b'&' => "&amp;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        b'"' => "&quot;",
        b'\r' => "&#13;",
        b'\n' => "&#10;",
        _ => "&#9;",
    }
}

/// Escapes special bytes. They are ASCII, so slices between them are valid UTF-8.
fn escape(raw: &str, is_special: impl Fn(u8) -> bool, escaped: &mut String) {
    // Hardly any value has a special byte. Testing all bytes is faster than stopping at the first, because it
    // is vectorized.
    if !raw.bytes().fold(false, |any, byte| any | is_special(byte)) {
        escaped.push_str(raw);
        return;
    }
    let mut rest = raw;
    while let Some(at) = rest.bytes().position(&is_special) {
        escaped.push_str(&rest[..at]);
        escaped.push_str(reference(rest.as_bytes()[at]));
        rest = &rest[at + 1..];
    }
    escaped.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::XmlWriter;

    #[test]
    fn escaped_values_round_trip() {
        let mut writer = XmlWriter::document(0);
        writer.open("a", &[("b", "\"<é>'&\r\n\t")]);
        writer.leaf("c", &[], "]]> \"&\r\n\tü");
        writer.leaf("d", &[], "");
        writer.close("a");
        assert_eq!(
            String::from_utf8(writer.finish()).unwrap(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <a b=\"&quot;&lt;é&gt;'&amp;&#13;&#10;&#9;\">\n  \
             <c>]]&gt; \"&amp;&#13;\n\tü</c>\n  <d></d>\n</a>\n"
        );
    }
}
