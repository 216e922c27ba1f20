//! Files that are being written.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, WriteMultipart, path::Path};
use sha2::{Digest, Sha256};

use super::{FileDigest, FileStoreError, found};

/// Size of the parts that are written at once, in bytes: the minimum of S3.
const PART_BYTES: usize = 5 * 1024 * 1024;

/// Maximum number of parts in memory.
const PARTS: usize = 2;

/// Number of first bytes that the media type is recognized from.
const HEAD_BYTES: usize = 8 * 1024;

/// A file that is being written. Dropping it removes what was written.
pub struct NewFile {
    objects: Arc<dyn ObjectStore>,
    name: Path,
    upload: WriteMultipart,
    hash: Sha256,
    size: u64,
    head: Vec<u8>,
}

/// A file in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its name.
    pub digest: FileDigest,
    /// Size in bytes.
    pub size: u64,
    /// Media type by its first bytes; `None` if they are not characteristic, as in plain text.
    pub media_type: Option<&'static str>,
    /// Whether the store did not have it.
    pub is_new: bool,
}

impl NewFile {
    pub(super) fn new(objects: Arc<dyn ObjectStore>, name: Path, upload: Box<dyn MultipartUpload>) -> Self {
        let upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        Self { objects, name, upload, hash: Sha256::default(), size: 0, head: Vec::new() }
    }

    /// Returns the number of bytes that were written.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends bytes. Waits while too much is in memory.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), FileStoreError> {
        self.hash.update(&piece);
        self.size += piece.len() as u64;
        let missing = HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&piece[..piece.len().min(missing)]);
        self.upload.wait_for_capacity(PARTS).await?;
        self.upload.put(piece);
        Ok(())
    }

    /// Moves the file to its name. It is on disk on return.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn finish(self) -> Result<StoredFile, FileStoreError> {
        let Self { objects, name, upload, hash, size, head } = self;
        upload.finish().await?;
        let digest = FileDigest::new(hash.finalize().into());
        let is_new = found(objects.head(&digest.path()).await)?.is_none();
        if is_new {
            objects.rename(&name, &digest.path()).await?;
        } else {
            objects.delete(&name).await?;
        }
        Ok(StoredFile { digest, size, media_type: media_type(&head), is_new })
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn abort(self) -> Result<(), FileStoreError> {
        Ok(self.upload.abort().await?)
    }
}

/// Recognizes the media type of a file by its first bytes. Text, HTML and XML have no characteristic bytes that a browser
/// and the gateway would read in the same way, so they get none.
#[must_use]
pub(super) fn media_type(head: &[u8]) -> Option<&'static str> {
    let kind = infer::get(head)?;
    (kind.matcher_type() != infer::MatcherType::Text).then(|| kind.mime_type())
}
