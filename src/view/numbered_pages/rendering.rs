//! A document that is being written: its place in the stream, and the URLs of the others.

use super::{ChangeStream, DocumentName, Names, NumberedPages, with_query};
use crate::{model::Seq, publish::Edition};

/// A document that is being written.
pub(in crate::view) struct Rendering<'a> {
    pub(in crate::view) stream: &'a ChangeStream,
    pub(in crate::view) pages: NumberedPages,
    /// Number of the first change that retention does not remove soon.
    pub(in crate::view) first_linked: Seq,
    /// Oldest page that other documents link to: that of this change.
    pub(in crate::view) oldest: u64,
    pub(in crate::view) document: DocumentName,
    /// URL of the gateway, without a trailing slash.
    pub(in crate::view) base: &'a str,
    pub(super) urls: &'a DocumentUrls,
}

impl Rendering<'_> {
    /// Returns the URL of a document.
    pub(in crate::view) fn url(&self, document: DocumentName) -> String {
        self.urls.url(document)
    }

    /// Returns the URL of a document, relative to that of this one.
    pub(in crate::view) fn relative_url(&self, document: DocumentName) -> String {
        self.urls.relative(self.document, document)
    }
}

/// URLs of the documents of a stream.
#[derive(Clone, Debug)]
pub(super) struct DocumentUrls {
    names: Names,
    /// Query of the filter, without a question mark.
    query: String,
    /// URL of the folder of the first document, with a trailing slash.
    entry_folder: String,
    /// URL of the folder of the other documents, with a trailing slash.
    folder: String,
    /// The folder of the others, relative to that of the first document, and the other way round.
    from_entry: String,
    to_entry: &'static str,
}

impl DocumentUrls {
    /// Returns the URLs of a stream at the gateway, whose URL is `base`: the identity of the stream is a folder.
    pub(super) fn at_gateway(base: &str, path: &str, names: Names, stream: &ChangeStream) -> Self {
        let folder = format!("{base}{path}/{}/", stream.id);
        let query = stream.query.clone();
        Self { names, query, entry_folder: folder.clone(), folder, from_entry: String::new(), to_entry: "" }
    }

    /// Returns the URLs of the documents of a face in a published copy: the first document has one URL in all editions.
    pub(super) fn in_copy(edition: &Edition, face: &str, names: Names) -> Self {
        let Edition { url, folder, .. } = edition;
        let from_entry = folder.strip_prefix(face).unwrap_or(folder).trim_start_matches('/');
        Self {
            names,
            query: String::new(),
            entry_folder: format!("{url}/{face}/"),
            folder: format!("{url}/{folder}/"),
            from_entry: format!("{from_entry}/"),
            to_entry: "../",
        }
    }

    /// Returns the URL of a document.
    pub(super) fn url(&self, document: DocumentName) -> String {
        let folder = if document == DocumentName::Entry { &self.entry_folder } else { &self.folder };
        with_query(&format!("{folder}{}", self.names.of(document)), &self.query)
    }

    fn relative(&self, from: DocumentName, to: DocumentName) -> String {
        let folder = match (from, to) {
            (DocumentName::Entry, DocumentName::Entry) => "",
            (DocumentName::Entry, _) => &self.from_entry,
            (_, DocumentName::Entry) => self.to_entry,
            _ => "",
        };
        with_query(&format!("{folder}{}", self.names.of(to)), &self.query)
    }
}
