//! Files of zip and tar archives, read without unpacking them to the disk.
//!
//! An archive is read as a whole. Its names, its sizes and its number of files may be wrong or hostile, so all of them
//! have a limit, and nothing is allocated by a number that the archive states.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
    rc::Rc,
};

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};
use tar::EntryType;
use tokio_util::sync::CancellationToken;

use super::member::{Member, encoded, is_hidden, read as read_content, short_name};
use crate::files::FileFacts;

/// Maximum number of files of an archive, which are in memory during a run.
const MAX_FILES: usize = 250_000;

/// Maximum number of entries of any kind.
const MAX_ENTRIES: usize = 4 * MAX_FILES;

/// Maximum length of a path in an archive, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Maximum number of bytes between two files of a tar archive: names, and lists of sparse blocks.
const MAX_HEADER_BYTES: u64 = 1024 * 1024;

/// Maximum number of remarks of each kind.
const MAX_REMARKS: usize = 3;

/// First bytes of a zip file, of an empty zip file, and of gzip data.
const ZIP: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
const GZIP: &[u8] = b"\x1f\x8b";

/// Place and text of the identification of a tar header (POSIX 1003.1, `ustar`).
const USTAR: (usize, &[u8]) = (257, b"ustar");

/// The files of an archive.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// The files by their paths in the form of URLs.
    pub(super) files: BTreeMap<String, Member>,
    /// Remarks about entries that were left out.
    pub(super) remarks: Vec<String>,
    entries: usize,
}

/// Reason why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArchiveError {
    /// The file is not an archive.
    #[error("it is not a zip, tar or tar.gz file")]
    Kind,
    /// The archive is damaged.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// The archive has too many entries.
    #[error("the archive has more than {MAX_FILES} files or {MAX_ENTRIES} entries; divide it")]
    TooMany,
    /// The files are too large.
    #[error("the files of the archive have more than {0} bytes; raise unpacked_bytes if that is right")]
    TooLarge(u64),
    /// The file cannot be read, or the gateway is stopping.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads an archive. Its files may have `unpacked_bytes` bytes together.
///
/// # Errors
/// Fails if the file is not an archive, is damaged or too large, or `stop` is cancelled.
pub(super) fn read(path: &Path, unpacked_bytes: u64, stop: &CancellationToken) -> Result<Archive, ArchiveError> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    file.by_ref().take(512).read_to_end(&mut head)?;
    file.rewind()?;
    let mut archive = Archive::default();
    let mut contents = Contents { budget: unpacked_bytes, unpacked_bytes, stop };
    if ZIP.iter().any(|magic| head.starts_with(magic)) {
        archive.read_zip(file, &mut contents)?;
    } else if head.starts_with(GZIP) {
        archive.read_tar(MultiGzDecoder::new(BufReader::new(file)), &mut contents)?;
    } else if head.get(USTAR.0..).is_some_and(|rest| rest.starts_with(USTAR.1)) {
        ends_with_zeros(&mut file)?;
        archive.read_tar(BufReader::new(file), &mut contents)?;
    } else {
        return Err(ArchiveError::Kind);
    }
    Ok(archive)
}

/// Checks that a tar file has the block of zeros that marks its end (POSIX 1003.1, `pax`). A file that was cut off
/// between two entries has no other sign of that.
fn ends_with_zeros(file: &mut File) -> Result<(), ArchiveError> {
    let mut end = [1; 512];
    file.seek(SeekFrom::End(-512))?;
    file.read_exact(&mut end)?;
    file.rewind()?;
    if end == [0; 512] { Ok(()) } else { Err(ArchiveError::Damaged("its end is missing".to_owned())) }
}

/// Limits on the content of all files.
struct Contents<'a> {
    budget: u64,
    unpacked_bytes: u64,
    stop: &'a CancellationToken,
}

impl Contents<'_> {
    /// Reads the content of a file; `None` if it is damaged.
    fn read(&mut self, content: &mut dyn Read) -> Result<Option<FileFacts>, ArchiveError> {
        match read_content(content, &mut self.budget, self.stop) {
            Ok(facts) => Ok(Some(facts)),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(ArchiveError::TooLarge(self.unpacked_bytes))
            }
            Err(error) if self.stop.is_cancelled() => Err(error.into()),
            Err(_) => Ok(None),
        }
    }
}

