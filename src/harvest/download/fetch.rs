//! Downloads of single files: rules of the host, limits, and the facts of the source.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{DownloadSettings, position::Download, robots::Robots};
use crate::{
    files::{FileFacts, StoredFile},
    http_client::{OutboundUrl, RequestHeaders},
    model::{DigestAlgorithm, MediaType, OriginalContent},
    transfer::{HostPermit, Receiver, TransferError, TransferredFile, Transfers},
};

/// Time after which `robots.txt` is requested again (RFC 9309 section 2.4).
const ROBOTS_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for `robots.txt`, from the request to the end of the file.
const ROBOTS_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of hosts whose rules are in memory.
const MAX_ROBOTS: usize = 1000;

/// Maximum size of `robots.txt`, in bytes, the one of RFC 9309 section 2.5.
const MAX_ROBOTS_BYTES: usize = 500 * 1024;

/// Maximum size of the rules of all hosts in memory, in bytes. Those of one host take up to a megabyte.
const MAX_RULES_BYTES: usize = 8 << 20;

/// Maximum size of rules that are read and applied on an asynchronous thread, in bytes.
const SMALL_BYTES: usize = 16 << 10;

/// Requests files and stores them.
pub(super) struct Fetcher {
    pub(super) transfers: Transfers,
    pub(super) settings: DownloadSettings,
    pub(super) robots: RobotsCache,
}

/// Rules of the hosts, by their origins, with the time of their request.
#[derive(Default)]
pub(super) struct RobotsCache(Mutex<KnownRobots>);

#[derive(Default)]
struct KnownRobots {
    by_origin: HashMap<String, (Arc<Robots>, Instant)>,
    /// Size of all rules, in bytes.
    bytes: usize,
}

/// A file that was stored.
#[derive(Clone, Debug)]
pub(super) struct FetchedFile {
    pub(super) stored: StoredFile,
    /// Media type: the one that its bytes show, or else the one of the response.
    pub(super) media_type: Option<MediaType>,
}

impl Fetcher {
    /// Downloads a file. `budget` is the number of bytes that the source may still store.
    pub(super) async fn fetch(&self, download: &Download, budget: &AtomicU64) -> Result<FetchedFile, TransferError> {
        let url = OutboundUrl::of_server(download.original.url.as_str(), &self.transfers.policy)?;
        let mut permit = self.transfers.hosts.permit(&url.origin()).await;
        self.check_robots(&url, &mut permit).await?;
        let mut check = FileCheck { settings: &self.settings, budget, original: &download.original, media_type: None };
        let file = self.transfers.store(&url, &RequestHeaders::default(), &mut check, &mut permit, None).await?;
        let (TransferredFile { stored, .. }, FileCheck { media_type, .. }) = (file, check);
        if stored.is_new {
            budget
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(stored.size)))
                .ok();
        }
        Ok(FetchedFile { stored, media_type })
    }

    /// Checks the rules of the host.
    async fn check_robots(&self, url: &OutboundUrl, permit: &mut HostPermit) -> Result<(), TransferError> {
        if !self.settings.robots {
            return Ok(());
        }
        let robots = match self.robots.get(&url.origin()) {
            Some(robots) => robots,
            None => {
                let robots = timeout(ROBOTS_TIMEOUT, self.request_robots(url, permit)).await;
                robots.unwrap_or_else(|_| {
                    let seconds = ROBOTS_TIMEOUT.as_secs();
                    Err(TransferError::TooSlow(format!("robots.txt of the server needs more than {seconds} seconds")))
                })?
            }
        };
        let path = url.expose().path();
        let path = url.expose().query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        if away(robots.size(), move || robots.is_allowed(&path)).await? {
            return Ok(());
        }
        Err(TransferError::Permanent(
            "robots.txt of the server forbids it; ask its publisher, or set robots = false".to_owned(),
        ))
    }

    /// Requests the rules of a host. A host without rules allows all; one that fails allows nothing (RFC 9309
    /// section 2.3.1).
    async fn request_robots(&self, url: &OutboundUrl, permit: &mut HostPermit) -> Result<Arc<Robots>, TransferError> {
        let origin = url.origin();
        let place = OutboundUrl::parse(&format!("{origin}/robots.txt"), &self.transfers.policy)?;
        let (mut response, _) = self.transfers.open(&place, &RequestHeaders::default(), permit).await?;
        if response.status.is_server_error() {
            return Err(TransferError::Transient(format!(
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
        let robots = away(body.len(), move || Robots::parse(&String::from_utf8_lossy(&body))).await?;
        let robots = Arc::new(robots);
        self.robots.insert(origin, Arc::clone(&robots));
        Ok(robots)
    }
}

/// Checks a file against the limits and the facts of the source.
struct FileCheck<'a> {
    settings: &'a DownloadSettings,
    budget: &'a AtomicU64,
    original: &'a OriginalContent,
    /// Media type: the one that its bytes show, or else the one of the response.
    media_type: Option<MediaType>,
}

impl Receiver for FileCheck<'_> {
    fn check_headers(&mut self, headers: &HeaderMap) -> Result<(), TransferError> {
        self.media_type = media_type(headers);
        self.check_media_type()?;
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        self.check_size(length.unwrap_or(0))
    }

    fn restart(&mut self) {}

    fn receive(&mut self, _: &[u8], size: u64) -> Result<(), TransferError> {
        self.check_size(size)
    }

    fn check_content(&mut self, facts: &FileFacts) -> Result<(), TransferError> {
        let expected = self.original.digest.as_ref().filter(|digest| digest.algorithm() == DigestAlgorithm::Sha256);
        if let Some(expected) = expected.filter(|expected| expected.hex() != facts.digest.to_string()) {
            let found = facts.digest;
            return Err(TransferError::Permanent(format!(
                "its SHA-256 is {found}; its source reports {}",
                expected.hex()
            )));
        }
        let recognized = facts.media_type.and_then(|media_type| MediaType::parse(media_type).ok());
        self.media_type = recognized.or(self.media_type.take());
        self.check_media_type()
    }
}

impl FileCheck<'_> {
    fn check_media_type(&self) -> Result<(), TransferError> {
        let wanted = &self.settings.media_types;
        match &self.media_type {
            Some(media_type) if !wanted.is_empty() && !wanted.iter().any(|range| range.matches(media_type)) => {
                Err(TransferError::Permanent(format!("it is {media_type}, which is not in media_types")))
            }
            _ => Ok(()),
        }
    }

    fn check_size(&self, size: u64) -> Result<(), TransferError> {
        let max = self.settings.max_bytes;
        if size > max {
            return Err(TransferError::Permanent(format!("it has more than {max} bytes (max_bytes)")));
        }
        if size > self.budget.load(Ordering::Relaxed) {
            let total = self.settings.total_bytes;
            return Err(TransferError::Permanent(format!(
                "the files of this source would have more than {total} bytes (total_bytes)"
            )));
        }
        Ok(())
    }
}

