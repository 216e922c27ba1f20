//! Reading of a stored file at any position, for libraries that need `Read` and `Seek`.

use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio::runtime::Handle;

use super::{FileDigest, FileStore};

/// Size of the blocks that are read, in bytes.
const BLOCK_BYTES: u64 = 1024 * 1024;

/// Number of blocks in memory: a zip file is read at its list of entries and at the entries by turns.
const BLOCKS: usize = 2;

/// Reader of a stored file. It has [`BLOCKS`] blocks of the file in memory, and blocks the thread.
pub struct FileReader {
    store: FileStore,
    digest: FileDigest,
    size: u64,
    position: u64,
    runtime: Handle,
    /// Blocks with their numbers, the last used one at the end.
    blocks: Vec<(u64, Bytes)>,
}

impl FileReader {
    /// Creates a reader of a file with this size. It must be used in a thread that may block.
    #[must_use]
    pub fn new(store: FileStore, digest: FileDigest, size: u64, runtime: Handle) -> Self {
        Self { store, digest, size, position: 0, runtime, blocks: Vec::new() }
    }

    /// Returns a block of the file.
    fn block(&mut self, number: u64) -> io::Result<Bytes> {
        if let Some(at) = self.blocks.iter().position(|(known, _)| *known == number) {
            let block = self.blocks.remove(at);
            self.blocks.push(block.clone());
            return Ok(block.1);
        }
        let start = number * BLOCK_BYTES;
        let range = start..(start + BLOCK_BYTES).min(self.size);
        let (store, digest) = (&self.store, self.digest);
        let pieces = self.runtime.block_on(async {
            let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the file {digest} is missing"));
            let content = store.read(digest, Some(range)).await.map_err(io::Error::other)?.ok_or_else(missing)?;
            content.pieces.try_collect::<Vec<Bytes>>().await.map_err(io::Error::other)
        })?;
        let block = Bytes::from(pieces.concat());
        if self.blocks.len() == BLOCKS {
            self.blocks.remove(0);
        }
        self.blocks.push((number, block.clone()));
        Ok(block)
    }
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.position >= self.size {
            return Ok(0);
        }
        let block = self.block(self.position / BLOCK_BYTES)?;
        let offset = usize::try_from(self.position % BLOCK_BYTES).unwrap_or(usize::MAX);
        let rest = block.get(offset..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for FileReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}
