//! Zip, tar and tar.gz archives, read without unpacking them to the disk.
//!
//! An archive is read as a whole. Its names, its sizes and its number of entries may be wrong or hostile, so all of them
//! have a limit, and nothing is allocated by a number that the archive states. Names of zip files become UTF-8 with slashes
//! (`zip_name`).

mod zip_name;

use std::{
    cell::Cell,
    io::{self, BufReader, Read, Seek, SeekFrom},
    rc::Rc,
};

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ReaderAt, ZipArchive};
use tar::EntryType;
use tokio_util::sync::CancellationToken;

use self::zip_name::zip_name;

/// Maximum number of bytes between two files of a tar archive: names, and lists of sparse blocks.
const MAX_HEADER_BYTES: u64 = 1024 * 1024;

/// Number of bytes that are read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Size of the header before the content of an entry of a zip file, without its name and extra fields, in bytes.
const LOCAL_HEADER_BYTES: u64 = 30;

/// First bytes of a zip file, of an empty zip file, and of gzip data.
const ZIP: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
const GZIP: &[u8] = b"\x1f\x8b";

/// Place and text of the identification of a tar header (POSIX 1003.1, `ustar`).
const USTAR: (usize, &[u8]) = (257, b"ustar");

/// Reason why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// The file is not an archive.
    #[error("it is not a zip, tar or tar.gz file")]
    Kind,
    /// The archive is damaged.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// The archive has more entries, or more files, than this number.
    #[error("the archive has more than {0} {1}; divide it")]
    TooMany(usize, &'static str),
    /// The files have more bytes than this number.
    #[error("the files of the archive have more than {0} bytes")]
    TooLarge(u64),
    /// The file cannot be read, or the gateway is stopping.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Limits of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveLimits {
    /// Maximum size of the content of all entries that are read, in bytes.
    pub(crate) unpacked_bytes: u64,
    /// Maximum number of entries of any kind.
    pub(crate) entries: usize,
}

/// An entry of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind<'a> {
    /// A file.
    File,
    /// Another name of the file with this path.
    Link(&'a [u8]),
    /// A name that refers to another name, inside or outside of the archive.
    Symlink,
    /// A folder.
    Folder,
    /// A device or pipe.
    Device,
    /// A file that needs a password.
    Encrypted,
    /// A file with a compression that this program does not have.
    UnknownCompression,
    /// Facts about other entries.
    Other,
}

/// Function that gets each entry: its path, its kind and its content.
pub(crate) type Receive<'r, E> = dyn FnMut(&[u8], EntryKind<'_>, &mut Content<'_>) -> Result<(), E> + 'r;

/// Reads an archive, and calls `receive` for each entry, with its path, its kind and its content.
///
/// # Errors
/// Fails if the source is not an archive, is damaged or too large, `stop` is cancelled, or `receive` fails.
pub(crate) fn read<S: Read + Seek, E: From<ArchiveError>>(
    mut source: S,
    limits: ArchiveLimits,
    stop: &CancellationToken,
    receive: &mut Receive<'_, E>,
) -> Result<(), E> {
    let mut head = Vec::new();
    source.by_ref().take(512).read_to_end(&mut head).map_err(ArchiveError::from)?;
    source.rewind().map_err(ArchiveError::from)?;
    let budget = Budget { left: limits.unpacked_bytes, limits, entries: 0, stop };
    if ZIP.iter().any(|magic| head.starts_with(magic)) {
        read_zip(source, budget, receive)
    } else if head.starts_with(GZIP) {
        read_tar(MultiGzDecoder::new(BufReader::new(source)), budget, receive)
    } else if head.get(USTAR.0..).is_some_and(|rest| rest.starts_with(USTAR.1)) {
        ends_with_zeros(&mut source)?;
        read_tar(BufReader::new(source), budget, receive)
    } else {
        Err(ArchiveError::Kind.into())
    }
}

