//! `tidings verify`: checks the integrity of a journal or a backup.

use std::path::PathBuf;

use clap::Args;
use tidings::{
    config::Flags,
    journal::store::{FILE_NAME, Report, StoreLocation, postgres, verify},
};

use super::{ConfigFile, Failure, print_text, progress::Progress, say, store_location};

const EXAMPLES: &str = "\
Examples:
  tidings verify
  tidings verify --data /var/lib/tidings
  tidings verify /backups/tidings-2026-03-01.sqlite
  tidings verify postgres://tidings@db.example.org/tidings

The command checks the database file, the checksum of every change, the numbering, the event keys that detect \
duplicates, and the registry, which is compared with the changes and the results of crawls. It writes nothing, and the \
gateway may keep running. Each fault and its location is reported on standard error.

Exit codes:
  0  the journal is intact
  1  the journal has faults or cannot be read; standard error says which
  2  wrong usage or configuration";

/// Check the integrity of the journal or of a backup.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Verify {
    /// Backup to check, or connection string postgres://… of a database. Default: the journal.
    #[arg(value_name = "FILE", conflicts_with = "data")]
    file: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
    /// Folder of the journal; overrides the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Verify {
    pub(super) fn run(self) -> Result<(), Failure> {
        let load = || self.config.load(&Flags { data: self.data.clone(), ..Flags::default() });
        let location = match &self.file {
            Some(file) => store_location::parse(file)?,
            None => match load()?.store()? {
                StoreLocation::Folder(folder) => StoreLocation::Folder(folder.join(FILE_NAME)),
                database => database,
            },
        };
        let progress = Progress::new("read");
        let mut update = |done, all| progress.update(done, all);
        let report = match &location {
            StoreLocation::Folder(file) => verify(file, &mut update).map_err(|error| error.to_string()),
            StoreLocation::Postgres(url) => {
                let connection = store_location::connection_options(&location, &load()?)?;
                postgres::verify::verify(url, &connection, &mut update).map_err(|error| error.to_string())
            }
        };
        progress.finish();
        let report = report.map_err(Failure::Failed)?;
        report.findings.iter().for_each(|finding| say(finding));
        print_text(&format!("{location}: {}\n", summary(&report)))?;
        match report.findings.len() as u64 + report.more {
            0 => Ok(()),
            1 => Err(Failure::Failed("1 problem found".to_owned())),
            problems => Err(Failure::Failed(format!("{problems} problems found"))),
        }
    }
}

fn summary(report: &Report) -> String {
    let Report { changes, first, head, objects, complete, .. } = report;
    let compared = if *complete { "as a whole" } else { "as far as the retained changes allow" };
    let Some(first) = first else {
        return match objects {
            0 => "no changes: the journal is new".to_owned(),
            _ => {
                format!("no changes yet, {objects} objects from crawls; the registry was compared {compared}")
            }
        };
    };
    format!("{changes} changes ({first} to {head}), {objects} objects; the registry was compared {compared}")
}
