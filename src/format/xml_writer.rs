//! Writing XML in one pass: quick-xml's writer, indented as the 0.1 page is, with every value
//! escaped so that a reader gets back the same characters.

use std::borrow::Cow;

use quick_xml::{
    Writer,
    events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event, attributes::Attribute},
};

/// An attribute: name and value.
pub(super) type Pair<'a> = (&'a str, &'a str);

/// A document being written from front to back.
pub(super) struct XmlWriter(Writer<Vec<u8>>);

impl XmlWriter {
    /// Begins a document that will have about `size` bytes.
    pub(super) fn document(size: usize) -> Self {
        let mut writer = Self(Writer::new_with_indent(Vec::with_capacity(size), b' ', 2));
        writer.event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        writer
    }

    /// Begins an element that has other elements in it.
    pub(super) fn open(&mut self, name: &str, attributes: &[Pair<'_>]) {
        let mut start = BytesStart::new(name);
        for (key, value) in attributes {
            let value = escape(value, attribute_escape);
            start.push_attribute(Attribute::from((key.as_bytes(), value.as_bytes())));
        }
        self.event(Event::Start(start));
    }

    /// Ends the element begun last.
    pub(super) fn close(&mut self, name: &str) {
        self.event(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element that has text in it, or nothing; it is never self-closed, as on the 0.1 page.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[Pair<'_>], text: &str) {
        self.open(name, attributes);
        self.event(Event::Text(BytesText::from_escaped(escape(text, text_escape))));
        self.close(name);
    }

    /// The document, with a newline at its end, as a text file has.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = self.0.into_inner();
        bytes.push(b'\n');
        bytes
    }

    #[expect(clippy::expect_used, reason = "a Vec<u8> takes whatever is written to it")]
    fn event(&mut self, event: Event<'_>) {
        self.0.write_event(event).expect("a Vec<u8> takes whatever is written to it");
    }
}

/// What stands for a byte in text. A carriage return written as it is would be read as a newline
/// (XML 1.0 section 2.11), and `>` could end a CDATA section that never began.
fn text_escape(byte: u8) -> Option<&'static str> {
    match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'\r' => Some("&#13;"),
        _ => None,
    }
}

/// What stands for a byte in an attribute, where white space written as it is would be read as a
/// space (XML 1.0 section 3.3.3).
fn attribute_escape(byte: u8) -> Option<&'static str> {
    match byte {
        b'"' => Some("&quot;"),
        b'\n' => Some("&#10;"),
        b'\t' => Some("&#9;"),
        byte => text_escape(byte),
    }
}

fn escape(raw: &str, escape_of: fn(u8) -> Option<&'static str>) -> Cow<'_, str> {
    let mut escaped = Cow::Borrowed("");
    let mut copied = 0;
    for (at, byte) in raw.bytes().enumerate() {
        if let Some(written) = escape_of(byte) {
            let escaped = escaped.to_mut();
            escaped.push_str(&raw[copied..at]);
            escaped.push_str(written);
            copied = at + 1;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(raw);
    }
    escaped.to_mut().push_str(&raw[copied..]);
    escaped
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
