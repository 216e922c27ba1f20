//! Downloads of the files of a dataset into the file store, each verified in the pass that stores it.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{
    HeaderMap,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE},
};
use md5::Md5;
use serde_json::json;
use sha1::{Digest, Sha1};
use url::Url;

use super::{IngestFailure, PlatformToken, client::text_header, platform::PlatformFile};
use crate::{
    files::{FileDigest, FileFacts, StoredFile},
    format::fileset::{
        message::{FileMeta, ManifestFile},
        status::IngestStatus,
    },
    harvest::transfer::{Receiver, TransferError, TransferredFile, Transfers},
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
    /// Number of bytes that the ingest has received.
    pub(super) received: &'a AtomicU64,
}

/// Downloads a file and compares it with its entry of the manifest. The result for a failure is the entry with its status.
pub(super) async fn download(
    file: &PlatformFile,
    transfers: &Transfers,
    token: Option<&PlatformToken>,
    limits: FileLimits<'_>,
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
    let headers = token.map(|token| (AUTHORIZATION, token.header())).into_iter().collect::<HeaderMap>();
    let mut check = FileCheck { file, limits, md5: Md5::new(), sha1: Sha1::new(), failure: None };
    let mut permit = transfers.hosts.permit(&url.origin()).await;
    let time = Timestamp::now();
    let transferred = transfers.store(&url, &headers, &mut check, &mut permit).await;
    drop(permit);
    let FileCheck { md5, sha1, failure, .. } = check;
    let TransferredFile { stored, url: last_url, headers } = match (transferred, failure) {
        (_, Some(failure)) => return Err(failed(failure)),
        (Ok(transferred), None) => transferred,
        (Err(error), None) => {
            let message = format!("{path}: {error}");
            return Err(match error {
                TransferError::Permanent(_) => refused(message),
                TransferError::Transient(_) | TransferError::Store(_) => {
                    failed(IngestFailure::transient(IngestStatus::ERROR_PLATFORM_DOWNLOAD, message))
                }
            });
        }
    };
    let mut manifest = Facts::new(stored.size, stored.digest, md5, sha1).entry(file);
    let of_response = text_header(&headers, CONTENT_TYPE).map(|text| text.split(';').next().unwrap_or(text).trim());
    manifest.mimetype = media_type(stored.media_type, manifest.mimetype, of_response);
    manifest.terminal_url = Some(without_signature(last_url.expose().clone()));
    manifest.terminal_dt = Some(time.datetime().format("%Y%m%d%H%M%S").to_string());
    Ok(ArchivedFile { manifest, stored, headers, time })
}

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

/// Returns a URL without its query if the query is a signature.
pub(super) fn without_signature(mut url: Url) -> String {
    let is_signature =
        |name: &str| matches!(name.to_ascii_lowercase().as_str(), "x-amz-signature" | "signature" | "sig");
    if url.query_pairs().any(|(name, _)| is_signature(&name)) {
        url.set_query(None);
    }
    url.into()
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

/// Hashes a file, and stops when it cannot be the file.
pub(super) struct FileCheck<'a> {
    pub(super) file: &'a PlatformFile,
    pub(super) limits: FileLimits<'a>,
    pub(super) md5: Md5,
    pub(super) sha1: Sha1,
    pub(super) failure: Option<IngestFailure>,
}

impl FileCheck<'_> {
    /// Checks the next piece. `size` is the number of bytes with it.
    pub(super) fn check_piece(&mut self, piece: &[u8], size: u64) -> Result<(), IngestFailure> {
        self.check_size(size, false)?;
        self.limits.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
        self.md5.update(piece);
        self.sha1.update(piece);
        Ok(())
    }

    /// Checks the whole file.
    pub(super) fn check_whole(&self, facts: &FileFacts) -> Result<(), IngestFailure> {
        match self.facts(facts).mismatch(&self.file.manifest).filter(|_| !self.file.is_soft) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Returns the entry of the manifest with the facts about the bytes.
    pub(super) fn entry(&self, facts: &FileFacts) -> ManifestFile {
        self.facts(facts).entry(self.file)
    }

    fn facts(&self, facts: &FileFacts) -> Facts {
        Facts::new(facts.size, facts.digest, self.md5.clone(), self.sha1.clone())
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
        if size > self.limits.max_bytes {
            let message = format!("{path} has more than {} bytes", self.limits.max_bytes);
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

impl Receiver for FileCheck<'_> {
    fn check_headers(&mut self, headers: &HeaderMap) -> Result<(), TransferError> {
        // A challenge for robots answers 200 with a page.
        let is_page = text_header(headers, CONTENT_TYPE).is_some_and(|text| text.starts_with("text/html"));
        let path = &self.file.manifest.path;
        if is_page && !is_page_promised(&self.file.manifest) {
            let message = format!("{path}: the platform answers with a page instead of the file");
            return self.end(Err(IngestFailure::permanent(IngestStatus::ERROR_PLATFORM_DOWNLOAD, message)));
        }
        match text_header(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok()) {
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
