//! Location of the file store: a folder, or a bucket of an S3-compatible server.

use std::{fmt, path::PathBuf};

use super::s3::S3Settings;

/// Location of the file store.
#[derive(Clone, Debug)]
pub enum FileStoreLocation {
    /// Folder on this machine, or on a network file system.
    Folder(PathBuf),
    /// Bucket of an S3-compatible server.
    S3(S3Settings),
}

/// Prints the folder, or the bucket and its server without the keys.
impl fmt::Display for FileStoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::S3(settings) => settings.fmt(f),
        }
    }
}
