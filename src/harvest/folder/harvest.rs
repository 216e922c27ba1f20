//! Compares the files of a folder or an archive with the last known ones, and deletes those that are gone.

use std::{
    io,
    ops::Bound,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use notify::RecommendedWatcher;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    FolderSettings,
    archive::{self, Archive},
    content::{Candidate, PageContent, present_message, read},
    listed_file::{FileVersion, entries, open_configured, open_root},
    member::{Member, decoded, encoded, short_name},
    position::{List, Listing, Position, Sweep},
    walk::{ListedFile, Walk},
    watch::{ChangeSignal, gathering, watch},
};
use crate::{
    harvest::{HarvestError, Harvester, HarvesterSettings, Page, PageEnd, Records},
    intake::ReceivedMessage,
    journal::{Journal, harvest::ListedRecords},
    model::{SourceName, Timestamp, Uri},
    transfer::archive::ArchiveError,
};

/// Number of files of a page.
pub(super) const PAGE_FILES: usize = 1000;

/// Maximum number of remarks of a page about single files.
pub(super) const MAX_REMARKS: usize = 3;

/// The harvest of a folder or an archive.
pub(super) struct FolderHarvester {
    pub(super) settings: FolderSettings,
    pub(super) source: SourceName,
    pub(super) journal: Journal,
    memory: Arc<Mutex<Memory>>,
    changes: ChangeSignal,
}

/// Memory of a harvest between two pages. A page is the same without it, but needs longer.
#[derive(Default)]
struct Memory {
    /// Walk after a file.
    walk: Option<(String, Walk)>,
    /// The files of this version of the archive.
    archive: Option<(FileVersion, Arc<Archive>)>,
    watcher: Option<RecommendedWatcher>,
    /// Start of the present list in this process.
    began: Option<Instant>,
    /// Duration of the last list.
    last_list: Duration,
}

impl Harvester for FolderHarvester {
    fn describe(&self) -> String {
        self.settings.describe()
    }

    fn page<'a>(&'a self, position: &'a str, _attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(async {
            let mut position = Position::parse(position);
            match (position.listing.take(), position.sweep.take()) {
                (Some(listing), _) => self.list(position, listing).await,
                (None, Some(sweep)) => self.sweep(position, sweep).await,
                (None, None) => self.begin(position).await,
            }
        })
    }

    fn gap(&self, position: &str) -> Option<String> {
        let list = Position::parse(position).listed?;
        let path = self.settings.path.display();
        match list.files {
            0 => Some(format!("{path} has no file; it may not be mounted")),
            // A list with a folder that cannot be read is not swept.
            _ => (!list.is_swept).then(|| format!("a folder in {path} cannot be read")),
        }
    }

    fn object<'a>(&'a self, _: &'a str, object: &'a Uri) -> BoxFuture<'a, Result<Records, HarvestError>> {
        Box::pin(self.single_file(object))
    }

    fn new_work<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {
            self.changes.changed().await;
            let last_list = self.memory().last_list;
            tokio::time::sleep(gathering(last_list)).await;
        })
    }
}

impl FolderHarvester {
    pub(super) fn new(settings: FolderSettings, source: SourceName, journal: Journal) -> Self {
        Self { settings, source, journal, memory: Arc::default(), changes: ChangeSignal::default() }
    }

    /// Begins a list. An archive that has not changed is not read again.
    async fn begin(&self, mut position: Position) -> Result<Page, HarvestError> {
        self.changes.forget();
        let version = self.version().await?;
        let watch_remark = self.watch(version.is_folder()).await?;
        let archive = if version.is_folder() { String::new() } else { version.validator() };
        let known = position.listed.as_ref().filter(|list| !archive.is_empty() && list.archive == archive);
        let mut page = if let Some(list) = known {
            position.sweep = (!list.is_swept).then(Sweep::default);
            let end = if list.is_swept { PageEnd::Complete } else { PageEnd::More };
            Page::new(Vec::new(), position.text(), end)
        } else {
            let list = List { began: Timestamp::now(), files: 0, archive, is_swept: false };
            self.memory().began = Some(Instant::now());
            self.list(position, Listing { list, after: String::new(), is_short: false }).await?
        };
        page.remarks.extend(watch_remark);
        Ok(page)
    }

    /// Watches for changes from now on; returns a remark if that is impossible.
    async fn watch(&self, is_folder: bool) -> Result<Option<String>, HarvestError> {
        if !self.settings.watch {
            return Ok(None);
        }
        let (path, changes) = (self.settings.path.clone(), self.changes.clone());
        let watcher = blocking(move || watch(&path, is_folder, &changes)).await?;
        Ok(match watcher {
            Ok(watcher) => {
                self.memory().watcher = Some(watcher);
                None
            }
            Err(reason) => {
                let path = self.settings.path.display();
                Some(format!("{path} is not watched, so changes are found by the next run on schedule: {reason}"))
            }
        })
    }

