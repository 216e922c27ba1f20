//! The comparison of a file with its entry of the manifest, in the pass that stores it.

use std::sync::atomic::Ordering;

use axum::http::{
    HeaderMap,
    header::{CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use bytes::Bytes;
use md5::Md5;
use serde_json::json;
use sha1::{Digest, Sha1};
use sha2::Sha512;

use super::{
    IngestFailure, IngestProgress, RetryRule, client::text_header, disposition::file_name, files::FileRecord,
    platform::PlatformFile,
};
use crate::{
    files::{FileDigest, FileFacts},
    format::fileset::{message::ManifestFile, status::IngestStatus},
    http_client::header_text,
    transfer::{Receiver, ResponseHead, TransferError},
};

/// Returns the media type of a file: by its bytes, or else of the manifest or the response, or else the one of any bytes,
/// because catalogues refuse a file without a type.
pub(super) fn media_type(
    of_bytes: Option<&'static str>,
    of_manifest: Option<String>,
    of_response: Option<&str>,
) -> Option<String> {
    let known = of_bytes.map(str::to_owned).or(of_manifest).or(of_response.map(str::to_owned));
    known.filter(|text| !text.is_empty()).or_else(|| Some("application/octet-stream".to_owned()))
}

/// Returns whether a file is a page by its name or media type.
pub(super) fn is_page_promised(ManifestFile { path, mimetype, .. }: &ManifestFile) -> bool {
    let name = path.to_ascii_lowercase();
    mimetype.as_deref().is_some_and(|text| text.contains("html"))
        || [".html", ".htm", ".xhtml"].iter().any(|end| name.ends_with(end))
}

/// Facts about the bytes of a file.
struct Facts {
    size: u64,
    md5: String,
    sha1: String,
    sha256: String,
    /// SHA-512; `None` if the entry has none, because it costs as much as all the others.
    sha512: Option<String>,
}

impl Facts {
    fn new(size: u64, sha256: FileDigest, Digests { md5, sha1, sha512 }: Digests) -> Self {
        let (md5, sha1) = (hex::encode(md5.finalize()), hex::encode(sha1.finalize()));
        let sha512 = sha512.map(|sha512| hex::encode(sha512.finalize()));
        Self { size, md5, sha1, sha256: sha256.to_string(), sha512 }
    }

    /// Returns the failure of a file that is not the one of its entry.
    fn mismatch(&self, expected: &ManifestFile) -> Option<IngestFailure> {
        let path = &expected.path;
        let Self { size, md5, sha1, sha256, sha512 } = self;
        if let Some(expected) = expected.size.filter(|expected| expected != size) {
            let message = format!("{path} has {size} bytes; the platform tells {expected}");
            return Some(IngestFailure::permanent(IngestStatus::MISMATCH_SIZE, message));
        }
        let digests = [
            ("SHA-1", &expected.sha1, Some(sha1), IngestStatus::MISMATCH_SHA1),
            ("SHA-256", &expected.sha256, Some(sha256), IngestStatus::MISMATCH_SHA256),
            ("SHA-512", &expected.sha512, sha512.as_ref(), IngestStatus::MISMATCH_SHA512),
            ("MD5", &expected.md5, Some(md5), IngestStatus::MISMATCH_MD5),
        ];
        digests.into_iter().find_map(|(name, expected, found, status)| {
            let found = found?;
            let expected = expected.as_ref().filter(|expected| !expected.eq_ignore_ascii_case(found))?;
            let message = format!("the {name} of {path} is {found}; the platform tells {expected}");
            Some(IngestFailure::permanent(status, message))
        })
    }

    /// Returns the entry of the manifest with these facts. Other figures of the platform go to `extra`.
    fn entry(self, file: &PlatformFile) -> ManifestFile {
        let mut entry = file.manifest.clone();
        if self.mismatch(&entry).is_some() {
            let told =
                [("size", entry.size.map(|size| json!(size))), ("md5", entry.md5.as_ref().map(|md5| json!(md5)))];
            let extra = entry.extra.get_or_insert_default();
            extra.extend(told.into_iter().filter_map(|(name, value)| Some((format!("platform_{name}"), value?))));
        }
        let Self { size, md5, sha1, sha256, sha512 } = self;
        ManifestFile {
            size: Some(size),
            md5: Some(md5),
            sha1: Some(sha1),
            sha256: Some(sha256),
            sha512,
            status: Some(IngestStatus::SUCCESS),
            ..entry
        }
    }
}

/// Digests of the bytes so far. The store computes the SHA-256.
#[derive(Clone)]
struct Digests {
    md5: Md5,
    sha1: Sha1,
    sha512: Option<Sha512>,
}

impl Digests {
    /// Begins the digests for an entry.
    fn of(entry: &ManifestFile) -> Self {
        Self { md5: Md5::new(), sha1: Sha1::new(), sha512: entry.sha512.as_ref().map(|_| Sha512::new()) }
    }

    fn update(&mut self, piece: &[u8]) {
        self.md5.update(piece);
        self.sha1.update(piece);
        if let Some(sha512) = &mut self.sha512 {
            sha512.update(piece);
        }
    }
}

/// Hashes a file, and stops when it cannot be the file.
pub(super) struct FileCheck<'a> {
    file: &'a PlatformFile,
    max_bytes: u64,
    /// Progress of the ingest, which counts the bytes; `None` for bytes that it has counted already.
    progress: Option<&'a IngestProgress>,
    digests: Digests,
    /// Number of bytes that the progress has counted.
    counted: u64,
    failure: Option<IngestFailure>,
    totals: Totals,
    /// Whether a body that the server has encoded is decoded, and whether the other way was tried.
    decoding: Decoding,
    /// First bytes, which show whether the file is a page.
    start: Vec<u8>,
}

/// Limits of all files of a dataset together, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    /// Maximum size of a dataset.
    pub(super) dataset: u64,
    /// Size that is left in the store.
    pub(super) store: u64,
}

