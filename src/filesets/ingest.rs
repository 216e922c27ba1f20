//! One ingest: from the request over the landing page, the manifest and the files to the result.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream};
use sha1::Digest;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::{
    ClientLimits, IngestFailure, IngestProgress, JobPlace, LandingPage, PlatformClient, PlatformToken, RetryRule,
    archived_file::ArchivedFile,
    archiving,
    check::Totals,
    existing::ExistingFiles,
    files::{self, DownloadContext, FileFailure, store_failure},
    item::ItemSettings,
    platform::{Dataset, DatasetLimits, PlatformFile, PlatformSettings, Thresholds, dataset_of, paths},
    wayback::WaybackSettings,
};
use crate::{
    files::{FileDigest, FileStore, FileStoreError, Workspace},
    format::fileset::{FilesetRequest, message::FilesetResult, status::IngestStatus},
    http_client::{Client, ClientError, ClientSettings, OutboundPolicy},
    transfer::{HarvestBudget, Hosts, Transfers},
};

/// Maximum length of the reason in a result, in characters.
const MESSAGE_CHARS: usize = 1600;

/// Time until the headers of a response with a file, and between two pieces of it.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two pieces of an upload, and after the last one.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Settings of ingests.
#[derive(Clone, Debug)]
pub struct IngestSettings {
    /// Addresses of the platforms.
    pub platforms: PlatformSettings,
    /// Limits of a dataset.
    pub limits: DatasetLimits,
    /// Maximum size of a file, in bytes.
    pub max_file_bytes: u64,
    /// Maximum size of all files that a source stores, in bytes.
    pub max_stored_bytes: u64,
    /// Maximum duration of an ingest.
    pub max_time: Duration,
    /// Number of files that are downloaded at once from a host.
    pub concurrency: usize,
    /// Figures that decide how the files are archived.
    pub thresholds: Thresholds,
    /// Limits of the requests to landing pages and interfaces.
    pub client: ClientLimits,
    /// Name of the source or program that archives, which has its own workspaces.
    pub owner: Arc<str>,
    /// Web archive that the web strategies use instead of WARC files.
    pub wayback: Option<WaybackSettings>,
    /// Upload of items to archive.org, instead of items in the file store.
    pub items: Option<ItemSettings>,
    /// Mail address or URL of the operator, for those of the platforms.
    pub contact: Option<Arc<str>>,
    /// URL below which the stored files are served, without a trailing slash; `None` if they are not.
    pub files_url: Option<Arc<str>>,
}

/// Archives datasets in the file store.
pub struct Ingester {
    pub(super) client: PlatformClient,
    pub(super) transfers: Arc<Transfers>,
    /// Client for uploads, which may take minutes after the last byte.
    pub(super) uploads: Client,
    pub(super) settings: IngestSettings,
}

/// Facts about a dataset from before an ingest.
#[derive(Clone, Debug, Default)]
pub struct IngestContext {
    /// Newest result for the dataset. Its files that have not changed are not downloaded again.
    pub previous: Option<FilesetResult>,
    /// Size of all files that are stored already, in bytes.
    pub stored_bytes: u64,
    /// Places of the job at the hosts that it asks.
    pub place: JobPlace,
}

/// Outcome of an ingest.
#[derive(Clone, Debug)]
pub struct Ingested {
    /// The result, as it is reported.
    pub result: FilesetResult,
    /// Time of the next attempt; `None` after a success.
    pub retry: Option<RetryRule>,
    /// Size of the files that the store did not have, in bytes.
    pub new_bytes: u64,
    /// Number of files that were downloaded, also by an ingest that has failed.
    pub gained_files: u64,
}

