//! Bodies of responses: received without a share of the budget, and read into memory with one.
//!
//! A body that arrives is in memory while it is small and there is room, and in an unnamed file otherwise. So a server that
//! sends slowly costs a file and no memory, and holds up nobody. A body that has arrived is measured, decompressed, before
//! it gets its share, because a few kilobytes of gzip may be megabytes of text.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
};

use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::budget::{BudgetShare, Cancelled, HarvestBudget, page_need};
use crate::http_client::{ClientError, ResponseStream};

/// Maximum size of a body in memory while it arrives, in bytes, and the amount that it takes in one step.
const MAX_IN_MEMORY: usize = 1 << 20;
const MEMORY_STEP: usize = 64 << 10;

/// Size of the pieces that are written to a file, in bytes, and the disk space that it takes in one step.
const FILE_PIECE: usize = 256 << 10;
const DISK_STEP: usize = 1 << 20;

/// Size of the pieces in which a body is decompressed, in bytes.
const READ_PIECE: usize = 64 << 10;

/// Base-2 logarithm of the maximum zstd window: the 8 MiB that RFC 9659 allows in HTTP.
const ZSTD_WINDOW_LOG: u32 = 23;

/// A body that has arrived, as the server sent it.
pub(crate) struct ReceivedBody {
    content: Content,
    /// First bytes, which show the encoding.
    start: [u8; 4],
    length: usize,
}

enum Content {
    Memory(Vec<u8>, #[expect(dead_code, reason = "held for its drop")] Option<BudgetShare>),
    File(File, #[expect(dead_code, reason = "held for its drop")] Option<BudgetShare>),
}

/// A decompressed body in memory, with its share of the budget.
pub(crate) struct HeldBody {
    pub(crate) bytes: Vec<u8>,
    /// Room for the bytes and for what a parser makes of them.
    pub(crate) share: BudgetShare,
}

/// Reason why a body has not arrived.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// It has more bytes than allowed.
    TooLarge,
    /// The connection broke, or a piece did not arrive in time.
    Client(ClientError),
    /// It cannot be written to a file. The text says why.
    Disk(String),
}

/// Reason why a body that has arrived cannot be read.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It has more bytes than allowed when it is decompressed.
    TooLarge,
    /// It does not have the encoding that its first bytes announce.
    Corrupt { encoding: &'static str, reason: String },
    /// Its file cannot be read. The text says why.
    Disk(String),
}

/// Receives the body of a response: at most `max_bytes`.
pub(crate) async fn receive(
    stream: &mut ResponseStream,
    max_bytes: usize,
    budget: &HarvestBudget,
) -> Result<ReceivedBody, ReceiveError> {
    let mut receiver = Receiver { budget, buffer: Vec::new(), memory: None, file: None, length: 0, start: [0; 4] };
    while let Some(piece) = stream.piece().await.map_err(ReceiveError::Client)? {
        if piece.len() > max_bytes - receiver.length {
            return Err(ReceiveError::TooLarge);
        }
        receiver.receive(&piece).await.map_err(|error| ReceiveError::Disk(error.to_string()))?;
    }
    receiver.finish().await.map_err(|error| ReceiveError::Disk(error.to_string()))
}

/// A body that arrives.
struct Receiver<'b> {
    budget: &'b HarvestBudget,
    /// Bytes that are not in the file.
    buffer: Vec<u8>,
    /// Room in memory, and its size in bytes.
    memory: Option<(BudgetShare, usize)>,
    file: Option<ReceivedFile>,
    length: usize,
    start: [u8; 4],
}

struct ReceivedFile {
    file: File,
    /// Disk space, and its size in bytes.
    space: Option<BudgetShare>,
    reserved: usize,
    length: usize,
}