    /// Returns the next page of the list.
    async fn list(&self, position: Position, mut listing: Listing) -> Result<Page, HarvestError> {
        let version = self.version().await?;
        let archive = if version.is_folder() { String::new() } else { version.validator() };
        if listing.list.archive != archive {
            // Another archive or folder has the name now. The files that were listed so far stay marked.
            (listing.list.archive, listing.list.files, listing.after) = (archive, 0, String::new());
        }
        if version.is_folder() {
            self.list_folder(position, listing).await
        } else {
            self.list_archive(position, listing, version).await
        }
    }

    async fn list_folder(&self, position: Position, mut listing: Listing) -> Result<Page, HarvestError> {
        let base = self.base(true);
        let Listed { files, is_end, is_short, mut remarks } = self.listed(listing.after.clone()).await?;
        let last = files.last().map_or_else(|| listing.after.clone(), |file| encoded(&file.path));
        let candidates = files.iter().filter_map(|file| self.candidate(&base, file, &mut remarks));
        let candidates: Vec<Candidate> = candidates.collect();
        let urls = candidates.iter().map(|candidate| candidate.url.to_string()).collect();
        let known = self.journal.validators(self.source.clone(), urls).await?;
        let stop = CancellationToken::new();
        // A page that is no longer awaited reads no further.
        let _stopped = stop.clone().drop_guard();
        let path = self.settings.path.clone();
        let read = move || Ok((read(&open_root(&path)?, &candidates, &known, &stop), candidates));
        let (content, candidates) = blocking(read).await?.map_err(|error: io::Error| self.unreadable(&error))?;
        let PageContent { files, messages, present, remarks: own_remarks } = content;
        remarks.extend(own_remarks);
        listing.list.files += present.len() as u64;
        listing.is_short |= is_short;
        let is_end = is_end && files == candidates.len();
        listing.after = match candidates.get(files) {
            None => last,
            Some(_) => candidates[..files].last().map_or(listing.after, |last| last.path.clone()),
        };
        let listed = ListedRecords { present, at: Some(listing.list.began), ..ListedRecords::default() };
        Ok(Page { listed, remarks, ..self.page_of_list(position, listing, messages, is_end) })
    }

    /// Returns the next files of the folder.
    async fn listed(&self, after: String) -> Result<Listed, HarvestError> {
        let (path, memory) = (self.settings.path.clone(), Arc::clone(&self.memory));
        let listed = blocking(move || {
            let known = lock(&memory).walk.take().filter(|(place, _)| *place == after);
            let mut walk = known.map_or_else(|| Walk::begin(&path, &decoded(&after)), |(_, walk)| Ok(walk))?;
            let files: Vec<_> = std::iter::from_fn(|| walk.next()).take(PAGE_FILES).collect();
            let (is_short, remarks) = (walk.is_short, std::mem::take(&mut walk.remarks));
            let is_end = files.len() < PAGE_FILES;
            if let (Some(last), false) = (files.last(), is_end) {
                lock(&memory).walk = Some((encoded(&last.path), walk));
            }
            Ok(Listed { files, is_end, is_short, remarks })
        });
        listed.await?.map_err(|error: io::Error| self.unreadable(&error))
    }

    /// Returns a file as a candidate; `None` if it is not harvested.
    fn candidate(&self, base: &str, file: &ListedFile, remarks: &mut Vec<String>) -> Option<Candidate> {
        let path = encoded(&file.path);
        let url = self.url(base, &path, remarks)?;
        Some(Candidate { url, path, file: file.path.clone(), version: file.version })
    }

    /// Returns the URL of a file; `None` if it is not harvested.
    fn url(&self, base: &str, path: &str, remarks: &mut Vec<String>) -> Option<Uri> {
        let url = format!("{base}{path}");
        if self.settings.urls.as_ref().is_some_and(|urls| !urls.is_match(&url)) {
            return None;
        }
        let parsed = Uri::parse(&url).inspect_err(|error| {
            if remarks.len() < MAX_REMARKS {
                let file = short_name(&url);
                remarks.push(format!("the file {file} is left out, because its URL is invalid: {error}"));
            }
        });
        parsed.ok()
    }

