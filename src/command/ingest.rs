//! `tidings ingest`: archives datasets in a folder.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use tidings::{
    config::Flags,
    files::{FileStore, FileStoreLocation},
    filesets::{IngestContext, IngestNumbers, IngestProgress, Ingested, Ingester, RetryRule},
    format::fileset::{FilesetRequest, dataset_url, message::FilesetResult, status::IngestStatus},
    http_client::OutboundPolicy,
    transfer::HarvestBudget,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{ConfigFile, Failure, Output, dataset_copies::copy_files, output::cell, print, runtime, say};

const EXAMPLES: &str = "\
Examples:
  tidings ingest 10.5281/zenodo.4924875
  tidings ingest 10.5281/zenodo.4924875 --copy-to pond
  tidings ingest --json https://zenodo.org/records/4924875 > results.json
  tidings ingest --json < requests.json > results.json

docs/filesets.md explains requests, results and the folder.

Exit codes:
  0  all datasets are archived
  1  a dataset is not archived; its result says why
  2  wrong usage or configuration";

/// Time between two lines of progress.
const STEP: Duration = Duration::from_secs(10);

/// Time for which a server that refuses connections is asked again, because it may just start.
const START_TIME: Duration = Duration::from_secs(10);

/// Time between two connections to such a server.
const START_PAUSE: Duration = Duration::from_millis(500);

/// Source of the requests that this command makes.
const REQUEST_SOURCE: &str = "tidings-ingest";

/// Archive datasets: their files, verified, with a web archive or an item.
///
/// Each dataset is a URL of its landing page, a DOI, or a request as JSON. Without arguments, the datasets are the lines of
/// standard input.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Ingest {
    #[command(flatten)]
    config: ConfigFile,
    /// Folder of the archive.
    #[arg(long, value_name = "DIR", default_value = "filesets")]
    folder: PathBuf,
    /// Copy the files of the dataset into this folder, under their names. Give one dataset.
    #[arg(long, value_name = "DIR")]
    copy_to: Option<PathBuf>,
    /// Write each result as a line of JSON.
    #[arg(long)]
    json: bool,
    /// URL or DOI of a dataset.
    #[arg(value_name = "URL|DOI")]
    datasets: Vec<String>,
}

impl Ingest {
    pub(super) fn run(self) -> Result<(), Failure> {
        // Two datasets may have files with the same name.
        if self.copy_to.is_some() && self.datasets.len() != 1 {
            return Err(Failure::Usage("--copy-to needs one dataset as argument".to_owned()));
        }
        let config = self.config.load(&Flags::default())?;
        let filesets = config.filesets()?;
        let failed = |error: String| Failure::Failed(error);
        let store =
            FileStore::open(&FileStoreLocation::Folder(self.folder)).map_err(|error| failed(error.to_string()))?;
        let policy = OutboundPolicy::public_files(config.allowed_targets().clone());
        let budget = HarvestBudget::new(config.limits().harvest_bytes, &std::env::temp_dir());
        let runtime = runtime(tokio::runtime::Builder::new_multi_thread())?;
        let ingester = runtime.block_on(Ingester::new(filesets, policy, store.clone(), budget));
        let ingester = ingester.map_err(|error| failed(error.to_string()))?;
        let copies = self.copy_to.as_deref().map(|folder| (&store, folder));
        let outcome = runtime.block_on(archive_all(&ingester, self.datasets, copies, self.json));
        // A read of standard input may still wait.
        runtime.shutdown_background();
        outcome
    }
}

/// Archives datasets one after the other, prints their results, and copies their files from the store. Without arguments, the datasets are the lines of standard
/// input.
async fn archive_all(
    ingester: &Ingester,
    arguments: Vec<String>,
    copies: Option<(&FileStore, &Path)>,
    json: bool,
) -> Result<(), Failure> {
    // Once, before the first request, so that Ctrl-C has an effect at every moment.
    let interrupts = signal(SignalKind::interrupt());
    let mut interrupts = interrupts.map_err(|error| Failure::Failed(format!("cannot handle Ctrl-C: {error}")))?;
    let interrupted = || Failure::Failed("interrupted; the datasets after this one are not archived".to_owned());
    let is_input = arguments.is_empty();
    let mut arguments = arguments.into_iter();
    let (mut archived, mut all) = (0_u64, 0_u64);
    loop {
        let text = if is_input {
            tokio::select! {
                line = next_line() => line?,
                _ = interrupts.recv() => return Err(interrupted()),
            }
        } else {
            arguments.next()
        };
        let Some(text) = text else { break };
        let request = match request(&text) {
            Ok(request) => request,
            // The datasets on the other lines are not to blame.
            Err(reason) if is_input => {
                all += 1;
                say(&format!("{text}: {reason}"));
                continue;
            }
            Err(reason) => return Err(Failure::Usage(reason)),
        };
        let result = Box::pin(ingest(ingester, &request, &mut interrupts)).await;
        (archived, all) = (archived + u64::from(result.hit), all + 1);
        if json { print(&Output::Json(&line(&result)?)) } else { print(&Output::Text(&summary(&result))) }?;
        if result.status == IngestStatus::CANCELLED {
            return Err(interrupted());
        }
        if let Some((store, folder)) = copies.filter(|_| result.hit) {
            let copied = copy_files(store, &result, folder).await.map_err(Failure::Failed)?;
            say(&format!("{copied} files of the dataset are in {}", folder.display()));
        }
    }
    if archived == all { Ok(()) } else { Err(Failure::Failed(format!("{archived} of {all} datasets are archived"))) }
}