/// Checks that a tar file has the block of zeros that marks its end (POSIX 1003.1, `pax`). A file that was cut off
/// between two entries has no other sign of that.
fn ends_with_zeros(source: &mut (impl Read + Seek)) -> Result<(), ArchiveError> {
    let mut end = [1; 512];
    source.seek(SeekFrom::End(-512))?;
    source.read_exact(&mut end)?;
    source.rewind()?;
    if end == [0; 512] { Ok(()) } else { Err(ArchiveError::Damaged("its end is missing".to_owned())) }
}

/// Limits on all entries, and their use so far.
struct Budget<'a> {
    left: u64,
    limits: ArchiveLimits,
    entries: usize,
    stop: &'a CancellationToken,
}

impl Budget<'_> {
    fn count(&mut self) -> Result<(), ArchiveError> {
        self.entries += 1;
        let limit = self.limits.entries;
        if self.entries > limit { Err(ArchiveError::TooMany(limit, "entries")) } else { Ok(()) }
    }
}

/// Content of an entry.
pub(crate) struct Content<'a> {
    reader: &'a mut dyn Read,
    left: &'a mut u64,
    unpacked_bytes: u64,
    stop: &'a CancellationToken,
    is_damaged: bool,
}

impl<'a> Content<'a> {
    fn new(reader: &'a mut dyn Read, budget: &'a mut Budget<'_>) -> Self {
        let Budget { left, limits, stop, .. } = budget;
        Self { reader, left, unpacked_bytes: limits.unpacked_bytes, stop, is_damaged: false }
    }

    /// Reads the content to its end, piece by piece. Returns false if it is damaged.
    ///
    /// # Errors
    /// Fails if the content of the archive is too large, the gateway is stopping, or `receive` fails.
    pub(crate) fn read<E: From<ArchiveError>>(
        &mut self,
        mut receive: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.is_damaged {
            return Ok(false);
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            if self.stop.is_cancelled() {
                let stopping = io::Error::new(io::ErrorKind::Interrupted, "the gateway is stopping");
                return Err(ArchiveError::Io(stopping).into());
            }
            let read = match self.reader.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.is_damaged = true;
                    return Ok(false);
                }
            };
            let left = self.left.checked_sub(read as u64).ok_or(ArchiveError::TooLarge(self.unpacked_bytes))?;
            *self.left = left;
            receive(&buffer[..read])?;
        }
    }
}

fn read_zip<S: Read + Seek, E: From<ArchiveError>>(
    source: S,
    mut budget: Budget<'_>,
    receive: &mut Receive<'_, E>,
) -> Result<(), E> {
    let damaged = |error: rawzip::Error| ArchiveError::Damaged(error.to_string());
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let zip = ZipArchive::from_seekable(source, &mut buffer).map_err(damaged)?;
    let has_slashes = look_over(&zip, &mut buffer, budget.limits.entries)?;
    let announced = zip.entries_hint();
    let mut entries = zip.entries(&mut buffer);
    while let Some(entry) = entries.next_entry().map_err(damaged)? {
        budget.count()?;
        let path = zip_name(&entry, has_slashes);
        let method = entry.compression_method();
        let kind = match method {
            _ if path.ends_with(b"/") => EntryKind::Folder,
            _ if entry.mode().is_symlink() => EntryKind::Symlink,
            _ if entry.flags().is_encrypted() => EntryKind::Encrypted,
            CompressionMethod::STORE | CompressionMethod::DEFLATE => EntryKind::File,
            _ => EntryKind::UnknownCompression,
        };
        if kind != EntryKind::File {
            receive(&path, kind, &mut Content::new(&mut io::empty(), &mut budget))?;
            continue;
        }
        let found = zip.get_entry(entry.wayfinder()).map_err(damaged)?;
        if method == CompressionMethod::STORE {
            let mut reader = found.verifying_reader(found.reader());
            receive(&path, kind, &mut Content::new(&mut reader, &mut budget))?;
        } else {
            let mut reader = found.verifying_reader(DeflateDecoder::new(found.reader()));
            receive(&path, kind, &mut Content::new(&mut reader, &mut budget))?;
        }
    }
    if budget.entries as u64 == announced {
        Ok(())
    } else {
        Err(ArchiveError::Damaged(format!("it has {} of {announced} entries", budget.entries)).into())
    }
}

