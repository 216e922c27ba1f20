//! Spool for responses that may be large. Each response is written once and sent from the spool to any number of
//! clients.
//!
//! A response of up to [`MAX_IN_MEMORY`] bytes stays in memory while there is room. A larger one goes to an unnamed
//! file in the data folder, which the system deletes when its last reader closes it. Therefore slow clients cost a
//! few buffers and no copy of the response. Memory and disk space are limited for all responses together. The documents that
//! views keep count too, whether or not somebody reads them.

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
    disk_reservation::DiskReservation,
};

/// Maximum size of a response in memory, in bytes.
pub const MAX_IN_MEMORY: usize = 1 << 20;

/// Maximum size of all responses in memory, in KiB. The views keep at most half of it.
const MEMORY_KIB: usize = 64 << 10;

/// Maximum number of files.
const MAX_FILES: usize = 256;

/// Maximum number of concurrent writers of responses of bounded size (pages, single changes).
const CONCURRENT_PAGES: usize = 2;

/// Maximum number of concurrent writers of lists that can read the whole registry for a few records. They delay no page.
const CONCURRENT_LISTS: usize = 2;

/// Maximum number of segments that are decompressed at the same time. They delay nothing else.
const CONCURRENT_SEGMENTS: usize = 2;

/// Maximum number of concurrent writers of whole documents (feeds, archive pages).
const CONCURRENT_DOCUMENTS: usize = 1;

/// Space for responses in memory and on disk. Clones share the same space.
#[derive(Clone, Debug)]
pub struct Spool(Arc<SpoolState>);

#[derive(Debug)]
struct SpoolState {
    folder: PathBuf,
    memory: Arc<Semaphore>,
    disk: Arc<Semaphore>,
    files: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    segments: Arc<Semaphore>,
    documents: Arc<Semaphore>,
}

/// Permit to read and write one large response. It limits the number of changes in memory.
#[derive(Debug)]
#[must_use = "dropping the permit releases it"]
pub struct RenderPermit(#[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

/// The number of files or their size has reached its limit.
#[derive(Debug, thiserror::Error)]
#[error("the responses on disk have reached limits.spool_bytes or {MAX_FILES} files")]
struct SpoolFull;

impl Spool {
    /// Creates a spool whose files are in `folder` and have at most `bytes` bytes together.
    #[must_use]
    pub fn new(folder: &Path, bytes: usize) -> Self {
        let semaphore = |count| Arc::new(Semaphore::new(count));
        Self(Arc::new(SpoolState {
            folder: folder.to_owned(),
            memory: semaphore(MEMORY_KIB),
            disk: semaphore((bytes >> 10).min(Semaphore::MAX_PERMITS)),
            files: semaphore(MAX_FILES),
            pages: semaphore(CONCURRENT_PAGES),
            lists: semaphore(CONCURRENT_LISTS),
            segments: semaphore(CONCURRENT_SEGMENTS),
            documents: semaphore(CONCURRENT_DOCUMENTS),
        }))
    }

    /// Waits for a permit to write a response of bounded size.
    pub async fn page_permit(&self) -> RenderPermit {
        // The semaphore is never closed.
        RenderPermit(Arc::clone(&self.0.pages).acquire_owned().await.ok())
    }

    /// Waits for a permit to write a list that can read the whole registry for a few records.
    pub async fn list_permit(&self) -> RenderPermit {
        RenderPermit(Arc::clone(&self.0.lists).acquire_owned().await.ok())
    }

    /// Waits for a permit to decompress a segment.
    pub async fn segment_permit(&self) -> RenderPermit {
        RenderPermit(Arc::clone(&self.0.segments).acquire_owned().await.ok())
    }

    /// Waits for a permit to write a whole document.
    pub async fn document_permit(&self) -> RenderPermit {
        RenderPermit(Arc::clone(&self.0.documents).acquire_owned().await.ok())
    }

    /// Starts a response.
    #[must_use]
    pub fn writer(&self) -> SpoolWriter {
        SpoolWriter { spool: self.clone(), buffer: Vec::new(), file: None }
    }

    /// Runs work that reads, parses or writes a large response on a blocking thread.
    ///
    /// # Errors
    /// The problem that the work returns, and `internal` if the work panics.
    pub async fn blocking<T: Send + 'static>(
        permit: RenderPermit,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let working = tokio::task::spawn_blocking(move || {
            // The permit is held until the work is done, even if the client has disconnected.
            let _permit = permit;
            work()
        });
        working.await.unwrap_or_else(|failed| Err(Problem::internal(failed)))
    }
}

/// Writer of one response.
#[derive(Debug)]
pub struct SpoolWriter {
    spool: Spool,
    /// Bytes that are not written to the file yet.
    buffer: Vec<u8>,
    file: Option<SpoolFile>,
}

/// File of a response that is being written.
#[derive(Debug)]
struct SpoolFile {
    file: File,
    length: u64,
    reservation: DiskReservation,
}

