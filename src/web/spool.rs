//! Answers that may be large: each is written once, and sent from where it was written to however many clients.
//!
//! An answer of up to [`IN_MEMORY`] bytes stays in memory while there is room; a larger one goes to a file without a
//! name in the data folder, which the system removes with its last reader. Clients that read slowly therefore cost
//! a few buffers, and no copy of the answer. Both kinds of room have a bound for all answers together.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Problem, ProblemCode,
    content::{Content, PIECE, SpooledFile},
};

/// Maximum size of an answer that is kept in memory, in bytes.
pub const IN_MEMORY: usize = 1 << 20;

/// Maximum size of all answers in memory together, in KiB.
const MEMORY_KIB: usize = 32 << 10;

/// Maximum number of files at the same time.
const FILES: usize = 256;

/// Room on disk that a file takes at once, in KiB.
const STEP_KIB: u32 = 1 << 10;

/// Number of answers of bounded size (pages, single changes) that are written at the same time.
const PAGES_AT_ONCE: usize = 2;

/// Number of whole documents (feeds, archive pages) that are written at the same time.
const DOCUMENTS_AT_ONCE: usize = 1;

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
pub(super) struct Room {
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
        Ok(Content::File(SpooledFile::in_room(file, length, room)))
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

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};

    use axum::body::to_bytes;

    use super::{Content, IN_MEMORY, MEMORY_KIB, Spool};

    fn keep(spool: &Spool, length: usize) -> std::io::Result<Content> {
        let mut writer = spool.writer();
        writer.write_all(&vec![b'x'; length])?;
        writer.finish()
    }

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
        let first = keep(&spool, 3 << 20).unwrap();
        let refused = keep(&spool, 3 << 20).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
        drop(first);
        assert!(keep(&spool, 3 << 20).is_ok());
    }

    #[test]
    fn room_in_memory_is_bounded_and_more_goes_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path(), 64 << 20);
        let fitting: Vec<_> = (0..MEMORY_KIB * 1024 / IN_MEMORY).map(|_| keep(&spool, IN_MEMORY).unwrap()).collect();
        assert!(fitting.iter().all(|content| matches!(content, Content::Memory(_))));
        let clone = fitting[0].clone();
        assert!(matches!(keep(&spool, IN_MEMORY).unwrap(), Content::File(_)));
        drop(fitting);
        assert!(matches!(keep(&spool, IN_MEMORY).unwrap(), Content::Memory(_)));
        drop(clone);
    }
}