/// Checks that no two entries share bytes of the file, before any of them is read. Otherwise a small file with many entries
/// for one member has any size. Returns whether a name has a slash.
fn look_over<R: ReaderAt>(zip: &ZipArchive<R>, buffer: &mut [u8], max_entries: usize) -> Result<bool, ArchiveError> {
    let (mut ranges, mut has_slashes) = (Vec::new(), false);
    let mut entries = zip.entries(buffer);
    while let Some(entry) = entries.next_entry().map_err(|error| ArchiveError::Damaged(error.to_string()))? {
        if ranges.len() >= max_entries {
            return Err(ArchiveError::TooMany(max_entries, "entries"));
        }
        let start = entry.local_header_offset();
        let end = start.saturating_add(LOCAL_HEADER_BYTES).saturating_add(entry.compressed_size_hint());
        ranges.push((start, end));
        has_slashes |= entry.file_path().as_bytes().contains(&b'/');
    }
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        return Err(ArchiveError::Damaged("two of its entries share bytes".to_owned()));
    }
    Ok(has_slashes)
}

fn read_tar<E: From<ArchiveError>>(
    data: impl Read,
    mut budget: Budget<'_>,
    receive: &mut Receive<'_, E>,
) -> Result<(), E> {
    let damaged = |error: io::Error| ArchiveError::Damaged(error.to_string());
    let is_whole = |is_whole: bool| {
        if is_whole { Ok(()) } else { Err(ArchiveError::Damaged("it ends in the middle of a file".to_owned())) }
    };
    let allowance = Rc::new(Cell::new(MAX_HEADER_BYTES));
    let mut tar = tar::Archive::new(AllowedReader { data, allowance: Rc::clone(&allowance) });
    let mut entries = tar.entries().map_err(damaged)?;
    loop {
        allowance.set(MAX_HEADER_BYTES);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(damaged)?;
        budget.count()?;
        let path = entry.path_bytes().into_owned();
        let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned);
        let kind = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => EntryKind::File,
            EntryType::Link => EntryKind::Link(target.as_deref().unwrap_or_default()),
            EntryType::Symlink => EntryKind::Symlink,
            EntryType::Directory => EntryKind::Folder,
            EntryType::Char | EntryType::Block | EntryType::Fifo => EntryKind::Device,
            _ => EntryKind::Other,
        };
        // The content is read in any case: the library would otherwise skip it without a limit.
        allowance.set(u64::MAX);
        let mut content = Content::new(&mut entry, &mut budget);
        receive(&path, kind, &mut content)?;
        is_whole(content.read::<ArchiveError>(|_| Ok(()))?)?;
    }
    // The rest has the checksum of compressed data.
    let rest = Content::new(&mut tar.into_inner(), &mut budget).read::<ArchiveError>(|_| Ok(()))?;
    match (rest, budget.entries) {
        (true, 1..) => Ok(()),
        (true, 0) => Err(ArchiveError::Damaged("it has no entry".to_owned()).into()),
        (false, _) => Err(ArchiveError::Damaged("its checksum is wrong, or its end is missing".to_owned()).into()),
    }
}

/// A reader that ends with an error after a number of bytes. The library reads names into memory, however long they are.
struct AllowedReader<R> {
    data: R,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for AllowedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = usize::try_from(self.allowance.get()).unwrap_or(usize::MAX).min(buffer.len());
        if allowed == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!("a name has more than {MAX_HEADER_BYTES} bytes")));
        }
        let read = self.data.read(&mut buffer[..allowed])?;
        self.allowance.set(self.allowance.get() - read as u64);
        Ok(read)
    }
}
