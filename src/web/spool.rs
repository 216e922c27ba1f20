//! Answers that may be large: each is written once, and sent from where it was written to however many clients.
//!
//! An answer of up to [`IN_MEMORY`] bytes stays in memory while there is room; a larger one goes to a file without a
//! name in the data folder, which the system removes with its last reader. Clients that read slowly therefore cost
//! a few buffers, and no copy of the answer. Both kinds of room have a bound for all answers together.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Problem, ProblemCode};

/// Maximum size of an answer that is kept in memory, in bytes.
pub const IN_MEMORY: usize = 1 << 20;

/// Maximum size of all answers in memory together, in KiB.
const MEMORY_KIB: usize = 64 << 10;

/// Maximum number of files at the same time.
const FILES: usize = 256;

/// Room on disk that a file takes at once, in KiB.
const STEP_KIB: u32 = 1 << 10;

/// Size of the pieces in which a file is written and sent, in bytes.
const PIECE: usize = 64 << 10;

/// Number of answers of bounded size (pages, single changes) that are written at the same time.
const PAGES_AT_ONCE: usize = 3;

/// Number of whole documents (feeds, archive pages) that are written at the same time.
const DOCUMENTS_AT_ONCE: usize = 2;

/// The room for answers. Clones are handles to the same room.
#[derive(Clone, Debug)]
pub struct Spool(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    folder: PathBuf,
    memory: Arc<Semaphore>,
    disk: Arc<Semaphore>,
    files: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    documents: Arc<Semaphore>,
}

/// The right to read and write one large answer. It bounds the changes that are in memory for answers.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn(#[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

/// Files or their bytes have reached the bound.
#[derive(Debug, thiserror::Error)]
#[error("the answers on disk have reached limits.spool_bytes, or {FILES} files")]
struct NoRoom;

impl Spool {
    /// Room in files below `folder`, for `bytes` of them together.
    #[must_use]
    pub fn new(folder: &Path, bytes: usize) -> Self {
        let turns = |count| Arc::new(Semaphore::new(count));
        Self(Arc::new(Parts {
            folder: folder.to_owned(),
            memory: turns(MEMORY_KIB),
            disk: turns((bytes >> 10).min(Semaphore::MAX_PERMITS)),
            files: turns(FILES),
            pages: turns(PAGES_AT_ONCE),
            documents: turns(DOCUMENTS_AT_ONCE),
        }))
    }

    /// Waits for the turn to write an answer of bounded size.
    pub async fn page_turn(&self) -> Turn {
        // The semaphore is never closed.
        Turn(Arc::clone(&self.0.pages).acquire_owned().await.ok())
    }

    /// Waits for the turn to write a whole document.
    pub async fn document_turn(&self) -> Turn {
        Turn(Arc::clone(&self.0.documents).acquire_owned().await.ok())
    }

    /// Begins an answer.
    #[must_use]
    pub fn writer(&self) -> SpoolWriter {
        SpoolWriter { spool: self.clone(), buffer: Vec::new(), file: None }
    }

    /// Takes over an answer that was written elsewhere: into memory, if there is room, else into a file.
    ///
    /// # Errors
    /// As for [`SpoolWriter::finish`].
    pub fn keep(&self, answer: Vec<u8>) -> io::Result<Content> {
        if answer.len() > IN_MEMORY {
            let mut writer = self.writer();
            writer.write_all(&answer)?;
            return writer.finish();
        }
        SpoolWriter { spool: self.clone(), buffer: answer, file: None }.finish()
    }

    /// Runs work that reads, parses or writes a large answer on a thread that may wait.
    ///
    /// # Errors
    /// Those of the work; `internal` when it panics.
    pub async fn blocking<T: Send + 'static>(
        turn: Turn,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let working = tokio::task::spawn_blocking(move || {
            // The turn lasts until the work is done, even if the client has gone by then.
            let _turn = turn;
            work()
        });
        working.await.unwrap_or_else(|failed| Err(Problem::internal(failed)))
    }
}

/// An answer that is being written.
#[derive(Debug)]
pub struct SpoolWriter {
    spool: Spool,
    /// The bytes that are not in the file.
    buffer: Vec<u8>,
    file: Option<Growing>,
}

/// A file that is being written.
#[derive(Debug)]
struct Growing {
    file: File,
    length: u64,
    room: Room,
}

/// The share of a file in the room that there is.
#[derive(Debug)]
struct Room {
    /// Free room within the share, in bytes.
    left: usize,
    bytes: Option<OwnedSemaphorePermit>,
    _file: OwnedSemaphorePermit,
}

