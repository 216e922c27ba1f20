//! Downloads of the files of a dataset into the file store, each verified in the pass that stores it.

use std::sync::Arc;

use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha1::Digest;

use super::{
    IngestFailure, IngestProgress, PlatformToken, RetryRule, archiving::store_failure, check::FileCheck,
    client::LONGEST_WAIT, platform::PlatformFile,
};
use crate::{
    files::{FileDigest, FileFacts, FileStoreError, StoredFile, Workspace},
    format::fileset::{
        message::{FileMeta, ManifestFile},
        status::IngestStatus,
    },
    harvest::transfer::{PartPlace, ResponseHead, TransferError, TransferredFile, Transfers},
    http_client::{OutboundUrl, RequestHeaders},
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

/// Limits of a download, the count of its bytes, and the workspace of its ingest.
#[derive(Clone, Copy)]
pub(super) struct DownloadContext<'a> {
    /// Maximum size, in bytes.
    pub(super) max_bytes: u64,
    /// Count of the bytes.
    pub(super) progress: &'a Arc<IngestProgress>,
    /// Place of the unfinished files.
    pub(super) workspace: &'a Workspace,
}

/// Failure of a file, with its entry of the manifest.
pub(super) type FileFailure = (ManifestFile, IngestFailure);

/// Returns a file that an interrupted attempt has stored, or downloads it.
pub(super) async fn download(
    file: &PlatformFile,
    transfers: &Transfers,
    token: Option<&PlatformToken>,
    context: DownloadContext<'_>,
) -> Result<ArchivedFile, FileFailure> {
    match resumed(file, context).await? {
        Some(file) => Ok(file),
        None => fetch(file, transfers, token, context).await,
    }
}

/// Returns a file that an interrupted attempt of this ingest has stored.
pub(super) async fn resumed(
    file: &PlatformFile,
    context: DownloadContext<'_>,
) -> Result<Option<ArchivedFile>, FileFailure> {
    let name = part_name(file);
    let resumed = ArchivedFile::of_record(PartPlace { workspace: context.workspace, name: &name }).await;
    let resumed = resumed.map_err(|error| (file.manifest.clone(), store_failure(&error)))?;
    resumed.iter().for_each(|file| context.progress.add_known(file.stored.size));
    Ok(resumed)
}

/// Downloads a file and compares it with its entry of the manifest. The result for a failure is the entry with its status.
pub(super) async fn fetch(
    file: &PlatformFile,
    transfers: &Transfers,
    token: Option<&PlatformToken>,
    context: DownloadContext<'_>,
) -> Result<ArchivedFile, FileFailure> {
    let failed = |failure: IngestFailure| {
        let manifest = ManifestFile { status: Some(failure.status.clone()), ..file.manifest.clone() };
        (manifest, failure)
    };
    let refused = |reason: String| failed(IngestFailure::permanent(IngestStatus::ERROR_PLATFORM_DOWNLOAD, reason));
    let path = &file.manifest.path;
    let Some(url) = file.manifest.platform_url.as_deref() else {
        return Err(refused(format!("{path}: the platform names no URL")));
    };
    let url = OutboundUrl::parse(url, &transfers.policy);
    let url = url.map_err(|error| refused(format!("{path}: {}", error.for_everybody())))?;
    let name = part_name(file);
    let place = PartPlace { workspace: context.workspace, name: &name };
    let authorization = token.and_then(|token| token.authorization(url.expose()));
    let headers = RequestHeaders::default().with_authorization(authorization.as_ref());
    let mut check = FileCheck::new(file, context.max_bytes, Some(context.progress));
    // The job gives its place to others meanwhile.
    let permit = transfers.hosts.permit_within(&url.origin(), LONGEST_WAIT).await;
    let mut permit = permit.map_err(|rest| {
        let busy = IngestStatus::ERROR_PLATFORM_DOWNLOAD;
        let message = format!("{path}: the server accepts no requests for now");
        failed(IngestFailure { retry: RetryRule::Backoff(Some(rest)), ..IngestFailure::transient(busy, message) })
    })?;
    let transferred = transfers.store(&url, &headers, &mut check, &mut permit, Some(place)).await;
    drop(permit);
    match (transferred, check.take_failure()) {
        (_, Some(failure)) => Err(failed(failure)),
        (Ok(TransferredFile { stored, head }), None) => {
            let facts = FileFacts { digest: stored.digest, size: stored.size, media_type: stored.media_type };
            let manifest = check.downloaded(&facts, &head);
            Ok(ArchivedFile { manifest, stored, headers: head.headers(), time: head.time })
        }
        (Err(error), None) => {
            let message = format!("{path}: {error}");
            Err(match error {
                TransferError::Permanent(_) => refused(message),
                TransferError::Store(error) => failed(IngestFailure { message, ..store_failure(&error) }),
                TransferError::Transient(_) | TransferError::TooSlow(_) => {
                    failed(IngestFailure::transient(IngestStatus::ERROR_PLATFORM_DOWNLOAD, message))
                }
            })
        }
    }
}

/// Forgets a file whose content has turned out to be wrong, so that the next attempt downloads it again.
pub(super) async fn forget(file: &PlatformFile, workspace: &Workspace) {
    let name = part_name(file);
    let record = PartPlace { workspace, name: &name }.record_name();
    if let Err(error) = workspace.remove_record(&record).await {
        tracing::debug!(%error, "cannot remove the record of a wrong file");
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
pub(super) struct FileRecord {
    pub(super) manifest: ManifestFile,
    pub(super) head: ResponseHead,
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
        // No earlier ingest has counted it.
        let stored = StoredFile { digest, size, media_type: None, is_new: true };
        Ok(Some(Self { manifest, stored, headers: head.headers(), time: head.time }))
    }
}