/// Returns the next line of standard input that is not empty; `None` at the end.
async fn next_line() -> Result<Option<String>, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let is_dataset = |line: &io::Result<String>| line.as_ref().map_or(true, |line| !line.trim().is_empty());
        io::stdin().lines().find(is_dataset).transpose()
    });
    let read = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))
}

/// Reads a request: JSON, a URL or an identifier.
fn request(text: &str) -> Result<FilesetRequest, String> {
    if !text.trim_start().starts_with('{') {
        let url = dataset_url(text).map_err(|error| error.to_string())?;
        return Ok(FilesetRequest::new(url, REQUEST_SOURCE));
    }
    let request: FilesetRequest =
        serde_json::from_str(text).map_err(|error| format!("a request cannot be read: {error}"))?;
    if request.is_for_dataset() {
        Ok(request)
    } else {
        Err(format!("the request is for {:?}; only \"dataset\" is archived", request.ingest_type))
    }
}

/// Archives a dataset, and shows the progress. Ctrl-C ends it.
async fn ingest(ingester: &Ingester, request: &FilesetRequest, interrupts: &mut Signal) -> FilesetResult {
    let progress = Arc::new(IngestProgress::default());
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let previous = match ingester.recorded(request).await {
        Ok(previous) => previous,
        Err(error) => {
            say(&format!("{}: cannot read the result of the last run: {error}", request.base_url));
            None
        }
    };
    let context = IngestContext { previous, ..IngestContext::default() };
    let work = ingest_when_listening(ingester, request, &context, &progress);
    tokio::pin!(work);
    loop {
        tokio::select! {
            ingested = &mut work => return ingested.result,
            _ = ticks.tick() => {
                let IngestNumbers { files, done_files, bytes, done_bytes, bytes_per_second } = progress.numbers();
                say(&format!(
                    "{}: {done_files} of {files} files, {done_bytes} of {bytes} bytes, {bytes_per_second} bytes/s",
                    request.base_url
                ));
            }
            _ = interrupts.recv() => {
                let mut result = FilesetResult::new(request.clone(), IngestStatus::CANCELLED);
                result.error_message = Some("Ctrl-C was pressed; the files that are downloaded stay".to_owned());
                return result;
            }
        }
    }
}

/// Archives a dataset, and repeats for some seconds if the server refuses connections.
async fn ingest_when_listening(
    ingester: &Ingester,
    request: &FilesetRequest,
    context: &IngestContext,
    progress: &Arc<IngestProgress>,
) -> Ingested {
    let until = Instant::now() + START_TIME;
    let mut is_said = false;
    loop {
        let ingested = ingester.ingest_patiently(request, context, progress).await;
        if ingested.retry != Some(RetryRule::WhenListening) || Instant::now() > until {
            return ingested;
        }
        if !is_said {
            let reason = ingested.result.error_message.as_deref().unwrap_or_default();
            say(&format!("{reason}; trying again for {} seconds", START_TIME.as_secs()));
            is_said = true;
        }
        sleep(START_PAUSE).await;
    }
}

fn line(result: &FilesetResult) -> Result<String, Failure> {
    let line = serde_json::to_string(result).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(line + "\n")
}

/// Describes a result for people.
fn summary(result: &FilesetResult) -> String {
    let mut text = format!("{} {}\n", result.status, result.request.base_url);
    if let Some(message) = &result.error_message {
        text += &format!("  {}\n", cell(message));
    }
    if let (Some(name), Some(id)) = (&result.platform_name, &result.platform_id) {
        let strategy = result.ingest_strategy.map_or("", |strategy| strategy.name());
        text += &format!("  {} {} {strategy}\n", cell(name), cell(id));
    }
    for file in result.manifest.iter().flatten() {
        let (size, status) = (file.size.unwrap_or(0), file.status.as_ref().map_or("-", IngestStatus::as_str));
        text +=
            &format!("  {status:9} {size:>12} {} {}\n", cell(file.sha256.as_deref().unwrap_or("-")), cell(&file.path));
    }
    if let Some(warc) = &result.warc_sha256 {
        text += &format!("  WARC {warc}\n");
    }
    text
}
