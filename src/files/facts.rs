//! Facts about the bytes of a file: digest, size and media type, in one pass.

use sha2::{Digest, Sha256};

use super::FileDigest;

/// Number of first bytes that the media type is recognized from.
const HEAD_BYTES: usize = 8 * 1024;

/// Facts about the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// SHA-256.
    pub digest: FileDigest,
    /// Size in bytes.
    pub size: u64,
    /// Media type by the first bytes; `None` if they are not characteristic, as in plain text.
    pub media_type: Option<&'static str>,
}

/// Reads the bytes of a file piece by piece.
#[derive(Clone, Default)]
pub struct FileHasher {
    hash: Sha256,
    pub(super) size: u64,
    head: Vec<u8>,
}

impl FileHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.hash.update(piece);
        self.size += piece.len() as u64;
        let missing = HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&piece[..piece.len().min(missing)]);
    }

    /// Returns the facts about the bytes so far.
    #[must_use]
    pub fn finish(self) -> FileFacts {
        let Self { hash, size, head } = self;
        FileFacts { digest: FileDigest::new(hash.finalize().into()), size, media_type: media_type(&head) }
    }
}

/// Recognizes the media type of a file by its first bytes. Text, HTML and XML have no characteristic bytes that a browser
/// and the gateway would read in the same way, so they get none.
#[must_use]
pub(super) fn media_type(head: &[u8]) -> Option<&'static str> {
    let kind = infer::get(head)?;
    (kind.matcher_type() != infer::MatcherType::Text).then(|| kind.mime_type())
}
