//! Check that the open files of a journal are still those at their paths.
//!
//! A file that was removed or replaced stays usable for the process that has it open. Everything written to it is lost
//! when the process ends.

use std::{
    fs::Metadata,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    lock::{LOCK_NAME, LockFile},
    loss::beside,
};
use crate::journal::store::StoreError;

/// Files that a journal has open, with their identities.
pub(super) struct OpenFiles {
    files: Vec<(PathBuf, FileIdentity)>,
    /// Whether the last check found a difference, which is logged once.
    is_displaced: AtomicBool,
}

/// Device and inode of a file. On systems without inodes all files are equal, and only a missing file is detected.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

impl From<&Metadata> for FileIdentity {
    #[cfg(unix)]
    fn from(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    #[cfg(not(unix))]
    fn from(_: &Metadata) -> Self {
        Self {}
    }
}

impl OpenFiles {
    /// Records the identities of the lock file and of SQLite's files, which must be open.
    ///
    /// # Errors
    /// Fails if a file is missing, or the lock file was replaced since it was locked.
    pub(super) fn record(folder: &Path, journal: &Path, lock: &LockFile) -> io::Result<Self> {
        let lock_path = folder.join(LOCK_NAME);
        let mut files = vec![(lock_path, FileIdentity::from(&lock.metadata()?))];
        for path in [journal.to_owned(), beside(journal, "-wal"), beside(journal, "-shm")] {
            let identity = FileIdentity::from(&path.metadata()?);
            files.push((path, identity));
        }
        let open = Self { files, is_displaced: AtomicBool::new(false) };
        match open.find_displaced()? {
            Some((path, _)) => Err(io::Error::new(ErrorKind::NotFound, format!("{} was replaced", path.display()))),
            None => Ok(open),
        }
    }

    /// Checks that each file is at its path. The first difference is logged as an error, and its end too.
    ///
    /// # Errors
    /// Fails if a file was removed or replaced, or the paths cannot be examined.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let found = self.find_displaced().map_err(|error| StoreError::Io(error.to_string()))?;
        let Some((path, what)) = found else {
            if self.is_displaced.swap(false, Ordering::AcqRel) {
                tracing::info!("the files of the journal are at their paths again; writing continues");
            }
            return Ok(());
        };
        let error = StoreError::Displaced(format!("{} was {what}", path.display()));
        if !self.is_displaced.swap(true, Ordering::AcqRel) {
            tracing::error!(%error, "the journal accepts no writes");
        }
        Err(error)
    }

    fn find_displaced(&self) -> io::Result<Option<(&Path, &'static str)>> {
        for (path, identity) in &self.files {
            match path.metadata() {
                Ok(metadata) if FileIdentity::from(&metadata) == *identity => {}
                Ok(_) => return Ok(Some((path, "replaced"))),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Ok(Some((path, "removed")));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
