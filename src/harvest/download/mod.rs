//! Downloads of the files that other sources name.
//!
//! The list of this harvest is the journal itself: a run reads the changes of the chosen sources after its position,
//! downloads the content of their items into the file store, and passes each result to the dialect. So a file that cannot
//! be had holds no record up, and a crash repeats at most the files of one page.
//!
//! * `position` is the state between two pages, with the downloads in flight and those to repeat;
//! * `pool` has the downloads in flight, which outlive a page;
//! * `fetch` downloads a file, and `robots` reads the rules of the hosts.

mod fetch;
mod pool;
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

use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, sleep_until},
};

use self::{
    fetch::{FetchedFile, Fetcher, RobotsCache},
    pool::{Ended, MAX_PENDING, Pool},
    position::{Download, NamedFile, PendingDownload, Position},
};
use super::{
    HarvestError, Harvester, HarvesterContext, HarvesterSettings, Page, PageEnd, SetupError, json_message, metrics,
    stored_file,
};
use crate::{
    files::{FileLinks, FileStore},
    format::download::DownloadResult,
    http_client::{Client, ClientSettings},
    intake::ReceivedMessage,
    journal::{
        Journal, JournalError, RecordedChange,
        list::{Continuation, changes_after, wait_for_change},
    },
    model::{ContentLocation, ContentObjectModification, MediaRange, SourceName, Timestamp, UrlPattern},
    transfer::{TransferError, Transfers},
};

/// Number of results after which a page ends and the position is written.
const PAGE_RESULTS: usize = 16;

/// Time that a page waits for further results after its first one, and for the first one.
const GATHERING: Duration = Duration::from_secs(1);
const LONGEST_PAGE: Duration = Duration::from_secs(30);

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
            let (budget, in_flight) = (Arc::default(), Mutex::default());
            let downloader = Downloader { source, fetcher, journal, file_links, public_url, budget, in_flight };
            Ok(Arc::new(downloader) as Arc<dyn Harvester>)
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
    /// Number of bytes that the source may still store.
    budget: Arc<AtomicU64>,
    in_flight: Mutex<InFlight>,
}

/// Downloads that continue from one page to the next.
#[derive(Default)]
struct InFlight {
    pool: Pool,
    /// Number of stored bytes in the newest position, from which the budget was computed.
    bytes: Option<u64>,
}

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

    fn stored_bytes(&self, position: &str) -> Option<u64> {
        Some(Position::parse(position).bytes)
    }

    /// Ends the downloads in flight. The position has them.
    fn rest(&self) {
        if let Ok(mut in_flight) = self.in_flight.try_lock() {
            *in_flight = InFlight::default();
        }
    }

    fn new_work<'a>(&'a self, position: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.wait_for_work(Position::parse(position)))
    }
}

impl Downloader {
    /// Returns the results of the next downloads that end. Those that do not end continue, and the position has them.
    async fn read_page(&self, mut position: Position) -> Result<Page, HarvestError> {
        let mut in_flight = self.in_flight.lock().await;
        let InFlight { pool, bytes } = &mut *in_flight;
        pool.continue_at(&position.pending);
        if *bytes != Some(position.bytes) {
            self.budget.store(self.fetcher.settings.total_bytes.saturating_sub(position.bytes), Ordering::Relaxed);
        }
        let (mut messages, mut until) = (Vec::new(), Instant::now() + LONGEST_PAGE);
        let is_end = loop {
            let is_end = self.select(&mut position, pool).await?;
            if messages.len() >= PAGE_RESULTS || pool.len() == 0 {
                break is_end;
            }
            tokio::select! {
                ended = pool.next(|pending| self.download(pending)) => {
                    let Some((pending, ended)) = ended else { break is_end };
                    if let Some(result) = ended? {
                        messages.push(self.report(&mut position, pending, result)?);
                        until = until.min(Instant::now() + GATHERING);
                    }
                }
                () = self.next_file(&position), if is_end => {}
                () = sleep_until(until) => break is_end,
            }
        };
        position.pending = pool.pending();
        *bytes = Some(position.bytes);
        let has_due = position.next_repeat().is_some_and(|next| next <= Timestamp::now());
        let end = if is_end && !has_due && pool.len() == 0 { PageEnd::Complete } else { PageEnd::More };
        Ok(Page::new(messages, position.text(), end))
    }

    /// Returns the message about a download that has ended.
    fn report(
        &self,
        position: &mut Position,
        PendingDownload { download, attempts }: PendingDownload,
        result: Result<FetchedFile, TransferError>,
    ) -> Result<ReceivedMessage, HarvestError> {
        metrics::downloaded(&self.source, result.as_ref().ok().map(|file| &file.stored));
        let (copy, reason) = match result {
            Ok(file) => {
                position.bytes += if file.stored.is_new { file.stored.size } else { 0 };
                (Some(self.location(&file)?), String::new())
            }
            // The position stays, so nothing is lost while the disk is full.
            Err(TransferError::Store(error)) => return Err(HarvestError::retry(error.to_string())),
            Err(error) => {
                let is_permanent = error.is_permanent();
                position.repeat(download.clone(), attempts + 1, Timestamp::now(), is_permanent);
                (None, error.to_string())
            }
        };
        let Download { object, item, time, original } = download;
        Ok(json_message(&DownloadResult { object, item, time, original, copy, reason }))
    }

