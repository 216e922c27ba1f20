//! Names of stored files.

use std::fmt;

use object_store::path::Path;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest, Sha256};

use super::STORED;

/// SHA-256 of a file, which is its name in the store and at `/files/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileDigest([u8; 32]);

impl FileDigest {
    pub(super) fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Returns the digest of the bytes that a hash has read.
    #[must_use]
    pub fn of_hash(hash: Sha256) -> Self {
        Self(hash.finalize().into())
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

impl Serialize for FileDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FileDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not 64 hexadecimal digits in lower case"))
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}
