//! Progress of a long command: a bar on a terminal, a line every ten seconds elsewhere.

use std::{
    cell::Cell,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::say;

/// Time between two lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress display on standard error.
pub(super) struct Progress {
    verb: &'static str,
    bar: Option<ProgressBar>,
    last_line: Cell<Instant>,
}

impl Progress {
    /// Starts the display. `verb` begins each line, as in "copied 40%".
    pub(super) fn new(verb: &'static str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            match ProgressStyle::with_template("{bar:40} {percent}% {eta}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { verb, bar, last_line: Cell::new(Instant::now()) }
    }

    /// Shows that `done` of `all` units are finished.
    pub(super) fn update(&self, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
        } else if self.last_line.get().elapsed() > LINE_INTERVAL {
            self.last_line.set(Instant::now());
            say(&format!("{} {}%", self.verb, (done * 100).checked_div(all).unwrap_or(100)));
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