impl Write for SpoolWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        let bound = if self.file.is_some() { PIECE } else { IN_MEMORY };
        if self.buffer.len() > bound {
            self.empty_buffer()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpoolWriter {
    fn empty_buffer(&mut self) -> io::Result<()> {
        let growing = match &mut self.file {
            Some(growing) => growing,
            file => file.insert(Growing::new(&self.spool)?),
        };
        growing.write(&self.spool, &self.buffer)?;
        if self.buffer.capacity() > 4 * PIECE {
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        Ok(())
    }

    /// The number of bytes that were written.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.file.as_ref().map_or(0, |growing| growing.length) + self.buffer.len() as u64
    }

    /// The answer as it can be sent.
    ///
    /// # Errors
    /// When the disk fails or has no room left, or the bound on files is reached ([`spool_problem`]).
    pub fn finish(mut self) -> io::Result<Content> {
        if self.file.is_none() {
            let kib = u32::try_from(self.buffer.len().div_ceil(1 << 10)).unwrap_or(u32::MAX);
            if let Ok(room) = Arc::clone(&self.spool.0.memory).try_acquire_many_owned(kib) {
                self.buffer.shrink_to_fit();
                return Ok(Content::Memory(Bytes::from_owner(InMemory { bytes: self.buffer, _room: room })));
            }
        }
        self.empty_buffer()?;
        let Some(Growing { file, length, room }) = self.file else { return Ok(Content::Memory(Bytes::new())) };
        Ok(Content::File(SpooledFile { file: Arc::new(file), length, _room: Some(Arc::new(room)) }))
    }
}

impl Growing {
    fn new(spool: &Spool) -> io::Result<Self> {
        let slot = Arc::clone(&spool.0.files).try_acquire_owned().map_err(|_| no_room())?;
        let room = Room { left: 0, bytes: None, _file: slot };
        Ok(Self { file: tempfile::tempfile_in(&spool.0.folder)?, length: 0, room })
    }

    fn write(&mut self, spool: &Spool, bytes: &[u8]) -> io::Result<()> {
        self.room.take(spool, bytes.len())?;
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

impl Room {
    fn take(&mut self, spool: &Spool, bytes: usize) -> io::Result<()> {
        while self.left < bytes {
            let more = Arc::clone(&spool.0.disk).try_acquire_many_owned(STEP_KIB).map_err(|_| no_room())?;
            match &mut self.bytes {
                Some(taken) => taken.merge(more),
                none => *none = Some(more),
            }
            self.left += STEP_KIB as usize * 1024;
        }
        self.left -= bytes;
        Ok(())
    }
}

fn no_room() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, NoRoom)
}

/// The problem of an answer that could not be written.
#[must_use]
pub fn spool_problem(error: io::Error) -> Problem {
    if error.kind() == io::ErrorKind::QuotaExceeded {
        let detail = "The answers that are being sent take all the room on disk that limits.spool_bytes gives them. Try again \
                      later, ask for less at once, or raise that limit in the configuration.";
        return Problem::new(ProblemCode::Unavailable, detail).retry_after(Problem::COME_BACK).because(error);
    }
    Problem::failure("The answer cannot be written to the disk", true, error)
}

/// Bytes in memory, with their share of the room.
struct InMemory {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for InMemory {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

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
    #[must_use]
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

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};

    use axum::body::to_bytes;

    use super::{Content, IN_MEMORY, MEMORY_KIB, Spool};

    async fn whole(content: &Content) -> Vec<u8> {
        to_bytes(content.body(), usize::MAX).await.unwrap().to_vec()
    }

    #[tokio::test]
    async fn large_content_goes_to_a_file_and_comes_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path(), 64 << 20);
        for length in [0, 1, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY + 17] {
            let expected: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut writer = spool.writer();
            expected.chunks(70_001).for_each(|piece| writer.write_all(piece).unwrap());
            assert_eq!(writer.length(), length as u64);
            let content = writer.finish().unwrap();
            assert_eq!(matches!(content, Content::File(_)), length > IN_MEMORY, "{length}");
            assert_eq!(content.length(), length as u64);
            assert!(whole(&content).await == expected, "{length}");
            let mut read = Vec::new();
            content.reader().read_to_end(&mut read).unwrap();
            assert!(read == expected, "{length}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
    }

    #[test]
    fn room_on_disk_is_bounded_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path(), 4 << 20);
        let first = spool.keep(vec![b'x'; 3 << 20]).unwrap();
        let refused = spool.keep(vec![b'x'; 3 << 20]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
        drop(first);
        assert!(spool.keep(vec![b'x'; 3 << 20]).is_ok());
    }

    #[test]
    fn room_in_memory_is_bounded_and_more_goes_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path(), 64 << 20);
        let fitting: Vec<_> =
            (0..MEMORY_KIB * 1024 / IN_MEMORY).map(|_| spool.keep(vec![b'x'; IN_MEMORY]).unwrap()).collect();
        assert!(fitting.iter().all(|content| matches!(content, Content::Memory(_))));
        let clone = fitting[0].clone();
        assert!(matches!(spool.keep(vec![b'x'; IN_MEMORY]).unwrap(), Content::File(_)));
        drop(fitting);
        assert!(matches!(spool.keep(vec![b'x'; IN_MEMORY]).unwrap(), Content::Memory(_)));
        drop(clone);
    }
}
