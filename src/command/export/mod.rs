//! `tidings export`: writes the changes of a gateway to files for analysts, page by page through `/changes`.
//!
//! * `folder` is the folder of the files, and what it says about itself;
//! * `partition` is one file, in one of the formats;
//! * `ndjson` and `parquet` write them.

mod folder;
mod ndjson;
#[cfg(feature = "parquet")]
mod parquet;
mod partition;

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use url::form_urlencoded;
use uuid::Uuid;

use self::{
    folder::{Contents, ExportFolder, Written},
    partition::{Compression, Format},
};
use super::{
    Failure,
    bulk::{CommandError, with_gateway},
    gateway::{Gateway, GatewayArgs, GatewayError},
    http::backoff,
    output::counted,
    print_text,
    progress::Progress,
    say,
};

const EXAMPLES: &str = "\
Examples:
  tidings export changes --parquet
  tidings export deletions --ndjson --compress zst --filter change=DELETE
  TIDINGS_TOKEN=tdg_… tidings export changes --parquet --gateway https://tidings.example.org

Each file has the changes of a span of numbers, such as 1 to 100000, and its name has the first of them. A file is written \
under another name, synced and renamed, so it is complete whenever it is there. The next run into the same folder keeps the \
files of complete spans, writes the last one anew and continues. After Ctrl-C, the folder has what was read until then. \
docs/export.md has the columns, and examples for DuckDB.

The token needs the scope read. A reader of a part of the journal gets this part.

Exit codes:
  0  done
  1  failed, or ended by Ctrl-C; standard error says why. The files in the folder are complete
  2  wrong usage or configuration";

/// Maximum number of changes that a request asks for: the default of `limits.page`.
const PAGE: usize = 1000;

/// Number of pages between the reader and the writer. A page has 4 MiB, or a single change that is larger.
const PAGES_AHEAD: usize = 2;

/// Number of attempts for each page while the gateway cannot be reached.
const ATTEMPTS: u32 = 6;

/// Export the changes of a gateway to files, for analysts.
#[derive(Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("format").args(["parquet", "ndjson"]).required(true)))]
pub(super) struct Export {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Folder to write to. It is made if it does not exist.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Write Parquet, with a row for each change.
    #[arg(long)]
    parquet: bool,
    /// Write the JSON of each change on a line.
    #[arg(long)]
    ndjson: bool,
    /// Compress the lines. Parquet is always compressed.
    #[arg(long, value_enum, value_name = "HOW", conflicts_with = "parquet")]
    compress: Option<Compression>,
    /// Number of change numbers of a file.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rows: u64,
    /// Filter condition, with the query parameters of /feed, as in change=DELETE; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = condition)]
    filter: Vec<(String, String)>,
}

/// Parameters of the pages that the command sets itself.
const RESERVED: [&str; 5] = ["after", "before", "journal", "limit", "wait"];

