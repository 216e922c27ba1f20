//! Downloads of the files of a dataset into the file store, each verified in the pass that stores it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha1::Digest;

use super::{
    IngestFailure, IngestProgress, PlatformToken, RetryRule,
    archived_file::ArchivedFile,
    check::{FileCheck, Totals},
    client::{LONGEST_WAIT, Voice},
    platform::PlatformFile,
};
use crate::{
    files::{FileDigest, FileFacts, FileStoreError, StoredFile, Workspace},
    format::fileset::{message::ManifestFile, status::IngestStatus},
    http_client::{OutboundUrl, RequestHeaders, is_transient},
    transfer::{PartPlace, Receiver, ResponseHead, TransferError, TransferredFile, Transfers},
};

/// Maximum number of requests for a file to a server that is busy, and to one behind a gateway that fails.
const BUSY_ATTEMPTS: u32 = 10;
const BROKEN_ATTEMPTS: u32 = 3;

/// Wait if a busy server does not say for how long, the least one, and the one for a gateway, which grows with each attempt.
const BUSY: Duration = Duration::from_secs(120);
const LEAST_WAIT: Duration = Duration::from_secs(1);
const BROKEN: Duration = Duration::from_secs(2);

/// Returns the failure of a file store.
pub(super) fn store_failure(error: &FileStoreError) -> IngestFailure {
    IngestFailure::transient(IngestStatus::ERROR_ARCHIVEORG_UPLOAD, error.to_string())
}

/// Limits of a download, the count of its bytes, and the workspace of its ingest.
#[derive(Clone, Copy)]
pub(super) struct DownloadContext<'a> {
    /// Maximum size, in bytes.
    pub(super) max_bytes: u64,
    /// Limits of all files together.
    pub(super) totals: Totals,
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
/// A server that is busy or fails for a moment is waited for.
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
    let path = &file.manifest.path;
    let refused = |reason: String| IngestFailure::permanent(IngestStatus::ERROR_PLATFORM_DOWNLOAD, reason);
    let Some(url) = file.manifest.platform_url.as_deref() else {
        return Err(failed(refused(format!("{path}: the platform names no URL"))));
    };
    let parse = |url: &str| {
        let parsed = OutboundUrl::of_server(url, &transfers.policy);
        parsed.map_err(|error| refused(format!("{path}: {}", error.for_everybody())))
    };
    let mut url = parse(url).map_err(failed)?;
    let mut other_url = file.other_url.as_deref();
    let name = part_name(file);
    let place = PartPlace { workspace: context.workspace, name: &name };
    let mut attempts = 0;
    loop {
        attempts += 1;
        let authorization = token.and_then(|token| token.authorization(url.expose()));
        let headers = RequestHeaders::default().with_authorization(authorization.as_ref());
        let mut check = FileCheck::new(file, context.max_bytes, Some(context.progress)).with_totals(context.totals);
        // The job gives its place to others meanwhile.
        let permit = transfers.hosts.permit_within(&url.origin(), LONGEST_WAIT).await;
        let mut permit = permit.map_err(|rest| {
            let busy = IngestStatus::ERROR_PLATFORM_DOWNLOAD;
            let message = format!("{path}: the server accepts no requests for now");
            failed(IngestFailure { retry: RetryRule::Backoff(Some(rest)), ..IngestFailure::transient(busy, message) })
        })?;
        let transferred = transfers.store(&url, &headers, &mut check, &mut permit, Some(place)).await;
        let error = match (transferred, check.take_failure()) {
            (_, Some(failure)) => {
                check.restart();
                return Err(failed(failure));
            }
            (Ok(TransferredFile { stored, head }), None) => {
                let facts = FileFacts { digest: stored.digest, size: stored.size, media_type: stored.media_type };
                let manifest = check.downloaded(&facts, &head);
                context.progress.gained_files.fetch_add(1, Ordering::Relaxed);
                let ResponseHead { time, redirections, .. } = head.clone();
                return Ok(ArchivedFile { manifest, stored, headers: head.headers(), time, redirections });
            }
            (Err(error), None) => error,
        };
        // The next attempt counts the bytes again.
        check.restart();
        let has_failed = match &error {
            TransferError::Refused { status, .. } if other_url.is_some() && is_refusal_of_robots(*status) => {
                url = parse(other_url.take().unwrap_or_default()).map_err(failed)?;
                continue;
            }
            TransferError::Refused { status, .. }
                if matches!(*status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT) =>
            {
                permit.pause(BROKEN.saturating_mul(attempts));
                attempts >= BROKEN_ATTEMPTS
            }
            TransferError::Busy { wait, .. } => {
                let wait = wait.unwrap_or(BUSY).max(LEAST_WAIT);
                permit.pause(wait);
                attempts >= BUSY_ATTEMPTS || wait > LONGEST_WAIT
            }
            _ => true,
        };
        if has_failed {
            return Err(failed(failure_of(path, error, token.is_some())));
        }
    }
}

/// Returns whether a status is one with which a service refuses programs, and not users.
fn is_refusal_of_robots(status: StatusCode) -> bool {
    matches!(status, StatusCode::FORBIDDEN | StatusCode::ACCEPTED)
}

/// Returns the failure of a file.
fn failure_of(path: &str, error: TransferError, has_token: bool) -> IngestFailure {
    let message = format!("{path}: {error}");
    let status = IngestStatus::ERROR_PLATFORM_DOWNLOAD;
    match error {
        TransferError::Permanent(_) => IngestFailure::permanent(status, message),
        TransferError::Store(error) => IngestFailure { message, ..store_failure(&error) },
        TransferError::Transient(_) | TransferError::TooSlow(_) => IngestFailure::transient(status, message),
        TransferError::Busy { wait, .. } => {
            let retry = RetryRule::Backoff(wait.map(|wait| wait.max(LEAST_WAIT)));
            IngestFailure { retry, ..IngestFailure::transient(status, message) }
        }
        TransferError::Refused { status: code, body } => {
            let voice = Voice::of(&body);
            let hint = if code == StatusCode::UNAUTHORIZED && !has_token {
                "; a token in [filesets.tokens] may open it"
            } else {
                ""
            };
            let message = format!("{message}{}{hint}", voice.reason());
            // A traffic filter uses the same status codes as the platform, but not its language.
            if !voice.is_platform() || is_transient(code) {
                return IngestFailure::transient(status, message);
            }
            match code {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => IngestFailure::restricted(message, None),
                StatusCode::BAD_REQUEST if is_condition(&voice.reason()) => IngestFailure::restricted(message, None),
                _ => IngestFailure::permanent(status, message),
            }
        }
    }
}

/// Returns whether a reason names a condition that a person must fulfil: a guestbook, terms of use, or the end of a
/// retention period.
fn is_condition(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["guestbook", "terms", "retention", "embargo"].iter().any(|word| reason.contains(word))
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
    let ManifestFile { path, size, md5, sha1, sha256, sha512, platform_url, .. } = &file.manifest;
    let mut identity = json!([path, size, md5, sha1, sha256, platform_url]);
    // Unfinished files of earlier versions of the program keep their names.
    if let (Some(members), Some(sha512)) = (identity.as_array_mut(), sha512) {
        members.push(json!(sha512));
    }
    let identity = identity.to_string();
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
        let headers = head.headers();
        Ok(Some(Self { manifest, stored, headers, time: head.time, redirections: head.redirections }))
    }
}