impl Ingested {
    /// Returns the outcome of an ingest that has ended in a panic, because something unexpected has met a bug.
    pub(super) fn died(request: FilesetRequest) -> Self {
        let message = "the ingest has ended because of a bug; the log has the reason, please report it".to_owned();
        let result = FilesetResult::new(request, IngestStatus::PLATFORM_BAD_ANSWER);
        let result = FilesetResult { error_message: Some(message), ..result };
        Self { result, retry: Some(RetryRule::AfterFix), new_bytes: 0, gained_files: 0 }
    }
}

impl Ingester {
    /// Creates an ingester. It connects when the first request is sent. Answers of platforms are read within the budget.
    ///
    /// # Errors
    /// Fails if the HTTP library cannot be set up.
    pub async fn new(
        settings: IngestSettings,
        policy: OutboundPolicy,
        files: FileStore,
        budget: HarvestBudget,
    ) -> Result<Self, ClientError> {
        let hosts = Hosts::new(settings.concurrency);
        let contact = settings.contact.clone();
        let uploads = Client::new(ClientSettings {
            response_timeout: UPLOAD_TIMEOUT,
            contact: contact.clone(),
            ..ClientSettings::new(policy.clone())
        });
        let uploads = uploads.await?;
        let client = Client::new(ClientSettings {
            response_timeout: TRANSFER_TIMEOUT,
            body_timeout: TRANSFER_TIMEOUT,
            contact: contact.clone(),
            ..ClientSettings::new(policy.clone())
        });
        let transfers =
            Arc::new(Transfers { client: client.await?, policy: policy.clone(), hosts: hosts.clone(), files });
        let client = PlatformClient::new(policy, hosts, settings.client, budget, contact).await?;
        Ok(Self { client, transfers, uploads, settings })
    }

    /// Archives a dataset, unless the record of an ingest that has succeeded was not removed: then returns its result.
    pub async fn ingest_again(
        &self,
        request: &FilesetRequest,
        context: &IngestContext,
        progress: &Arc<IngestProgress>,
    ) -> Ingested {
        match self.recorded(request).await {
            Ok(Some(result)) if result.request == *request => {
                let new_bytes = result.total_size.unwrap_or_default();
                Ingested { result, retry: None, new_bytes, gained_files: 0 }
            }
            // An unreadable store is a failure of the ingest.
            Ok(_) | Err(_) => self.ingest(request, context, progress).await,
        }
    }

