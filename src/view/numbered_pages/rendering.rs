//! A document that is being written: its place in the stream, and the URLs of the others.

use super::{ChangeStream, DocumentName, Names, NumberedPages, with_query};
use crate::model::Seq;

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
    pub(super) path: &'static str,
    pub(super) names: Names,
}

impl Rendering<'_> {
    /// Returns the URL of a document.
    pub(in crate::view) fn url(&self, document: DocumentName) -> String {
        let Self { stream, base, path, names, .. } = self;
        with_query(&format!("{base}{path}/{}/{}", stream.id, names.of(document)), &stream.query)
    }

    /// Returns the URL of a document, relative to that of any other.
    pub(in crate::view) fn relative_url(&self, document: DocumentName) -> String {
        with_query(&self.names.of(document), &self.stream.query)
    }
}
