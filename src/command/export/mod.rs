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

/// Number of unreadable changes that are named.
const NAMED_SKIPPED: u64 = 10;

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
        let mut reader = Reader { gateway, filter: &self.filter, limit: Some(PAGE), damaged: Skipped::default() };
        let newest = reader.newest().await?;
        let contents = Contents { journal: newest.journal, format, rows: self.rows, filter: self.filter.clone() };
        let mut folder = ExportFolder::open(&self.folder, &contents).map_err(failed)?;
        if folder.has(newest.seq) {
            return Ok(self.report(&folder.into_written())?);
        }
        let first = match reader.page(folder.cursor(), newest.journal).await {
            // Retention has removed changes of the last file. It stays as it is, and another one continues after it.
            Err(error) if is_removed(&error) && folder.keep_last_file() => {
                reader.page(folder.cursor(), newest.journal).await
            }
            first => first,
        };
        let examined = folder.cursor();
        let first = first.map_err(|error| self.describe_gap(error, examined))?;
        let (pages, received) = mpsc::channel(PAGES_AHEAD);
        let writing = tokio::task::spawn_blocking(move || folder.write(received));
        let read = tokio::select! {
            read = reader.read_to_end(first, &newest, &pages) => {
                read.map_err(|(error, through)| self.describe_gap(error, through))
            }
            _ = tokio::signal::ctrl_c() => {
                Err(Failure::Failed("stopped; give the command again to continue".to_owned()).into())
            }
        };
        drop(pages);
        let mut written = match writing.await {
            Ok(written) => written.map_err(failed)?,
            Err(error) => return Err(Failure::Failed(format!("the writer has stopped: {error}")).into()),
        };
        written.skipped += reader.damaged.count();
        self.report(&written)?;
        read
    }

    fn report(&self, Written { changes, files, kept, through, skipped }: &Written) -> Result<(), Failure> {
        let damaged = match skipped {
            0 => String::new(),
            skipped => format!("; {} skipped", counted(*skipped, "unreadable change")),
        };
        print_text(&format!(
            "{} up to number {through} written to {} in {}; {} of earlier runs{damaged}\n",
            counted(*changes, "change"),
            counted(*files, "file"),
            self.folder.display(),
            counted(*kept, "file"),
        ))
    }

    /// Adds what to do to an error that the changes after a number are not there: retention has removed them, or the journal is
    /// another one since the start of the run.
    fn describe_gap(&self, error: GatewayError, through: Option<u64>) -> CommandError {
        let path = self.folder.display();
        let reason = match through {
            Some(through) if is_removed(&error) => format!(
                "{path} goes up to number {through}, and the changes after it are lost: {}; give another folder, and export \
                 more often than the journal is shortened",
                error.reason.trim_end_matches('.')
            ),
            _ if is_other_journal(&error) => format!(
                "the gateway has another journal since the start of the run: it was restored from a backup or by a failover, \
                 and some of the changes in {path} may be lost there; give another folder"
            ),
            _ => return error.into(),
        };
        GatewayError { reason, ..error }.into()
    }
}

/// Returns whether an error says that retention has removed the changes that follow.
fn is_removed(error: &GatewayError) -> bool {
    error.status == Some(StatusCode::GONE) && !is_other_journal(error)
}

/// Returns whether an error says that the journal was replaced by another one, whose identity it has.
fn is_other_journal(error: &GatewayError) -> bool {
    error.status == Some(StatusCode::GONE) && error.problem["journal"].is_string()
}

/// Returns the number of the damaged change before which a page would have to end.
fn damaged_change(error: &GatewayError) -> Option<u64> {
    let is_damaged = error.problem["type"] == "urn:tidings:problem:damaged-change";
    error.problem["seq"].as_u64().filter(|_| is_damaged)
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

/// A change with its number and its exact JSON.
struct NumberedChange {
    seq: u64,
    json: Box<RawValue>,
}

/// Changes that cannot be exported. The first ones are named on standard error.
#[derive(Default)]
struct Skipped(u64);

impl Skipped {
    /// Notes a change and the reason.
    fn add(&mut self, subject: &str, reason: &str) {
        self.0 += 1;
        match self.0 {
            1..=NAMED_SKIPPED => say(&format!("{subject} is skipped: {reason}")),
            count if count == NAMED_SKIPPED + 1 => say("more changes are skipped; the end of the run says how many"),
            _ => {}
        }
    }

    fn count(&self) -> u64 {
        self.0
    }
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
    /// Number of changes that a page may have; `None` for the default of the gateway.
    limit: Option<usize>,
    /// Damaged changes of the journal.
    damaged: Skipped,
}

impl Reader<'_> {
    /// Returns where the journal ends.
    async fn newest(&self) -> Result<Newest, GatewayError> {
        let mut before = u64::MAX;
        let page = loop {
            match self.request(&format!("/changes?limit=1&before={before}")).await {
                Err(error) => before = damaged_change(&error).filter(|seq| *seq < before).ok_or(error)?,
                Ok(page) => break page,
            }
        };
        let seq = page.changes.first().and_then(|change| serde_json::from_str::<Numbered>(change.get()).ok());
        Ok(Newest { journal: page.journal, seq: seq.map(|change| change.seq) })
    }

    /// Returns the page after a number, or the first one of the journal. Damaged changes before it are skipped.
    async fn page(&mut self, mut after: Option<u64>, journal: Uuid) -> Result<ChangePage, GatewayError> {
        loop {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(self.filter).append_pair("journal", &journal.to_string());
            query.extend_pairs(self.limit.map(|limit| ("limit", limit.to_string())));
            query.extend_pairs(after.map(|after| ("after", after.to_string())));
            match self.request(&format!("/changes?{}", query.finish())).await {
                // The gateway allows fewer changes on a page (`limits.page`).
                Err(error) if self.limit.is_some() && error.problem["parameter"] == "limit" => self.limit = None,
                Err(error) => match damaged_change(&error).filter(|seq| Some(*seq) > after) {
                    Some(seq) => {
                        self.damaged.add(&format!("change {seq}"), "it is damaged in the journal of the gateway");
                        after = Some(seq);
                    }
                    None => return Err(error),
                },
                Ok(page) if page.journal == journal => return Ok(page),
                // The gateway accepts a former identity up to the last change that it has kept.
                Ok(page) => return Err(GatewayError::other_journal(page.journal)),
            }
        }
    }

    /// Passes the pages on, from the first one until the change that was the newest one when the export began.
    ///
    /// # Errors
    /// Fails with the number up to which the pages were read.
    async fn read_to_end(
        &mut self,
        first: ChangePage,
        newest: &Newest,
        pages: &mpsc::Sender<ChangePage>,
    ) -> Result<(), (GatewayError, Option<u64>)> {
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
            page = self.page(last, newest.journal).await.map_err(|error| (error, last))?;
        }
        progress.finish();
        Ok(())
    }

    /// Sends a request, and repeats it while the gateway cannot be reached.
    async fn request(&self, path: &str) -> Result<ChangePage, GatewayError> {
        let mut waits = backoff();
        loop {
            match self.gateway.read(path).await {
                Err(error) if error.is_transient && damaged_change(&error).is_none() && waits.failures() < ATTEMPTS => {
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