impl Archive {
    fn read_zip(&mut self, file: File, contents: &mut Contents<'_>) -> Result<(), ArchiveError> {
        let damaged = |error: rawzip::Error| ArchiveError::Damaged(error.to_string());
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let zip = ZipArchive::from_file(file, &mut buffer).map_err(damaged)?;
        let announced = zip.entries_hint();
        let mut entries = zip.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(damaged)? {
            self.count()?;
            if entry.is_dir() || entry.mode().is_symlink() {
                continue;
            }
            let Some(path) = self.path(entry.file_path().as_bytes()) else { continue };
            let method = entry.compression_method();
            let found = zip.get_entry(entry.wayfinder()).map_err(damaged)?;
            let facts = match method {
                _ if entry.flags().is_encrypted() => {
                    self.remark(&path, "is encrypted", "store it without a password");
                    None
                }
                CompressionMethod::STORE => contents.read(&mut found.verifying_reader(found.reader()))?,
                CompressionMethod::DEFLATE => {
                    contents.read(&mut found.verifying_reader(DeflateDecoder::new(found.reader())))?
                }
                _ => {
                    self.remark(&path, "has an unknown compression", "use deflate");
                    None
                }
            };
            self.add(path, facts)?;
        }
        if self.entries as u64 == announced {
            Ok(())
        } else {
            Err(ArchiveError::Damaged(format!("it has {} of {announced} entries", self.entries)))
        }
    }

    fn read_tar(&mut self, data: impl Read, contents: &mut Contents<'_>) -> Result<(), ArchiveError> {
        let damaged = |error: io::Error| ArchiveError::Damaged(error.to_string());
        let allowance = Rc::new(Cell::new(MAX_HEADER_BYTES));
        let mut tar = tar::Archive::new(AllowedReader { data, allowance: Rc::clone(&allowance) });
        let mut entries = tar.entries().map_err(damaged)?;
        loop {
            allowance.set(MAX_HEADER_BYTES);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(damaged)?;
            self.count()?;
            let kind = entry.header().entry_type();
            let path =
                matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Link)
                    .then(|| self.path(&entry.path_bytes()))
                    .flatten();
            // The content is read in any case: the library would otherwise skip it without a limit.
            allowance.set(u64::MAX);
            let facts = contents.read(&mut entry)?;
            let facts = facts.ok_or_else(|| ArchiveError::Damaged("it ends in the middle of a file".to_owned()))?;
            let Some(path) = path else { continue };
            let facts = match (kind, entry.link_name_bytes()) {
                (EntryType::Link, Some(target)) => {
                    match self.path(&target).and_then(|target| self.files.get(&target)) {
                        Some(Member::Read(facts)) => Some(*facts),
                        Some(Member::Unreadable) | None => {
                            self.remark(&path, "is a link to a file that is not before it", "store a copy instead");
                            None
                        }
                    }
                }
                _ => Some(facts),
            };
            self.add(path, facts)?;
        }
        // The rest has the checksum of compressed data.
        let rest = contents.read(&mut tar.into_inner())?;
        match (rest, self.entries) {
            (Some(_), 1..) => Ok(()),
            (Some(_), 0) => Err(ArchiveError::Damaged("it has no entry".to_owned())),
            (None, _) => Err(ArchiveError::Damaged("its checksum is wrong, or its end is missing".to_owned())),
        }
    }

    fn count(&mut self) -> Result<(), ArchiveError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES { Err(ArchiveError::TooMany) } else { Ok(()) }
    }

    /// Returns the path of an entry in the form of URLs; `None` for a hidden one, and for one that leaves the archive.
    fn path(&mut self, raw: &[u8]) -> Option<String> {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        let mut name = raw;
        while let Some(rest) = name.strip_prefix(b"./") {
            name = rest;
        }
        let is_part = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0) && !part.contains(&b'\\');
        if name.len() > MAX_PATH_BYTES || !name.split(|byte| *byte == b'/').all(is_part) {
            self.remark(&String::from_utf8_lossy(raw), "is not a path inside the archive", "the file is left out");
            return None;
        }
        let path = Path::new(OsStr::from_bytes(name));
        (!is_hidden(path)).then(|| encoded(path))
    }

    /// Adds a file. Of two files with the same path the later one counts, as when an archive is unpacked.
    fn add(&mut self, path: String, facts: Option<FileFacts>) -> Result<(), ArchiveError> {
        self.files.insert(path, facts.map_or(Member::Unreadable, Member::Read));
        if self.files.len() > MAX_FILES { Err(ArchiveError::TooMany) } else { Ok(()) }
    }

    fn remark(&mut self, path: &str, fact: &str, advice: &str) {
        let known = self.remarks.iter().filter(|remark| remark.contains(fact)).count();
        if known < MAX_REMARKS {
            self.remarks.push(format!("{:?} in the archive {fact}; {advice}", short_name(path)));
        }
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
