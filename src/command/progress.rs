//! How far a command is: a bar at a terminal, and elsewhere a line now and then, so that a log shows
//! that it goes on.

use std::{
    cell::Cell,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::say;

/// How often a line is written where there is no terminal.
const A_LINE_EVERY: Duration = Duration::from_secs(10);

/// How far a command is, on standard error.
pub(super) struct Progress {
    done: &'static str,
    bar: Option<ProgressBar>,
    told: Cell<Instant>,
}

impl Progress {
    /// `done` says what is being done, as in "copied".
    pub(super) fn new(done: &'static str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            match ProgressStyle::with_template("{bar:40} {percent}% {eta}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { done, bar, told: Cell::new(Instant::now()) }
    }

    /// So much is done, of so much.
    pub(super) fn tell(&self, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
        } else if self.told.get().elapsed() > A_LINE_EVERY {
            self.told.set(Instant::now());
            say(&format!("{} {}%", self.done, (done * 100).checked_div(all).unwrap_or(100)));
        }
    }

    /// It is over.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
