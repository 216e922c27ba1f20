//! Writer of the documents: Sitemaps with the two elements of ResourceSync (section 7), entry by entry.

use std::io::{self, Write};

use crate::format::xml_writer::{Pair, attribute, text};

/// Namespace of Sitemaps.
const SITEMAP: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";

/// Namespace of ResourceSync.
const TERMS: &str = "http://www.openarchives.org/rs/terms/";

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SitemapKind {
    /// A list of resources, changes, or of other things.
    List,
    /// A list of lists.
    Index,
}

impl SitemapKind {
    /// Returns the names of the root and of an entry.
    fn elements(self) -> (&'static str, &'static str) {
        match self {
            Self::List => ("urlset", "url"),
            Self::Index => ("sitemapindex", "sitemap"),
        }
    }
}

/// Attributes of an element `rs:ln`: `rel` and `href` at least.
pub(super) type Link<'a> = &'a [Pair<'a>];

/// Writer of a document: only one entry is in memory. All values have only characters that XML allows.
pub(super) struct SitemapWriter<W> {
    kind: SitemapKind,
    entry: String,
    out: W,
}

impl<W: Write> SitemapWriter<W> {
    /// Writes the begin of a document, with its links and the attributes of its `rs:md`.
    ///
    /// # Errors
    /// Fails as `out` does.
    pub(super) fn begin(kind: SitemapKind, links: &[Link<'_>], metadata: &[Pair<'_>], out: W) -> io::Result<Self> {
        let mut writer = Self { kind, entry: String::with_capacity(1024), out };
        writer.entry.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<");
        writer.entry.push_str(kind.elements().0);
        attribute("xmlns", SITEMAP, &mut writer.entry);
        attribute("xmlns:rs", TERMS, &mut writer.entry);
        writer.entry.push_str(">\n");
        links.iter().for_each(|link| writer.empty_element("rs:ln", link));
        writer.empty_element("rs:md", metadata);
        writer.flush()?;
        Ok(writer)
    }

    /// Writes an entry: its URL, the attributes of its `rs:md` if there are any, and its links.
    ///
    /// # Errors
    /// Fails as `out` does.
    pub(super) fn entry(&mut self, loc: &str, metadata: &[Pair<'_>], links: &[Link<'_>]) -> io::Result<()> {
        let (_, name) = self.kind.elements();
        self.entry.extend(["<", name, ">\n<loc>"]);
        text(loc, &mut self.entry);
        self.entry.push_str("</loc>\n");
        if !metadata.is_empty() {
            self.empty_element("rs:md", metadata);
        }
        links.iter().for_each(|link| self.empty_element("rs:ln", link));
        self.entry.extend(["</", name, ">\n"]);
        self.flush()
    }

    /// Writes the end of the document.
    ///
    /// # Errors
    /// Fails as `out` does.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let (root, _) = self.kind.elements();
        self.entry.extend(["</", root, ">\n"]);
        self.flush()?;
        Ok(self.out)
    }

    fn empty_element(&mut self, name: &str, attributes: &[Pair<'_>]) {
        self.entry.extend(["<", name]);
        attributes.iter().for_each(|(key, value)| attribute(key, value, &mut self.entry));
        self.entry.push_str("/>\n");
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.entry.as_bytes())?;
        self.entry.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{SitemapKind, SitemapWriter};

    #[test]
    fn values_are_escaped() {
        let links: [&[_]; 1] = [&[("rel", "up"), ("href", "http://h/?a&b")]];
        let mut writer =
            SitemapWriter::begin(SitemapKind::List, &links, &[("capability", "changelist")], Vec::new()).unwrap();
        writer.entry("http://h/1?a&b='c'", &[("change", "deleted")], &[]).unwrap();
        let written = String::from_utf8(writer.finish().unwrap()).unwrap();
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
<rs:ln rel="up" href="http://h/?a&amp;b"/>
<rs:md capability="changelist"/>
<url>
<loc>http://h/1?a&amp;b='c'</loc>
<rs:md change="deleted"/>
</url>
</urlset>
"#;
        assert_eq!(written, expected);
    }
}
