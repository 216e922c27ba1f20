//! The file store: copies of the content that sources name, each under the SHA-256 of its bytes.
//!
//! A file is written under a temporary name and hashed on the way ([`NewFile`]); its digest is known at the end and
//! becomes its name. So a file is stored once, however many items have it, and a stored file never changes.
//!
//! * `digest` is the name of a file, `facts` reads its bytes, `new_file` writes one, `pieces` reads one from its beginning, and
//!   `reader` at any position;
//! * `workspace` has the unfinished files of a job, which `part_file` writes in a folder;
//! * `item_folder` has the readable names of the files of an item;
//! * `location` is a folder or a bucket, `s3` opens a bucket;
//! * [`maintenance`] checks the stored files, and removes those that no item has.

mod digest;
mod facts;
mod item_folder;
mod location;
pub mod maintenance;
mod new_file;
mod part_file;
mod pieces;
mod reader;
mod s3;
mod workspace;

use std::{collections::HashSet, fmt, ops::Range, path::Path as FilePath, sync::Arc};

use bytes::Bytes;
use futures_util::{TryStreamExt, stream::BoxStream};
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path};
use uuid::Uuid;

pub use self::{
    digest::FileDigest,
    facts::{FileFacts, FileHasher},
    location::FileStoreLocation,
    new_file::{NewFile, StoredFile},
    reader::FileReader,
    s3::{S3Name, S3Settings},
    workspace::Workspace,
};

/// Folder of the stored files.
const STORED: &str = "sha256";

/// Folder of the items: copies of files under readable names.
const ITEMS: &str = "items";

/// Folder of the notes about the owners of items.
const OWNERS: &str = "owners";

/// Folder of the files that are being written.
const INCOMING: &str = "incoming";

/// The store. Clones share it.
#[derive(Clone)]
pub struct FileStore {
    objects: Arc<dyn ObjectStore>,
    location: Arc<FileStoreLocation>,
    /// Maximum size of a file, in bytes.
    max_file_bytes: u64,
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

/// Reason why the store could not be read or written. No message contains a key.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    /// The store cannot be opened.
    #[error("cannot open the file store {location}: {reason}")]
    Open {
        /// The store.
        location: String,
        /// The reason.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("the file store {location} failed: {reason}")]
    Failed {
        /// The store.
        location: String,
        /// The reason.
        reason: String,
    },
    /// An item is of somebody else.
    #[error("the item {item} is of {owner}")]
    OtherOwner {
        /// The item.
        item: String,
        /// Its owner.
        owner: String,
    },
    /// The file is larger than the store allows, in bytes.
    #[error("it has more than {0} bytes, the maximum size of a file in S3")]
    TooLarge(u64),
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
    /// Opens the store. A folder is created if necessary. To S3 no request is sent, so that a server that is down does not
    /// hold the gateway up.
    ///
    /// # Errors
    /// Fails if the folder cannot be created, or the CA certificates for the server cannot be read.
    pub fn open(location: &FileStoreLocation) -> Result<Self, FileStoreError> {
        let max_file_bytes = match location {
            FileStoreLocation::Folder(_) => u64::MAX,
            FileStoreLocation::S3(_) => s3::MAX_FILE_BYTES,
        };
        let failed = |reason: String| FileStoreError::Open { location: location.to_string(), reason };
        let objects = open_objects(location).map_err(failed)?;
        Ok(Self { objects, location: Arc::new(location.clone()), max_file_bytes })
    }

    /// Checks that a file of so many bytes can be stored.
    ///
    /// # Errors
    /// Fails if it is too large.
    pub fn check_size(&self, bytes: u64) -> Result<(), FileStoreError> {
        if bytes > self.max_file_bytes { Err(FileStoreError::TooLarge(self.max_file_bytes)) } else { Ok(()) }
    }

    /// Returns the URL of a file in the store: `file:` in a folder, `s3:` in a bucket.
    #[must_use]
    pub fn url(&self, digest: FileDigest) -> Option<String> {
        match &*self.location {
            FileStoreLocation::Folder(folder) => {
                url::Url::from_file_path(folder.join(digest.path().as_ref())).ok().map(String::from)
            }
            FileStoreLocation::S3(settings) => Some(format!("{}/{}", settings.url(), digest.path())),
        }
    }

    /// Begins a new file.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub async fn create(&self) -> Result<NewFile, FileStoreError> {
        let name = Path::from_iter([INCOMING, &Uuid::now_v7().to_string()]);
        let upload = self.objects.put_multipart(&name).await.map_err(|error| self.failed(&error))?;
        Ok(NewFile::new(self.clone(), name, upload))
    }

    /// Writes stored files to the disk. In a bucket, they are safe already.
    ///
    /// # Errors
    /// Fails if the store cannot be written, or lacks a file.
    pub async fn sync(&self, files: Vec<FileDigest>) -> Result<(), FileStoreError> {
        let FileStoreLocation::Folder(folder) = &*self.location else { return Ok(()) };
        let paths = files.iter().map(|digest| folder.join(digest.path().as_ref())).collect();
        part_file::sync_all(folder.clone(), paths).await.map_err(|error| self.io_failed(&error))
    }