/// No limits, for bytes that are counted elsewhere.
impl Default for Totals {
    fn default() -> Self {
        Self { dataset: u64::MAX, store: u64::MAX }
    }
}

/// Way in which a body with an encoding becomes a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Decoding {
    is_on: bool,
    /// Whether the choice is the second one.
    is_changed: bool,
}

/// Number of first bytes of a file that are looked at.
const START_BYTES: usize = 256;

impl<'a> FileCheck<'a> {
    /// Creates the check of a file.
    pub(super) fn new(file: &'a PlatformFile, max_bytes: u64, progress: Option<&'a IngestProgress>) -> Self {
        Self {
            file,
            max_bytes,
            progress,
            digests: Digests::of(&file.manifest),
            counted: 0,
            failure: None,
            totals: Totals::default(),
            decoding: Decoding::default(),
            start: Vec::new(),
        }
    }

    /// Adds the limits of all files together, which hold while the bytes arrive.
    pub(super) fn with_totals(self, totals: Totals) -> Self {
        Self { totals, ..self }
    }

    /// Returns the failure that has ended the transfer.
    pub(super) fn take_failure(&mut self) -> Option<IngestFailure> {
        self.failure.take()
    }

    /// Checks the next piece. `size` is the number of bytes with it.
    pub(super) fn check_piece(&mut self, piece: &[u8], size: u64) -> Result<(), IngestFailure> {
        self.check_size(size, false)?;
        if let Some(progress) = self.progress {
            let bytes = piece.len() as u64;
            let all = progress.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.counted += bytes;
            self.check_totals(all, progress.known_bytes.load(Ordering::Relaxed))?;
        }
        let missing = START_BYTES.saturating_sub(self.start.len()).min(piece.len());
        self.start.extend_from_slice(&piece[..missing]);
        self.digests.update(piece);
        Ok(())
    }

