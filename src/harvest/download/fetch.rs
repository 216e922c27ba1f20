//! Requests for files: redirections, limits, interrupted transfers, and the classification of failures.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LOCATION, RANGE},
};
use chrono::Utc;
use tokio::time::{Instant, timeout_at};

use super::{DownloadSettings, position::Download, robots::Robots};
use crate::{
    files::{FileStore, FileStoreError, NewFile, StoredFile},
    harvest::{HostPermit, Hosts},
    http_client::{Client, ClientError, InvalidOutboundUrl, OutboundPolicy, OutboundUrl, ResponseStream, retry_after},
    model::{DigestAlgorithm, MediaType},
};

/// Maximum number of redirections of a request.
const MAX_REDIRECTS: usize = 5;

/// Maximum number of times that an interrupted transfer is continued.
const MAX_CONTINUATIONS: usize = 5;

/// Maximum duration of a transfer, so that a server that sends a byte a minute does not hold it for ever.
const LONGEST_TRANSFER: Duration = Duration::from_secs(6 * 60 * 60);

/// Wait if a busy server does not say for how long, and the maximum time that it can ask for.
const BUSY: Duration = Duration::from_secs(120);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Time after which `robots.txt` is requested again (RFC 9309 section 2.4).
const ROBOTS_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of hosts whose rules are in memory.
const MAX_ROBOTS: usize = 1000;

/// Requests files and stores them.
pub(super) struct Fetcher {
    pub(super) client: Client,
    pub(super) policy: OutboundPolicy,
    pub(super) hosts: Hosts,
    pub(super) files: FileStore,
    pub(super) settings: DownloadSettings,
    pub(super) robots: RobotsCache,
}

/// Rules of the hosts, by their origins, with the time of their request.
#[derive(Default)]
pub(super) struct RobotsCache(Mutex<HashMap<String, (Arc<Robots>, Instant)>>);

/// A file that was stored.
#[derive(Clone, Debug)]
pub(super) struct FetchedFile {
    pub(super) stored: StoredFile,
    /// Media type: the one that its bytes show, or else the one of the response.
    pub(super) media_type: Option<MediaType>,
}

/// Reason why a file could not be stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// A later attempt may succeed.
    #[error("{0}")]
    Transient(String),
    /// Somebody must act: the publisher, or the administrator of the gateway.
    #[error("{0}")]
    Permanent(String),
    /// The file store cannot be written, so no other file can be stored either.
    #[error(transparent)]
    Store(FileStoreError),
}

impl From<FileStoreError> for FetchError {
    fn from(error: FileStoreError) -> Self {
        match error {
            // It concerns this file alone, so it must not hold up the others.
            FileStoreError::TooLarge(_) => Self::Permanent(error.to_string()),
            other => Self::Store(other),
        }
    }
}

impl From<ClientError> for FetchError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotAllowed(_) | ClientError::TlsRoots(_) => Self::Permanent(error.to_string()),
            ClientError::Timeout(_) | ClientError::Connection(_) => Self::Transient(error.to_string()),
        }
    }
}

impl From<InvalidOutboundUrl> for FetchError {
    fn from(error: InvalidOutboundUrl) -> Self {
        Self::Permanent(error.to_string())
    }
}

/// A transfer in progress.
struct Transfer {
    file: NewFile,
    response: ResponseStream,
    /// Strong validator of the content, with which the transfer can be continued.
    etag: Option<HeaderValue>,
}

impl Fetcher {
    /// Downloads a file. `budget` is the number of bytes that the source may still store.
    pub(super) async fn fetch(&self, download: &Download, budget: &AtomicU64) -> Result<FetchedFile, FetchError> {
        let url = OutboundUrl::parse(download.original.url.as_str(), &self.policy)?;
        let mut permit = self.hosts.permit(&url.origin()).await;
        self.check_robots(&url, &mut permit).await?;
        let until = Instant::now() + LONGEST_TRANSFER;
        let fetched = timeout_at(until, self.transfer(&url, download, budget, &mut permit)).await;
        fetched.unwrap_or_else(|_| Err(FetchError::Transient("the transfer takes more than six hours".to_owned())))
    }

