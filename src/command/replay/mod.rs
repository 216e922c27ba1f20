//! `tidings replay`: posts message files to a hook, as their source would.
//!
//! The files are posted in order, one at a time unless `--concurrency` allows more. A post is retried while the hook is
//! unreachable or busy. A refused message is reported and the next one is posted.

mod post;
mod tally;

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidings::{http_client::describe_error, model::SourceName};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use self::{
    post::{PostOutcome, Poster},
    tally::Tally,
};
use super::{
    Failure,
    file::{self, MessageFiles},
    gateway::GatewayArgs,
    http::{client_for, header_map, http_url},
    print_text, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings replay message.xml --to http://127.0.0.1:8395/hooks/fedora3
  tidings replay message.xml --to fedora3
  tidings replay archive/2026 --to https://tidings.example.org/hooks/fedora --concurrency 8
  TIDINGS_TOKEN=tdg_… tidings replay events --to https://tidings.example.org/hooks/fedora

Files: a file given by name is posted whatever its name is. From a folder, only files that end in .xml, .json, .jsonld \
or .bin are posted.

Headers: the media type depends on the extension (.xml: application/atom+xml, .json: application/json, .jsonld: \
application/ld+json, others: application/octet-stream). For a.json, the lines `Name: value` in a.json.headers or a.headers \
are sent as headers.

Errors: connection errors and the statuses 5xx, 408, 425 and 429 are retried, after an increasing pause or after the \
Retry-After of the hook (at most a minute). Errors that every message would meet end the replay: 401, 403, 404, 405, 410, \
a redirect, a failed TLS handshake, or no connection after the last retry.

The last line on standard output is the summary:
  posted 12: 9 accepted, 1 duplicate, 1 unchanged, 1 refused, 0 failed
The first Ctrl-C finishes the messages in flight and prints the summary. The second Ctrl-C does not wait for them.

Exit codes:
  0  every file was accepted, is a duplicate, or reports no change
  1  at least one file was refused, failed, or was not posted
  2  wrong usage";

/// Post message files to a hook, in order.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Replay {
    /// Files, or folders whose files that end in .xml, .json, .jsonld or .bin are posted, sorted by path.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// URL of the hook, or the name of a source of the gateway.
    #[arg(long, value_name = "URL|SOURCE", value_parser = hook)]
    to: Hook,
    /// Maximum number of retries of a message.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    retries: u32,
    /// Maximum number of messages in flight. With more than one, the order is not kept.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Maximum time of one attempt, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Header to send with every message; may be given several times. An `Authorization` replaces the token.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = file::header)]
    headers: Vec<(String, String)>,
}

/// The hook that messages are posted to.
#[derive(Clone, Debug)]
enum Hook {
    /// A hook at any gateway.
    Url(Url),
    /// The hook of a source at the gateway of the command.
    Source(SourceName),
}

fn hook(text: &str) -> Result<Hook, String> {
    match SourceName::parse(text) {
        Ok(name) => Ok(Hook::Source(name)),
        Err(_) => {
            http_url(text).map(Hook::Url).map_err(|error| format!("{error}/hooks/fedora3, or the name of a source"))
        }
    }
}

impl Replay {
    pub(super) fn run(self) -> Result<(), Failure> {
        let MessageFiles { files, skipped } = file::message_files(&self.paths).map_err(Failure::Failed)?;
        if let [first, ..] = skipped.as_slice() {
            let (count, first) = (skipped.len(), first.display());
            say(&format!("skipped {count} files without the extension of a message; the first is {first}"));
        }
        let total = files.len();
        let stop = CancellationToken::new();
        let timeout = Duration::from_secs(self.timeout);
        let headers = self.gateway.with_token(header_map(&self.headers).map_err(Failure::Usage)?)?;
        let to = match self.to {
            Hook::Url(url) => url,
            Hook::Source(name) => {
                let mut url = self.gateway.url()?.url;
                url.set_path(&format!("{}/hooks/{name}", url.path().trim_end_matches('/')));
                url
            }
        };
        let client = client_for(&to, self.gateway.trust()).map_err(Failure::Usage)?.timeout(timeout);
        let client = client.build().map_err(|error| Failure::Usage(describe_error(&error)))?;
        let poster = Poster::new(client, to, headers, self.retries, stop.clone());
        let in_flight = usize::from(self.concurrency);
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let tally = runtime.block_on(post_all(Arc::new(poster), files, in_flight, stop));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        print_text(&format!("{tally}\n"))?;
        match total - tally.posted() {
            0 if tally.all_accepted() => Ok(()),
            0 => Err(Failure::Failed("not every file was accepted".to_owned())),
            left => Err(Failure::Failed(format!("stopped; {left} of {total} files were not posted"))),
        }
    }
}

/// Posts the files in order, at most `in_flight` at the same time, until all are posted or `stop` is cancelled.
async fn post_all(poster: Arc<Poster>, files: Vec<PathBuf>, in_flight: usize, stop: CancellationToken) -> Tally {
    let abort = CancellationToken::new();
    let bar = progress_bar(files.len());
    let listener = tokio::spawn(listen_for_ctrl_c(stop.clone(), abort.clone(), bar.clone()));
    let mut tally = Tally::default();
    let mut remaining = files.into_iter();
    let mut posting: JoinSet<(PathBuf, PostOutcome)> = JoinSet::new();
    loop {
        while posting.len() < in_flight && !stop.is_cancelled() {
            let Some(path) = remaining.next() else { break };
            let poster = Arc::clone(&poster);
            posting.spawn(async move {
                let outcome = poster.post(&path).await;
                (path, outcome)
            });
        }
        let done = tokio::select! {
            done = posting.join_next() => done,
            () = abort.cancelled() => None,
        };
        match done {
            Some(Ok((path, outcome))) => {
                if let Some(reason) = outcome.reason() {
                    bar.suspend(|| say(&format!("{}: {reason}", path.display())));
                }
                if matches!(outcome, PostOutcome::HookUnusable(_)) {
                    // Every other message would fail for the same reason.
                    stop.cancel();
                }
                tally.count(&outcome);
                bar.inc(1);
            }
            // The task panicked and has reported it on standard error. Its file counts as not posted.
            Some(Err(_)) => {}
            None => break,
        }
    }
    bar.finish_and_clear();
    listener.abort();
    tally
}

/// Cancels `stop` at the first Ctrl-C and `abort` at the second.
async fn listen_for_ctrl_c(stop: CancellationToken, abort: CancellationToken, bar: ProgressBar) {
    // If no handler can be installed, Ctrl-C ends the process, as by default.
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.cancel();
        // The second handler is installed before the message is printed, so that no Ctrl-C is lost.
        let (again, ()) = tokio::join!(tokio::signal::ctrl_c(), async {
            bar.suspend(|| say("stopping after the messages in flight; press Ctrl-C again to stop immediately"));
        });
        if again.is_ok() {
            abort.cancel();
        }
    }
}

fn progress_bar(files: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(files as u64), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
