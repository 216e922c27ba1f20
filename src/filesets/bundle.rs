//! Bundles: one file with all files of a dataset, whose members are read and compared with the manifest without unpacking
//! them to the disk.
//!
//! A platform may refuse to make a bundle, or fail, as when it would be too large. The files are then downloaded one by one,
//! and so are the files that a bundle lacks: some platforms leave large ones out. A member that differs is a failure.

use std::collections::{HashMap, HashSet};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    IngestFailure, RetryRule,
    archived_file::ArchivedFile,
    bundle_name::name,
    check::{FileCheck, media_type},
    platform::{DatasetLimits, PlatformFile},
};
use crate::{
    files::{FileHasher, FileReader, FileStore},
    format::fileset::{message::ManifestFile, status::IngestStatus},
    transfer::archive::{self, ArchiveError, ArchiveLimits, Content, EntryKind},
};

/// Maximum number of members that the manifest does not have.
const MAX_UNLISTED: usize = 1000;

/// Number of such members that the result names.
const NAMED_UNLISTED: usize = 20;

/// Size that the parts of a bundle other than the listed files may have, in bytes.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// Members of a bundle.
pub(super) struct BundleMembers {
    /// Entries of the manifest, with the digests of the members; `None` for a file that the bundle lacks.
    pub(super) manifest: Vec<Option<ManifestFile>>,
    /// The first members that the platform does not list, such as a description of the bundle.
    pub(super) unlisted: Vec<String>,
}

/// Failure of a bundle, with the entries of the manifest that it concerns.
pub(super) struct BundleFailure {
    pub(super) entries: Vec<usize>,
    pub(super) failure: IngestFailure,
}

impl From<IngestFailure> for BundleFailure {
    fn from(failure: IngestFailure) -> Self {
        Self { entries: Vec::new(), failure }
    }
}

impl From<ArchiveError> for BundleFailure {
    fn from(error: ArchiveError) -> Self {
        let message = format!("the bundle cannot be read: {error}");
        let failure = match error {
            ArchiveError::TooMany(..) => IngestFailure::permanent(IngestStatus::TOO_MANY_FILES, message),
            ArchiveError::TooLarge(_) => IngestFailure::permanent(IngestStatus::TOO_LARGE_SIZE, message),
            ArchiveError::Kind | ArchiveError::Damaged(_) => bad_bundle(message),
            ArchiveError::Io(_) => IngestFailure::transient(IngestStatus::ERROR_PLATFORM_DOWNLOAD, message),
        };
        failure.into()
    }
}

/// Creates the failure of a bundle that cannot be read. A later attempt gets a new one.
fn bad_bundle(message: impl Into<String>) -> IngestFailure {
    IngestFailure::transient(IngestStatus::BAD_BUNDLE, message)
}

/// Creates the file of a bundle, which has no figures to compare.
pub(super) fn bundle_file(url: &str) -> PlatformFile {
    let path = "the bundle".to_owned();
    PlatformFile::new(ManifestFile { path, platform_url: Some(url.to_owned()), ..ManifestFile::default() })
}

/// Returns the maximum size of a bundle, in bytes.
pub(super) fn max_bytes(limits: &DatasetLimits) -> u64 {
    limits.max_total_size.saturating_add(OVERHEAD_BYTES)
}

/// Returns whether the platform has refused to make a bundle or has failed, to the gateway or to a web archive that was to
/// capture it. A server that names a wait makes one later.
pub(super) fn is_refused(failure: &IngestFailure) -> bool {
    let refusals = [
        IngestStatus::ERROR_PLATFORM_DOWNLOAD,
        IngestStatus::PLATFORM_RESTRICTED,
        IngestStatus::TERMINAL_BAD_STATUS,
        IngestStatus::NO_CAPTURE,
        IngestStatus::INVALID_URL,
        IngestStatus::NOT_FOUND,
        IngestStatus::FORBIDDEN,
    ];
    !matches!(failure.retry, RetryRule::Backoff(Some(_))) && refusals.contains(&failure.status)
}

/// Returns the failure of a file that the bundle lacks, and that cannot be downloaded on its own either.
pub(super) fn of_missing(failure: IngestFailure) -> IngestFailure {
    if failure.retry != RetryRule::Never || failure.status != IngestStatus::ERROR_PLATFORM_DOWNLOAD {
        return failure;
    }
    let message = format!("the bundle lacks a file: {}", failure.message);
    IngestFailure::permanent(IngestStatus::MISSING_IN_BUNDLE, message)
}

