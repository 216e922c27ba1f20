//! Downloads of the files that other sources name.
//!
//! The list of this harvest is the journal itself: a run reads the changes of the chosen sources after its position,
//! downloads the content of their items into the file store, and passes each result to the dialect. So a file that cannot
//! be had holds no record up, and a crash repeats at most the files of one page.
//!
//! * `position` is the state between two pages, with the downloads to repeat;
//! * `fetch` downloads a file, and `robots` reads the rules of the hosts.

mod fetch;
mod position;
mod robots;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt, TryStreamExt,
    future::{BoxFuture, ready},
    stream,
};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use self::{
    fetch::{FetchedFile, Fetcher, RobotsCache},
    position::{Download, Position},
};
use super::{
    HarvestError, Harvester, HarvesterContext, HarvesterSettings, Page, PageEnd, SetupError,
    journal_list::{READ_CHANGES, before_oldest, wait_for_change},
    json_message, metrics,
    transfer::{TransferError, Transfers},
};
use crate::{
    files::{FileLinks, FileStore},
    format::download::DownloadResult,
    http_client::{Client, ClientSettings},
    journal::{Journal, JournalError, RecordedChange},
    model::{ContentLocation, Digest, DigestAlgorithm, MediaRange, SourceName, Timestamp, Uri, UrlPattern},
};

/// Number of files of a page, after which the position is written.
const PAGE_FILES: usize = 16;

/// Number of files that are downloaded at once, each from another host.
const CONCURRENCY: usize = 8;

/// Number of changes that a page examines.
const PAGE_CHANGES: usize = 16 * 1024;

/// Timeouts: until the headers of a response, and between two pieces of a body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings of the downloads.
#[derive(Clone, Debug)]
pub struct DownloadSettings {
    /// Sources whose files are downloaded.
    pub of: Vec<SourceName>,
    /// URLs of the files.
    pub urls: UrlPattern,
    /// Media types of the files; empty for all.
    pub media_types: Vec<MediaRange>,
    /// Maximum size of a file, in bytes.
    pub max_bytes: u64,
    /// Maximum size of all files together, in bytes.
    pub total_bytes: u64,
    /// Whether `robots.txt` counts.
    pub robots: bool,
}

impl HarvesterSettings for DownloadSettings {
    fn dialect(&self) -> &'static str {
        "download"
    }

    fn describe(&self) -> String {
        let names: Vec<_> = self.of.iter().map(SourceName::as_str).collect();
        format!("files of {}", names.join(", "))
    }

    fn ca(&self) -> Option<&Path> {
        None
    }

    fn sources(&self) -> &[SourceName] {
        &self.of
    }

    fn build(
        &self,
        source: SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        Box::pin(async move {
            let HarvesterContext { hosts, journal, files, file_links, public_url, file_policy: policy, .. } = context;
            let client = Client::new(ClientSettings {
                response_timeout: RESPONSE_TIMEOUT,
                body_timeout: IDLE_TIMEOUT,
                ..ClientSettings::new(policy.clone())
            });
            let (client, files, settings) = (client.await?, FileStore::open(&files)?, self.clone());
            let transfers = Transfers { client, policy, hosts, files };
            let fetcher = Arc::new(Fetcher { transfers, settings, robots: RobotsCache::default() });
            metrics::register_downloads(&source);
            Ok(Arc::new(Downloader { source, fetcher, journal, file_links, public_url }) as Arc<dyn Harvester>)
        })
    }
}

/// The harvest of the files.
struct Downloader {
    source: SourceName,
    fetcher: Arc<Fetcher>,
    journal: Journal,
    file_links: FileLinks,
    public_url: Arc<str>,
}

/// A download of a page, with the number of attempts that have failed.
type Attempt = (Download, u32);

/// The same with its result.
type Outcome = (Download, u32, Result<FetchedFile, TransferError>);

impl Harvester for Downloader {
    fn describe(&self) -> String {
        self.fetcher.settings.describe()
    }

    fn page<'a>(&'a self, position: &'a str, _attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(self.read_page(Position::parse(position)))
    }

    fn may_request_ahead(&self, _: &str) -> bool {
        true
    }

    fn new_work<'a>(&'a self, position: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.wait_for_work(Position::parse(position)))
    }
}

