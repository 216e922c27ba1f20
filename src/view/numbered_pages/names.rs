//! Names of the documents of a protocol: the last parts of their URLs, and the names of their files.

/// Words before the numbers of pages and of blocks.
pub(super) const PAGE_WORD: &str = "page";
const BLOCK_WORD: &str = "block";

/// Names of the documents of a protocol.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct Names {
    /// Name of the first document, without its extension.
    pub(in crate::view) entry: &'static str,
    /// Extension of all names.
    pub(in crate::view) extension: &'static str,
    /// Whether there are blocks between the first document and the pages.
    pub(in crate::view) blocks: bool,
}

/// Name of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::view) enum DocumentName {
    /// The first document, from which all others are reached.
    Entry,
    /// A document that links to a block of pages.
    Block(u64),
    /// A page.
    Page(u64),
}

impl Names {
    /// Parses the name of a document.
    pub(super) fn parse(self, name: &str) -> Option<DocumentName> {
        let stem = name.strip_suffix(self.extension)?.strip_suffix('.')?;
        if stem == self.entry {
            return Some(DocumentName::Entry);
        }
        let (kind, number) = stem.split_once('-')?;
        // One spelling for each document.
        let number = number.parse::<u64>().ok().filter(|parsed| parsed.to_string() == number)?;
        match kind {
            PAGE_WORD => Some(DocumentName::Page(number)),
            BLOCK_WORD if self.blocks => Some(DocumentName::Block(number)),
            _ => None,
        }
    }

    /// Returns the name of a document: that of a file.
    pub(in crate::view) fn of(self, document: DocumentName) -> String {
        let extension = self.extension;
        match document {
            DocumentName::Entry => format!("{}.{extension}", self.entry),
            DocumentName::Block(number) => format!("{BLOCK_WORD}-{number}.{extension}"),
            DocumentName::Page(number) => format!("{PAGE_WORD}-{number}.{extension}"),
        }
    }
}

/// Appends the query of a filter to a URL.
pub(in crate::view) fn with_query(url: &str, query: &str) -> String {
    if query.is_empty() { url.to_owned() } else { format!("{url}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::{DocumentName, Names};

    #[test]
    fn each_document_has_one_name() {
        let names = Names { entry: "root", extension: "jsonld", blocks: true };
        for document in [DocumentName::Entry, DocumentName::Block(1), DocumentName::Page(1_801_000_000_000)] {
            assert_eq!(names.parse(&names.of(document)), Some(document));
        }
        for name in
            ["", "root", "root.json", "page-01.jsonld", "page-+1.jsonld", "page-.jsonld", "rootjsonld", "leaf-1.jsonld"]
        {
            assert_eq!(names.parse(name), None, "{name}");
        }
        assert_eq!(Names { blocks: false, ..names }.parse("block-1.jsonld"), None);
    }
}