    /// Downloads a file, if the registry has no other content by now.
    fn download(&self, pending: &PendingDownload) -> BoxFuture<'static, Ended> {
        let (fetcher, budget) = (Arc::clone(&self.fetcher), Arc::clone(&self.budget));
        let (journal, download) = (self.journal.clone(), pending.download.clone());
        async move {
            if !is_current(&journal, &download).await? {
                return Ok(None);
            }
            Ok(Some(fetcher.fetch(&download, &budget).await))
        }
        .boxed()
    }

    /// Selects the next downloads: those that are due again, and the files of the next changes. Returns whether no change
    /// is left.
    async fn select(&self, position: &mut Position, pool: &mut Pool) -> Result<bool, JournalError> {
        if pool.wants_more() {
            let due = position.take_due(Timestamp::now(), MAX_PENDING - pool.len());
            due.into_iter().for_each(|repeat| pool.add(repeat));
        }
        let mut examined = 0;
        while pool.wants_more() && examined < PAGE_CHANGES {
            let (changes, continuation) = changes_after(&self.journal, &mut position.after).await?;
            if continuation == Continuation::Moved {
                position.items = 0;
            }
            if changes.is_empty() {
                return Ok(true);
            }
            for change in changes {
                for download in self.downloads(&change).await?.into_iter().skip(position.items) {
                    if !pool.wants_more() {
                        return Ok(false);
                    }
                    if let Some(download) = download {
                        pool.add(PendingDownload { download, attempts: 0 });
                    }
                    position.items += 1;
                }
                (position.after, position.items) = (change.seq(), 0);
                examined += 1;
            }
        }
        Ok(false)
    }

    /// Waits until a further change names a file.
    async fn next_file(&self, position: &Position) {
        wait_for_change(&self.journal, position.after, |change| {
            let named = self.named_files(&change.change()?.modification);
            Ok(named.iter().any(|file| !matches!(file, NamedFile::None)))
        })
        .await;
    }

    /// Returns for each item of a change the download that it causes.
    async fn downloads(&self, change: &RecordedChange) -> Result<Vec<Option<Download>>, JournalError> {
        let modification = &change.change()?.modification;
        let named = self.named_files(modification);
        let registered = match named.iter().any(|file| matches!(file, NamedFile::Released(_))) {
            true => self.journal.object(modification.object.clone()).await?,
            false => None,
        };
        let mut downloads = Vec::with_capacity(named.len());
        for file in named {
            downloads.push(match file {
                NamedFile::None => None,
                NamedFile::Of(download) => Some(download),
                NamedFile::Released(item) => match registered.as_ref().and_then(|object| object.content(item)) {
                    Some(content) => {
                        let (object, time) = (&modification.object, modification.time);
                        Download::new(object, item, time, &content.parse()?).filter(|download| self.is_wanted(download))
                    }
                    None => None,
                },
            });
        }
        Ok(downloads)
    }

    /// Returns for each item of a change the file that the change names or releases.
    fn named_files<'m>(&self, modification: &'m ContentObjectModification) -> Vec<NamedFile<'m>> {
        if !self.fetcher.settings.of.contains(&modification.origin.source) {
            return Vec::new();
        }
        let file = |item| match NamedFile::of(modification, item) {
            NamedFile::Of(download) if !self.is_wanted(&download) => NamedFile::None,
            file => file,
        };
        modification.items.iter().map(file).collect()
    }

    fn is_wanted(&self, download: &Download) -> bool {
        self.fetcher.settings.urls.is_match(download.original.url.as_str())
    }

    /// Returns the location of a stored file.
    fn location(&self, file: &FetchedFile) -> Result<ContentLocation, HarvestError> {
        let FetchedFile { stored, media_type } = file;
        let place = (&self.fetcher.transfers.files, self.file_links, &*self.public_url);
        stored_file::location(place, stored.digest, stored.size, media_type.clone())
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
            () = self.next_file(&position) => {}
        }
    }
}

/// Reads a body as `robots.txt`, and asks it for a path; returns the answer. For fuzzing and tests.
#[doc(hidden)]
#[must_use]
pub fn robots_allow(body: &[u8], path: &str) -> bool {
    robots::Robots::parse(&String::from_utf8_lossy(body)).is_allowed(path)
}

/// Returns whether the registry still has the content that was to be downloaded.
async fn is_current(journal: &Journal, download: &Download) -> Result<bool, JournalError> {
    let Some(object) = journal.object(download.object.clone()).await? else { return Ok(false) };
    let Some(content) = object.content(&download.item) else { return Ok(false) };
    let content = content.parse()?;
    Ok(content.original.is_none() && content.reported() == download.original)
}
