//! `tidings restore`: replaces the journal by a backup.

use std::path::PathBuf;

use clap::Args;
use tidings::{config::Flags, journal::store::restore};

use super::{ConfigFile, Failure, backup::describe, journal_folder, print_text, progress::Progress};

const EXAMPLES: &str = "\
Examples:
  tidings restore /backups/tidings-2026-03-01.sqlite
  tidings restore today.sqlite --data /var/lib/tidings --force

Stop the gateway first. The numbers of changes that the lost journal may have used are not used again: numbering \
continues higher up. Readers that have seen changes newer than the backup get status 410 and start over from /snapshot.

Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Replace the journal by a backup.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Restore {
    /// Backup to restore.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
    /// Folder of the journal; overrides the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Move an existing journal to a folder next to it, instead of refusing to replace it.
    #[arg(long)]
    force: bool,
}

impl Restore {
    pub(super) fn run(self) -> Result<(), Failure> {
        let data = journal_folder(&self.config.load(&Flags { data: self.data, ..Flags::default() })?)?;
        let progress = Progress::new("copied");
        let restored = restore(&self.file, &data, self.force, &mut |done, all| progress.update(done, all));
        progress.finish();
        let restored = restored.map_err(|error| Failure::Failed(error.to_string()))?;
        let mut report = format!("{} holds {}\n", data.display(), describe(restored.summary));
        report += &format!("the next change will have the number {}\n", restored.next_seq);
        if let Some(aside) = restored.moved_aside {
            report += &format!("the previous journal is in {}\n", aside.display());
        }
        print_text(&report)
    }
}
