//! Body of a landing page, which is kept until the dataset is archived.
//!
//! That may take hours, so a body of more than some kilobytes is in an unnamed file, and not in memory.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use sha1::Digest;

use crate::format::fileset::message::FileMeta;

/// Maximum size of a body in memory, in bytes.
const MAX_IN_MEMORY: usize = 64 << 10;

/// Size of the pieces in which a body is read, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Body of a landing page, decompressed.
#[derive(Clone, Debug)]
pub struct PageBody {
    content: Content,
    meta: FileMeta,
}

#[derive(Clone, Debug)]
enum Content {
    Memory(Bytes),
    /// Only one task reads it at a time.
    File(Arc<File>),
}

impl PageBody {
    /// Keeps a body, in an unnamed file of a folder if it is large. It computes digests, so it belongs on a blocking thread.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn new(body: Vec<u8>, folder: &Path) -> io::Result<Self> {
        let meta = FileMeta {
            size_bytes: body.len() as u64,
            md5hex: hex::encode(md5::Md5::digest(&body)),
            sha1hex: hex::encode(sha1::Sha1::digest(&body)),
            sha256hex: hex::encode(sha2::Sha256::digest(&body)),
            mimetype: Some("text/html".to_owned()),
        };
        if body.len() <= MAX_IN_MEMORY {
            return Ok(Self { content: Content::Memory(body.into()), meta });
        }
        let mut file = tempfile::tempfile_in(folder)?;
        file.write_all(&body)?;
        Ok(Self { content: Content::File(Arc::new(file)), meta })
    }

    /// Returns the size and the digests.
    #[must_use]
    pub fn meta(&self) -> &FileMeta {
        &self.meta
    }

    /// Returns the piece at a position. It is empty at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(super) async fn piece(&self, position: u64) -> io::Result<Bytes> {
        match &self.content {
            Content::Memory(body) => {
                let from = usize::try_from(position).unwrap_or(usize::MAX).min(body.len());
                Ok(body.slice(from..))
            }
            Content::File(file) => {
                let file = Arc::clone(file);
                let read = tokio::task::spawn_blocking(move || {
                    let mut file = &*file;
                    file.seek(SeekFrom::Start(position))?;
                    let mut piece = Vec::new();
                    file.take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
                    Ok(piece.into())
                });
                read.await.map_err(io::Error::other)?
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PageBody;

    #[tokio::test]
    async fn bodies_return_piece_by_piece() {
        for length in [0, 100, 65_536, 65_537, 300_000] {
            let content: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let body = PageBody::new(content.clone(), &std::env::temp_dir()).unwrap();
            let mut read = Vec::new();
            loop {
                let piece = body.piece(read.len() as u64).await.unwrap();
                if piece.is_empty() {
                    break;
                }
                read.extend_from_slice(&piece);
            }
            assert!(read == content && body.meta().size_bytes == length, "{length}");
        }
    }
}
