//! Captures of files in a web archive with the interfaces of the Wayback Machine: an index, a replay, and Save Page Now 2.
//!
//! A file that the archive has is not captured again. The bytes come from the replay, are verified like a download, and are
//! stored too.
//!
//! * `cdx` finds captures and follows their redirections;
//! * `save_page_now` makes captures.

pub(super) mod cdx;
pub(super) mod save_page_now;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::{HeaderValue, StatusCode};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use serde::de::DeserializeOwned;
use url::Url;

use self::cdx::{FoundCapture, is_time};
use super::{
    IngestFailure, PlatformClient, RetryRule,
    answers::BodyError,
    archived_file::ArchivedFile,
    client::named,
    files::{self, DownloadContext},
    platform::PlatformFile,
};
use crate::{
    format::fileset::{message::ManifestFile, status::IngestStatus},
    http_client::{Authorization, Origin, RequestHeaders},
    transfer::{Transfers, body::ReceivedBody, without_signature},
    web::Secret,
};

/// Maximum number of captures at a time, of the sessions that a user has.
const CAPTURES_AT_ONCE: usize = 3;

/// Keys of a user of archive.org, which are sent as `Authorization: LOW ACCESS:SECRET`.
#[derive(Clone)]
pub struct ArchiveKeys {
    access: Arc<str>,
    /// Both keys, as the header has them.
    pair: Secret,
}

impl ArchiveKeys {
    /// Creates the keys; `None` if they have characters that a header cannot carry.
    #[must_use]
    pub fn new(access: &str, secret: &Secret) -> Option<Self> {
        let pair = [access.as_bytes(), b":", secret.expose()].concat();
        HeaderValue::from_bytes(&pair).ok()?;
        Some(Self { access: access.into(), pair: Secret::new(pair) })
    }

    /// Returns the access key.
    pub(super) fn access(&self) -> &str {
        &self.access
    }

    /// Returns the keys for the origin of a URL, which the operator has configured.
    pub(super) fn authorization(&self, configured: &Url) -> Option<Authorization> {
        Authorization::new(Origin::of(configured)?, "LOW", self.pair.expose())
    }
}

/// Prints no key.
impl std::fmt::Debug for ArchiveKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArchiveKeys")
    }
}

/// Settings of a web archive.
#[derive(Clone, Debug)]
pub struct WaybackSettings {
    /// URL of the index.
    pub cdx: Url,
    /// Base URL of the replay.
    pub replay: Url,
    /// URL of Save Page Now.
    pub save: Url,
    /// Keys of the user; `None` if nothing is captured.
    pub keys: Option<ArchiveKeys>,
    /// Maximum number of captures for a dataset.
    pub max_captures: usize,
    /// Time between two polls of a job.
    pub poll: Duration,
    /// Longest wait that the service can ask for.
    pub longest_wait: Duration,
}

/// A web archive, and the client for it.
pub(super) struct Wayback<'a> {
    pub(super) settings: &'a WaybackSettings,
    pub(super) client: &'a PlatformClient,
}

/// A file, and its capture in a web archive.
pub(super) struct CapturedFile {
    pub(super) file: ArchivedFile,
    pub(super) capture: Option<FoundCapture>,
}

/// Failure of a file of a dataset.
pub(super) struct CaptureFailure {
    /// Number of the file.
    pub(super) index: Option<usize>,
    pub(super) failure: IngestFailure,
}

/// A capture, and whether it was made now.
struct Capture {
    found: FoundCapture,
    is_new: bool,
}

/// Returns whether a capture is not the file of the list, so that another one may be.
fn is_other_content(failure: &IngestFailure) -> bool {
    let others = [
        IngestStatus::MISMATCH_SIZE,
        IngestStatus::MISMATCH_MD5,
        IngestStatus::MISMATCH_SHA1,
        IngestStatus::MISMATCH_SHA256,
        IngestStatus::MISMATCH_SHA512,
        IngestStatus::EMPTY_BLOB,
        IngestStatus::WAYBACK_CONTENT_ERROR,
    ];
    others.contains(&failure.status)
}

