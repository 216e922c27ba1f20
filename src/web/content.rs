//! Content of a response, in memory or in a file.

use std::{
    fs::File,
    io::{self, Read},
    sync::Arc,
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;

use super::disk_reservation::DiskReservation;

/// Size of the pieces in which a file is written and sent, in bytes.
pub(super) const PIECE: usize = 64 << 10;

/// Content of a response. Clones share the bytes.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Memory(Bytes),
    /// In a file.
    File(SpooledFile),
}

/// Open file whose content does not change.
#[derive(Clone, Debug)]
pub struct SpooledFile {
    file: Arc<File>,
    length: u64,
    _reservation: Option<Arc<DiskReservation>>,
}

impl SpooledFile {
    /// Wraps a file of `length` bytes.
    #[must_use]
    pub fn new(file: File, length: u64) -> Self {
        Self { file: Arc::new(file), length, _reservation: None }
    }

    /// Wraps a file with its reservation, which is released when the last clone is dropped.
    pub(super) fn with_reservation(file: File, length: u64, reservation: DiskReservation) -> Self {
        Self { file: Arc::new(file), length, _reservation: Some(Arc::new(reservation)) }
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
    /// Returns the number of bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.length,
        }
    }

    /// Returns the number of bytes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_) => 0,
        }
    }

    /// Returns a reader of the content, for a blocking thread.
    #[must_use]
    pub fn reader(&self) -> impl Read + use<> {
        ContentReader { content: self.clone(), at: 0 }
    }

    /// Returns the next piece from the offset `at`: the rest of content in memory, or at most 64 KiB of a file.
    /// `None` at the end.
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

    /// Returns the content as a response body. A file is read as fast as the client reads.
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
        let remaining = self.content.length() - self.at;
        let size = usize::try_from(remaining).unwrap_or(usize::MAX).min(into.len());
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