    /// Replaces an item by copies of stored files at paths below its name, where other programs find them. The item belongs
    /// to its first owner, a text that identifies the subject of the files. In a folder, a copy is another name of the same file,
    /// and all names are on disk on return.
    ///
    /// # Errors
    /// Fails if the item has another owner, the store cannot be written, or it lacks a file.
    pub async fn publish(
        &self,
        item: &str,
        owner: &str,
        files: Vec<(String, FileDigest)>,
    ) -> Result<(), FileStoreError> {
        self.claim(item, owner).await?;
        let root = Path::from_iter([ITEMS, item]);
        let place = |path: &str| Path::from_iter([ITEMS, item].into_iter().chain(path.split('/')));
        let names: Vec<_> = files.iter().map(|(path, digest)| (digest.path(), place(path))).collect();
        if let FileStoreLocation::Folder(folder) = &*self.location {
            let paths = names.iter().map(|(from, to)| (folder.join(from.as_ref()), folder.join(to.as_ref())));
            let (item, paths) = (folder.join(root.as_ref()), paths.collect());
            return item_folder::replace(folder.clone(), item, paths).await.map_err(|error| self.io_failed(&error));
        }
        for (from, to) in &names {
            self.objects.copy(from, to).await.map_err(|error| self.failed(&error))?;
        }
        let new: HashSet<_> = names.into_iter().map(|(_, to)| to).collect();
        let mut known = self.objects.list(Some(&root));
        while let Some(object) = known.try_next().await.map_err(|error| self.failed(&error))? {
            if !new.contains(&object.location) {
                self.objects.delete(&object.location).await.map_err(|error| self.failed(&error))?;
            }
        }
        Ok(())
    }

    /// Notes the owner of an item. Items without a note are of versions that made none.
    async fn claim(&self, item: &str, owner: &str) -> Result<(), FileStoreError> {
        match self.owner(item).await? {
            Some(known) if known == owner => Ok(()),
            Some(known) => Err(FileStoreError::OtherOwner { item: item.to_owned(), owner: known }),
            None => {
                let note = Path::from_iter([OWNERS, item]);
                let note = self.objects.put(&note, owner.as_bytes().to_vec().into()).await;
                note.map(drop).map_err(|error| self.failed(&error))
            }
        }
    }

    /// Returns the owner of an item, if one is noted.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn owner(&self, item: &str) -> Result<Option<String>, FileStoreError> {
        let note = Path::from_iter([OWNERS, item]);
        let Some(note) = self.found(self.objects.get(&note).await)? else { return Ok(None) };
        let note = note.bytes().await.map_err(|error| self.failed(&error))?;
        Ok(Some(String::from_utf8_lossy(&note).into_owned()))
    }

    /// Returns the size of a file in bytes; `None` if the store does not have it.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn size(&self, digest: FileDigest) -> Result<Option<u64>, FileStoreError> {
        let path = digest.path();
        match self.objects.head(&path).await {
            // The response to HEAD does not say whether the file or the whole bucket is missing, but the one to GET does.
            Err(object_store::Error::NotFound { .. }) => {
                self.found(self.objects.get(&path).await.map(|content| content.meta.size))
            }
            result => self.found(result.map(|meta| meta.size)),
        }
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
        let Some(content) = self.found(self.objects.get_opts(&digest.path(), options).await)? else { return Ok(None) };
        let (size, range) = (content.meta.size, content.range.clone());
        Ok(Some(FileContent { size, range, pieces: self.pieces(content) }))
    }

    /// Removes a file. It may be missing already.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn remove(&self, digest: FileDigest) -> Result<(), FileStoreError> {
        self.found(self.objects.delete(&digest.path()).await).map(drop)
    }

    /// Replaces the error for an absent file by `None`.
    fn found<T>(&self, result: Result<T, object_store::Error>) -> Result<Option<T>, FileStoreError> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(error @ object_store::Error::NotFound { .. }) if !s3::is_bucket_missing(&error) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Converts an error of the operating system.
    fn io_failed(&self, error: &std::io::Error) -> FileStoreError {
        FileStoreError::Failed { location: self.location.to_string(), reason: error.to_string() }
    }

    /// Converts an error of the library.
    fn failed(&self, error: &object_store::Error) -> FileStoreError {
        let reason = describe_failure(&self.location, error, "files.s3");
        FileStoreError::Failed { location: self.location.to_string(), reason }
    }
}

/// Prints the location alone, because the object store of the library has the keys.
impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileStore").field(&self.location).finish()
    }
}

/// Opens a folder, which is created if necessary, or a bucket, to which no request is sent.
///
/// # Errors
/// Fails if the folder cannot be created, or the CA certificates for the server cannot be read.
pub fn open_objects(location: &FileStoreLocation) -> Result<Arc<dyn ObjectStore>, String> {
    match location {
        FileStoreLocation::Folder(folder) => {
            open_folder(folder).map_err(|reason| format!("{reason}; check its permissions"))
        }
        FileStoreLocation::S3(settings) => s3::open(settings),
    }
}

/// Describes a failed request, and what to do. `table` is the table of the bucket in the configuration. The text contains no
/// key.
#[must_use]
pub fn describe_failure(location: &FileStoreLocation, error: &object_store::Error, table: &str) -> String {
    match location {
        FileStoreLocation::Folder(_) => error.to_string(),
        FileStoreLocation::S3(_) => s3::describe(error, table),
    }
}

/// Opens a folder, which is created if necessary.
fn open_folder(folder: &FilePath) -> Result<Arc<dyn ObjectStore>, String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let objects = LocalFileSystem::new_with_prefix(folder).map_err(|error| error.to_string())?;
    // A change that names a copy must not survive the copy when the machine loses power.
    Ok(Arc::new(objects.with_fsync(true)))
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

#[cfg(test)]
mod tests;