/// Returns the path of a bundle in an item.
pub(super) fn path_in_item(item: &str, bundle: &ArchivedFile) -> String {
    let extension = match bundle.manifest.mimetype.as_deref() {
        Some("application/gzip") => "tar.gz",
        Some("application/x-tar") => "tar",
        _ => "zip",
    };
    format!("{item}.{extension}")
}

/// Reads the members of a bundle, and compares them with the files of the manifest.
pub(super) async fn read_members(
    store: &FileStore,
    bundle: &ArchivedFile,
    files: &[PlatformFile],
    limits: &DatasetLimits,
    max_file_bytes: u64,
) -> Result<BundleMembers, BundleFailure> {
    let reader = FileReader::new(store.clone(), bundle.stored.digest, bundle.stored.size, Handle::current());
    let (files, stop) = (files.to_vec(), CancellationToken::new());
    // The reading stops when the ingest is cancelled.
    let _stopped = stop.clone().drop_guard();
    let archive_limits = ArchiveLimits {
        unpacked_bytes: max_bytes(limits),
        // Folders are entries too.
        entries: files.len().saturating_mul(4).saturating_add(MAX_UNLISTED),
    };
    let reading = tokio::task::spawn_blocking(move || {
        let mut members = Members::new(&files, max_file_bytes);
        archive::read(reader, archive_limits, &stop, &mut |path, kind, content| members.entry(path, kind, content))?;
        Ok(members.finish())
    });
    reading.await.unwrap_or_else(|error| Err(bad_bundle(format!("the bundle cannot be read: {error}")).into()))
}

/// Returns whether the list says what the content of a file is: its size and a digest.
fn has_content(file: &PlatformFile) -> bool {
    // A SHA-512 is computed only for a member that is known by its name.
    let ManifestFile { size, md5, sha1, sha256, .. } = &file.manifest;
    !file.is_soft && size.is_some() && [md5, sha1, sha256].into_iter().any(Option::is_some)
}

/// Members that are being read.
struct Members<'a> {
    files: &'a [PlatformFile],
    by_path: HashMap<&'a str, usize>,
    found: Vec<Option<ManifestFile>>,
    unlisted: HashSet<String>,
    named: Vec<String>,
    /// Facts about the members that the manifest does not have, perhaps because their names are written in another way.
    others: Vec<(String, ManifestFile)>,
    max_file_bytes: u64,
}

impl<'a> Members<'a> {
    fn new(files: &'a [PlatformFile], max_file_bytes: u64) -> Self {
        let by_path = files.iter().enumerate().map(|(index, file)| (&*file.manifest.path, index)).collect();
        let (found, unlisted, named) = (vec![None; files.len()], HashSet::new(), Vec::new());
        Self { files, by_path, found, unlisted, named, others: Vec::new(), max_file_bytes }
    }

    fn entry(&mut self, path: &[u8], kind: EntryKind<'_>, content: &mut Content<'_>) -> Result<(), BundleFailure> {
        if kind == EntryKind::Other {
            return Ok(());
        }
        let shown: String = String::from_utf8_lossy(path).chars().take(100).collect();
        let unsafe_path = |reason: &str| {
            let message = format!("the member {shown:?} of the bundle {reason}");
            BundleFailure::from(IngestFailure::permanent(IngestStatus::UNSAFE_PATH, message))
        };
        let Some(name) = name(path, kind) else { return Err(unsafe_path("has no path of a file in a folder")) };
        match kind {
            EntryKind::Link(_) | EntryKind::Symlink => return Err(unsafe_path("is a link")),
            EntryKind::Device => return Err(unsafe_path("is a device")),
            EntryKind::Folder | EntryKind::Other => return Ok(()),
            EntryKind::File | EntryKind::Encrypted | EntryKind::UnknownCompression => {}
        }
        let known = self.by_path.get(&*name).or_else(|| self.by_path.get(&*name.replace('\\', "/")));
        let Some(&index) = known else {
            self.unlisted(&name)?;
            if kind == EntryKind::File {
                self.read_other(name, content);
            }
            return Ok(());
        };
        let fail = |failure| Err(BundleFailure { entries: vec![index], failure });
        if self.found[index].is_some() {
            return fail(bad_bundle(format!("two members of the bundle have the path {name:?}")));
        }
        match kind {
            EntryKind::Encrypted => return fail(bad_bundle(format!("the member {name:?} of the bundle is encrypted"))),
            EntryKind::UnknownCompression => {
                return fail(bad_bundle(format!("the member {name:?} of the bundle has an unknown compression")));
            }
            _ => {}
        }
        self.found[index] = Some(self.read(index, content)?);
        Ok(())
    }