impl RobotsCache {
    fn get(&self, origin: &str) -> Option<Arc<Robots>> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.by_origin.get(origin).filter(|(_, at)| at.elapsed() < ROBOTS_AGE).map(|(robots, _)| Arc::clone(robots))
    }

    fn insert(&self, origin: String, robots: Arc<Robots>) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.by_origin.len() >= MAX_ROBOTS || cache.bytes + robots.size() > MAX_RULES_BYTES {
            *cache = KnownRobots::default();
        }
        cache.bytes += robots.size();
        if let Some((former, _)) = cache.by_origin.insert(origin, (robots, Instant::now())) {
            cache.bytes -= former.size();
        }
    }
}

/// Does work on rules of so many bytes: on a blocking thread unless they are small. At most eight downloads of a source run
/// at the same time, so no more threads are used.
async fn away<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, TransferError> {
    if bytes <= SMALL_BYTES {
        return Ok(work());
    }
    let failed = |error| TransferError::Transient(format!("robots.txt of the server cannot be read: {error}"));
    spawn_blocking(work).await.map_err(failed)
}

/// Returns the media type of a response.
fn media_type(headers: &HeaderMap) -> Option<MediaType> {
    headers.get(CONTENT_TYPE).and_then(|value| MediaType::parse(value.to_str().ok()?).ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{MAX_ROBOTS, MAX_RULES_BYTES, PoisonError, Robots, RobotsCache};

    #[test]
    fn rules_of_many_hosts_have_a_bound() {
        let (small, large) = (Robots::parse("User-agent: *\nDisallow: /a"), {
            let rules: String = (0..20_000).map(|number| format!("Disallow: /{number:040}\n")).collect();
            Robots::parse(&format!("User-agent: *\n{rules}"))
        });
        for robots in [Arc::new(small), Arc::new(large)] {
            let cache = RobotsCache::default();
            for number in 0..2 * MAX_ROBOTS {
                // Each host is asked twice.
                let origin = format!("http://{}", number / 2);
                cache.insert(origin.clone(), Arc::clone(&robots));
                assert!(cache.get(&origin).is_some());
                let known = cache.0.lock().unwrap_or_else(PoisonError::into_inner);
                let bytes: usize = known.by_origin.values().map(|(robots, _)| robots.size()).sum();
                assert_eq!(known.bytes, bytes);
                assert!(known.by_origin.len() <= MAX_ROBOTS && bytes <= MAX_RULES_BYTES, "{bytes}");
            }
        }
    }
}