impl Wayback<'_> {
    /// Finds the captures of files or makes them, and fetches the bytes of each.
    pub(super) async fn fetch(
        &self,
        files: &[PlatformFile],
        transfers: &Transfers,
        context: DownloadContext<'_>,
        concurrency: usize,
    ) -> Result<Vec<CapturedFile>, CaptureFailure> {
        let of_file = |index: usize| move |failure| CaptureFailure { index: Some(index), failure };
        // The futures are boxed, because the compiler cannot see otherwise that the streams can move between threads.
        let lookups = files
            .iter()
            .enumerate()
            .map(|(index, file)| async move { self.find(&file.manifest).await.map_err(of_file(index)) }.boxed())
            .collect::<Vec<_>>();
        let found: Vec<_> = stream::iter(lookups).buffered(concurrency).try_collect().await?;
        let (missing, all) = (found.iter().filter(|found| found.is_empty()).count(), files.len());
        let settings = self.settings;
        if missing > 0 && settings.keys.is_none() {
            let message = format!("{missing} of {all} files have no capture, and there are no keys to make one");
            return Err(CaptureFailure {
                index: found.iter().position(Vec::is_empty),
                failure: IngestFailure::permanent(IngestStatus::NO_CAPTURE, message),
            });
        }
        if missing > settings.max_captures {
            let limit = settings.max_captures;
            let message = format!("{missing} of {all} files have no capture; max_captures is {limit}");
            return Err(CaptureFailure {
                index: None,
                failure: IngestFailure::permanent(IngestStatus::TOO_MUCH_SPN, message),
            });
        }
        let captures = found.into_iter().enumerate().map(|(index, found)| {
            async move {
                if found.is_empty() {
                    let found = self.save(&files[index].manifest).await.map_err(of_file(index))?;
                    return Ok(vec![Capture { found, is_new: true }]);
                }
                Ok(found.into_iter().map(|found| Capture { found, is_new: false }).collect::<Vec<_>>())
            }
            .boxed()
        });
        let captures: Vec<_> =
            stream::iter(captures.collect::<Vec<_>>()).buffered(CAPTURES_AT_ONCE).try_collect().await?;
        let left = AtomicUsize::new(settings.max_captures - missing);
        let left = &left;
        let replays = captures.into_iter().enumerate().map(|(index, captures)| {
            let replay = async move {
                let replayed = self.replay_best(&files[index], captures, left, transfers, context).await;
                replayed.map_err(of_file(index))
            };
            replay.boxed()
        });
        stream::iter(replays.collect::<Vec<_>>()).buffered(concurrency).try_collect().await
    }

    /// Fetches the first of some captures that is the file of the manifest. If none is, a new one is made, as long as `left`
    /// allows.
    async fn replay_best(
        &self,
        file: &PlatformFile,
        captures: Vec<Capture>,
        left: &AtomicUsize,
        transfers: &Transfers,
        context: DownloadContext<'_>,
    ) -> Result<CapturedFile, IngestFailure> {
        let mut other = None;
        let was_made = captures.iter().any(|capture| capture.is_new);
        for capture in captures {
            match self.replay(file, capture, transfers, context).await {
                Err(failure) if is_other_content(&failure) => other = Some(failure),
                ended => return ended,
            }
        }
        let may_capture = self.settings.keys.is_some() && !was_made;
        let takes = |left: usize| left.checked_sub(1);
        if may_capture && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes).is_ok() {
            let found = match self.save(&file.manifest).await {
                Ok(found) => found,
                // The captures that exist are the better reason.
                Err(failure) => {
                    return Err(
                        other.map_or_else(|| failure.clone(), |other| IngestFailure { retry: failure.retry, ..other })
                    );
                }
            };
            return self.replay(file, Capture { found, is_new: true }, transfers, context).await;
        }
        Err(other.unwrap_or_else(|| {
            let message = format!("{} has no capture", file.manifest.path);
            IngestFailure::permanent(IngestStatus::NO_CAPTURE, message)
        }))
    }

    /// Fetches the bytes of a capture, and compares them with the manifest and with the index.
    async fn replay(
        &self,
        file: &PlatformFile,
        Capture { found, is_new }: Capture,
        transfers: &Transfers,
        context: DownloadContext<'_>,
    ) -> Result<CapturedFile, IngestFailure> {
        let url = self.replay_url(found.last())?;
        let replayed = ManifestFile { platform_url: Some(url.to_string()), ..file.manifest.clone() };
        let replayed = PlatformFile { is_soft: file.is_soft, ..PlatformFile::new(replayed) };
        let downloaded = files::download(&replayed, transfers, None, context).await;
        let mut downloaded = downloaded.map_err(|(_, failure)| {
            if failure.status != IngestStatus::ERROR_PLATFORM_DOWNLOAD {
                return failure;
            }
            let status = if is_new { IngestStatus::SPN2_WAYBACK_ERROR } else { IngestStatus::WAYBACK_ERROR };
            // The replay of a capture that the index has can fail for a time only.
            let retry = if failure.retry == RetryRule::Never { RetryRule::Backoff(None) } else { failure.retry };
            IngestFailure { status, retry, ..failure }
        })?;
        let last = downloaded.manifest.terminal_url.take();
        if let Err(failure) = check_replay(file, &downloaded, &found, last == Some(without_signature(&url))) {
            files::forget(&replayed, context.workspace).await;
            return Err(failure);
        }
        let entry = &mut downloaded.manifest;
        entry.platform_url.clone_from(&file.manifest.platform_url);
        entry.terminal_url = Some(found.last().url.clone());
        entry.terminal_dt = Some(found.last().datetime.clone());
        Ok(CapturedFile { file: downloaded, capture: Some(found) })
    }

    /// Requests a document; returns its status and its body, which has arrived.
    async fn get(&self, url: &Url, headers: &RequestHeaders) -> Result<(StatusCode, ReceivedBody), IngestFailure> {
        let answer = async {
            let response = self.client.open_when_free(url, headers).await?;
            let status = response.status;
            let body = self.client.receive(response, self.client.limits.answer_bytes).await;
            Ok((status, body.map_err(|error| unreadable(url, error))?))
        };
        self.client.exchange(url, IngestStatus::WAYBACK_ERROR, answer).await
    }

    /// Reads a JSON document, and makes something of it; the inner error says why it has not the expected form.
    async fn read<D: DeserializeOwned, T: Send + 'static>(
        &self,
        url: &Url,
        body: ReceivedBody,
        make: impl FnOnce(D) -> T + Send + 'static,
    ) -> Result<Result<T, String>, IngestFailure> {
        let made = self.client.read_json(body, self.client.limits.answer_bytes, make).await;
        let made = made.map_err(|error| unreadable(url, error))?;
        Ok(made.map_err(|reason| reason.to_string()))
    }
}