impl Downloader {
    async fn read_page(&self, mut position: Position) -> Result<Page, HarvestError> {
        let now = Timestamp::now();
        let repeats = position.take_due(now, PAGE_FILES).into_iter();
        let mut attempts: Vec<Attempt> = repeats.map(|repeat| (repeat.download, repeat.attempts)).collect();
        let is_end = self.select(&mut position, &mut attempts).await?;
        let total = self.fetcher.settings.total_bytes;
        let budget = Arc::new(AtomicU64::new(total.saturating_sub(position.bytes)));
        let budget_before = budget.load(Ordering::Relaxed);
        let results: Vec<_> = stream::iter(attempts)
            .map(|attempt| self.attempt(attempt, &budget))
            .buffered(CONCURRENCY)
            .try_filter_map(|result| ready(Ok(result)))
            .try_collect()
            .await?;
        position.bytes += budget_before - budget.load(Ordering::Relaxed);
        let mut messages = Vec::with_capacity(results.len());
        for (download, attempts, result) in results {
            metrics::downloaded(&self.source, result.as_ref().ok().map(|file| &file.stored));
            let (copy, reason) = match result {
                Ok(file) => (Some(self.location(&file)?), String::new()),
                // The position stays, so nothing is lost while the disk is full.
                Err(TransferError::Store(error)) => return Err(HarvestError::retry(error.to_string())),
                Err(error) => {
                    let is_permanent = matches!(error, TransferError::Permanent(_));
                    position.repeat(download.clone(), attempts + 1, now, is_permanent);
                    (None, error.to_string())
                }
            };
            let Download { object, item, time, original } = download;
            messages.push(json_message(&DownloadResult { object, item, time, original, copy, reason }));
        }
        let has_due = position.next_repeat().is_some_and(|next| next <= now);
        let end = if is_end && !has_due { PageEnd::Complete } else { PageEnd::More };
        Ok(Page::new(messages, position.text(), end))
    }

    /// Downloads a file; returns `None` if the registry has other content by now.
    async fn attempt(
        &self,
        (download, attempts): Attempt,
        budget: &Arc<AtomicU64>,
    ) -> Result<Option<Outcome>, JournalError> {
        if !self.is_current(&download).await? {
            return Ok(None);
        }
        // A task of its own, because hashing would hold up the other transfers.
        let (fetcher, task_download) = (Arc::clone(&self.fetcher), download.clone());
        let budget = Arc::clone(budget);
        let task = tokio::spawn(async move { fetcher.fetch(&task_download, &budget).await });
        let result = AbortOnDropHandle::new(task).await.map_err(|_| JournalError::Closed)?;
        Ok(Some((download, attempts, result)))
    }

    /// Adds the files of the next changes to a page; returns whether no change is left.
    async fn select(&self, position: &mut Position, attempts: &mut Vec<Attempt>) -> Result<bool, JournalError> {
        let mut examined = 0;
        while attempts.len() < PAGE_FILES && examined < PAGE_CHANGES {
            let changes = match self.journal.intact_after(position.after, READ_CHANGES).await {
                Err(JournalError::Gone { .. }) => {
                    // Retention or a restore has removed the next change.
                    (position.after, position.items) = (before_oldest(&self.journal), 0);
                    self.journal.intact_after(position.after, READ_CHANGES).await?
                }
                changes => changes?,
            };
            if changes.is_empty() {
                return Ok(true);
            }
            for change in changes {
                let files = self.files(&change)?;
                let free = PAGE_FILES - attempts.len();
                let taken = files.iter().skip(position.items).take(free);
                let before = attempts.len();
                attempts.extend(taken.map(|download| (download.clone(), 0)));
                position.items += attempts.len() - before;
                if position.items < files.len() {
                    return Ok(false);
                }
                (position.after, position.items) = (change.seq(), 0);
                examined += 1;
            }
        }
        Ok(false)
    }

    /// Returns the files to download of a change.
    fn files(&self, change: &RecordedChange) -> Result<Vec<Download>, JournalError> {
        let modification = &change.change()?.modification;
        let DownloadSettings { of, urls, .. } = &self.fetcher.settings;
        if !of.contains(&modification.origin.source) {
            return Ok(Vec::new());
        }
        let files = modification.items.iter();
        let files = files.filter_map(|item| Download::of(&modification.object, modification.time, item));
        Ok(files.filter(|download| urls.is_match(download.original.url.as_str())).collect())
    }

    /// Returns whether the registry still has the content that was to be downloaded.
    async fn is_current(&self, download: &Download) -> Result<bool, JournalError> {
        let Some(object) = self.journal.object(download.object.clone()).await? else { return Ok(false) };
        let Some(content) = object.content(&download.item) else { return Ok(false) };
        let content = content.parse()?;
        Ok(content.original.is_none() && content.reported() == download.original)
    }

    /// Returns the location of a stored file.
    fn location(&self, file: &FetchedFile) -> Result<ContentLocation, HarvestError> {
        let FetchedFile { stored, media_type } = file;
        let digest = stored.digest.to_string();
        let in_store = match self.file_links {
            FileLinks::Gateway => None,
            FileLinks::Store => self.fetcher.transfers.files.url(stored.digest),
        };
        let url = in_store.unwrap_or_else(|| format!("{}/files/{digest}", self.public_url));
        let url = Uri::parse(&url).map_err(|error| HarvestError::fail(format!("the URL of a copy: {error}")))?;
        Ok(ContentLocation {
            media_type: media_type.clone(),
            size: Some(stored.size),
            digest: Digest::parse(DigestAlgorithm::Sha256, &digest).ok(),
            ..ContentLocation::at(url)
        })
    }

    /// Waits until a change names a file, or a download is to be repeated.
    async fn wait_for_work(&self, position: Position) {
        let repeat = async {
            match position.next_repeat() {
                Some(next) => {
                    let wait = u64::try_from(next.millis() - Timestamp::now().millis()).unwrap_or(0);
                    sleep(Duration::from_millis(wait)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = repeat => {}
            () = wait_for_change(&self.journal, position.after, |change| Ok(!self.files(change)?.is_empty())) => {}
        }
    }
}
