//! The folder or the bucket of a copy.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{
    Attribute, Attributes, Error, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    WriteMultipart, local::LocalFileSystem, path::Path,
};
use tokio_util::sync::CancellationToken;

use super::{
    face::{WELL_KNOWN, edition_file, may_have_closed},
    folder, index,
};
use crate::{
    files::{FileStoreLocation, describe_failure, open_objects},
    web::{CachePolicy, Content, Representation},
};

/// Value of `Cache-Control` of closed documents.
const CLOSED: &str = "public, max-age=31536000, immutable";

/// Value of `Cache-Control` of open documents.
const OPEN: &str = "no-cache";

/// Size of the parts of a large document in a bucket, in bytes: the minimum of S3. A smaller document is sent at once.
const PART_BYTES: usize = 5 << 20;

/// Maximum number of parts of a document in memory.
const PARTS: usize = 2;

/// Reason why the copy cannot be written. No message contains a key.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the published copy {location}: {reason}")]
pub struct TargetError {
    location: String,
    reason: String,
}

/// The folder or the bucket.
#[derive(Clone)]
pub(super) struct Target {
    objects: Arc<dyn ObjectStore>,
    location: Arc<FileStoreLocation>,
}

/// The index of a target.
#[derive(Debug)]
pub(super) enum StoredIndex {
    /// There is neither an index nor anything else.
    Absent,
    /// The index cannot be parsed: another program or another version has written it.
    Unreadable,
    /// The index.
    Read(index::Index),
}

impl Target {
    /// Opens the folder, which is made if necessary, or the bucket, and reads the index.
    ///
    /// # Errors
    /// Fails if the folder or the bucket cannot be read, or has other files and no index.
    pub(super) async fn open(location: &FileStoreLocation) -> Result<(Self, StoredIndex), TargetError> {
        let failed = |reason| TargetError { location: location.to_string(), reason };
        if let FileStoreLocation::Folder(root) = location {
            let root = root.clone();
            let prepared = tokio::task::spawn_blocking(move || {
                let other = folder::other_entry(&root)?.filter(|_| !root.join(index::NAME).exists());
                if other.is_none() {
                    folder::prepare(&root)?;
                }
                Ok(other)
            });
            let other = prepared.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            if let Some(name) = other.map_err(|error| failed(error.to_string()))? {
                return Err(failed(foreign(&name)));
            }
        }
        let objects: Arc<dyn ObjectStore> = match location {
            FileStoreLocation::Folder(root) => {
                let objects = LocalFileSystem::new_with_prefix(root).map_err(|error| failed(error.to_string()))?;
                // The folders of former editions go with their last files.
                Arc::new(objects.with_automatic_cleanup(true))
            }
            FileStoreLocation::S3(_) => open_objects(location).map_err(failed)?,
        };
        let target = Self { objects, location: Arc::new(location.clone()) };
        let index = target.index().await?;
        if matches!(index, StoredIndex::Absent)
            && let Some(name) = target.any_object().await?
        {
            return Err(failed(foreign(&name)));
        }
        Ok((target, index))
    }

    fn is_folder(&self) -> bool {
        matches!(*self.location, FileStoreLocation::Folder(_))
    }

    /// Reads the index.
    pub(super) async fn index(&self) -> Result<StoredIndex, TargetError> {
        let content = match self.objects.get(&Path::from(index::NAME)).await {
            Ok(content) => content,
            Err(Error::NotFound { .. }) => return Ok(StoredIndex::Absent),
            Err(error) => return Err(self.failed(&error)),
        };
        let bytes = content.bytes().await.map_err(|error| self.failed(&error))?;
        Ok(serde_json::from_slice(&bytes).map_or(StoredIndex::Unreadable, StoredIndex::Read))
    }

    /// Returns the name of some object; `None` if there is none.
    async fn any_object(&self) -> Result<Option<String>, TargetError> {
        if self.is_folder() {
            // The folder itself was read.
            return Ok(None);
        }
        let first = self.objects.list(None).try_next().await.map_err(|error| self.failed(&error))?;
        Ok(first.map(|object| object.location.to_string()))
    }

    /// Writes the index.
    pub(super) async fn put_index(&self, index: &index::Index) -> Result<(), TargetError> {
        let json = serde_json::to_vec_pretty(index).unwrap_or_default();
        let content = Representation::new("application/json", json, CachePolicy::Revalidate);
        self.put(index::NAME, &content).await.map(drop)
    }

