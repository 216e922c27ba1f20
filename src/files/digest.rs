//! Names of stored files.

use std::fmt;

use object_store::path::Path;

use super::STORED;

/// SHA-256 of a file, which is its name in the store and at `/files/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileDigest([u8; 32]);

impl FileDigest {
    pub(super) fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Parses 64 hexadecimal digits in lower case; `None` for any other text, because each file has one name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).ok()?;
        Some(Self(digest)).filter(|digest| digest.to_string() == text)
    }

    /// Returns the path in the store: the first two digits are a folder, so that no folder becomes too large.
    pub(super) fn path(self) -> Path {
        let name = self.to_string();
        Path::from_iter([STORED, &name[..2], &name])
    }

    /// Parses a path of the store.
    pub(super) fn of_path(path: &Path) -> Option<Self> {
        Self::parse(path.filename()?).filter(|digest| digest.path() == *path)
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}