fn condition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE, as in change=DELETE")?;
    if RESERVED.contains(&name) {
        return Err(format!("{name} is not a condition of a filter"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

impl Export {
    pub(super) fn run(self) -> Result<(), Failure> {
        let format = if self.ndjson { Format::Ndjson(self.compress) } else { Format::Parquet };
        if let Some(reason) = format.missing() {
            return Err(Failure::Usage(reason));
        }
        with_gateway(&self.gateway, async |gateway| self.export(&gateway, format).await)
    }

    async fn export(&self, gateway: &Gateway, format: Format) -> Result<(), CommandError> {
        let reader = Reader { gateway, filter: &self.filter };
        let newest = reader.newest().await?;
        let contents = Contents { journal: newest.journal, format, rows: self.rows, filter: self.filter.clone() };
        let mut folder = ExportFolder::open(&self.folder, &contents).map_err(failed)?;
        if folder.has(newest.seq) {
            return Ok(self.report(&folder.into_written())?);
        }
        let first = match reader.page(folder.cursor(), newest.journal).await {
            // Retention has removed changes of the last file. It stays as it is, and another one continues after it.
            Err(error) if error.status == Some(StatusCode::GONE) && folder.keep_last_file() => {
                reader.page(folder.cursor(), newest.journal).await
            }
            first => first,
        };
        let first = first.map_err(|error| folder.describe_gap(error))?;
        let (pages, received) = mpsc::channel(PAGES_AHEAD);
        let writing = tokio::task::spawn_blocking(move || folder.write(received));
        let read = tokio::select! {
            read = reader.read_to_end(first, &newest, &pages) => read.map_err(CommandError::from),
            _ = tokio::signal::ctrl_c() => {
                Err(Failure::Failed("stopped; give the command again to continue".to_owned()).into())
            }
        };
        drop(pages);
        let written = match writing.await {
            Ok(written) => written.map_err(failed)?,
            Err(error) => return Err(Failure::Failed(format!("the writer has stopped: {error}")).into()),
        };
        self.report(&written)?;
        read
    }

    fn report(&self, Written { changes, files, kept, through }: &Written) -> Result<(), Failure> {
        print_text(&format!(
            "{} up to number {through} written to {} in {}; {} of earlier runs\n",
            counted(*changes, "change"),
            counted(*files, "file"),
            self.folder.display(),
            counted(*kept, "file"),
        ))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes a value")]
fn failed(error: impl ToString) -> CommandError {
    Failure::Failed(error.to_string()).into()
}

/// A page of `/changes`, with the exact JSON of each change.
#[derive(Deserialize)]
struct ChangePage {
    changes: Vec<Box<RawValue>>,
    /// Number of the last change that was examined; absent on a page with the newest change first and none before it.
    next: Option<u64>,
    journal: Uuid,
}

/// Number of a change.
#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

/// Journal of the gateway, and where it ended when the export began.
struct Newest {
    journal: Uuid,
    /// Number of the newest change that the reader may see; `None` if it sees none of the newest ones.
    seq: Option<u64>,
}

/// Reader of the pages.
struct Reader<'r> {
    gateway: &'r Gateway,
    filter: &'r [(String, String)],
}

impl Reader<'_> {
    /// Returns where the journal ends.
    async fn newest(&self) -> Result<Newest, GatewayError> {
        let page = self.request("/changes?limit=1&before=18446744073709551615").await?;
        let seq = page.changes.first().and_then(|change| serde_json::from_str::<Numbered>(change.get()).ok());
        Ok(Newest { journal: page.journal, seq: seq.map(|change| change.seq) })
    }

    /// Returns the page after a number, or the first one of the journal.
    async fn page(&self, after: Option<u64>, journal: Uuid) -> Result<ChangePage, GatewayError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.filter).append_pair("limit", &PAGE.to_string());
        query.append_pair("journal", &journal.to_string());
        query.extend_pairs(after.map(|after| ("after", after.to_string())));
        self.request(&format!("/changes?{}", query.finish())).await
    }

    /// Passes the pages on, from the first one until the change that was the newest one when the export began.
    async fn read_to_end(
        &self,
        first: ChangePage,
        newest: &Newest,
        pages: &mpsc::Sender<ChangePage>,
    ) -> Result<(), GatewayError> {
        let progress = Progress::new("exported");
        let (mut page, mut last, mut began) = (first, None, None);
        while let Some(next) = page.next.filter(|next| Some(*next) != last) {
            // A writer that has failed says why by itself.
            if pages.send(page).await.is_err() || newest.seq.is_some_and(|newest| next >= newest) {
                break;
            }
            if let Some(newest) = newest.seq {
                let began = *began.get_or_insert(next);
                progress.update(next - began, newest - began);
            }
            last = Some(next);
            page = self.page(last, newest.journal).await?;
        }
        progress.finish();
        Ok(())
    }

    /// Sends a request, and repeats it while the gateway cannot be reached.
    async fn request(&self, path: &str) -> Result<ChangePage, GatewayError> {
        let mut waits = backoff();
        loop {
            match self.gateway.read(path).await {
                Err(error) if error.is_transient && waits.failures() < ATTEMPTS => {
                    if waits.failures() == 0 {
                        say(&format!("{}; retrying", error.reason));
                    }
                    tokio::time::sleep(waits.next_wait()).await;
                }
                Err(error) => return Err(error),
                Ok(body) => {
                    return serde_json::from_slice(&body).map_err(|error| GatewayError::unexpected_body(&error));
                }
            }
        }
    }
}
