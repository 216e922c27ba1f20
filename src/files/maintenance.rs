//! Maintenance of the file store: checks the bytes of all files, and removes those that no item has.

use std::{
    collections::HashSet,
    path::Path as FilePath,
    time::{Duration, SystemTime},
};

use futures_util::TryStreamExt;
use object_store::{ObjectMeta, ObjectStoreExt, path::Path};
use sha2::{Digest, Sha256};

use super::{FileDigest, FileStore, FileStoreError, FileStoreLocation, INCOMING, STORED, workspace::WORKSPACES};

/// A fault of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The bytes of a file have changed.
    #[error("the file {0} is damaged: its bytes have another digest; remove it, and it is downloaded again")]
    Damaged(FileDigest),
    /// An item has a copy that the store lacks.
    #[error("the file {0} is missing, and an item of the registry has it")]
    Missing(FileDigest),
    /// A file does not belong to the store.
    #[error("{0} is not a file of the store; move it elsewhere")]
    Foreign(String),
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReport {
    /// Number of files.
    pub files: u64,
    /// Size of all files, in bytes.
    pub bytes: u64,
    /// Faults that were found.
    pub faults: Vec<FileFault>,
}

/// Result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Number of files that stay.
    pub kept: u64,
    /// Number of removed files.
    pub removed: u64,
    /// Size of the removed files, in bytes.
    pub removed_bytes: u64,
}

impl FileStore {
    /// Reads every file and compares its bytes with its name. `referenced` are the files that items have, and
    /// `progress` gets the number of bytes after each file.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn verify(
        &self,
        mut referenced: HashSet<FileDigest>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<FileReport, FileStoreError> {
        let failed = |error: object_store::Error| self.failed(&error);
        let mut report = FileReport::default();
        let mut files = self.objects.list(Some(&Path::from(STORED)));
        while let Some(ObjectMeta { location, size, .. }) = files.try_next().await.map_err(failed)? {
            let Some(digest) = FileDigest::of_path(&location) else {
                report.faults.push(FileFault::Foreign(location.to_string()));
                continue;
            };
            referenced.remove(&digest);
            let mut hash = Sha256::default();
            let mut pieces = self.pieces(self.objects.get(&location).await.map_err(failed)?);
            while let Some(piece) = pieces.try_next().await? {
                hash.update(&piece);
            }
            if FileDigest::new(hash.finalize().into()) != digest {
                report.faults.push(FileFault::Damaged(digest));
            }
            report.files += 1;
            report.bytes += size;
            progress(report.bytes);
        }
        let mut missing: Vec<_> = referenced.into_iter().collect();
        missing.sort_unstable();
        report.faults.extend(missing.into_iter().map(FileFault::Missing));
        Ok(report)
    }

    /// Returns the names of all files.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn names(&self) -> Result<HashSet<FileDigest>, FileStoreError> {
        let files = self.objects.list(Some(&Path::from(STORED)));
        let names = files.try_filter_map(|file| std::future::ready(Ok(FileDigest::of_path(&file.location))));
        names.try_collect().await.map_err(|error| self.failed(&error))
    }

    /// Returns whether the store has a file, with the bytes of its name. A damaged one is removed: a crash of the machine may
    /// leave one that was not on disk yet.
    ///
    /// # Errors
    /// Fails if the store cannot be read or written.
    pub async fn is_intact(&self, digest: FileDigest) -> Result<bool, FileStoreError> {
        let Some(mut content) = self.read(digest, None).await? else { return Ok(false) };
        let mut hash = Sha256::default();
        while let Some(piece) = content.pieces.try_next().await? {
            hash.update(&piece);
        }
        let is_intact = FileDigest::new(hash.finalize().into()) == digest;
        if !is_intact {
            self.found(self.objects.delete(&digest.path()).await)?;
        }
        Ok(is_intact)
    }

    /// Removes the files that are not in `referenced` and older than `grace`, and what interrupted downloads have left.
    /// The time protects files whose change is not in the journal yet, and readers of an earlier change.
    ///
    /// # Errors
    /// Fails if the store cannot be read or written.
    pub async fn collect_garbage(
        &self,
        referenced: &HashSet<FileDigest>,
        grace: Duration,
    ) -> Result<Removal, FileStoreError> {
        let now = SystemTime::now();
        let is_old = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age >= grace);
        let failed = |error: object_store::Error| self.failed(&error);
        let mut removal = Removal::default();
        let mut files = self.objects.list(Some(&Path::from(STORED)));
        while let Some(ObjectMeta { location, last_modified, size, .. }) = files.try_next().await.map_err(failed)? {
            let Some(digest) = FileDigest::of_path(&location) else { continue };
            if referenced.contains(&digest) || !is_old(last_modified.into()) {
                removal.kept += 1;
                continue;
            }
            self.objects.delete(&location).await.map_err(failed)?;
            removal.removed += 1;
            removal.removed_bytes += size;
        }
        removal.removed_bytes += self.remove_incoming(is_old).await?;
        removal.removed_bytes += self.remove_old(WORKSPACES, is_old).await?;
        Ok(removal)
    }

    /// Removes unfinished files.
    async fn remove_incoming(&self, is_old: impl Fn(SystemTime) -> bool) -> Result<u64, FileStoreError> {
        match &*self.location {
            FileStoreLocation::Folder(folder) => remove_incoming_of_folder(folder, is_old).map_err(|error| {
                FileStoreError::Failed { location: self.location.to_string(), reason: error.to_string() }
            }),
            FileStoreLocation::S3(_) => self.remove_old(INCOMING, is_old).await,
        }
    }

    /// Removes the old files below a folder of the store.
    async fn remove_old(&self, folder: &str, is_old: impl Fn(SystemTime) -> bool) -> Result<u64, FileStoreError> {
        let failed = |error: object_store::Error| self.failed(&error);
        let mut bytes = 0;
        let mut files = self.objects.list(Some(&Path::from(folder)));
        while let Some(ObjectMeta { location, last_modified, size, .. }) = files.try_next().await.map_err(failed)? {
            if is_old(last_modified.into()) {
                self.objects.delete(&location).await.map_err(failed)?;
                bytes += size;
            }
        }
        Ok(bytes)
    }
}

/// Removes unfinished files of a folder. The library does not list them, because they have temporary names.
fn remove_incoming_of_folder(folder: &FilePath, is_old: impl Fn(SystemTime) -> bool) -> std::io::Result<u64> {
    let entries = match std::fs::read_dir(folder.join(INCOMING)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_file() && is_old(meta.modified()?) {
            std::fs::remove_file(entry.path())?;
            bytes += meta.len();
        }
    }
    Ok(bytes)
}
