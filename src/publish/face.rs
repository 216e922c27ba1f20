//! A face that can be published, and its documents.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    model::{ReaderView, Seq},
    web::{Problem, Representation},
};

/// The journal at one moment, as the readers of the copy may see it.
#[derive(Clone, Debug)]
pub struct Edition {
    /// Identity of the journal.
    pub journal: Uuid,
    /// Number of the newest change.
    pub head: Seq,
    /// Number of the oldest change.
    pub first: Seq,
    /// Part of the journal that the readers may see; `None` for everything.
    pub view: Option<Arc<ReaderView>>,
    /// URL of the copy, without a trailing slash.
    pub url: String,
    /// Folder of the closed documents, relative to the copy. Its name is a digest of everything except the changes that
    /// these documents depend on, so another view, title or journal makes other files and changes none.
    pub folder: String,
}

/// A document as a file.
#[derive(Clone, Debug)]
pub struct Document {
    /// Path of the file, relative to the copy: names of letters, digits, `.`, `-` and `_`, separated by `/`.
    pub name: String,
    /// The document, also compressed.
    pub content: Representation,
}

/// A face whose documents can be files. Closed documents have numbers, which grow with the journal. The functions run on
/// a blocking thread.
pub trait Face: Send + Sync {
    /// Returns the name: the folder of the face, a part of no other name.
    fn name(&self) -> &'static str;

    /// Returns a digest of the settings, and of the version of the rendering, that closed documents depend on.
    fn fingerprint(&self) -> String;

    /// Returns the number of the first closed document that the edition has. Retention has removed the changes of those
    /// before it.
    fn first_closed(&self, edition: &Edition) -> u64;

    /// Returns the number of the next closed document of the edition after a number; `None` if the others are open.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    fn next_closed(&self, edition: &Edition, after: u64) -> Result<Option<u64>, Problem>;

    /// Returns the name of the last document of a closed number: [`Edition::folder`], the number and an extension. A number
    /// whose last document is there is complete.
    fn closed_name(&self, edition: &Edition, number: u64) -> String;

    /// Renders the documents of a closed number, in the order in which they are written.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or a document is larger than the spool allows.
    fn closed(&self, edition: &Edition, number: u64) -> Result<Vec<Document>, Problem>;

    /// Renders the open documents, in the order in which they are written. They may link to all closed documents, and to
    /// the open ones before them.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or a document is larger than the spool allows.
    fn open(&self, edition: &Edition) -> Result<Vec<Document>, Problem>;
}
