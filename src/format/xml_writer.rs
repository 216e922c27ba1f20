//! Writing XML in one pass: quick-xml's writer, indented as the 0.1 page is, with every value
//! escaped so that a reader gets back the same characters.

use quick_xml::{
    Writer,
    events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event},
};

/// An attribute: name and value.
pub(super) type Pair<'a> = (&'a str, &'a str);

/// A document being written from front to back.
pub(super) struct XmlWriter {
    writer: Writer<Vec<u8>>,
    /// What is written next, put together here so that no element needs memory of its own.
    scratch: String,
}

impl XmlWriter {
    /// Begins a document that will have about `size` bytes.
    pub(super) fn document(size: usize) -> Self {
        let writer = Writer::new_with_indent(Vec::with_capacity(size), b' ', 2);
        let mut document = Self { writer, scratch: String::with_capacity(512) };
        document.event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        document
    }

    /// Begins an element that has other elements in it.
    pub(super) fn open(&mut self, name: &str, attributes: &[Pair<'_>]) {
        let mut tag = std::mem::take(&mut self.scratch);
        tag.clear();
        tag.push_str(name);
        for (key, value) in attributes {
            tag.push(' ');
            tag.push_str(key);
            tag.push_str("=\"");
            escape(value, &ATTRIBUTE, &mut tag);
            tag.push('"');
        }
        self.event(Event::Start(BytesStart::from_content(tag.as_str(), name.len())));
        self.scratch = tag;
    }

    /// Ends the element begun last.
    pub(super) fn close(&mut self, name: &str) {
        self.event(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element that has text in it, or nothing; it is never self-closed, as on the 0.1 page.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[Pair<'_>], text: &str) {
        self.open(name, attributes);
        let mut escaped = std::mem::take(&mut self.scratch);
        escaped.clear();
        escape(text, &TEXT, &mut escaped);
        self.event(Event::Text(BytesText::from_escaped(escaped.as_str())));
        self.scratch = escaped;
        self.close(name);
    }

    /// The document, with a newline at its end, as a text file has.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = self.writer.into_inner();
        bytes.push(b'\n');
        bytes
    }

    #[expect(clippy::expect_used, reason = "a Vec<u8> takes whatever is written to it")]
    fn event(&mut self, event: Event<'_>) {
        self.writer.write_event(event).expect("a Vec<u8> takes whatever is written to it");
    }
}

/// Which bytes are not written as they are.
type Special = [bool; 256];

/// In text. A carriage return written as it is would be read as a newline (XML 1.0 section 2.11), and
/// `>` could end a CDATA section that never began.
const TEXT: Special = special(b"&<>\r");

/// In an attribute, where white space written as it is would be read as a space (XML 1.0 section
/// 3.3.3).
const ATTRIBUTE: Special = special(b"&<>\r\"\n\t");

const fn special(bytes: &[u8]) -> Special {
    let mut special = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        special[bytes[at] as usize] = true;
        at += 1;
    }
    special
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
fn escape(raw: &str, special: &Special, escaped: &mut String) {
    let mut rest = raw;
    while let Some(at) = rest.bytes().position(|byte| special[usize::from(byte)]) {
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