    /// Archives a dataset. An interrupted ingest continues with the files that it has.
    pub async fn ingest(
        &self,
        request: &FilesetRequest,
        context: &IngestContext,
        progress: &Arc<IngestProgress>,
    ) -> Ingested {
        let mut result = FilesetResult::begin(request.clone());
        let workspace = self.workspace(request);
        let mut new_bytes = 0;
        let work = Box::pin(self.run(&mut result, context, &workspace, progress, &mut new_bytes));
        let outcome = tokio::time::timeout(self.settings.max_time, work).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let seconds = self.settings.max_time.as_secs();
            Err(IngestFailure::transient(IngestStatus::TIMEOUT, format!("the ingest takes more than {seconds} s")))
        });
        let outcome = match outcome {
            Ok(status) => self.sync(&result).await.map(|()| status),
            failed => failed,
        };
        let retry = match outcome {
            Ok(status) => {
                (result.hit, result.status) = (true, status);
                None
            }
            Err(IngestFailure { status, message, retry }) => {
                result.error_message = Some(message.chars().take(MESSAGE_CHARS).collect());
                result.status = status;
                Some(retry)
            }
        };
        let cleaned = match retry {
            None => record_result(&workspace, &result).await,
            // The next attempt continues with the files that this one has.
            Some(RetryRule::Backoff(_) | RetryRule::WhenListening | RetryRule::WhenHostIsFree) => Ok(()),
            Some(RetryRule::Never | RetryRule::At(_) | RetryRule::AfterFix) => workspace.remove().await,
        };
        if let Err(error) = cleaned {
            tracing::debug!(%error, "cannot clean the workspace of an ingest");
        }
        let gained_files = progress.gained_files.load(Ordering::Relaxed);
        Ingested { result, retry, new_bytes, gained_files }
    }

    /// Writes the files of a result to the disk.
    async fn sync(&self, result: &FilesetResult) -> Result<(), IngestFailure> {
        let mut stored = Vec::new();
        for digest in result.downloaded_sha256().into_iter().flatten().filter_map(FileDigest::parse) {
            // An item of archive.org may have the files instead.
            if self.transfers.files.size(digest).await.map_err(|error| store_failure(&error))?.is_some() {
                stored.push(digest);
            }
        }
        self.transfers.files.sync(stored).await.map_err(|error| store_failure(&error))
    }

    /// Returns the recorded result of an ingest that has succeeded, until [`Self::forget`] removes it.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn recorded(&self, request: &FilesetRequest) -> Result<Option<FilesetResult>, FileStoreError> {
        let record = self.workspace(request).record(RESULT).await?;
        Ok(record.and_then(|record| serde_json::from_slice(&record).ok()))
    }

    /// Removes the unfinished files of an ingest, and the record of its result.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn forget(&self, request: &FilesetRequest) -> Result<(), FileStoreError> {
        self.workspace(request).remove().await
    }

    /// Returns the workspace of a request. Each source has its own, because two could archive a dataset at once.
    fn workspace(&self, request: &FilesetRequest) -> Workspace {
        let job = format!("{} {}", self.settings.owner, request.base_url);
        self.transfers.files.workspace(&hex::encode(&sha2::Sha256::digest(job)[..16]))
    }

    /// Executes an ingest. If a step fails, the result has the facts of the steps before it.
    async fn run(
        &self,
        result: &mut FilesetResult,
        context: &IngestContext,
        workspace: &Workspace,
        progress: &Arc<IngestProgress>,
        new_bytes: &mut u64,
    ) -> Result<IngestStatus, IngestFailure> {
        let page = self.landing_page(&result.request, &context.place).await?;
        result.describe_page(&page);
        let (platform, mut dataset) = dataset_of(&page, &self.settings.platforms, &self.client).await?;
        let former = context.previous.as_ref().and_then(|previous| dataset.item_of(previous));
        if let Some(former) = former {
            let owner = self.transfers.files.owner(&former).await.map_err(|error| store_failure(&error))?;
            if owner.is_none_or(|owner| owner == dataset.identity()) {
                dataset.archiveorg_item_name = former;
            }
        }
        result.describe_dataset(&dataset);
        progress.files.store(dataset.files.len() as u64, Ordering::Relaxed);
        progress.bytes.store(dataset.total_size(), Ordering::Relaxed);
        dataset.check(&self.settings.limits)?;
        let mut strategy = platform.strategy(&dataset, &self.settings.thresholds);
        result.ingest_strategy = Some(strategy);
        if !strategy.is_web() {
            paths::check_item(dataset.paths())?;
        }
        let previous = context.previous.as_ref().filter(|_| result.request.force_recrawl != Some(true));
        let existing = ExistingFiles { previous, store: &self.transfers.files };
        if let Some(previous) = existing.result(&dataset).await.map_err(|error| store_failure(&error))? {
            result.take_over(previous);
            return Ok(IngestStatus::SUCCESS_EXISTING);
        }
        let free = self.settings.max_stored_bytes.saturating_sub(context.stored_bytes);
        let totals = Totals { dataset: self.settings.limits.max_total_size, store: free };
        let download = DownloadContext { max_bytes: self.settings.max_file_bytes, totals, progress, workspace };
        if let Some(items) = self.items().filter(|_| !strategy.is_web())
            && let Some(manifest) = items.existing(&dataset).await?
        {
            result.archive_url = Some(items.url(&dataset.archiveorg_item_name, ""));
            result.manifest = Some(manifest);
            self.archive_page(&page, result).await.map_err(|error| store_failure(&error))?;
            return Ok(IngestStatus::SUCCESS_EXISTING);
        }
        check_free(&dataset, free)?;
        if strategy.is_bundled() {
            if let Some(size) = self.ingest_bundle(&page, &dataset, strategy, result, download).await? {
                *new_bytes = size;
                return Ok(IngestStatus::SUCCESS);
            }
            strategy = strategy.unbundled();
            result.ingest_strategy = Some(strategy);
        }
        if let Some(settings) = self.settings.wayback.as_ref().filter(|_| strategy.is_web()) {
            let (captures, size) = self.capture(settings, &dataset, result, download).await?;
            *new_bytes = size;
            self.archive_page(&page, result).await.map_err(|error| store_failure(&error))?;
            if strategy.is_file() {
                result.fileset_file = captures.into_iter().next();
                return Ok(IngestStatus::SUCCESS_FILE);
            }
            return Ok(IngestStatus::SUCCESS);
        }
        let files = self.download(&dataset, existing, download, result).await?;
        *new_bytes = archiving::new_bytes(&files);
        dataset.check_bytes(files.iter().map(|file| file.stored.size).sum())?;
        // Only now all figures are known: those of a list without digests too.
        let downloaded = dataset.with_figures(&files);
        if let Some(previous) = existing.result(&downloaded).await.map_err(|error| store_failure(&error))? {
            result.take_over(previous);
            return Ok(IngestStatus::SUCCESS_EXISTING);
        }
        strategy = platform.strategy(&downloaded, &self.settings.thresholds).unbundled();
        result.ingest_strategy = Some(strategy);
        let index = if strategy.is_web() {
            self.archive_in_warc(&page, &files, result).await.map_err(|error| store_failure(&error))?
        } else {
            let paths: Vec<_> = files.iter().map(|file| (file.manifest.path.clone(), file)).collect();
            paths::check_item(paths.iter().map(|(path, _)| path.as_str()))?;
            self.archive_in_item(&page, &dataset, &paths, result).await?;
            self.archive_page(&page, result).await.map_err(|error| store_failure(&error))?;
            Vec::new()
        };
        if strategy.is_file() {
            result.fileset_file = files.first().map(|file| file.capture(index.into_iter().next()));
            return Ok(IngestStatus::SUCCESS_FILE);
        }
        Ok(IngestStatus::SUCCESS)
    }

    /// Requests the landing page of a dataset.
    pub(super) async fn landing_page(
        &self,
        request: &FilesetRequest,
        place: &JobPlace,
    ) -> Result<LandingPage, IngestFailure> {
        let start = Url::parse(request.base_url.as_str())
            .map_err(|error| IngestFailure::permanent(IngestStatus::BAD_REDIRECT, error.to_string()))?;
        let page = self.client.landing_page(&start, place).await?;
        Ok(LandingPage { requested_doi: request.doi().map(str::to_owned), ..page })
    }

    /// Returns the token for a file.
    pub(super) fn token(&self, dataset: &Dataset, file: &PlatformFile) -> Option<PlatformToken> {
        let url = Url::parse(file.manifest.platform_url.as_deref()?).ok()?;
        self.settings.platforms.token_for(dataset.platform_name, &url)
    }

    /// Returns the URL of a stored file, if the files are served.
    pub(super) fn archive_url(&self, digest: FileDigest) -> Option<String> {
        self.settings.files_url.as_ref().map(|base| format!("{base}/{digest}"))
    }

    /// Downloads all files, and puts their facts into the manifest of the result.
    async fn download(
        &self,
        dataset: &Dataset,
        existing: ExistingFiles<'_>,
        context: DownloadContext<'_>,
        result: &mut FilesetResult,
    ) -> Result<Vec<ArchivedFile>, IngestFailure> {
        // Boxed, because the compiler cannot see otherwise that the stream can move between threads.
        let download = |(index, file)| -> BoxFuture<'_, _> {
            Box::pin(async move { (index, self.file(file, dataset, existing, context).await) })
        };
        let downloads: Vec<_> = dataset.files.iter().enumerate().map(download).collect();
        // In any order, so that a slow file does not hold up the ones after it.
        let mut downloads = stream::iter(downloads).buffer_unordered(self.settings.concurrency);
        let mut files: Vec<_> = dataset.files.iter().map(|_| None).collect();
        while let Some((index, downloaded)) = downloads.next().await {
            let entry = result.manifest.as_mut().and_then(|manifest| manifest.get_mut(index));
            match downloaded {
                Ok(mut file) => {
                    file.manifest.archive_url = self.archive_url(file.stored.digest);
                    entry.into_iter().for_each(|entry| *entry = file.manifest.clone());
                    files[index] = Some(file);
                    context.progress.done_files.fetch_add(1, Ordering::Relaxed);
                }
                Err((manifest, failure)) => {
                    entry.into_iter().for_each(|entry| *entry = manifest.clone());
                    return Err(failure);
                }
            }
        }
        let mut files: Vec<ArchivedFile> = files.into_iter().flatten().collect();
        // Responses may have named several files alike.
        paths::number(files.iter_mut().map(|file| &mut file.manifest));
        for (entry, file) in result.manifest.iter_mut().flatten().zip(&files) {
            entry.clone_from(&file.manifest);
        }
        result.total_size = Some(files.iter().map(|file| file.stored.size).sum());
        Ok(files)
    }

    /// Returns a file of the store, or downloads it.
    async fn file(
        &self,
        file: &PlatformFile,
        dataset: &Dataset,
        existing: ExistingFiles<'_>,
        context: DownloadContext<'_>,
    ) -> Result<ArchivedFile, FileFailure> {
        // First, because the store has these files too, as if an earlier ingest had archived them.
        if let Some(file) = files::resumed(file, context).await? {
            return Ok(file);
        }
        let failed = |error: FileStoreError| (file.manifest.clone(), store_failure(&error));
        if let Some(file) = existing.file(file).await.map_err(failed)? {
            context.progress.add_known(file.stored.size);
            return Ok(file);
        }
        // A task of its own, because hashing would hold up the other transfers.
        let (transfers, workspace) = (Arc::clone(&self.transfers), context.workspace.clone());
        let (progress, max_bytes, totals) = (Arc::clone(context.progress), context.max_bytes, context.totals);
        let (downloaded_file, token) = (file.clone(), self.token(dataset, file));
        let download = tokio::spawn(async move {
            let context = DownloadContext { max_bytes, totals, progress: &progress, workspace: &workspace };
            files::fetch(&downloaded_file, &transfers, token.as_ref(), context).await
        });
        match AbortOnDropHandle::new(download).await {
            Ok(downloaded) => downloaded,
            // A panic ends the whole ingest, as it would without the task.
            Err(error) => std::panic::resume_unwind(error.try_into_panic().unwrap_or_else(|error| Box::new(error))),
        }
    }
}

/// Checks that the files of a dataset can be stored.
fn check_free(dataset: &Dataset, free: u64) -> Result<(), IngestFailure> {
    let size = dataset.total_size();
    if size <= free {
        return Ok(());
    }
    let message = format!("the files have {size} bytes, and {free} of max_stored_size are left");
    Err(IngestFailure { retry: RetryRule::AfterFix, ..IngestFailure::permanent(IngestStatus::TOO_LARGE_SIZE, message) })
}

/// Name of the record with the result in a workspace.
const RESULT: &str = "result";

/// Writes the result to the workspace, which then needs nothing else.
async fn record_result(workspace: &Workspace, result: &FilesetResult) -> Result<(), FileStoreError> {
    let record = serde_json::to_vec(&result.publishable()).unwrap_or_default();
    workspace.write_record(RESULT, record.into()).await?;
    workspace.remove_all_but(RESULT).await
}
