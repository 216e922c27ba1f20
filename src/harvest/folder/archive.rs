//! Files of zip and tar archives, as a harvest reports them: by path, with size, digest and media type.

use std::{collections::BTreeMap, path::Path};

use tokio_util::sync::CancellationToken;

use super::{
    listed_file::{FileVersion, open_configured},
    member::{Member, encoded, is_hidden, short_name},
};
use crate::{
    files::{FileFacts, FileHasher},
    transfer::archive::{self, ArchiveError, ArchiveLimits, Content, EntryKind},
};

/// Maximum number of files of an archive, which are in memory during a run.
const MAX_FILES: usize = 250_000;

/// Maximum number of entries of any kind.
const MAX_ENTRIES: usize = 4 * MAX_FILES;

/// Maximum length of a path in an archive, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Maximum number of remarks of each kind.
const MAX_REMARKS: usize = 3;

/// The files of an archive.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// The files by their paths in the form of URLs.
    pub(super) files: BTreeMap<String, Member>,
    /// Remarks about entries that were left out.
    pub(super) remarks: Vec<String>,
}

/// Reads a version of an archive; returns `None` if another file or version of it has the path now. The files of the
/// archive may have `unpacked_bytes` bytes together.
///
/// # Errors
/// Fails if the file is not an archive, is damaged or too large, or `stop` is cancelled.
pub(super) fn read(
    path: &Path,
    version: FileVersion,
    unpacked_bytes: u64,
    stop: &CancellationToken,
) -> Result<Option<Archive>, ArchiveError> {
    let Some(file) = open_configured(path, version)? else { return Ok(None) };
    let mut archive = Archive::default();
    let limits = ArchiveLimits { unpacked_bytes, entries: MAX_ENTRIES };
    archive::read(file, limits, stop, &mut |path, kind, content| archive.entry(path, kind, content))?;
    Ok(Some(archive))
}

/// Reads the content of a file; `None` if it is damaged.
fn facts(content: &mut Content<'_>) -> Result<Option<FileFacts>, ArchiveError> {
    let mut hasher = FileHasher::default();
    let is_whole = content.read::<ArchiveError>(|piece| {
        hasher.update(piece);
        Ok(())
    })?;
    Ok(is_whole.then(|| hasher.finish()))
}

impl Archive {
    fn entry(&mut self, path: &[u8], kind: EntryKind<'_>, content: &mut Content<'_>) -> Result<(), ArchiveError> {
        if matches!(kind, EntryKind::Folder | EntryKind::Symlink | EntryKind::Device | EntryKind::Other) {
            return Ok(());
        }
        let Some(path) = self.path(path) else { return Ok(()) };
        let facts = match kind {
            EntryKind::Link(target) => match self.path(target).and_then(|target| self.files.get(&target)) {
                Some(Member::Read(facts)) => Some(*facts),
                Some(Member::Unreadable) | None => {
                    self.remark(&path, "is a link to a file that is not before it", "store a copy instead");
                    None
                }
            },
            EntryKind::Encrypted => {
                self.remark(&path, "is encrypted", "store it without a password");
                None
            }
            EntryKind::UnknownCompression => {
                self.remark(&path, "has an unknown compression", "use deflate");
                None
            }
            _ => facts(content)?,
        };
        self.add(path, facts)
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
        if std::str::from_utf8(name).is_err() {
            let shown = String::from_utf8_lossy(name);
            self.remark(&shown, "has a name that is not UTF-8", "its URL has the bytes of the name");
        }
        let path = Path::new(OsStr::from_bytes(name));
        (!is_hidden(path)).then(|| encoded(path))
    }

    /// Adds a file. Of two files with the same path the later one counts, as when an archive is unpacked.
    fn add(&mut self, path: String, facts: Option<FileFacts>) -> Result<(), ArchiveError> {
        if self.files.contains_key(&path) {
            self.remark(&path, "is there more than once", "the last one counts");
        }
        self.files.insert(path, facts.map_or(Member::Unreadable, Member::Read));
        if self.files.len() > MAX_FILES { Err(ArchiveError::TooMany(MAX_FILES, "files")) } else { Ok(()) }
    }

    fn remark(&mut self, path: &str, fact: &str, advice: &str) {
        let known = self.remarks.iter().filter(|remark| remark.contains(fact)).count();
        if known < MAX_REMARKS {
            self.remarks.push(format!("{:?} in the archive {fact}; {advice}", short_name(path)));
        }
    }
}