    /// Checks the whole file.
    pub(super) fn check_whole(&self, facts: &FileFacts) -> Result<(), IngestFailure> {
        let mismatch = self.facts(facts).mismatch(&self.file.manifest).filter(|_| !self.file.is_soft);
        // A challenge for robots comes instead of any file, and its media type can be wrong.
        if (mismatch.is_some() || !self.has_digest())
            && is_page_start(&self.start)
            && !is_page_promised(&self.file.manifest)
        {
            return Err(self.page_instead());
        }
        match mismatch {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Returns whether the list has a digest of the file that is compared.
    fn has_digest(&self) -> bool {
        !self.file.is_soft && self.file.manifest.has_digest()
    }

    /// Returns the failure for a page in place of a file. It is none of the dataset, so a later attempt may get the file.
    fn page_instead(&self) -> IngestFailure {
        let path = &self.file.manifest.path;
        let message = format!("{path}: the platform answers with a page instead of the file");
        IngestFailure::transient(IngestStatus::ERROR_PLATFORM_DOWNLOAD, message)
    }

    /// Checks the size of all files so far, of which the store has had some.
    fn check_totals(&self, all: u64, known: u64) -> Result<(), IngestFailure> {
        let Totals { dataset, store } = self.totals;
        if all > dataset {
            let message = format!("the files have more than {dataset} bytes (max_total_size)");
            return Err(IngestFailure::permanent(IngestStatus::TOO_LARGE_SIZE, message));
        }
        if all.saturating_sub(known) > store {
            let message = format!("the files have more than the {store} bytes of max_stored_size that are left");
            let failure = IngestFailure::permanent(IngestStatus::TOO_LARGE_SIZE, message);
            return Err(IngestFailure { retry: RetryRule::AfterFix, ..failure });
        }
        Ok(())
    }

    /// Returns the entry of the manifest with the facts about the bytes.
    pub(super) fn entry(&self, facts: &FileFacts) -> ManifestFile {
        self.facts(facts).entry(self.file)
    }

    /// Returns the entry of the manifest for a downloaded file.
    pub(super) fn downloaded(&self, facts: &FileFacts, head: &ResponseHead) -> ManifestFile {
        let (headers, mut manifest) = (head.headers(), self.entry(facts));
        let of_response = text_header(&headers, CONTENT_TYPE).map(|text| text.split(';').next().unwrap_or(text).trim());
        manifest.mimetype = media_type(facts.media_type, manifest.mimetype, of_response);
        if self.file.is_unnamed
            && let Some(name) = headers.get(CONTENT_DISPOSITION).and_then(|value| file_name(&header_text(value)))
        {
            manifest.path = name;
        }
        manifest.terminal_url = Some(head.url.clone());
        manifest.terminal_dt = Some(head.time.datetime().format("%Y%m%d%H%M%S").to_string());
        manifest
    }

    fn facts(&self, facts: &FileFacts) -> Facts {
        Facts::new(facts.size, facts.digest, self.digests.clone())
    }

    fn check_size(&self, size: u64, is_whole: bool) -> Result<(), IngestFailure> {
        let ManifestFile { path, size: told, .. } = &self.file.manifest;
        let told = told.filter(|told| !self.file.is_soft && (size > *told || (is_whole && size < *told)));
        if let Some(told) = told {
            let message = format!(
                "{path} has {} {size} bytes; the platform tells {told}",
                if is_whole { "" } else { "at least" }
            );
            return Err(IngestFailure::permanent(IngestStatus::MISMATCH_SIZE, message.replace("  ", " ")));
        }
        if size > self.max_bytes {
            let message = format!("{path} has more than {} bytes", self.max_bytes);
            return Err(IngestFailure::permanent(IngestStatus::TOO_LARGE_SIZE, message));
        }
        Ok(())
    }

    /// Remembers the failure, and ends the transfer.
    fn end(&mut self, checked: Result<(), IngestFailure>) -> Result<(), TransferError> {
        checked.map_err(|failure| {
            let message = failure.message.clone();
            self.failure = Some(failure);
            TransferError::Permanent(message)
        })
    }
}

/// Returns whether a media type is one of a page.
fn is_page_type(headers: &HeaderMap) -> bool {
    let media_type = text_header(headers, CONTENT_TYPE).and_then(|text| text.split(';').next()).map(str::trim);
    media_type.is_some_and(|text| {
        text.eq_ignore_ascii_case("text/html") || text.eq_ignore_ascii_case("application/xhtml+xml")
    })
}

/// Returns whether bytes begin as a page does.
pub(super) fn is_page_start(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(START_BYTES)];
    let text = String::from_utf8_lossy(start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start)).to_ascii_lowercase();
    let text = text.trim_start();
    text.starts_with("<!doctype html") || text.starts_with("<html")
}

impl Receiver for FileCheck<'_> {
    fn restart(&mut self) {
        if let Some(progress) = self.progress {
            progress.done_bytes.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
        }
        (self.digests, self.failure) = (Digests::of(&self.file.manifest), None);
        self.start.clear();
    }

    fn can_verify(&self) -> bool {
        self.has_digest()
    }

    fn decodes(&self) -> bool {
        self.decoding.is_on
    }

    fn decode_otherwise(&mut self) -> bool {
        let is_first = !self.decoding.is_changed;
        if is_first {
            self.decoding = Decoding { is_on: !self.decoding.is_on, is_changed: true };
        }
        is_first
    }

    fn is_whole(&self, facts: &FileFacts) -> bool {
        let expected = &self.file.manifest;
        !self.file.is_soft && expected.size == Some(facts.size) && self.check_whole(facts).is_ok()
    }

    fn record(&self, facts: &FileFacts, head: &ResponseHead) -> Option<Bytes> {
        let record = FileRecord { manifest: self.downloaded(facts, head), head: head.clone() };
        serde_json::to_vec(&record).ok().map(Bytes::from)
    }

    fn check_headers(&mut self, headers: &HeaderMap) -> Result<(), TransferError> {
        if is_page_type(headers) && !is_page_promised(&self.file.manifest) {
            return self.end(Err(self.page_instead()));
        }
        let length = text_header(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
        if headers.contains_key(CONTENT_ENCODING) && !self.decoding.is_changed {
            let ManifestFile { path, size, .. } = &self.file.manifest;
            // Files that are compressed are often sent with an encoding that is not meant. Otherwise the list decides.
            let is_compressed = [".gz", ".tgz", ".svgz"].iter().any(|end| path.to_ascii_lowercase().ends_with(end));
            self.decoding.is_on = match size.filter(|_| !self.file.is_soft) {
                Some(size) => length != Some(size),
                None => !is_compressed && !self.has_digest(),
            };
        }
        match length.filter(|_| !self.decoding.is_on) {
            Some(length) => {
                let checked = self.check_size(length, true);
                self.end(checked)
            }
            None => Ok(()),
        }
    }

    fn receive(&mut self, piece: &[u8], size: u64) -> Result<(), TransferError> {
        let checked = self.check_piece(piece, size);
        self.end(checked)
    }

    fn check_content(&mut self, facts: &FileFacts) -> Result<(), TransferError> {
        let checked = self.check_whole(facts);
        self.end(checked)
    }
}
