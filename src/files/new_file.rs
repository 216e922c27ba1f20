//! Files that are being written.

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt, WriteMultipart, path::Path};

use super::{FileDigest, FileFacts, FileHasher, FileStore, FileStoreError};

/// Size of the parts that are written at once, in bytes: the minimum of S3.
const PART_BYTES: usize = 5 * 1024 * 1024;

/// Maximum number of parts in memory.
const PARTS: usize = 2;

/// A file that is being written. Dropping it removes what was written.
pub struct NewFile {
    store: FileStore,
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
    pub(super) fn new(store: FileStore, name: Path, upload: Box<dyn MultipartUpload>) -> Self {
        let upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        Self { store, name, upload, hasher: FileHasher::default() }
    }

    /// Returns the number of bytes that were written.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.hasher.size
    }

    /// Returns the facts about the bytes that were written.
    #[must_use]
    pub fn facts(&self) -> FileFacts {
        self.hasher.clone().finish()
    }

    /// Appends bytes. Waits while too much is in memory.
    ///
    /// # Errors
    /// Fails if the store cannot be written, or the file is too large for it.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), FileStoreError> {
        self.hasher.update(&piece);
        self.store.check_size(self.hasher.size)?;
        self.upload.wait_for_capacity(PARTS).await.map_err(|error| self.store.failed(&error))?;
        self.upload.put(piece);
        Ok(())
    }

    /// Moves the file to its name. It is on disk on return.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn finish(self) -> Result<StoredFile, FileStoreError> {
        let Self { store, name, upload, hasher } = self;
        let failed = |error: object_store::Error| store.failed(&error);
        upload.finish().await.map_err(failed)?;
        let FileFacts { digest, size, media_type } = hasher.finish();
        let is_new = store.size(digest).await?.is_none();
        if is_new {
            store.objects.rename(&name, &digest.path()).await.map_err(failed)?;
        } else {
            store.objects.delete(&name).await.map_err(failed)?;
        }
        Ok(StoredFile { digest, size, media_type, is_new })
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn abort(self) -> Result<(), FileStoreError> {
        let Self { store, upload, .. } = self;
        upload.abort().await.map_err(|error| store.failed(&error))
    }
}
