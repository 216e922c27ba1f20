//! `tidings verify`: is a journal, or a backup, what was written?

use std::path::PathBuf;

use clap::Args;
use tidings::{
    config::Flags,
    journal::store::sqlite::{
        FILE_NAME,
        verify::{Report, verify},
    },
};

use super::{ConfigFile, Failure, print, progress::Progress, say};

const EXAMPLES: &str = "\
Examples:
  tidings verify
  tidings verify --data /var/lib/tidings
  tidings verify /backups/tidings-2026-03-01.sqlite

It checks the file itself, every change against its checksum, the numbering, the events by which
repeats are known, and the registry against the changes and what walks have found. Nothing is written, and the gateway may run
meanwhile. Standard error says what is wrong and where.

Exit codes:
  0  all is well
  1  something is wrong, or it cannot be read
  2  wrong usage or configuration";

/// Verify the journal or a backup of it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Verify {
    /// A backup; without it, the journal is verified.
    #[arg(value_name = "FILE", conflicts_with_all = ["config", "data"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
    /// The folder of the journal; counts before the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Verify {
    pub(super) fn run(self) -> Result<(), Failure> {
        let file = match self.file {
            Some(file) => file,
            None => self.config.load(&Flags { data: self.data, ..Flags::default() })?.journal.data.join(FILE_NAME),
        };
        let progress = Progress::new("read");
        let report = verify(&file, &mut |done, all| progress.tell(done, all));
        progress.finish();
        let report = report.map_err(|error| Failure::Failed(error.to_string()))?;
        report.findings.iter().for_each(|finding| say(finding));
        print(format!("{}: {}\n", file.display(), summary(&report)).as_bytes())?;
        match report.findings.len() as u64 + report.more {
            0 => Ok(()),
            1 => Err(Failure::Failed("1 thing is wrong".to_owned())),
            wrong => Err(Failure::Failed(format!("{wrong} things are wrong"))),
        }
    }
}

fn summary(report: &Report) -> String {
    let Report { changes, first, head, objects, complete, .. } = report;
    let compared = if *complete { "as a whole" } else { "as far as the changes that are kept tell" };
    let Some(first) = first else {
        return match objects {
            0 => "no change, as a new journal has none".to_owned(),
            _ => {
                format!("no change yet, {objects} objects that walks have found; the registry was compared {compared}")
            }
        };
    };
    format!("{changes} changes ({first} to {head}), {objects} objects; the registry was compared {compared}")
}
