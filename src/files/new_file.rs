//! Files that are being written.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, WriteMultipart, path::Path};

use super::{FileDigest, FileFacts, FileHasher, FileStoreError, found};

/// Size of the parts that are written at once, in bytes: the minimum of S3.
const PART_BYTES: usize = 5 * 1024 * 1024;

/// Maximum number of parts in memory.
const PARTS: usize = 2;

/// A file that is being written. Dropping it removes what was written.
pub struct NewFile {
    objects: Arc<dyn ObjectStore>,
    name: Path,
    upload: WriteMultipart,
    hasher: FileHasher,
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
        Self { objects, name, upload, hasher: FileHasher::default() }
    }

    /// Returns the number of bytes that were written.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.hasher.size
    }

    /// Appends bytes. Waits while too much is in memory.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), FileStoreError> {
        self.hasher.update(&piece);
        self.upload.wait_for_capacity(PARTS).await?;
        self.upload.put(piece);
        Ok(())
    }

    /// Moves the file to its name. It is on disk on return.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn finish(self) -> Result<StoredFile, FileStoreError> {
        let Self { objects, name, upload, hasher } = self;
        upload.finish().await?;
        let FileFacts { digest, size, media_type } = hasher.finish();
        let is_new = found(objects.head(&digest.path()).await)?.is_none();
        if is_new {
            objects.rename(&name, &digest.path()).await?;
        } else {
            objects.delete(&name).await?;
        }
        Ok(StoredFile { digest, size, media_type, is_new })
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn abort(self) -> Result<(), FileStoreError> {
        Ok(self.upload.abort().await?)
    }
}
