//! A file of a dataset that is archived.

use axum::http::HeaderMap;

use crate::{
    files::StoredFile,
    format::fileset::message::{FileMeta, ManifestFile},
    model::Timestamp,
    transfer::Redirection,
};

/// A file of a dataset in the file store.
#[derive(Clone, Debug)]
pub(super) struct ArchivedFile {
    /// Entry of the manifest, with the digests of the bytes.
    pub(super) manifest: ManifestFile,
    pub(super) stored: StoredFile,
    /// Headers of the response, and its time.
    pub(super) headers: HeaderMap,
    pub(super) time: Timestamp,
    /// Redirections before it.
    pub(super) redirections: Vec<Redirection>,
}

impl ArchivedFile {
    /// Returns the facts about the bytes.
    pub(super) fn meta(&self) -> FileMeta {
        let ManifestFile { md5, sha1, sha256, mimetype, .. } = self.manifest.clone();
        FileMeta {
            size_bytes: self.stored.size,
            md5hex: md5.unwrap_or_default(),
            sha1hex: sha1.unwrap_or_default(),
            sha256hex: sha256.unwrap_or_default(),
            mimetype,
        }
    }
}
