//! `tidings files`: checks the store of downloaded files and that of sealed segments, and removes files that no item has.

use std::{collections::HashSet, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;
use tidings::files::{
    FileDigest, FileStore, FileStoreLocation,
    maintenance::{FileFault, FileReport, Removal},
};

use super::{
    Failure,
    gateway::{Gateway, GatewayArgs},
    print_text, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings files verify
  tidings files verify --segments
  tidings files gc
  tidings files gc --older-than 30

The commands read the registry of the running gateway, and its file store. If that is a folder, run them on its machine. \
docs/harvesting.md explains the store.

Exit codes:
  0  done
  1  a file is damaged or missing, or the gateway or the store failed; standard error says which
  2  wrong usage or configuration";

/// Check the downloaded files, and remove those that no item has.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Files {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Folder of the files. Default: that of the configuration.
    #[arg(long, global = true, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    /// Compare each file with its digest, and find missing files.
    Verify(VerificationArgs),
    /// Remove files that no item has any more, and the remains of interrupted downloads.
    Gc(GarbageArgs),
}

/// Arguments of the comparison.
#[derive(Args)]
struct VerificationArgs {
    /// The sealed segments of the journal instead of the downloaded files.
    #[arg(long)]
    segments: bool,
}

/// Arguments of the removal.
#[derive(Args)]
struct GarbageArgs {
    /// Minimum age of a file in days. It protects files that are about to be referenced, and readers of earlier changes.
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    older_than: u64,
}

impl Files {
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = self.gateway.config()?;
        let of_segments = matches!(self.action, Action::Verify(VerificationArgs { segments: true }));
        let location = match self.folder {
            Some(folder) => FileStoreLocation::Folder(folder),
            None if of_segments => {
                let none = "the gateway seals no segments: give the table [segments] a folder or a bucket";
                let location = config.segments()?.location(&config.store()?, &config.journal().data);
                location.ok_or_else(|| Failure::Failed(none.to_owned()))?
            }
            None => config.files()?.location(&config.journal().data),
        };
        if let FileStoreLocation::Folder(folder) = &location
            && !folder.is_dir()
        {
            let nothing = if of_segments { "no segment has been sealed" } else { "no file has been downloaded" };
            return Err(Failure::Failed(format!("{} is no folder: {nothing}, or give --folder", folder.display())));
        }
        let store = FileStore::open(&location).map_err(|error| Failure::Failed(error.to_string()))?;
        let (at, gateway) = self.gateway.connect_with(&config)?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let work = async {
            let referenced = if of_segments { sealed_files(&gateway).await } else { referenced_files(&gateway).await };
            let referenced = referenced.map_err(|error| format!("{at}: {error}"))?;
            match self.action {
                Action::Verify(_) => verify(&store, referenced, of_segments).await,
                Action::Gc(GarbageArgs { older_than }) => {
                    let grace = Duration::from_secs(older_than * 24 * 60 * 60);
                    let removal = store.collect_garbage(&referenced, grace).await.map_err(|error| error.to_string())?;
                    let Removal { kept, removed, removed_bytes } = removal;
                    Ok(format!("{removed} files removed ({removed_bytes} bytes), {kept} kept\n"))
                }
            }
        };
        let result = runtime.block_on(work);
        runtime.shutdown_background();
        print_text(&result.map_err(Failure::Failed)?)
    }
}

async fn verify(store: &FileStore, referenced: HashSet<FileDigest>, of_segments: bool) -> Result<String, String> {
    let mut next = STEP;
    let mut progress = |bytes: u64| {
        if bytes >= next {
            say(&format!("{} GiB read", bytes >> 30));
            next = bytes + STEP;
        }
    };
    let report = store.verify(referenced, &mut progress).await.map_err(|error| error.to_string())?;
    let FileReport { files, bytes, faults } = report;
    for fault in &faults {
        match fault {
            FileFault::Damaged(file) if of_segments => say(&format!("the segment {file} is damaged; {REMEDY}")),
            FileFault::Missing(file) if of_segments => say(&format!("the segment {file} is missing; {REMEDY}")),
            fault => say(&fault.to_string()),
        }
    }
    match faults.len() {
        0 => Ok(format!("{files} files ({bytes} bytes) are intact\n")),
        1 => Err("1 problem found".to_owned()),
        problems => Err(format!("{problems} problems found")),
    }
}

/// Remedy for a damaged or missing segment.
const REMEDY: &str = "copy it from a backup, or remove it and restart all \
                      nodes, one of which seals it again while the journal has its changes";

/// Reads the list of segments of the gateway, and returns their files.
async fn sealed_files(gateway: &Gateway) -> Result<HashSet<FileDigest>, String> {
    let (mut files, mut after) = (HashSet::new(), 0);
    loop {
        let path = format!("/segments?limit=1000&after={after}");
        let list = gateway.request(Method::GET, &path, None).await.map_err(|error| error.reason)?;
        let segments = list["segments"].as_array().ok_or("the response is not from a Tidings gateway")?;
        if segments.is_empty() {
            return Ok(files);
        }
        files.extend(segments.iter().filter_map(|segment| FileDigest::parse(segment["file"].as_str()?)));
        after = list["next"].as_u64().ok_or("the response is not from a Tidings gateway")?;
    }
}

/// Number of bytes between two lines of progress.
const STEP: u64 = 10 << 30;

/// Reads the registry of the gateway, and returns the files that items have as copies.
async fn referenced_files(gateway: &Gateway) -> Result<HashSet<FileDigest>, String> {
    let mut files = HashSet::new();
    let mut after = None::<String>;
    loop {
        let path = match &after {
            None => "/snapshot".to_owned(),
            Some(after) => format!("/snapshot?after={}", utf8_percent_encode(after, NON_ALPHANUMERIC)),
        };
        let page = gateway.request(Method::GET, &path, None).await.map_err(|error| error.reason)?;
        let objects = page["objects"].as_array().ok_or("the response is not from a Tidings gateway")?;
        files.extend(objects.iter().flat_map(copies));
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok(files),
        }
    }
}

/// Returns the copies among the contents of an object's items.
fn copies(object: &Value) -> impl Iterator<Item = FileDigest> {
    let items = object["items"].as_array().map_or(&[][..], Vec::as_slice);
    let copies = items.iter().map(|item| &item["content"]).filter(|content| content["original"].is_object());
    copies.filter_map(|content| FileDigest::parse(content["digest"]["value"].as_str()?))
}
