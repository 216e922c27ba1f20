//! Downloads of the files of a dataset into the file store, each verified in the pass that stores it.

use std::sync::atomic::Ordering;

use axum::http::{
    HeaderMap,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE},
};
use bytes::Bytes;
use md5::Md5;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha1::{Digest, Sha1};

use super::{IngestFailure, IngestProgress, PlatformToken, client::text_header, platform::PlatformFile};
use crate::{
    files::{FileDigest, FileFacts, FileStoreError, StoredFile, Workspace},
    format::fileset::{
        message::{FileMeta, ManifestFile},
        status::IngestStatus,
    },
    harvest::transfer::{PartPlace, Receiver, ResponseHead, TransferError, TransferredFile, Transfers},
    http_client::OutboundUrl,
    model::Timestamp,
};

/// A file of a dataset in the file store.
#[derive(Clone, Debug)]
pub(super) struct ArchivedFile {
    /// Entry of the manifest, with the digests of the bytes.
    pub(super) manifest: ManifestFile,
    pub(super) stored: StoredFile,
    /// Headers of the response, and its time.
    pub(super) headers: HeaderMap,
    pub(super) time: Timestamp,
}

impl ArchivedFile {
    /// Returns the facts about the bytes.
    pub(super) fn meta(&self) -> FileMeta {
        let ManifestFile { md5, sha1, sha256, mimetype, .. } = self.manifest.clone();
        FileMeta {
            size_bytes: self.stored.size,
            md5hex: md5.unwrap_or_default(),
            sha1hex: sha1.unwrap_or_default(),
            sha256hex: sha256.unwrap_or_default(),
            mimetype,
        }
    }
}

/// Limits of a download, and the count of its bytes.
#[derive(Clone, Copy)]
pub(super) struct FileLimits<'a> {
    /// Maximum size, in bytes.
    pub(super) max_bytes: u64,
    /// Count of the bytes.
    pub(super) progress: &'a IngestProgress,
}

/// Downloads a file and compares it with its entry of the manifest. The result for a failure is the entry with its status.
pub(super) async fn download(
    file: &PlatformFile,
    transfers: &Transfers,
    token: Option<&PlatformToken>,
    limits: FileLimits<'_>,
    workspace: &Workspace,
) -> Result<ArchivedFile, (ManifestFile, IngestFailure)> {
    let failed = |failure: IngestFailure| {
        let manifest = ManifestFile { status: Some(failure.status.clone()), ..file.manifest.clone() };
        (manifest, failure)
    };
    let refused = |reason: String| failed(IngestFailure::permanent(IngestStatus::ERROR_PLATFORM_DOWNLOAD, reason));
    let path = &file.manifest.path;
    let Some(url) = file.manifest.platform_url.as_deref() else {
        return Err(refused(format!("{path}: the platform names no URL")));
    };
    let url = OutboundUrl::parse(url, &transfers.policy).map_err(|error| refused(format!("{path}: {error}")))?;
    let name = part_name(file);
    let place = PartPlace { workspace, name: &name };
    let interrupted = |error: FileStoreError| {
        failed(IngestFailure::transient(IngestStatus::ERROR_ARCHIVEORG_UPLOAD, format!("{path}: {error}")))
    };
    if let Some(file) = ArchivedFile::of_record(place).await.map_err(interrupted)? {
        limits.progress.done_bytes.fetch_add(file.stored.size, Ordering::Relaxed);
        limits.progress.known_bytes.fetch_add(file.stored.size, Ordering::Relaxed);
        return Ok(file);
    }
    let headers = token.map(|token| (AUTHORIZATION, token.header())).into_iter().collect::<HeaderMap>();
    let mut check = FileCheck { file, limits, md5: Md5::new(), sha1: Sha1::new(), counted: 0, failure: None };
    let mut permit = transfers.hosts.permit(&url.origin()).await;
    let transferred = transfers.store(&url, &headers, &mut check, &mut permit, Some(place)).await;
    drop(permit);
    match (transferred, check.failure.take()) {
        (_, Some(failure)) => Err(failed(failure)),
        (Ok(TransferredFile { stored, head }), None) => {
            let facts = FileFacts { digest: stored.digest, size: stored.size, media_type: stored.media_type };
            let manifest = check.manifest(&facts, &head);
            Ok(ArchivedFile { manifest, stored, headers: head.headers(), time: head.time })
        }
        (Err(error), None) => {
            let message = format!("{path}: {error}");
            Err(match error {
                TransferError::Permanent(_) => refused(message),
                TransferError::Store(error) => interrupted(error),
                TransferError::Transient(_) => {
                    failed(IngestFailure::transient(IngestStatus::ERROR_PLATFORM_DOWNLOAD, message))
                }
            })
        }
    }
}

