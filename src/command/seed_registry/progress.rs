//! Progress of a crawl on standard error: a counter, because the number of objects is not known in advance.

use std::{
    fmt,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{super::say, upload::UploadCounts};

/// Time between two lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Counter of the objects that were crawled.
pub(super) struct CrawlProgress {
    bar: Option<ProgressBar>,
    last_line: Mutex<Instant>,
}

impl CrawlProgress {
    pub(super) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            match ProgressStyle::with_template("{spinner} {pos} objects, {per_sec}, {elapsed}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { bar, last_line: Mutex::new(Instant::now()) }
    }

    /// Shows that `objects` objects were crawled.
    pub(super) fn update(&self, objects: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(objects);
            return;
        }
        let mut last_line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last_line.elapsed() > LINE_INTERVAL {
            *last_line = Instant::now();
            say(&format!("crawled {objects} objects"));
        }
    }

    /// Writes a message without disturbing the counter.
    pub(super) fn note(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(message)),
            None => say(message),
        }
    }

    /// Removes the counter.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Cancels `stop` at the first Ctrl-C and ends the process at the second.
pub(super) async fn listen_for_ctrl_c(stop: CancellationToken, progress: Arc<CrawlProgress>) {
    // If no handler can be installed, Ctrl-C ends the process, as by default.
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.cancel();
        progress.note("stopping after the part in flight; press Ctrl-C again to stop immediately");
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(1);
        }
    }
}

/// Number of crawled objects for each outcome.
#[derive(Debug, Default)]
pub(super) struct Tally {
    filled: u64,
    changes: u64,
    pub(super) known: u64,
    pub(super) left_out: usize,
}

impl Tally {
    pub(super) fn add(&mut self, counts: &UploadCounts) {
        self.filled += counts.filled;
        self.changes += counts.accepted;
        self.known += counts.unchanged + counts.duplicate;
    }

    pub(super) fn crawled(&self) -> u64 {
        self.filled + self.changes + self.known
    }
}

/// The summary line, which scripts may parse.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filled, changes, known, left_out } = self;
        let crawled = self.crawled();
        write!(f, "walked {crawled} objects: {filled} filled, {changes} changes, {known} known, {left_out} left out")
    }
}
