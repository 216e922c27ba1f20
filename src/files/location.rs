//! Location of the file store: a folder, or a bucket of an S3-compatible server.

use std::{
    fmt,
    path::{Path, PathBuf},
};

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

impl FileStoreLocation {
    /// Returns whether a place is the other one, or one of the two is in the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder(one), Self::Folder(other)) => {
                let (one, other) = (resolved(one), resolved(other));
                one.starts_with(&other) || other.starts_with(&one)
            }
            (Self::S3(one), Self::S3(other)) => {
                let is_same_bucket = one.endpoint == other.endpoint && one.bucket == other.bucket;
                is_same_bucket && (one.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&one.prefix))
            }
            _ => false,
        }
    }
}

/// Follows the links of a path, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let Some((ancestor, real)) = existing else { return path.to_owned() };
    path.strip_prefix(ancestor).map_or_else(|_| path.to_owned(), |rest| real.join(rest))
}

#[cfg(test)]
mod tests {
    use super::FileStoreLocation;

    #[test]
    fn folders_overlap_if_one_is_in_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &str| FileStoreLocation::Folder(folder.path().join(path));
        std::fs::create_dir(folder.path().join("data")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("data"), folder.path().join("link")).unwrap();
        for (path, expected) in [
            ("data", true),
            ("data/", true),
            ("data/copy/feed", true),
            ("link/copy", true),
            ("", true),
            ("database", false),
            ("copy", false),
        ] {
            assert_eq!(place(path).overlaps(&place("data")), expected, "{path}");
        }
    }
}
