//! How far a walk is, on standard error: nobody knows how far there is to go, so it is a count.

use std::{
    fmt,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{super::say, parts::Taken};

/// How often a line is written where there is no terminal.
const A_LINE_EVERY: Duration = Duration::from_secs(10);

/// A count that goes up.
pub(super) struct Shown {
    bar: Option<ProgressBar>,
    told: Mutex<Instant>,
}

impl Shown {
    pub(super) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            match ProgressStyle::with_template("{spinner} {pos} objects, {per_sec}, {elapsed}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { bar, told: Mutex::new(Instant::now()) }
    }

    /// So many objects were walked through.
    pub(super) fn tell(&self, objects: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(objects);
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() > A_LINE_EVERY {
            *told = Instant::now();
            say(&format!("walked {objects} objects"));
        }
    }

    /// Says something beside it.
    pub(super) fn aside(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(message)),
            None => say(message),
        }
    }

    /// It is over.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The first Ctrl-C stops after what is under way, the second at once.
pub(super) async fn listen_for_ctrl_c(stop: CancellationToken, shown: Arc<Shown>) {
    // Where it cannot be listened for, Ctrl-C ends the process, as it does without us.
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.cancel();
        shown.aside("stopping after what is under way; Ctrl-C again does not wait for it");
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(1);
        }
    }
}

/// What became of what was found.
#[derive(Debug, Default)]
pub(super) struct Tally {
    filled: u64,
    changes: u64,
    pub(super) known: u64,
    pub(super) left_out: usize,
}

impl Tally {
    pub(super) fn add(&mut self, taken: &Taken) {
        self.filled += taken.filled;
        self.changes += taken.accepted;
        self.known += taken.unchanged + taken.duplicate;
    }

    pub(super) fn walked(&self) -> u64 {
        self.filled + self.changes + self.known
    }
}

/// The summary, which scripts may read.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filled, changes, known, left_out } = self;
        let walked = self.walked();
        write!(f, "walked {walked} objects: {filled} filled, {changes} changes, {known} known, {left_out} left out")
    }
}