fn unreadable(url: &Url, error: BodyError) -> IngestFailure {
    let reason = match error {
        BodyError::TooLarge(bytes) => format!("it has more than {bytes} bytes"),
        BodyError::Broken(error) => error.to_string(),
        BodyError::Encoding(reason) | BodyError::Failed(reason) => reason,
    };
    let message = format!("the answer of {} cannot be read: {reason}", named(url));
    IngestFailure::transient(IngestStatus::WAYBACK_ERROR, message)
}

/// Checks the bytes of a capture against the index.
fn check_replay(
    file: &PlatformFile,
    downloaded: &ArchivedFile,
    found: &FoundCapture,
    is_requested: bool,
) -> Result<(), IngestFailure> {
    let path = &file.manifest.path;
    if downloaded.stored.size == 0 && file.manifest.size != Some(0) {
        let message = format!("the capture of {path} is empty");
        return Err(IngestFailure::permanent(IngestStatus::EMPTY_BLOB, message));
    }
    let reason = if !is_requested {
        "is another capture"
    } else if found.cdx.sha1hex.is_some() && found.cdx.sha1hex != downloaded.manifest.sha1 {
        "has another SHA-1 than the index"
    } else {
        return Ok(());
    };
    let message = format!("the replay of {path} {reason}");
    Err(IngestFailure::transient(IngestStatus::WAYBACK_CONTENT_ERROR, message))
}

/// Returns a URL with a query. It has no slash at the end, which is another place at some servers.
fn with_query(base: &Url, parameters: &[(&str, &str)]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty();
    }
    url.query_pairs_mut().extend_pairs(parameters);
    url
}
