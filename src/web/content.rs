//! The bytes of an answer, in memory or in a file, and how they are sent.

use std::{
    fs::File,
    io::{self, Read},
    sync::Arc,
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;

use super::spool::Room;

/// Size of the pieces in which a file is written and sent, in bytes.
pub(super) const PIECE: usize = 64 << 10;

/// The bytes of an answer. Clones share them.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Memory(Bytes),
    /// In a file.
    File(SpooledFile),
}

/// A file whose bytes do not change while it is open.
#[derive(Clone, Debug)]
pub struct SpooledFile {
    file: Arc<File>,
    length: u64,
    _room: Option<Arc<Room>>,
}

impl SpooledFile {
    /// The file as it is now, `length` bytes of it.
    #[must_use]
    pub fn new(file: File, length: u64) -> Self {
        Self { file: Arc::new(file), length, _room: None }
    }

    /// The file with its share of the room, which is free again when the last reader has gone.
    pub(super) fn in_room(file: File, length: u64, room: Room) -> Self {
        Self { file: Arc::new(file), length, _room: Some(Arc::new(room)) }
    }

    fn piece(&self, at: u64) -> io::Result<Bytes> {
        let size = usize::try_from(self.length - at).unwrap_or(PIECE).min(PIECE);
        let mut piece = vec![0; size];
        read_exact_at(&self.file, &mut piece, at)?;
        Ok(piece.into())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, piece: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, piece, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut piece: &mut [u8], mut at: u64) -> io::Result<()> {
    while !piece.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, piece, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        piece = &mut piece[read..];
        at += read as u64;
    }
    Ok(())
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Memory(bytes)
    }
}

impl Content {
    /// The number of bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.length,
        }
    }

    /// The number of bytes that are in memory.
    #[must_use]
    pub fn in_memory(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_) => 0,
        }
    }

    /// The bytes piece by piece, for a thread that may wait.
    #[must_use]
    pub fn reader(&self) -> impl Read + use<> {
        ContentReader { content: self.clone(), at: 0 }
    }

    /// The next piece from `at` on, at most 64 KiB of a file; `None` at the end.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn piece(&self, at: u64) -> io::Result<Option<Bytes>> {
        if at >= self.length() {
            return Ok(None);
        }
        match self {
            Self::Memory(bytes) => Ok(Some(bytes.slice(usize::try_from(at).unwrap_or(usize::MAX)..))),
            Self::File(file) => {
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || file.piece(at));
                read.await.unwrap_or_else(|failed| Err(io::Error::other(failed))).map(Some)
            }
        }
    }

    /// The bytes as the body of an answer. A file is read as the client takes it.
    pub fn body(&self) -> Body {
        match self {
            Self::Memory(bytes) => Body::from(bytes.clone()),
            Self::File(_) => Body::from_stream(stream::try_unfold((self.clone(), 0), async |(content, at)| {
                let piece = content.piece(at).await?;
                Ok::<_, io::Error>(piece.map(|piece| {
                    let end = at + piece.len() as u64;
                    (piece, (content, end))
                }))
            })),
        }
    }
}

struct ContentReader {
    content: Content,
    at: u64,
}

impl Read for ContentReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.content.length() - self.at;
        let size = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..size];
        match &self.content {
            Content::Memory(bytes) => {
                let at = usize::try_from(self.at).unwrap_or(usize::MAX);
                into.copy_from_slice(&bytes[at..at + size]);
            }
            Content::File(file) => read_exact_at(&file.file, into, self.at)?,
        }
        self.at += size as u64;
        Ok(size)
    }
}
