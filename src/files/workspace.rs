//! Workspaces: unfinished files of a job, and records of the finished ones, so that an interrupted job continues.
//!
//! In a folder, the bytes of an unfinished file stay. In a bucket they do not, because S3 shows no part of an object; there
//! only finished files are known again.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{ObjectStoreExt, path::Path};

use super::{
    FileDigest, FileStore, FileStoreError, FileStoreLocation, NewFile,
    part_file::{self, PartFile},
};

/// Folder of the workspaces.
pub(super) const WORKSPACES: &str = "work";

/// Workspace of a job in the file store. Its names consist of letters, digits, `.`, `_` and `-`.
#[derive(Clone)]
pub struct Workspace {
    store: FileStore,
    job: String,
    /// Whether the workspace was removed. A file is created under this lock, because tasks that were aborted may still
    /// be about to create one.
    removed: Arc<Mutex<bool>>,
}

impl FileStore {
    /// Returns the workspace of a job. Nothing is created yet.
    #[must_use]
    pub fn workspace(&self, job: &str) -> Workspace {
        Workspace { store: self.clone(), job: job.to_owned(), removed: Arc::default() }
    }
}

impl Workspace {
    /// Opens an unfinished file, which is created if it does not exist, and passes the bytes that it has to `each`.
    ///
    /// # Errors
    /// Fails if the store cannot be read or written, another process writes the file, or the workspace was removed.
    pub async fn open(&self, name: &str, mut each: impl FnMut(&Bytes)) -> Result<NewFile, FileStoreError> {
        let Some(path) = self.file_path(name) else { return self.store.create().await };
        let failed = |error: io::Error| self.store.io_failed(&error);
        let mut part = self.create_unless_removed(|| PartFile::open(path)).await.map_err(failed)?;
        let mut hasher = super::FileHasher::default();
        let read = part.read_from_start(|piece| {
            hasher.update(&piece);
            each(&piece);
        });
        read.await.map_err(failed)?;
        Ok(NewFile::of_part(self.store.clone(), part, hasher))
    }

    /// Finishes a file whose bytes are complete, and whose digest a record has. Returns false if the store has it not.
    ///
    /// # Errors
    /// Fails if the store cannot be read or written.
    pub async fn finish(&self, name: &str, digest: FileDigest) -> Result<bool, FileStoreError> {
        if self.store.is_intact(digest).await? {
            return Ok(true);
        }
        let Some(path) = self.file_path(name).filter(|path| path.exists()) else { return Ok(false) };
        // The process may have ended between the record and the move.
        let mut hasher = super::FileHasher::default();
        let failed = |error: io::Error| self.store.io_failed(&error);
        let mut part = self.create_unless_removed(|| PartFile::open(path)).await.map_err(failed)?;
        part.read_from_start(|piece| hasher.update(&piece)).await.map_err(failed)?;
        if hasher.clone().finish().digest != digest {
            part.remove().await.map_err(failed)?;
            return Ok(false);
        }
        NewFile::of_part(self.store.clone(), part, hasher).finish_unsynced().await.map(|_| true)
    }

    /// Returns a record; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn record(&self, name: &str) -> Result<Option<Bytes>, FileStoreError> {
        let Some(content) = self.store.found(self.store.objects.get(&self.path(name)).await)? else { return Ok(None) };
        content.bytes().await.map(Some).map_err(|error| self.store.failed(&error))
    }

    /// Writes a record, which survives the end of the process. In a folder, a crash of the machine may lose it, which costs
    /// another download.
    ///
    /// # Errors
    /// Fails if the store cannot be written, or the workspace was removed.
    pub async fn write_record(&self, name: &str, record: Bytes) -> Result<(), FileStoreError> {
        if let Some(path) = self.file_path(name) {
            let write = move || part_file::replace(&path, &record);
            return self.create_unless_removed(write).await.map_err(|error| self.store.io_failed(&error));
        }
        let written = self.store.objects.put(&self.path(name), record.into()).await;
        written.map(drop).map_err(|error| self.store.failed(&error))
    }

    /// Removes a record.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn remove_record(&self, name: &str) -> Result<(), FileStoreError> {
        self.store.found(self.store.objects.delete(&self.path(name)).await).map(drop)
    }

    /// Removes everything but a record.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn remove_all_but(&self, name: &str) -> Result<(), FileStoreError> {
        self.remove_objects(Some(&self.path(name))).await
    }

    /// Removes the workspace. No clone of this one creates a file in the folder afterwards.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn remove(&self) -> Result<(), FileStoreError> {
        if let Some(folder) = self.folder() {
            let removed = Arc::clone(&self.removed);
            let remove = move || {
                let mut removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
                *removed = true;
                std::fs::remove_dir_all(folder)
            };
            return match part_file::blocking(remove).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.store.io_failed(&error)),
                _ => Ok(()),
            };
        }
        self.remove_objects(None).await
    }

    /// Runs file operations that create a file, unless the workspace was removed.
    async fn create_unless_removed<T: Send + 'static>(
        &self,
        create: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let removed = Arc::clone(&self.removed);
        let create = move || {
            let removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
            if *removed { Err(io::Error::other("the workspace was removed")) } else { create() }
        };
        part_file::blocking(create).await
    }

    async fn remove_objects(&self, kept: Option<&Path>) -> Result<(), FileStoreError> {
        let failed = |error: object_store::Error| self.store.failed(&error);
        let mut files = self.store.objects.list(Some(&Path::from_iter([WORKSPACES, &self.job])));
        while let Some(file) = files.try_next().await.map_err(failed)? {
            if Some(&file.location) != kept {
                self.store.objects.delete(&file.location).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> Path {
        Path::from_iter([WORKSPACES, &self.job, name])
    }

    /// Returns the folder of the workspace; `None` in a bucket.
    fn folder(&self) -> Option<PathBuf> {
        match &*self.store.location {
            FileStoreLocation::Folder(folder) => Some(folder.join(WORKSPACES).join(&self.job)),
            FileStoreLocation::S3(_) => None,
        }
    }

    fn file_path(&self, name: &str) -> Option<PathBuf> {
        self.folder().map(|folder| folder.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FileStore, FileStoreLocation};

    #[tokio::test]
    async fn removed_workspace_gets_no_files_from_tasks_that_still_run() {
        let folder = tempfile::tempdir().unwrap();
        let files = FileStore::open(&FileStoreLocation::Folder(folder.path().to_owned())).unwrap();
        let (workspace, job) = (files.workspace("job"), folder.path().join("work/job"));
        let of_task = workspace.clone();
        drop(of_task.open("file", |_| {}).await.unwrap());
        of_task.write_record("record", "r".into()).await.unwrap();
        assert!(job.join("file").exists() && job.join("record").exists());
        workspace.remove().await.unwrap();
        assert!(of_task.open("file", |_| {}).await.is_err());
        assert!(of_task.write_record("record", "r".into()).await.is_err());
        assert!(!job.exists());
        // The next attempt has a workspace of its own.
        files.workspace("job").write_record("record", "r".into()).await.unwrap();
        assert!(job.join("record").exists());
    }
}
