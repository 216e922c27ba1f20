//! Streaming parser of N-Triples (RDF 1.1). A container may have more triples than fit in memory, so lines are
//! parsed as they arrive.

/// Maximum length of a line, in bytes. A longer line contains a long literal, which the crawl does not need.
const LONGEST_LINE: usize = 16 * 1024;

/// The object of a triple.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Object<'l> {
    /// An IRI.
    Resource(&'l str),
    /// A literal. Literals with escapes are skipped.
    Text(&'l str),
}

/// Splits chunks of a body into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    is_too_long: bool,
}

impl Lines {
    /// Calls `line` for each line that ends in this chunk.
    pub(super) fn push(&mut self, piece: &[u8], mut line: impl FnMut(&str)) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.partial.len() + part.len() > LONGEST_LINE {
                self.partial.clear();
                self.is_too_long = true;
            } else if !self.is_too_long {
                self.partial.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end(&mut line);
            }
        }
    }

    /// Calls `line` for the last line, which may have no line feed.
    pub(super) fn finish(mut self, mut line: impl FnMut(&str)) {
        self.end(&mut line);
    }

    fn end(&mut self, line: &mut impl FnMut(&str)) {
        if let Ok(text) = std::str::from_utf8(&self.partial)
            && !text.trim().is_empty()
        {
            line(text.trim());
        }
        self.partial.clear();
        self.is_too_long = false;
    }
}

/// Returns the subject, predicate and object of a line; `None` if one of them is a blank node or has escapes.
pub(super) fn triple(line: &str) -> Option<(&str, &str, Object<'_>)> {
    let (subject, rest) = resource(line)?;
    let (predicate, rest) = resource(rest)?;
    if let Some((object, _)) = resource(rest) {
        return Some((subject, predicate, Object::Resource(object)));
    }
    let (text, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    (!text.contains('\\')).then_some((subject, predicate, Object::Text(text)))
}

/// Returns an IRI in angle brackets and the rest of the line. IRIs with escapes are skipped, because URLs do
/// not need them.
fn resource(text: &str) -> Option<(&str, &str)> {
    let (resource, rest) = text.trim_start().strip_prefix('<')?.split_once('>')?;
    (!resource.contains('\\')).then_some((resource, rest))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_LINE, Lines, Object, triple};

    #[test]
    fn lines_are_assembled_from_any_chunks() {
        let long = "x".repeat(LONGEST_LINE + 1);
        let text = format!("a\r\nbb\n\n{long}\ncé\n{long}");
        for size in [1, 2, 3, 7, 1024, text.len()] {
            let (mut lines, mut lines_seen) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.push(piece, |line| lines_seen.push(line.to_owned()));
            }
            lines.finish(|line| lines_seen.push(line.to_owned()));
            assert_eq!(lines_seen, ["a", "bb", "cé"], "in pieces of {size}");
        }
    }

    #[test]
    fn triple_is_split_into_three_parts() {
        assert_eq!(
            triple("<http://h/a> <p:q> <http://h/b> ."),
            Some(("http://h/a", "p:q", Object::Resource("http://h/b")))
        );
        let number = r#"<http://h/a> <p:q> "12"^^<http://www.w3.org/2001/XMLSchema#long> ."#;
        assert_eq!(triple(number), Some(("http://h/a", "p:q", Object::Text("12"))));
        for line in
            ["_:b0 <p:q> <http://h/b> .", "# a comment", "<http://h/a> <p:q> _:b1 .", r#"<a:b> <p:q> "a\"b" ."#, ""]
        {
            assert_eq!(triple(line), None, "{line}");
        }
    }
}