    async fn list_archive(
        &self,
        position: Position,
        mut listing: Listing,
        version: FileVersion,
    ) -> Result<Page, HarvestError> {
        let base = self.base(false);
        let (archive, time) = (self.archive(version).await?, version.time());
        let (mut messages, mut present) = (Vec::new(), Vec::new());
        let mut remarks = if listing.after.is_empty() { archive.remarks.clone() } else { Vec::new() };
        let after = (Bound::Excluded(listing.after.as_str()), Bound::Unbounded);
        let files: Vec<_> = archive.files.range::<str, _>(after).take(PAGE_FILES).collect();
        for (path, member) in &files {
            let Some(url) = self.url(&base, path, &mut remarks) else { continue };
            present.push(url.to_string().into());
            if let Member::Read(facts) = member {
                messages.push(present_message(url, time, facts));
            }
        }
        listing.list.files += present.len() as u64;
        let is_end = files.len() < PAGE_FILES;
        listing.after = files.last().map_or(listing.after, |(path, _)| (*path).clone());
        let listed = ListedRecords { present, at: Some(listing.list.began), ..ListedRecords::default() };
        Ok(Page { listed, remarks, ..self.page_of_list(position, listing, messages, is_end) })
    }

    /// Returns the files of this version of the archive.
    pub(super) async fn archive(&self, version: FileVersion) -> Result<Arc<Archive>, HarvestError> {
        if let Some((_, archive)) = self.memory().archive.as_ref().filter(|(known, _)| *known == version) {
            return Ok(Arc::clone(archive));
        }
        let (path, unpacked_bytes) = (self.settings.path.clone(), self.settings.unpacked_bytes);
        let stop = CancellationToken::new();
        let _stopped = stop.clone().drop_guard();
        tracing::info!(source = %self.source, archive = %path.display(), "reading an archive");
        let archive = blocking(move || archive::read(&path, version, unpacked_bytes, &stop)).await?;
        let archive = archive.map_err(|error| match error {
            ArchiveError::Io(error) => self.unreadable(&error),
            other => {
                let advice = if matches!(other, ArchiveError::TooLarge(_)) {
                    "; raise unpacked_bytes if that is right"
                } else {
                    ""
                };
                HarvestError::fail(format!("{} cannot be harvested: {other}{advice}", self.settings.path.display()))
            }
        })?;
        let changes = || HarvestError::retry(format!("{} changes while it is read", self.settings.path.display()));
        let archive = archive.ok_or_else(changes)?;
        if self.version().await? != version {
            return Err(changes());
        }
        let archive = Arc::new(archive);
        self.memory().archive = Some((version, Arc::clone(&archive)));
        Ok(archive)
    }

    /// Returns a page of the list. After the last one, missing files are looked for.
    fn page_of_list(
        &self,
        mut position: Position,
        listing: Listing,
        messages: Vec<ReceivedMessage>,
        is_end: bool,
    ) -> Page {
        if !is_end {
            position.listing = Some(listing);
            return Page::new(messages, position.text(), PageEnd::More);
        }
        let mut memory = self.memory();
        memory.archive = None;
        memory.last_list = memory.began.take().map_or(Duration::ZERO, |began| began.elapsed());
        position.listed = Some(listing.list);
        if listing.is_short {
            return Page::new(messages, position.text(), PageEnd::Complete);
        }
        position.sweep = Some(Sweep::default());
        Page::new(messages, position.text(), PageEnd::More)
    }

    /// Returns the version of the folder or the archive.
    pub(super) async fn version(&self) -> Result<FileVersion, HarvestError> {
        let path = self.settings.path.clone();
        let version = blocking(move || FileVersion::of_configured(&path)).await?;
        version.map_err(|error| self.unreadable(&error))
    }

    pub(super) fn unreadable(&self, error: &io::Error) -> HarvestError {
        HarvestError::retry(unreadable(&self.settings.path, error))
    }

    /// Returns the beginning of the URLs of all files.
    pub(super) fn base(&self, is_folder: bool) -> String {
        self.settings.public_url.clone().unwrap_or_else(|| {
            let separator = if is_folder { '/' } else { '#' };
            format!(
                "file:///{}{separator}",
                encoded(self.settings.path.strip_prefix("/").unwrap_or(&self.settings.path))
            )
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}

/// Returns the text about a folder or an archive that cannot be read.
fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be read: {error}; check the path, the permissions, and whether it is mounted", path.display())
}

/// Checks that a folder can be listed, or an archive opened.
///
/// # Errors
/// Fails in the words of a run.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let checked = FileVersion::of_configured(path).and_then(|version| match version.is_folder() {
        true => entries(&open_root(path)?).map(drop),
        false => open_configured(path, version).map(drop),
    });
    checked.map_err(|error| unreadable(path, &error))
}

/// Files of a folder, in the order of their paths.
struct Listed {
    files: Vec<ListedFile>,
    is_end: bool,
    /// Whether a folder could not be read.
    is_short: bool,
    remarks: Vec<String>,
}

/// Calls a function that reads files, on a thread for that.
pub(super) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T, HarvestError> {
    let ended = spawn_blocking(call).await;
    ended.map_err(|error| HarvestError::fail(format!("the files cannot be read: {error}")))
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}
