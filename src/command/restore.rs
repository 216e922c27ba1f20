//! `tidings restore`: a backup becomes the journal.

use std::path::PathBuf;

use clap::Args;
use tidings::{config::Flags, journal::store::sqlite::restore::restore};

use super::{ConfigFile, Failure, backup::what, print, progress::Progress};

const EXAMPLES: &str = "\
Examples:
  tidings restore /backups/tidings-2026-03-01.sqlite
  tidings restore today.sqlite --data /var/lib/tidings --force

The gateway must not run. Numbers that the lost journal may have given are not given again: the
numbering goes on further up, and readers who have seen more than the backup holds are told to start
again (410, /snapshot).

Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Make a backup the journal.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Restore {
    /// The backup.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
    /// The folder of the journal; counts before the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Move a journal that is there aside, into a folder beside it.
    #[arg(long)]
    force: bool,
}

impl Restore {
    pub(super) fn run(self) -> Result<(), Failure> {
        let data = self.config.load(&Flags { data: self.data, ..Flags::default() })?.journal.data;
        let progress = Progress::new("copied");
        let restored = restore(&self.file, &data, self.force, &mut |done, all| progress.tell(done, all));
        progress.finish();
        let restored = restored.map_err(|error| Failure::Failed(error.to_string()))?;
        let mut told = format!("{} holds {}\n", data.display(), what(restored.held));
        told += &format!("the next change will have the number {}\n", restored.next);
        if let Some(aside) = restored.aside {
            told += &format!("the journal that was there is in {}\n", aside.display());
        }
        print(told.as_bytes())
    }
}
