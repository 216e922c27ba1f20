//! The file store: copies of the content that sources name, each under the SHA-256 of its bytes.
//!
//! A file is written under a temporary name and hashed on the way ([`NewFile`]); its digest is known at the end and
//! becomes its name. So a file is stored once, however many items have it, and a stored file never changes.
//!
//! * `digest` is the name of a file, `facts` reads its bytes, `new_file` writes one;
//! * [`maintenance`] checks the stored files, and removes those that no item has.

mod digest;
mod facts;
pub mod maintenance;
mod new_file;

use std::{
    io,
    ops::Range,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path};
use uuid::Uuid;

pub use self::{
    digest::FileDigest,
    facts::{FileFacts, FileHasher},
    new_file::{NewFile, StoredFile},
};

/// Folder of the stored files.
const STORED: &str = "sha256";

/// Folder of the files that are being written.
const INCOMING: &str = "incoming";

/// The store. Clones share it.
#[derive(Clone, Debug)]
pub struct FileStore {
    objects: Arc<dyn ObjectStore>,
    /// Folder on this machine.
    folder: Arc<FilePath>,
}

named_values! {
    /// Links to copies of files in the content of items.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum FileLinks {
        /// URL of the gateway, which serves the copy.
        #[default]
        Gateway = "gateway",
        /// URL of the copy in the store, for readers that see the store themselves.
        Store = "store",
    }
}

/// Reason why the store could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    /// The folder cannot be created or opened.
    #[error("cannot open the folder {} of the file store: {reason}; check its permissions", folder.display())]
    Open {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("the file store failed: {0}")]
    Failed(#[from] object_store::Error),
    /// The folder of temporary files cannot be read.
    #[error("the file store failed: {0}")]
    Io(#[from] io::Error),
}

/// Content of a stored file, or a part of it.
pub struct FileContent {
    /// Size of the whole file, in bytes.
    pub size: u64,
    /// Range of the bytes in `pieces`.
    pub range: Range<u64>,
    /// The bytes.
    pub pieces: BoxStream<'static, Result<Bytes, FileStoreError>>,
}

impl FileStore {
    /// Opens the store in a folder, which is created if necessary.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn open(folder: &FilePath) -> Result<Self, FileStoreError> {
        let failed = |reason: String| FileStoreError::Open { folder: folder.to_owned(), reason };
        std::fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(|error| failed(error.to_string()))?;
        // A change that names a copy must not survive the copy when the machine loses power.
        Ok(Self { objects: Arc::new(objects.with_fsync(true)), folder: folder.into() })
    }

    /// Returns the URL of a file in the store.
    #[must_use]
    pub fn url(&self, digest: FileDigest) -> Option<String> {
        let path = self.folder.join(digest.path().as_ref());
        url::Url::from_file_path(path).ok().map(String::from)
    }

    /// Begins a new file.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub async fn create(&self) -> Result<NewFile, FileStoreError> {
        let name = Path::from_iter([INCOMING, &Uuid::now_v7().to_string()]);
        let upload = self.objects.put_multipart(&name).await?;
        Ok(NewFile::new(Arc::clone(&self.objects), name, upload))
    }

    /// Returns the size of a file in bytes; `None` if the store does not have it.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn size(&self, digest: FileDigest) -> Result<Option<u64>, FileStoreError> {
        found(self.objects.head(&digest.path()).await.map(|meta| meta.size))
    }

    /// Opens a file, or a range of it; `None` if the store does not have it. A range is cut to the size of the file.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or the range is empty or begins after the end.
    pub async fn read(
        &self,
        digest: FileDigest,
        range: Option<Range<u64>>,
    ) -> Result<Option<FileContent>, FileStoreError> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let Some(content) = found(self.objects.get_opts(&digest.path(), options).await)? else { return Ok(None) };
        let (size, range) = (content.meta.size, content.range.clone());
        Ok(Some(FileContent { size, range, pieces: content.into_stream().map_err(FileStoreError::from).boxed() }))
    }
}

impl FileContent {
    /// Recognizes the media type from the bytes, which must be the beginning of a file of a few KiB; `None` if they are
    /// not characteristic.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn media_type(self) -> Result<Option<&'static str>, FileStoreError> {
        let pieces: Vec<Bytes> = self.pieces.try_collect().await?;
        Ok(facts::media_type(&pieces.concat()))
    }
}

/// Replaces the error for an absent file by `None`.
fn found<T>(result: Result<T, object_store::Error>) -> Result<Option<T>, FileStoreError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