/// Returns the name of a file in the workspace, which is another one if the platform has another file.
fn part_name(file: &PlatformFile) -> String {
    let ManifestFile { path, size, md5, sha1, sha256, platform_url, .. } = &file.manifest;
    let identity = json!([path, size, md5, sha1, sha256, platform_url]).to_string();
    hex::encode(&sha2::Sha256::digest(identity)[..16])
}

/// Record of a complete file in the workspace.
#[derive(Serialize, Deserialize)]
struct FileRecord {
    manifest: ManifestFile,
    head: ResponseHead,
}

impl ArchivedFile {
    /// Returns the file that an interrupted ingest has stored.
    async fn of_record(place: PartPlace<'_>) -> Result<Option<Self>, FileStoreError> {
        let record = place.workspace.record(&place.record_name()).await?;
        let Some(FileRecord { manifest, head }) =
            record.and_then(|record| serde_json::from_slice::<FileRecord>(&record).ok())
        else {
            return Ok(None);
        };
        let digest = manifest.sha256.as_deref().and_then(FileDigest::parse);
        let (Some(digest), Some(size)) = (digest, manifest.size) else { return Ok(None) };
        if !place.workspace.finish(place.name, digest).await? {
            return Ok(None);
        }
        let stored = StoredFile { digest, size, media_type: None, is_new: false };
        Ok(Some(Self { manifest, stored, headers: head.headers(), time: head.time }))
    }
}

/// Facts about the bytes of a file.
struct Facts {
    size: u64,
    md5: String,
    sha1: String,
    sha256: String,
}

impl Facts {
    fn new(size: u64, sha256: FileDigest, md5: Md5, sha1: Sha1) -> Self {
        let (md5, sha1) = (hex::encode(md5.finalize()), hex::encode(sha1.finalize()));
        Self { size, md5, sha1, sha256: sha256.to_string() }
    }

    /// Returns the failure of a file that is not the one of its entry.
    fn mismatch(&self, expected: &ManifestFile) -> Option<IngestFailure> {
        let path = &expected.path;
        let Self { size, md5, sha1, sha256 } = self;
        if let Some(expected) = expected.size.filter(|expected| expected != size) {
            let message = format!("{path} has {size} bytes; the platform tells {expected}");
            return Some(IngestFailure::permanent(IngestStatus::MISMATCH_SIZE, message));
        }
        let digests = [
            ("SHA-1", &expected.sha1, sha1, IngestStatus::MISMATCH_SHA1),
            ("SHA-256", &expected.sha256, sha256, IngestStatus::MISMATCH_SHA256),
            ("MD5", &expected.md5, md5, IngestStatus::MISMATCH_MD5),
        ];
        digests.into_iter().find_map(|(name, expected, found, status)| {
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
        let Self { size, md5, sha1, sha256 } = self;
        ManifestFile {
            size: Some(size),
            md5: Some(md5),
            sha1: Some(sha1),
            sha256: Some(sha256),
            status: Some(IngestStatus::SUCCESS),
            ..entry
        }
    }
}

/// Hashes a file, and stops a transfer that cannot be the file.
struct FileCheck<'a> {
    file: &'a PlatformFile,
    limits: FileLimits<'a>,
    md5: Md5,
    sha1: Sha1,
    /// Number of its bytes in the count of the ingest.
    counted: u64,
    failure: Option<IngestFailure>,
}

impl FileCheck<'_> {
    fn fail(&mut self, failure: IngestFailure) -> TransferError {
        let message = failure.message.clone();
        self.failure = Some(failure);
        TransferError::Permanent(message)
    }