impl Write for SpoolWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        let limit = if self.file.is_some() { PIECE } else { MAX_IN_MEMORY };
        if self.buffer.len() > limit {
            self.flush_buffer()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpoolWriter {
    fn flush_buffer(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(SpoolFile::new(&self.spool)?),
        };
        file.write(&self.spool, &self.buffer)?;
        if self.buffer.capacity() > 4 * PIECE {
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        Ok(())
    }

    /// Returns the number of bytes written.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.length) + self.buffer.len() as u64
    }

    /// Returns the finished response.
    ///
    /// # Errors
    /// When the disk fails or is full, or a limit on files is reached ([`spool_problem`]).
    pub fn finish(mut self) -> io::Result<Content> {
        if self.file.is_none() {
            let kib = u32::try_from(self.buffer.len().div_ceil(1 << 10)).unwrap_or(u32::MAX);
            if let Ok(permits) = Arc::clone(&self.spool.0.memory).try_acquire_many_owned(kib) {
                self.buffer.shrink_to_fit();
                return Ok(Content::Memory(Bytes::from_owner(InMemory { bytes: self.buffer, _permits: permits })));
            }
        }
        self.flush_buffer()?;
        let Some(SpoolFile { file, length, reservation }) = self.file else { return Ok(Content::Memory(Bytes::new())) };
        Ok(Content::File(SpooledFile::with_reservation(file, length, reservation)))
    }
}

impl SpoolFile {
    fn new(spool: &Spool) -> io::Result<Self> {
        let permit = Arc::clone(&spool.0.files).try_acquire_owned().map_err(|_| spool_full())?;
        let reservation = DiskReservation::new(permit);
        Ok(Self { file: tempfile::tempfile_in(&spool.0.folder)?, length: 0, reservation })
    }

    fn write(&mut self, spool: &Spool, bytes: &[u8]) -> io::Result<()> {
        self.reservation.reserve(&spool.0.disk, bytes.len()).map_err(|_| spool_full())?;
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn spool_full() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, SpoolFull)
}

/// Returns the problem of a response that could not be written.
#[must_use]
pub fn spool_problem(error: io::Error) -> Problem {
    if error.kind() == io::ErrorKind::QuotaExceeded {
        let detail = "The responses that are being sent have reached limits.spool_bytes on disk. Try again later, request less \
                      at once, or raise that limit in the configuration.";
        return Problem::new(ProblemCode::Unavailable, detail).retry_after(Problem::RETRY_AFTER).because(error);
    }
    Problem::failure("The response cannot be written to disk", true, error)
}

/// Bytes in memory, with their part of the memory limit.
struct InMemory {
    bytes: Vec<u8>,
    _permits: OwnedSemaphorePermit,
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

    use super::{Content, MAX_IN_MEMORY, MEMORY_KIB, Spool};

    fn write(spool: &Spool, length: usize) -> std::io::Result<Content> {
        let mut writer = spool.writer();
        writer.write_all(&vec![b'x'; length])?;
        writer.finish()
    }

    async fn read_all(content: &Content) -> Vec<u8> {
        to_bytes(content.body(), usize::MAX).await.unwrap().to_vec()
    }

    #[tokio::test]
    async fn large_content_is_read_back_from_file() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path(), 64 << 20);
        for length in [0, 1, MAX_IN_MEMORY, MAX_IN_MEMORY + 1, 3 * MAX_IN_MEMORY + 17] {
            let expected: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut writer = spool.writer();
            expected.chunks(70_001).for_each(|piece| writer.write_all(piece).unwrap());
            assert_eq!(writer.length(), length as u64);
            let content = writer.finish().unwrap();
            assert_eq!(matches!(content, Content::File(_)), length > MAX_IN_MEMORY, "{length}");
            assert_eq!(content.length(), length as u64);
            assert!(read_all(&content).await == expected, "{length}");
            let mut read = Vec::new();
            content.reader().read_to_end(&mut read).unwrap();
            assert!(read == expected, "{length}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
    }

    #[test]
    fn disk_space_is_limited_and_released() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path(), 4 << 20);
        let first = write(&spool, 3 << 20).unwrap();
        let error = write(&spool, 3 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        drop(first);
        assert!(write(&spool, 3 << 20).is_ok());
    }

    #[test]
    fn content_beyond_memory_limit_goes_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path(), 64 << 20);
        let fitting: Vec<_> =
            (0..MEMORY_KIB * 1024 / MAX_IN_MEMORY).map(|_| write(&spool, MAX_IN_MEMORY).unwrap()).collect();
        assert!(fitting.iter().all(|content| matches!(content, Content::Memory(_))));
        let clone = fitting[0].clone();
        assert!(matches!(write(&spool, MAX_IN_MEMORY).unwrap(), Content::File(_)));
        drop(fitting);
        assert!(matches!(write(&spool, MAX_IN_MEMORY).unwrap(), Content::Memory(_)));
        drop(clone);
    }
}
