//! Files that are being written.

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt, WriteMultipart, path::Path};

use super::{FileDigest, FileFacts, FileHasher, FileStore, FileStoreError, FileStoreLocation, part_file::PartFile};

/// Size of the parts that are written at once, in bytes: the minimum of S3.
const PART_BYTES: usize = 5 * 1024 * 1024;

/// Maximum number of parts in memory.
const PARTS: usize = 2;

/// A file that is being written. Dropping it removes what was written, unless it belongs to a
/// [`Workspace`](super::Workspace).
pub struct NewFile {
    store: FileStore,
    place: Place,
    hasher: FileHasher,
}

/// Place of the bytes until the file is finished.
enum Place {
    /// Upload under a temporary name.
    Upload(Path, WriteMultipart),
    /// Unfinished file of a workspace.
    Part(PartFile),
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
        Self { store, place: Place::Upload(name, upload), hasher: FileHasher::default() }
    }

    /// Continues an unfinished file, whose bytes the hasher has read.
    pub(super) fn of_part(store: FileStore, part: PartFile, hasher: FileHasher) -> Self {
        Self { store, place: Place::Part(part), hasher }
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
        match &mut self.place {
            Place::Upload(_, upload) => {
                upload.wait_for_capacity(PARTS).await.map_err(|error| self.store.failed(&error))?;
                upload.put(piece);
                Ok(())
            }
            Place::Part(part) => part.write(piece).await.map_err(|error| self.store.io_failed(&error)),
        }
    }

    /// Removes the bytes that were written, to begin again.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn restart(self) -> Result<Self, FileStoreError> {
        let Self { store, place, .. } = self;
        match place {
            Place::Upload(_, upload) => {
                upload.abort().await.map_err(|error| store.failed(&error))?;
                store.create().await
            }
            Place::Part(mut part) => {
                part.truncate().map_err(|error| store.io_failed(&error))?;
                Ok(Self::of_part(store, part, FileHasher::default()))
            }
        }
    }

    /// Moves the file to its name. It is on disk on return.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn finish(self) -> Result<StoredFile, FileStoreError> {
        // An upload is on disk when it has ended.
        let unsynced = matches!(self.place, Place::Part(_)).then(|| self.store.clone());
        let stored = self.finish_unsynced().await?;
        if let Some(store) = unsynced {
            store.sync(vec![stored.digest]).await?;
        }
        Ok(stored)
    }

    /// Moves the file to its name. An unfinished file of a workspace may be lost in a crash of the machine until
    /// [`FileStore::sync`] has returned, which serves many files at once.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn finish_unsynced(self) -> Result<StoredFile, FileStoreError> {
        let Self { store, place, hasher } = self;
        let failed = |error: object_store::Error| store.failed(&error);
        let FileFacts { digest, size, media_type } = hasher.finish();
        match place {
            Place::Upload(name, upload) => {
                upload.finish().await.map_err(failed)?;
                let is_new = store.size(digest).await?.is_none();
                if is_new {
                    store.objects.rename(&name, &digest.path()).await.map_err(failed)?;
                } else {
                    store.objects.delete(&name).await.map_err(failed)?;
                }
                Ok(StoredFile { digest, size, media_type, is_new })
            }
            Place::Part(mut part) => {
                part.flush().await.map_err(|error| store.io_failed(&error))?;
                // A crash of the machine may have left a shorter one.
                let is_new = store.size(digest).await? != Some(size);
                let moved = match &*store.location {
                    FileStoreLocation::Folder(folder) if is_new => {
                        part.rename(folder.join(digest.path().as_ref())).await
                    }
                    FileStoreLocation::Folder(_) | FileStoreLocation::S3(_) => part.remove().await,
                };
                moved.map_err(|error| store.io_failed(&error))?;
                Ok(StoredFile { digest, size, media_type, is_new })
            }
        }
    }

    /// Removes the written bytes.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn abort(self) -> Result<(), FileStoreError> {
        let Self { store, place, .. } = self;
        match place {
            Place::Upload(_, upload) => upload.abort().await.map_err(|error| store.failed(&error)),
            Place::Part(part) => part.remove().await.map_err(|error| store.io_failed(&error)),
        }
    }

    /// Keeps the bytes of an unfinished file of a workspace for a later attempt.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn suspend(self) -> Result<(), FileStoreError> {
        let Self { store, place, .. } = self;
        match place {
            // A bucket would keep the parts, and nobody could continue them.
            Place::Upload(_, upload) => upload.abort().await.map_err(|error| store.failed(&error)),
            Place::Part(mut part) => part.flush().await.map_err(|error| store.io_failed(&error)),
        }
    }
}