    fn check_size(&mut self, size: u64, is_whole: bool) -> Result<(), TransferError> {
        let ManifestFile { path, size: told, .. } = &self.file.manifest;
        let told = told.filter(|told| !self.file.is_soft && (size > *told || (is_whole && size < *told)));
        let failure = if let Some(told) = told {
            let message = format!(
                "{path} has {} {size} bytes; the platform tells {told}",
                if is_whole { "" } else { "at least" }
            );
            IngestFailure::permanent(IngestStatus::MISMATCH_SIZE, message.replace("  ", " "))
        } else if size > self.limits.max_bytes {
            let message = format!("{path} has more than {} bytes", self.limits.max_bytes);
            IngestFailure::permanent(IngestStatus::TOO_LARGE_SIZE, message)
        } else {
            return Ok(());
        };
        Err(self.fail(failure))
    }
}

impl FileCheck<'_> {
    /// Returns the entry of the manifest for the whole file.
    fn manifest(&self, facts: &FileFacts, head: &ResponseHead) -> ManifestFile {
        let headers = head.headers();
        let mut manifest = Facts::new(facts.size, facts.digest, self.md5.clone(), self.sha1.clone()).entry(self.file);
        let of_response = text_header(&headers, CONTENT_TYPE).map(|text| text.split(';').next().unwrap_or(text).trim());
        manifest.mimetype =
            facts.media_type.map(str::to_owned).or(manifest.mimetype).or(of_response.map(str::to_owned));
        manifest.terminal_url = Some(head.url.clone());
        manifest.terminal_dt = Some(head.time.datetime().format("%Y%m%d%H%M%S").to_string());
        manifest
    }
}

impl Receiver for FileCheck<'_> {
    fn restart(&mut self) {
        self.limits.progress.done_bytes.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
        (self.md5, self.sha1, self.failure) = (Md5::new(), Sha1::new(), None);
    }

    fn is_whole(&self, facts: &FileFacts) -> bool {
        let facts = Facts::new(facts.size, facts.digest, self.md5.clone(), self.sha1.clone());
        let expected = &self.file.manifest;
        !self.file.is_soft && expected.size == Some(facts.size) && facts.mismatch(expected).is_none()
    }

    fn record(&self, facts: &FileFacts, head: &ResponseHead) -> Option<Bytes> {
        let record = FileRecord { manifest: self.manifest(facts, head), head: head.clone() };
        serde_json::to_vec(&record).ok().map(Bytes::from)
    }

    fn check_headers(&mut self, headers: &HeaderMap) -> Result<(), TransferError> {
        // A challenge for robots answers 200 with a page.
        let is_page = text_header(headers, CONTENT_TYPE).is_some_and(|text| text.starts_with("text/html"));
        let ManifestFile { path, mimetype, .. } = &self.file.manifest;
        let name = path.to_ascii_lowercase();
        let is_page_promised = mimetype.as_deref().is_some_and(|text| text.contains("html"))
            || [".html", ".htm", ".xhtml"].iter().any(|end| name.ends_with(end));
        if is_page && !is_page_promised {
            let message = format!("{path}: the platform answers with a page instead of the file");
            return Err(self.fail(IngestFailure::permanent(IngestStatus::ERROR_PLATFORM_DOWNLOAD, message)));
        }
        match text_header(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok()) {
            Some(length) => self.check_size(length, true),
            None => Ok(()),
        }
    }

    fn receive(&mut self, piece: &[u8], size: u64) -> Result<(), TransferError> {
        self.check_size(size, false)?;
        self.limits.progress.done_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        self.counted += piece.len() as u64;
        self.md5.update(piece);
        self.sha1.update(piece);
        Ok(())
    }

    fn check_content(&mut self, facts: &FileFacts) -> Result<(), TransferError> {
        let facts = Facts::new(facts.size, facts.digest, self.md5.clone(), self.sha1.clone());
        match facts.mismatch(&self.file.manifest).filter(|_| !self.file.is_soft) {
            Some(failure) => Err(self.fail(failure)),
            None => Ok(()),
        }
    }
}
