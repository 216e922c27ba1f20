//! Writing XML in one pass, indented as the 0.1 page is, with every value escaped so that a reader
//! gets back the same characters.
//!
//! quick-xml's writer is not used: a tag must be put together for it elsewhere and is copied, which took
//! longer than all else. Names are those of our own formats and are not checked.

/// An attribute: name and value.
pub(super) type Pair<'a> = (&'a str, &'a str);

/// A document being written from front to back.
pub(super) struct XmlWriter {
    written: String,
    /// How many elements are open.
    depth: usize,
}

impl XmlWriter {
    /// Begins a document that will have about `size` bytes.
    pub(super) fn document(size: usize) -> Self {
        let mut written = String::with_capacity(size);
        written.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        Self { written, depth: 0 }
    }

    /// Begins an element that has other elements in it.
    pub(super) fn open(&mut self, name: &str, attributes: &[Pair<'_>]) {
        self.start(name, attributes);
        self.depth += 1;
    }

    /// Ends the element begun last.
    pub(super) fn close(&mut self, name: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.line();
        self.end(name);
    }

    /// Writes an element that has text in it, or nothing; it is never self-closed, as on the 0.1 page.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[Pair<'_>], text: &str) {
        self.start(name, attributes);
        escape(text, is_special_in_text, &mut self.written);
        self.end(name);
    }

    /// The document, with a newline at its end, as a text file has.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.written.push('\n');
        self.written.into_bytes()
    }

    fn start(&mut self, name: &str, attributes: &[Pair<'_>]) {
        self.line();
        self.written.push('<');
        self.written.push_str(name);
        for (key, value) in attributes {
            self.written.push(' ');
            self.written.push_str(key);
            self.written.push_str("=\"");
            escape(value, is_special_in_attribute, &mut self.written);
            self.written.push('"');
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

/// What is not written as it is in text. A carriage return written as it is would be read as a newline
/// (XML 1.0 section 2.11), and `>` could end a CDATA section that never began.
fn is_special_in_text(byte: u8) -> bool {
    matches!(byte, b'&' | b'<' | b'>' | b'\r')
}

/// The same in an attribute, where white space written as it is would be read as a space (XML 1.0
/// section 3.3.3).
fn is_special_in_attribute(byte: u8) -> bool {
    is_special_in_text(byte) || matches!(byte, b'"' | b'\n' | b'\t')
}

/// What stands for a byte that is not written as it is.
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

/// Every special byte is ASCII, so what lies between two of them is whole characters.
fn escape(raw: &str, is_special: impl Fn(u8) -> bool, escaped: &mut String) {
    // Nearly no value has one. To look at every byte is faster than to stop at the first: several are
    // looked at at once.
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
    fn values_are_escaped_so_that_they_come_back() {
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