    /// Remembers a member that the manifest does not have.
    fn unlisted(&mut self, name: &str) -> Result<(), BundleFailure> {
        if !self.unlisted.insert(name.to_owned()) {
            return Err(bad_bundle(format!("two members of the bundle have the path {name:?}")).into());
        }
        if self.unlisted.len() > MAX_UNLISTED {
            let message = format!("the bundle has more than {MAX_UNLISTED} members that the platform does not list");
            return Err(IngestFailure::permanent(IngestStatus::TOO_MANY_FILES, message).into());
        }
        if self.named.len() < NAMED_UNLISTED {
            self.named.push(name.to_owned());
        }
        Ok(())
    }

    /// Reads a member that the manifest does not have, so that a file may be found by its content.
    ///
    /// It is not read further than the largest file that is recognized by its content, and a failure to read it is none.
    fn read_other(&mut self, name: String, content: &mut Content<'_>) {
        let is_candidate = |index: &usize| self.found[*index].is_none() && has_content(&self.files[*index]);
        let candidates = (0..self.files.len()).filter(is_candidate);
        let Some(largest) = candidates.filter_map(|index| self.files[index].manifest.size).max() else { return };
        let file = PlatformFile::new(ManifestFile { path: name.clone(), ..ManifestFile::default() });
        let mut check = FileCheck::new(&file, largest, None);
        let (mut hasher, mut size) = (FileHasher::default(), 0);
        let is_whole = content.read::<BundleFailure>(|piece| {
            hasher.update(piece);
            size += piece.len() as u64;
            check.check_piece(piece, size).map_err(BundleFailure::from)
        });
        if matches!(is_whole, Ok(true)) {
            let facts = hasher.finish();
            let mut entry = check.entry(&facts);
            entry.mimetype = media_type(facts.media_type, None, None);
            self.others.push((name, entry));
        }
    }

    /// Returns the entry of a file that is in the bundle under another name, by its size and digest.
    fn find_by_content(&mut self, file: &PlatformFile) -> Option<ManifestFile> {
        if !has_content(file) {
            return None;
        }
        let ManifestFile { size, md5, sha1, sha256, .. } = &file.manifest;
        let agrees = |told: &Option<String>, found: &Option<String>| {
            told.as_ref().is_none_or(|told| found.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(told)))
        };
        let at = self.others.iter().position(|(_, other)| {
            size.is_none_or(|size| other.size == Some(size))
                && agrees(md5, &other.md5)
                && agrees(sha1, &other.sha1)
                && agrees(sha256, &other.sha256)
        })?;
        let (name, other) = self.others.remove(at);
        self.named.retain(|known| *known != name);
        let ManifestFile { size, md5, sha1, sha256, status, mimetype, .. } = other;
        let mimetype = file.manifest.mimetype.clone().or(mimetype);
        Some(ManifestFile { size, md5, sha1, sha256, status, mimetype, ..file.manifest.clone() })
    }

    /// Reads a member in one pass; returns its entry of the manifest.
    fn read(&self, index: usize, content: &mut Content<'_>) -> Result<ManifestFile, BundleFailure> {
        let file = &self.files[index];
        // The bytes of the bundle are counted already.
        let mut check = FileCheck::new(file, self.max_file_bytes, None);
        let (mut hasher, mut size) = (FileHasher::default(), 0);
        let is_whole = content.read::<BundleFailure>(|piece| {
            hasher.update(piece);
            size += piece.len() as u64;
            check.check_piece(piece, size).map_err(|failure| BundleFailure { entries: vec![index], failure })
        })?;
        let facts = hasher.finish();
        let path = &file.manifest.path;
        let checked = if is_whole {
            check.check_whole(&facts)
        } else {
            Err(bad_bundle(format!("the member {path:?} of the bundle is damaged")))
        };
        checked.map_err(|failure| BundleFailure { entries: vec![index], failure })?;
        let mut manifest = check.entry(&facts);
        manifest.mimetype = media_type(facts.media_type, manifest.mimetype, None);
        Ok(manifest)
    }

    /// Returns the members, and looks for those with another name.
    fn finish(mut self) -> BundleMembers {
        let files = self.files;
        for (index, file) in files.iter().enumerate() {
            if self.found[index].is_none() {
                self.found[index] = self.find_by_content(file);
            }
        }
        BundleMembers { manifest: self.found, unlisted: self.named }
    }
}