    /// Writes a document, and returns the number of bytes. In a folder, it is on disk on return, and its gzip encoding is
    /// beside it, for web servers that send such files. The plain file is the last one, so whoever finds it finds both.
    pub(super) async fn put(&self, path: &str, content: &Representation) -> Result<u64, TargetError> {
        let mut bytes = 0;
        if self.is_folder() {
            let beside = gzip_beside(path);
            match &content.gzip {
                Some(gzip) => bytes += self.put_content(&beside, gzip, content).await?,
                // That of an older version must not outlive it.
                None => self.delete(&Path::from(beside)).await?,
            }
        }
        Ok(bytes + self.put_content(path, &content.body, content).await?)
    }

    async fn put_content(&self, path: &str, content: &Content, of: &Representation) -> Result<u64, TargetError> {
        if let FileStoreLocation::Folder(root) = &*self.location {
            let (root, path, content) = (root.clone(), path.to_owned(), content.clone());
            let written = tokio::task::spawn_blocking(move || folder::write(&root, &path, &content)).await;
            let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            return written.map_err(|error| self.io_failed(&error));
        }
        let cache = if of.cache == CachePolicy::Immutable { CLOSED } else { OPEN };
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, of.media_type.into());
        attributes.insert(Attribute::CacheControl, cache.into());
        let path = Path::from(path);
        if content.length() > PART_BYTES as u64 {
            self.put_in_parts(&path, content, attributes).await?;
        } else {
            let mut pieces = Vec::new();
            let mut at = 0;
            while let Some(piece) = self.piece(content, at).await? {
                at += piece.len() as u64;
                pieces.push(piece);
            }
            let options = PutOptions { attributes, ..PutOptions::default() };
            let written = self.objects.put_opts(&path, PutPayload::from_iter(pieces), options).await;
            written.map_err(|error| self.failed(&error))?;
        }
        Ok(content.length())
    }

    /// Writes a large document to a bucket. It is there when all parts are.
    async fn put_in_parts(&self, path: &Path, content: &Content, attributes: Attributes) -> Result<(), TargetError> {
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let upload = self.objects.put_multipart_opts(path, options).await.map_err(|error| self.failed(&error))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let mut at = 0;
        loop {
            // Errors of parts come from here or from `finish`.
            let sent = upload.wait_for_capacity(PARTS).await.map_err(|error| self.failed(&error));
            let piece = match sent {
                Ok(()) => self.piece(content, at).await,
                Err(error) => Err(error),
            };
            match piece {
                Ok(Some(piece)) => {
                    at += piece.len() as u64;
                    upload.put(piece);
                }
                Ok(None) => return upload.finish().await.map(drop).map_err(|error| self.failed(&error)),
                Err(error) => {
                    // The server keeps parts, and bills for them, until somebody aborts the upload.
                    let _ = upload.abort().await;
                    return Err(error);
                }
            }
        }
    }

    async fn piece(&self, content: &Content, at: u64) -> Result<Option<Bytes>, TargetError> {
        content.piece(at).await.map_err(|error| self.io_failed(&error))
    }

    /// Removes the documents in the folders of editions that `is_outdated` selects by the paths of their files, and returns the
    /// number of files. All other files stay.
    pub(super) async fn remove_of_editions(&self, is_outdated: impl Fn(&str) -> bool) -> Result<u64, TargetError> {
        let mut removed = 0;
        for face in self.folders(None).await? {
            for edition in self.folders(Some(&face)).await? {
                let mut listed = self.objects.list(Some(&edition));
                while let Some(object) = listed.try_next().await.map_err(|error| self.failed(&error))? {
                    let path = object.location.as_ref();
                    if edition_file(path).is_some() && is_outdated(path) {
                        self.delete(&object.location).await?;
                        removed += 1;
                    }
                }
            }
        }
        Ok(removed)
    }

    /// Returns the paths of the documents beside the folders of the faces, and of everything else there.
    pub(super) async fn entries(&self) -> Result<Vec<String>, TargetError> {
        let mut paths = Vec::new();
        for folder in [None, Some(Path::from(WELL_KNOWN))] {
            let listed =
                self.objects.list_with_delimiter(folder.as_ref()).await.map_err(|error| self.failed(&error))?;
            paths.extend(listed.objects.into_iter().map(|object| object.location.to_string()));
        }
        Ok(paths)
    }

    /// Removes the folder of a face with all files in it, and returns their number; `None` if `stop` is cancelled before the end.
    pub(super) async fn remove_folder(&self, face: &str, stop: &CancellationToken) -> Option<Result<u64, TargetError>> {
        if let FileStoreLocation::Folder(root) = &*self.location {
            let folder = root.join(face);
            // Nobody removes files of a copy that another node may write now.
            let ended = stop.child_token();
            let _guard = ended.clone().drop_guard();
            let is_stopped = ended.clone();
            let removed = tokio::task::spawn_blocking(move || folder::remove(&folder, &ended)).await;
            let removed = removed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            return (!is_stopped.is_cancelled()).then(|| removed.map_err(|error| self.io_failed(&error)));
        }
        stop.run_until_cancelled(async {
            let mut removed = 0;
            let mut listed = self.objects.list(Some(&Path::from(face)));
            while let Some(object) = listed.try_next().await.map_err(|error| self.failed(&error))? {
                self.delete(&object.location).await?;
                removed += 1;
            }
            Ok(removed)
        })
        .await
    }

    /// Makes the removals so far outlive a crash of the machine. A bucket does that by itself.
    pub(super) async fn sync_removals(&self) -> Result<(), TargetError> {
        let FileStoreLocation::Folder(root) = &*self.location else { return Ok(()) };
        let root = root.clone();
        let synced = tokio::task::spawn_blocking(move || folder::sync_removals(&root, WELL_KNOWN)).await;
        synced.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|error| self.io_failed(&error))
    }

    /// Returns the folders in a folder that a face or an edition can have.
    async fn folders(&self, folder: Option<&Path>) -> Result<Vec<Path>, TargetError> {
        let listed = self.objects.list_with_delimiter(folder).await.map_err(|error| self.failed(&error))?;
        Ok(listed.common_prefixes.into_iter().filter(|folder| may_have_closed(folder.as_ref())).collect())
    }

    /// Removes documents with the gzip encodings beside them, and returns the number of files.
    pub(super) async fn remove(&self, paths: &BTreeSet<String>) -> Result<u64, TargetError> {
        let mut removed = 0;
        for path in paths {
            for path in [path.clone(), gzip_beside(path)] {
                if self.has(&path).await? {
                    self.delete(&Path::from(path)).await?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Returns whether there is a file.
    pub(super) async fn has(&self, path: &str) -> Result<bool, TargetError> {
        match self.objects.head(&Path::from(path)).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn delete(&self, path: &Path) -> Result<(), TargetError> {
        match self.objects.delete(path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &Error) -> TargetError {
        let reason = describe_failure(&self.location, error, "publish.s3");
        TargetError { location: self.location.to_string(), reason }
    }

    fn io_failed(&self, error: &std::io::Error) -> TargetError {
        TargetError { location: self.location.to_string(), reason: error.to_string() }
    }
}

fn gzip_beside(path: &str) -> String {
    format!("{path}.gz")
}

/// Returns the reason about a target that has something else.
fn foreign(name: &str) -> String {
    format!(
        "it has {name:?} and no {}, so it is not the place of a copy; give an empty one, because the copy removes files there",
        index::NAME
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
    use url::Url;

    use super::{CachePolicy, FileStoreLocation, PART_BYTES, Representation, Target};
    use crate::{
        files::{S3Name, S3Settings},
        web::Secret,
    };

    #[tokio::test]
    async fn large_documents_are_written_to_a_bucket_in_parts() {
        let objects = Arc::new(InMemory::new());
        let name = |name| S3Name::parse(name).unwrap();
        let bucket = S3Settings {
            endpoint: Url::parse("http://s3.example.org").unwrap(),
            region: name("r"),
            bucket: name("b"),
            prefix: Vec::new(),
            access_key: Secret::new("a".to_owned()),
            secret_key: Secret::new("s".to_owned()),
            ca: None,
        };
        let target = Target { objects: objects.clone(), location: Arc::new(FileStoreLocation::S3(bucket)) };
        for size in [0, 10, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 77] {
            let body: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let document = Representation::new("text/plain", body.clone(), CachePolicy::Immutable);
            assert_eq!(target.put("a/b.txt", &document).await.unwrap(), size as u64);
            let stored = objects.get(&Path::from("a/b.txt")).await.unwrap();
            let attributes = stored.attributes.clone();
            assert!(stored.bytes().await.unwrap() == body, "{size}");
            assert_eq!(attributes.len(), 2, "{attributes:?}");
        }
    }
}
