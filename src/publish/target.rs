//! The folder or the bucket of a copy.

use std::{io::Read, sync::Arc};

use futures_util::TryStreamExt;
use object_store::{Attribute, Attributes, Error, ObjectStore, ObjectStoreExt, PutOptions, PutPayload, path::Path};

use super::{Document, folder, index};
use crate::{
    files::{FileStoreLocation, describe_failure, open_objects},
    web::{CachePolicy, Content, Representation},
};

/// Value of `Cache-Control` of closed documents.
const CLOSED: &str = "public, max-age=31536000, immutable";

/// Value of `Cache-Control` of open documents.
const OPEN: &str = "no-cache";

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

impl Target {
    /// Opens the folder, which is made if necessary, or the bucket, to which no request is sent.
    ///
    /// # Errors
    /// Fails if the folder cannot be made, or the CA certificates cannot be read.
    pub(super) fn open(location: &FileStoreLocation) -> Result<Self, TargetError> {
        let failed = |reason| TargetError { location: location.to_string(), reason };
        if let FileStoreLocation::Folder(root) = location {
            folder::prepare(root).map_err(|error| failed(error.to_string()))?;
        }
        let objects = open_objects(location).map_err(failed)?;
        Ok(Self { objects, location: Arc::new(location.clone()) })
    }

    fn is_folder(&self) -> bool {
        matches!(*self.location, FileStoreLocation::Folder(_))
    }

    /// Returns whether there is a document.
    pub(super) async fn has(&self, name: &str) -> Result<bool, TargetError> {
        match self.objects.head(&Path::from(name)).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Reads the index; `None` if there is none, or it is not one.
    pub(super) async fn index(&self) -> Result<Option<index::Index>, TargetError> {
        let content = match self.objects.get(&Path::from(index::NAME)).await {
            Ok(content) => content,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failed(&error)),
        };
        let bytes = content.bytes().await.map_err(|error| self.failed(&error))?;
        Ok(serde_json::from_slice(&bytes).ok())
    }

    /// Writes the index.
    pub(super) async fn put_index(&self, index: &index::Index) -> Result<(), TargetError> {
        let json = serde_json::to_vec_pretty(index).unwrap_or_default();
        let content = Representation::new("application/json", json, CachePolicy::Revalidate);
        self.put(&Document { name: index::NAME.to_owned(), content }).await.map(drop)
    }

    /// Writes a document, and returns the number of bytes. In a folder, it is on disk on return, and its gzip encoding is
    /// beside it, for web servers that send such files. The plain file is the last one, so whoever finds it finds both.
    pub(super) async fn put(&self, document: &Document) -> Result<u64, TargetError> {
        let Document { name, content } = document;
        let mut bytes = 0;
        if self.is_folder() {
            let beside = format!("{name}.gz");
            match &content.gzip {
                Some(gzip) => bytes += self.put_bytes(&beside, gzip, content).await?,
                // That of an older version must not outlive it.
                None => self.delete(&Path::from(beside)).await?,
            }
        }
        Ok(bytes + self.put_bytes(name, &content.body, content).await?)
    }

    async fn put_bytes(&self, name: &str, bytes: &Content, of: &Representation) -> Result<u64, TargetError> {
        if let FileStoreLocation::Folder(root) = &*self.location {
            let (root, name, bytes) = (root.clone(), name.to_owned(), bytes.clone());
            return self.blocking(move || folder::write(&root, &name, &bytes)).await;
        }
        let bytes = bytes.clone();
        let bytes = self
            .blocking(move || {
                let mut all = Vec::new();
                bytes.reader().read_to_end(&mut all).map(|_| all)
            })
            .await?;
        let length = bytes.len() as u64;
        let cache = if of.cache == CachePolicy::Immutable { CLOSED } else { OPEN };
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, of.media_type.into());
        attributes.insert(Attribute::CacheControl, cache.into());
        let options = PutOptions { attributes, ..PutOptions::default() };
        let written = self.objects.put_opts(&Path::from(name), PutPayload::from(bytes), options).await;
        written.map(|_| length).map_err(|error| self.failed(&error))
    }

    /// Reads or writes files on a blocking thread.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, TargetError> {
        let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(|error| TargetError { location: self.location.to_string(), reason: error.to_string() })
    }

    /// Removes the documents below a folder of which `is_kept` says that the copy does not have them any more.
    pub(super) async fn remove_unless(&self, folder: &str, is_kept: impl Fn(&str) -> bool) -> Result<u64, TargetError> {
        let folder = Path::from(folder);
        let (mut removed, mut listed) = (0, self.objects.list(Some(&folder)));
        while let Some(object) = listed.try_next().await.map_err(|error| self.failed(&error))? {
            if !is_kept(object.location.as_ref()) {
                self.delete(&object.location).await?;
                removed += 1;
            }
        }
        Ok(removed)
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
}
