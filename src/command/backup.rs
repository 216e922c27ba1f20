//! `tidings backup`: copies the journal while the gateway runs.

use std::path::PathBuf;

use clap::Args;
use tidings::{
    config::Flags,
    journal::store::{JournalSummary, back_up},
};

use super::{ConfigFile, Failure, journal_folder, print_text, progress::Progress};

const EXAMPLES: &str = "\
Examples:
  tidings backup /backups/tidings-2026-03-01.sqlite
  tidings backup today.sqlite --data /var/lib/tidings

The gateway may keep running: the copy is a snapshot of one moment. It is written to FILE.partial, checked and renamed, \
so FILE is either complete or absent. An existing FILE is not overwritten.

Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Copy the journal to a file, while the gateway runs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Backup {
    /// File to write.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
    /// Folder of the journal; overrides the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Backup {
    pub(super) fn run(self) -> Result<(), Failure> {
        let data = journal_folder(&self.config.load(&Flags { data: self.data, ..Flags::default() })?)?;
        let progress = Progress::new("copied");
        let contents = back_up(&data, &self.file, &mut |done, all| progress.update(done, all));
        progress.finish();
        let contents = contents.map_err(|error| Failure::Failed(error.to_string()))?;
        print_text(&format!("{} holds {}\n", self.file.display(), describe(contents)))
    }
}

/// Describes the contents of a journal in a phrase.
pub(super) fn describe(summary: JournalSummary) -> String {
    match summary.first {
        Some(first) => format!("the changes {first} to {} ({} bytes)", summary.head, summary.bytes),
        None => format!("no changes ({} bytes)", summary.bytes),
    }
}
