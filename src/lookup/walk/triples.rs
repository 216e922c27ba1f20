//! N-Triples (RDF 1.1), line by line as they come: a container may have more of them than are to be held.

/// The longest line that is looked at, in bytes; a longer one has a text in it, and nothing that is wanted here.
const LONGEST_LINE: usize = 16 * 1024;

/// What stands in the place of a triple's object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Object<'l> {
    /// A resource.
    Resource(&'l str),
    /// A text; one with escapes in it is left out.
    Text(&'l str),
}

/// Takes pieces of a body and gives its lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
    is_too_long: bool,
}

impl Lines {
    /// Gives each line that ends in this piece.
    pub(super) fn take(&mut self, piece: &[u8], mut line: impl FnMut(&str)) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.begun.len() + part.len() > LONGEST_LINE {
                self.begun.clear();
                self.is_too_long = true;
            } else if !self.is_too_long {
                self.begun.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end(&mut line);
            }
        }
    }

    /// Gives the last line, which need not end.
    pub(super) fn finish(mut self, mut line: impl FnMut(&str)) {
        self.end(&mut line);
    }

    fn end(&mut self, line: &mut impl FnMut(&str)) {
        if let Ok(text) = std::str::from_utf8(&self.begun)
            && !text.trim().is_empty()
        {
            line(text.trim());
        }
        self.begun.clear();
        self.is_too_long = false;
    }
}

/// The subject, the predicate and the object of a line; `None` where it has no such, as one about a blank node.
pub(super) fn triple(line: &str) -> Option<(&str, &str, Object<'_>)> {
    let (subject, rest) = resource(line)?;
    let (predicate, rest) = resource(rest)?;
    if let Some((object, _)) = resource(rest) {
        return Some((subject, predicate, Object::Resource(object)));
    }
    let (text, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    (!text.contains('\\')).then_some((subject, predicate, Object::Text(text)))
}

/// A resource in angle brackets, and what follows. One with escapes in it is left out: no URL needs them.
fn resource(text: &str) -> Option<(&str, &str)> {
    let (resource, rest) = text.trim_start().strip_prefix('<')?.split_once('>')?;
    (!resource.contains('\\')).then_some((resource, rest))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_LINE, Lines, Object, triple};

    #[test]
    fn lines_are_put_together_from_any_pieces() {
        let long = "x".repeat(LONGEST_LINE + 1);
        let text = format!("a\r\nbb\n\n{long}\ncé\n{long}");
        for size in [1, 2, 3, 7, 1024, text.len()] {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.take(piece, |line| seen.push(line.to_owned()));
            }
            lines.finish(|line| seen.push(line.to_owned()));
            assert_eq!(seen, ["a", "bb", "cé"], "in pieces of {size}");
        }
    }

    #[test]
    fn a_triple_has_three_parts() {
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
