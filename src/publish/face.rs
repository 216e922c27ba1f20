//! A face that can be published, and its documents.

use super::Edition;
use crate::web::{Problem, Representation};

/// Maximum number of closed documents that [`Face::closed`] lists at once.
pub const LISTED: usize = 1000;

/// Number of hexadecimal digits of a digest in the name of a file.
const DIGEST_DIGITS: usize = 64;

/// Name of a document, before it is rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentName {
    /// Path of the file, relative to the copy: names of letters, digits, `.`, `-` and `_`, separated by `/`.
    pub path: String,
    /// Number of a closed document; `None` if the document is open or fixed.
    pub number: Option<u64>,
    /// Whether the bytes never change as long as the face lists the document so: it is rendered and written once.
    pub is_fixed: bool,
}

/// Names of all faces that a copy can have. Each has a folder of this name.
pub(crate) const FACES: [&str; 5] = ["feed", "segments", "iiif", "ldes", "resourcesync"];

/// Folder of documents that readers find without a link (RFC 8615).
pub(super) const WELL_KNOWN: &str = ".well-known";

/// Returns whether a path is that of a document of a face beside its folder: `FACE.EXTENSION` or `.well-known/FACE`.
pub(super) fn is_entry(path: &str, face: &str) -> bool {
    let name = path.strip_prefix(WELL_KNOWN).and_then(|path| path.strip_prefix('/'));
    name == Some(face) || path.split_once('.').is_some_and(|(stem, extension)| stem == face && !extension.contains('/'))
}

/// A face whose documents can be files.
///
/// There are three kinds of documents:
/// * A *closed* document never changes. It has a number, which grows with the journal. Its path is [`Edition::folder`], an
///   optional word with `-`, the number, and an extension: `feed/0123456789abcdef/7.atom`,
///   `iiif/0123456789abcdef/page-7.json`.
/// * A *fixed* document never changes either, but leaves the copy when the face lists it no longer. Its path can have further
///   numbers and a SHA-256 after the first number, each with a `-`: `segments/0123456789abcdef/1-….ndjson.zst`.
/// * An *open* document changes with the journal.
///
/// A document may have the same path while it is open and when it is closed or fixed.
///
/// The functions run on a blocking thread.
pub trait Face: Send + Sync {
    /// Returns the name: the first folder of the closed documents, in small letters. No two faces have the same.
    fn name(&self) -> &'static str;

    /// Returns the word before the numbers of closed documents; empty if there is none. Documents in the same folder that never
    /// become closed have another word.
    fn closed_word(&self) -> &'static str;

    /// Returns a digest of the settings, and of the version of the rendering, that closed documents depend on.
    fn fingerprint(&self) -> String;

    /// Returns whether rendering can read the whole registry. Such documents are rendered beside feeds, and delay none.
    fn renders_lists(&self) -> bool {
        false
    }

    /// Returns the number of the first closed document that the edition has. Retention has removed the changes of those
    /// before it. A run begins with this call.
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

    /// Lists the fixed and the open documents, once in a run.
    ///
    /// A run writes files that are not there before it replaces others, and both in the order of the lists. So a document may
    /// link to closed ones, to those before it in the list, and to files that were not there before the run.
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

    /// Returns the name of a fixed document. One that is no longer listed stays for an hour, for readers of the former lists.
    #[must_use]
    pub fn fixed(path: impl Into<String>) -> Self {
        Self { path: path.into(), number: None, is_fixed: true }
    }
}

/// A file in the folder of an edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EditionFile<'p> {
    /// Folder of the edition.
    pub(super) folder: &'p str,
    /// Word before the first number; empty if there is none.
    pub(super) word: &'p str,
    /// Number of the document; `None` if the name has further numbers or a digest, as only fixed documents have.
    pub(super) number: Option<u64>,
}

/// Parses the path of a file in the folder of an edition; `None` if no face has such documents. The publisher removes only files
/// with such paths, and documents that the index names.
pub(super) fn edition_file(path: &str) -> Option<EditionFile<'_>> {
    let (folder, file) = path.rsplit_once('/')?;
    let (stem, extension) = file.split_once('.')?;
    let is_of_edition = folder.contains('/') && may_have_closed(folder);
    (is_of_edition && extension.split('.').all(is_word)).then_some(())?;
    let (word, numbers) = stem.split_once('-').filter(|(word, _)| is_word(word)).unwrap_or(("", stem));
    let (number, more) = numbers.split_once('-').map_or((numbers, None), |(number, more)| (number, Some(more)));
    let number = Some(number).filter(|number| is_number(number))?.parse().ok()?;
    match more {
        None => Some(EditionFile { folder, word, number: Some(number) }),
        Some(more) => {
            let is_own = more.split('-').all(|part| is_number(part) || (part.len() == DIGEST_DIGITS && is_hex(part)));
            is_own.then_some(EditionFile { folder, word, number: None })
        }
    }
}

/// Returns whether a folder can be that of a face, or of one of its editions.
pub(super) fn may_have_closed(folder: &str) -> bool {
    let is_edition = |edition: &str| edition.len() == 16 && is_hex(edition);
    folder.split_once('/').map_or_else(|| is_word(folder), |(face, edition)| is_word(face) && is_edition(edition))
}

/// Returns whether a text is a word of small letters. An extension such as `7z` is none.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::{EditionFile, edition_file, is_entry};

    #[test]
    fn documents_beside_the_folder_of_a_face_have_its_name() {
        for path in ["feed.atom", "feed.css", ".well-known/feed"] {
            assert!(is_entry(path, "feed"), "{path}");
        }
        for path in [
            "feeds.atom",
            "feed",
            "robots.txt",
            "publication.json",
            "feed.d/notes",
            ".well-known/feed/a",
            "well-known/feed",
        ] {
            assert!(!is_entry(path, "feed"), "{path}");
        }
    }

    #[test]
    fn only_paths_of_documents_of_an_edition_are_recognized() {
        let folder = "feed/0123456789abcdef";
        let digest = "0123456789abcdef".repeat(4);
        let segment = format!("00000000000000000001-{digest}.ndjson.zst");
        for (file, word, number) in [
            ("7.atom", "", Some(7)),
            ("10.atom.gz", "", Some(10)),
            ("page-3.json", "page", Some(3)),
            ("00000000000000000001.ndjson.zst", "", Some(1)),
            ("resourcelist-1764000000000000-0000000000000007-0000000000000005-000000000006.xml", "resourcelist", None),
            (segment.as_str(), "", None),
        ] {
            let path = format!("{folder}/{file}");
            assert_eq!(edition_file(&path), Some(EditionFile { folder, word, number }), "{file}");
        }
        for path in [
            "feed/0123456789abcdef/notes.txt",
            "feed/0123456789abcdef/7",
            "feed/0123456789abcdef/7.ATOM",
            "feed/0123456789abcdef/7-a.atom",
            "feed/0123456789abcdef/7-.atom",
            "feed/0123456789abcdef/my-page-7.atom",
            "feed/0123456789abcdef/more/7.atom",
            "feed/0123456789ABCDEF/7.atom",
            "feed/0123/7.atom",
            "0123456789abcdef/7.atom",
            "7.atom",
        ] {
            assert_eq!(edition_file(path), None::<EditionFile<'_>>, "{path}");
        }
    }
}