impl Receiver<'_> {
    async fn receive(&mut self, piece: &[u8]) -> io::Result<()> {
        for (place, byte) in self.start.iter_mut().skip(self.length).zip(piece) {
            *place = *byte;
        }
        self.length += piece.len();
        self.buffer.extend_from_slice(piece);
        if self.file.is_some() {
            if self.buffer.len() >= FILE_PIECE {
                self.write().await?;
            }
        } else if !self.has_room() {
            let folder = self.budget.folder().to_owned();
            let file = blocking(move || tempfile::tempfile_in(folder)).await?;
            self.file = Some(ReceivedFile { file, space: None, reserved: 0, length: 0 });
            self.write().await?;
            self.memory = None;
        }
        Ok(())
    }

    /// Returns whether the buffer fits into the room in memory, after taking more of it if there is some.
    fn has_room(&mut self) -> bool {
        let length = self.buffer.len();
        while length > self.memory.as_ref().map_or(0, |(_, reserved)| *reserved) {
            let Some(more) = self.budget.try_arriving(MEMORY_STEP).filter(|_| length <= MAX_IN_MEMORY) else {
                return false;
            };
            match &mut self.memory {
                Some((share, reserved)) => {
                    share.merge(more);
                    *reserved += MEMORY_STEP;
                }
                none => *none = Some((more, MEMORY_STEP)),
            }
        }
        true
    }

    /// Moves the buffer to the file.
    async fn write(&mut self) -> io::Result<()> {
        let Some(mut to) = self.file.take() else { return Ok(()) };
        let buffer = std::mem::take(&mut self.buffer);
        to.length += buffer.len();
        while to.reserved < to.length {
            let more = self.budget.try_disk(DISK_STEP);
            let more =
                more.ok_or_else(|| io::Error::other("the files of all bodies that arrive have reached 2 GiB"))?;
            match &mut to.space {
                Some(space) => space.merge(more),
                none => *none = Some(more),
            }
            to.reserved += DISK_STEP;
        }
        let written = blocking(move || {
            to.file.write_all(&buffer)?;
            Ok((to, buffer))
        });
        let (to, mut buffer) = written.await?;
        buffer.clear();
        (self.file, self.buffer) = (Some(to), buffer);
        Ok(())
    }

    async fn finish(mut self) -> io::Result<ReceivedBody> {
        self.write().await?;
        let content = match self.file {
            Some(ReceivedFile { file, space, .. }) => Content::File(file, space),
            None => Content::Memory(self.buffer, self.memory.map(|(share, _)| share)),
        };
        Ok(ReceivedBody { content, start: self.start, length: self.length })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

impl ReceivedBody {
    /// Returns the number of bytes, as the server sent them.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Waits for a share of the budget, and reads the body into memory, decompressed by its first bytes, because the header
    /// is often wrong. It has at most `max_bytes`.
    pub(crate) async fn open(self, max_bytes: usize, budget: &HarvestBudget) -> Result<HeldBody, OpenError> {
        let failed = |error: super::budget::WorkFailed| OpenError::Disk(error.to_string());
        if let (None, Content::Memory(..)) = (self.encoding(), &self.content) {
            let share = budget.share(page_need(self.length)).await;
            let Content::Memory(bytes, _) = self.content else { return Err(OpenError::TooLarge) };
            return Ok(HeldBody { bytes, share });
        }
        let measured = budget.work(move |cancelled| self.measure(max_bytes, cancelled)).await.map_err(failed)?;
        let (body, length) = measured?;
        let share = budget.share(page_need(length)).await;
        let bytes = budget.work(move |cancelled| body.read(length, cancelled)).await.map_err(failed)??;
        Ok(HeldBody { bytes, share })
    }

    /// Returns the encoding that the first bytes announce.
    pub(crate) fn encoding(&self) -> Option<&'static str> {
        match self.start {
            [0x1F, 0x8B, ..] if self.length >= 2 => Some("gzip"),
            [0x28, 0xB5, 0x2F, 0xFD] => Some("zstd"),
            // Header of zlib (RFC 1950 section 2.2), with the usual window. Servers send it although nobody asks for it.
            [0x78, flags, ..] if self.length >= 2 && (0x7800 + u16::from(flags)) % 31 == 0 => Some("deflate"),
            _ => None,
        }
    }

    /// Returns the length of the decompressed body.
    fn measure(mut self, max_bytes: usize, cancelled: &Cancelled) -> Result<(Self, usize), OpenError> {
        if self.encoding().is_none() {
            let length = self.length;
            return Ok((self, length));
        }
        let mut length = 0;
        self.decompress(cancelled, |piece| {
            length += piece.len();
            length <= max_bytes
        })?;
        if length > max_bytes {
            return Err(OpenError::TooLarge);
        }
        Ok((self, length))
    }

    /// Returns the decompressed body, which has this length.
    fn read(mut self, length: usize, cancelled: &Cancelled) -> Result<Vec<u8>, OpenError> {
        let mut bytes = Vec::with_capacity(length);
        self.decompress(cancelled, |piece| {
            bytes.extend_from_slice(piece);
            true
        })?;
        Ok(bytes)
    }

    /// Calls a function with each piece of the decompressed body, until it returns false.
    fn decompress(&mut self, cancelled: &Cancelled, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), OpenError> {
        let encoding = self.encoding();
        let corrupt = |error: io::Error| match encoding {
            Some(encoding) => OpenError::Corrupt { encoding, reason: error.to_string() },
            None => OpenError::Disk(error.to_string()),
        };
        let raw: Box<dyn Read + '_> = match &mut self.content {
            Content::Memory(bytes, _) => Box::new(bytes.as_slice()),
            Content::File(file, _) => {
                file.seek(SeekFrom::Start(0)).map_err(|error| OpenError::Disk(error.to_string()))?;
                Box::new(file)
            }
        };
        let raw = BufReader::with_capacity(READ_PIECE, raw);
        let mut decoded: Box<dyn Read + '_> = match encoding {
            Some("gzip") => Box::new(MultiGzDecoder::new(raw)),
            Some("deflate") => Box::new(ZlibDecoder::new(raw)),
            Some(_) => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(corrupt)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(corrupt)?;
                Box::new(decoder)
            }
            None => Box::new(raw),
        };
        let mut piece = vec![0; READ_PIECE];
        while !cancelled.is_cancelled() {
            let read = decoded.read(&mut piece).map_err(corrupt)?;
            if read == 0 || !each(&piece[..read]) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    async fn received(pieces: &[&[u8]], budget: &HarvestBudget) -> ReceivedBody {
        let mut receiver = Receiver { budget, buffer: Vec::new(), memory: None, file: None, length: 0, start: [0; 4] };
        for piece in pieces {
            receiver.receive(piece).await.unwrap();
        }
        receiver.finish().await.unwrap()
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn bodies_return_as_they_were_sent() {
        let budget = HarvestBudget::new(64 << 20, &std::env::temp_dir());
        let noise: Vec<u8> =
            (0..750_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).rotate_left(n % 31).to_le_bytes()).collect();
        for content in [&b""[..], b"\x1f", b"text", &noise] {
            let zstd = zstd::encode_all(content, 1).unwrap();
            for sent in [content.to_vec(), gzip(content), zstd] {
                let pieces: Vec<_> = sent.chunks(60_001).collect();
                let body = received(&pieces, &budget).await;
                assert_eq!(matches!(body.content, Content::File(..)), sent.len() > MAX_IN_MEMORY);
                let opened = body.open(4 << 20, &budget).await.unwrap();
                assert_eq!(opened.bytes, content);
            }
        }
    }

    #[tokio::test]
    async fn body_without_room_in_memory_goes_to_a_file() {
        // An eighth of the budget is one step.
        let budget = HarvestBudget::new(8 * MEMORY_STEP, &std::env::temp_dir());
        let first = received(&[b"first"], &budget).await;
        let second = received(&[b"sec", b"ond"], &budget).await;
        assert!(matches!((&first.content, &second.content), (Content::Memory(..), Content::File(..))));
        assert_eq!(second.open(100, &budget).await.unwrap().bytes, b"second");
        drop(first);
        assert!(matches!(received(&[b"third"], &budget).await.content, Content::Memory(..)));
    }

    #[tokio::test]
    async fn decompression_ends_at_the_limit_and_at_errors() {
        let budget = HarvestBudget::new(64 << 20, &std::env::temp_dir());
        let bomb = gzip(&vec![b' '; 10 << 20]);
        let opened = received(&[&bomb], &budget).await.open(1 << 20, &budget).await;
        assert!(matches!(opened, Err(OpenError::TooLarge)));
        for (broken, name) in [(&bomb[..bomb.len() - 9], "gzip"), (&b"\x28\xB5\x2F\xFDbroken"[..], "zstd")] {
            let opened = received(&[broken], &budget).await.open(64 << 20, &budget).await;
            assert!(matches!(opened, Err(OpenError::Corrupt { encoding, .. }) if encoding == name), "{name}");
        }
        // Everything was returned.
        assert_eq!(budget.share(56 << 20).await.size(), 56 << 20);
    }
}
