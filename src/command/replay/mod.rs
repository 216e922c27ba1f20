//! `tidings replay`: post files to a hook, as their sources would have.
//!
//! Files go in order, one after the other unless `--concurrency` says otherwise; a hook that is not
//! there or too busy is tried again. What the hook refuses is named, and the rest goes on.

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
use tidings::web::Secret;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use self::{
    post::{Outcome, Poster},
    tally::Tally,
};
use super::{
    Failure,
    file::{self, Messages},
    http::{header_map, http_url, token, with_token},
    print, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings replay message.xml --to http://127.0.0.1:8395/hooks/fedora3
  tidings replay archive/2026 --to https://tidings.example.org/hooks/fedora --concurrency 8
  TIDINGS_TOKEN=tdg_… tidings replay events --to https://tidings.example.org/hooks/fedora

The media type is told by the name: .xml is application/atom+xml, .json application/json, .jsonld
application/ld+json, any other application/octet-stream. Lines `Name: value` in FILE.headers, or in
a file of the same name that ends in .headers instead, are sent as headers of FILE.

Of a folder only files count that end in .xml, .json, .jsonld or .bin; a file that is named itself is posted
whatever it is. An answer that concerns the hook and not the message ends the replay: 401, 403, 404, 405, 410, a
redirect, or an encrypted connection that cannot be made.

Connection errors, 5xx, 408, 425 and 429 are tried again, with a growing pause or after the Retry-After
that the hook asks for (at most a minute). The last line on standard output is the summary:
  posted 12: 9 accepted, 1 duplicate, 1 unchanged, 1 refused, 0 failed
Ctrl-C lets the message in flight finish and prints what was done; a second one does not wait.

Exit codes:
  0  every file was accepted, a duplicate, or told of nothing that changed
  1  something was refused, failed, or left out because of Ctrl-C
  2  wrong usage";

/// Post files to a hook, in order.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Replay {
    /// Files, or folders: the files in them that end in .xml, .json, .jsonld or .bin, sorted by path.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The hook.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    to: Url,
    /// How often a message is tried again.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    retries: u32,
    /// How many messages are under way at once; with more than one, their order is not kept.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// How long one try may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// A header to send with every message; may be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = file::header)]
    headers: Vec<(String, String)>,
    /// The token to send, unless a header Authorization is given. Others on this machine can see
    /// arguments, and not the environment.
    #[arg(long, env = "TIDINGS_TOKEN", hide_env_values = true, value_parser = token)]
    token: Option<Secret>,
}

impl Replay {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Messages { files, left_out } = file::all_of(&self.paths).map_err(Failure::Failed)?;
        if let [first, ..] = left_out.as_slice() {
            let (count, first) = (left_out.len(), first.display());
            say(&format!("left out {count} files that are no messages by their names ({first} is the first)"));
        }
        let given = files.len();
        let stop = CancellationToken::new();
        let timeout = Duration::from_secs(self.timeout);
        let headers = header_map(&self.headers).and_then(|headers| with_token(headers, self.token.as_ref()));
        let headers = headers.map_err(Failure::Usage)?;
        let poster = Poster::new(self.to, headers, self.retries, timeout, stop.clone()).map_err(Failure::Usage)?;
        let in_flight = usize::from(self.concurrency);
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let tally = runtime.block_on(post_all(Arc::new(poster), files, in_flight, stop));
        // A look-up of a name that nobody waits for any more would keep it.
        runtime.shutdown_background();
        print(format!("{tally}\n").as_bytes())?;
        match given - tally.posted() {
            0 if tally.all_well() => Ok(()),
            0 => Err(Failure::Failed("not everything was taken".to_owned())),
            left => Err(Failure::Failed(format!("stopped; {left} of {given} files were not posted"))),
        }
    }
}

/// Posts the files in order, at most so many at once, until all are done or `stop` says so.
async fn post_all(poster: Arc<Poster>, files: Vec<PathBuf>, in_flight: usize, stop: CancellationToken) -> Tally {
    let abort = CancellationToken::new();
    let bar = progress_bar(files.len());
    let listener = tokio::spawn(listen_for_ctrl_c(stop.clone(), abort.clone(), bar.clone()));
    let mut tally = Tally::default();
    let mut waiting = files.into_iter();
    let mut posting: JoinSet<(PathBuf, Outcome)> = JoinSet::new();
    loop {
        while posting.len() < in_flight && !stop.is_cancelled() {
            let Some(path) = waiting.next() else { break };
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
                if matches!(outcome, Outcome::NoHook(_)) {
                    // The same would be said of every message.
                    stop.cancel();
                }
                tally.count(&outcome);
                bar.inc(1);
            }
            // A task that panicked has said so on standard error, and its file counts as left out.
            Some(Err(_)) => {}
            None => break,
        }
    }
    bar.finish_and_clear();
    listener.abort();
    tally
}

/// The first Ctrl-C stops, the second aborts.
async fn listen_for_ctrl_c(stop: CancellationToken, abort: CancellationToken, bar: ProgressBar) {
    // Where it cannot be listened for, Ctrl-C ends the process, as it does without us.
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.cancel();
        // The second is listened for before the first is answered, so that none gets lost.
        let (again, ()) = tokio::join!(tokio::signal::ctrl_c(), async {
            bar.suspend(|| say("stopping after what is under way; Ctrl-C again does not wait for it"));
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