    async fn transfer(
        &self,
        url: &OutboundUrl,
        download: &Download,
        budget: &AtomicU64,
        permit: &mut HostPermit,
    ) -> Result<FetchedFile, FetchError> {
        let response = self.request(url, &HeaderMap::new(), permit).await?;
        if response.status != StatusCode::OK {
            return Err(status_error(response.status));
        }
        let media_type =
            response.headers.get(CONTENT_TYPE).and_then(|value| MediaType::parse(value.to_str().ok()?).ok());
        self.check_media_type(media_type.as_ref())?;
        let length = response.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        self.check_size(length.unwrap_or(0), budget)?;
        let etag = response.headers.get(ETAG).filter(|etag| etag.as_bytes().starts_with(b"\"")).cloned();
        let mut transfer = Transfer { file: self.files.create().await?, response, etag };
        if let Err(error) = self.receive_all(&mut transfer, url, budget, permit).await {
            // A bucket would keep the parts of the file.
            if let Err(error) = transfer.file.abort().await {
                tracing::debug!(%error, "cannot remove an unfinished file");
            }
            return Err(error);
        }
        let stored = transfer.file.finish().await?;
        let expected = download.original.digest.as_ref().filter(|digest| digest.algorithm() == DigestAlgorithm::Sha256);
        if let Some(expected) = expected.filter(|expected| expected.hex() != stored.digest.to_string()) {
            let found = stored.digest;
            return Err(FetchError::Permanent(format!(
                "its SHA-256 is {found}; its source reports {}",
                expected.hex()
            )));
        }
        let recognized = stored.media_type.and_then(|media_type| MediaType::parse(media_type).ok());
        let media_type = recognized.or(media_type);
        self.check_media_type(media_type.as_ref())?;
        if stored.is_new {
            budget
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(stored.size)))
                .ok();
        }
        Ok(FetchedFile { stored, media_type })
    }

    /// Writes the body of a response up to its end, and continues it if it breaks off.
    async fn receive_all(
        &self,
        transfer: &mut Transfer,
        url: &OutboundUrl,
        budget: &AtomicU64,
        permit: &mut HostPermit,
    ) -> Result<(), FetchError> {
        let mut continuations = 0;
        while let Err(error) = self.receive(transfer, budget).await {
            let FetchError::Transient(reason) = error else { return Err(error) };
            continuations += 1;
            if continuations > MAX_CONTINUATIONS || !self.resume(transfer, url, permit).await? {
                let bytes = transfer.file.size();
                return Err(FetchError::Transient(format!("the transfer broke off after {bytes} bytes: {reason}")));
            }
        }
        Ok(())
    }

    /// Writes the body of a response up to its end.
    async fn receive(&self, transfer: &mut Transfer, budget: &AtomicU64) -> Result<(), FetchError> {
        while let Some(piece) = transfer.response.piece().await? {
            self.check_size(transfer.file.size() + piece.len() as u64, budget)?;
            transfer.file.write(piece).await?;
        }
        Ok(())
    }

    /// Continues an interrupted transfer; returns false if the server cannot.
    async fn resume(
        &self,
        transfer: &mut Transfer,
        url: &OutboundUrl,
        permit: &mut HostPermit,
    ) -> Result<bool, FetchError> {
        let size = transfer.file.size();
        let Some(etag) = transfer.etag.clone().filter(|_| size > 0) else { return Ok(false) };
        let Ok(range) = HeaderValue::try_from(format!("bytes={size}-")) else { return Ok(false) };
        let headers = HeaderMap::from_iter([(RANGE, range), (IF_RANGE, etag)]);
        let response = self.request(url, &headers, permit).await?;
        let range = response.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
        let continues = response.status == StatusCode::PARTIAL_CONTENT && range.starts_with(&format!("bytes {size}-"));
        transfer.response = response;
        Ok(continues)
    }

    /// Sends a request and follows redirections.
    async fn request(
        &self,
        url: &OutboundUrl,
        headers: &HeaderMap,
        permit: &mut HostPermit,
    ) -> Result<ResponseStream, FetchError> {
        let mut headers = headers.clone();
        // The digest is that of the file itself.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.client.open(&url, headers.clone()).await?;
            if matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                let wait = retry_after(&response.headers, Utc::now()).unwrap_or(BUSY).min(LONGEST_PAUSE);
                permit.pause(wait);
                return Err(FetchError::Transient(format!("the server is busy ({})", response.status)));
            }
            if !response.status.is_redirection() {
                return Ok(response);
            }
            let location = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let next = location.and_then(|location| url.expose().join(location).ok());
            let Some(mut next) = next else {
                return Err(FetchError::Permanent(format!(
                    "the server redirects ({}) to no valid URL",
                    response.status
                )));
            };
            next.set_fragment(None);
            url = OutboundUrl::parse(next.as_str(), &self.policy)?;
        }
        Err(FetchError::Permanent(format!("the server redirects more than {MAX_REDIRECTS} times")))
    }

    fn check_media_type(&self, media_type: Option<&MediaType>) -> Result<(), FetchError> {
        let wanted = &self.settings.media_types;
        match media_type {
            Some(media_type) if !wanted.is_empty() && !wanted.iter().any(|range| range.matches(media_type)) => {
                Err(FetchError::Permanent(format!("it is {media_type}, which is not in media_types")))
            }
            _ => Ok(()),
        }
    }

    fn check_size(&self, size: u64, budget: &AtomicU64) -> Result<(), FetchError> {
        let max = self.settings.max_bytes;
        if size > max {
            return Err(FetchError::Permanent(format!("it has more than {max} bytes (max_bytes)")));
        }
        if size > budget.load(Ordering::Relaxed) {
            let total = self.settings.total_bytes;
            return Err(FetchError::Permanent(format!(
                "the files of this source would have more than {total} bytes (total_bytes)"
            )));
        }
        Ok(())
    }

    /// Checks the rules of the host.
    async fn check_robots(&self, url: &OutboundUrl, permit: &mut HostPermit) -> Result<(), FetchError> {
        if !self.settings.robots {
            return Ok(());
        }
        let robots = match self.robots.get(&url.origin()) {
            Some(robots) => robots,
            None => self.request_robots(url, permit).await?,
        };
        let path = url.expose().path();
        let path = url.expose().query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        if robots.is_allowed(&path) {
            return Ok(());
        }
        Err(FetchError::Permanent(
            "robots.txt of the server forbids it; ask its publisher, or set robots = false".to_owned(),
        ))
    }

    /// Requests the rules of a host. A host without rules allows all; one that fails allows nothing (RFC 9309
    /// section 2.3.1).
    async fn request_robots(&self, url: &OutboundUrl, permit: &mut HostPermit) -> Result<Arc<Robots>, FetchError> {
        let origin = url.origin();
        let place = OutboundUrl::parse(&format!("{origin}/robots.txt"), &self.policy)?;
        let mut response = self.request(&place, &HeaderMap::new(), permit).await?;
        if response.status.is_server_error() {
            return Err(FetchError::Transient(format!(
                "robots.txt of the server is not available ({})",
                response.status
            )));
        }
        let mut body = Vec::new();
        if response.status.is_success() {
            while let Some(piece) = response.piece().await? {
                body.extend_from_slice(&piece);
                if body.len() > MAX_ROBOTS_BYTES {
                    break;
                }
            }
        }
        let robots = Arc::new(Robots::parse(&String::from_utf8_lossy(&body)));
        self.robots.insert(origin, Arc::clone(&robots));
        Ok(robots)
    }
}

/// Maximum size of `robots.txt`, in bytes, the one of RFC 9309 section 2.5.
const MAX_ROBOTS_BYTES: usize = 500 * 1024;

impl RobotsCache {
    fn get(&self, origin: &str) -> Option<Arc<Robots>> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(origin).filter(|(_, at)| at.elapsed() < ROBOTS_AGE).map(|(robots, _)| Arc::clone(robots))
    }

    fn insert(&self, origin: String, robots: Arc<Robots>) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_ROBOTS {
            cache.clear();
        }
        cache.insert(origin, (robots, Instant::now()));
    }
}

fn status_error(status: StatusCode) -> FetchError {
    let reason = format!("the server answers {status}");
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        FetchError::Transient(reason)
    } else {
        FetchError::Permanent(reason)
    }
}
