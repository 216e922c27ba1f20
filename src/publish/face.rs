//! A face that can be published, and its documents.

use super::Edition;
use crate::web::{Problem, Representation};

/// Maximum number of closed documents that [`Face::closed`] lists at once.
pub const LISTED: usize = 1000;

/// Name of a document, before it is rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentName {
    /// Path of the file, relative to the copy: names of letters, digits, `.`, `-` and `_`, separated by `/`.
    pub path: String,
    /// Number of a closed document; `None` if the document is open.
    pub number: Option<u64>,
    /// Whether the bytes at this path never change, although the document is not closed: it is rendered and written once.
    pub is_fixed: bool,
}

/// A face whose documents can be files.
///
/// A *closed* document never changes. It has a number, which grows with the journal, and its path is [`Edition::folder`], an
/// optional word with `-`, the number, and an extension: `feed/0123456789abcdef/7.atom`, `iiif/0123456789abcdef/page-7.json`.
/// An *open* document changes with the journal. A document may have the same path while it is open and when it is closed.
///
/// The functions run on a blocking thread.
pub trait Face: Send + Sync {
    /// Returns the name: the first folder of the closed documents, in small letters. No two faces have the same.
    fn name(&self) -> &'static str;

    /// Returns a digest of the settings, and of the version of the rendering, that closed documents depend on.
    fn fingerprint(&self) -> String;

    /// Returns the number of the first closed document that the edition has. Retention has removed the changes of those
    /// before it.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    fn first(&self, edition: &Edition) -> Result<u64, Problem>;

    /// Lists closed documents of the edition, in the order of their numbers: up to [`LISTED`] after a number. None if there are
    /// no more.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem>;

    /// Lists the open documents, in the order in which they are written. They may link to all closed documents, and to the open
    /// ones before them.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    fn open(&self, edition: &Edition) -> Result<Vec<DocumentName>, Problem>;

    /// Renders a document that the face has listed.
    ///
    /// # Errors
    /// `gone` if retention has removed its changes meanwhile. Fails if the journal cannot be read, or the document is larger
    /// than the spool allows.
    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem>;
}

impl DocumentName {
    /// Returns the name of a closed document.
    #[must_use]
    pub fn closed(path: String, number: u64) -> Self {
        Self { path, number: Some(number), is_fixed: true }
    }

    /// Returns the name of an open document.
    #[must_use]
    pub fn open(path: impl Into<String>) -> Self {
        Self { path: path.into(), number: None, is_fixed: false }
    }

    /// Returns the name of an open document whose bytes never change. It is removed when it is no longer listed.
    #[must_use]
    pub fn fixed(path: impl Into<String>) -> Self {
        Self { path: path.into(), number: None, is_fixed: true }
    }
}

/// Returns the folder and the number of a closed document of a face, by the path of its file; `None` if no face has such
/// documents. Only files with such paths are ever removed from the folder of a face.
pub(super) fn closed_document(path: &str) -> Option<(&str, u64)> {
    let (folder, file) = path.rsplit_once('/')?;
    let is_of_edition = folder.contains('/') && may_have_closed(folder);
    let (stem, extension) = file.split_once('.')?;
    let number = stem.rsplit_once('-').map_or(stem, |(word, number)| if is_word(word) { number } else { stem });
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_own = is_of_edition && is_number && extension.split('.').all(is_word);
    is_own.then_some(())?;
    Some((folder, number.parse().ok()?))
}

/// Returns whether a folder can be that of a face, or of one of its editions.
pub(super) fn may_have_closed(folder: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_edition = |edition: &str| edition.len() == 16 && edition.bytes().all(is_digit);
    folder.split_once('/').map_or_else(|| is_word(folder), |(face, edition)| is_word(face) && is_edition(edition))
}

/// Returns whether a text is a word of small letters. An extension such as `7z` is none.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::closed_document;

    #[test]
    fn only_paths_of_closed_documents_are_recognized() {
        let folder = "feed/0123456789abcdef";
        for (file, number) in
            [("7.atom", 7), ("10.atom.gz", 10), ("page-3.json", 3), ("00000000000000000001.ndjson.zst", 1)]
        {
            assert_eq!(closed_document(&format!("{folder}/{file}")), Some((folder, number)), "{file}");
        }
        for path in [
            "feed/0123456789abcdef/notes.txt",
            "feed/0123456789abcdef/7",
            "feed/0123456789abcdef/7.ATOM",
            "feed/0123456789abcdef/7-a.atom",
            "feed/0123456789abcdef/my-page-7.atom",
            "feed/0123456789abcdef/more/7.atom",
            "feed/0123456789ABCDEF/7.atom",
            "feed/0123/7.atom",
            "0123456789abcdef/7.atom",
            "7.atom",
        ] {
            assert_eq!(closed_document(path), None, "{path}");
        }
    }
}
