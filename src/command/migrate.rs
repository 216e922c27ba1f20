//! `tidings migrate`: moves a journal from a folder to a database, or back.

use clap::Args;
use tidings::{
    config::Flags,
    journal::store::{
        StoreLocation,
        migrate::{MigrationStep, MigrationSummary, migrate},
    },
};

use super::{ConfigFile, Failure, print_text, progress::Progress, store_location};

const EXAMPLES: &str = "\
Examples:
  tidings migrate --from ./data --to postgres://tidings@db.example.org/tidings
  tidings migrate --from ./data --config tidings.toml
  tidings migrate --to ./data --config tidings.toml

The second form moves the journal to the database that the configuration names in journal.store, and the third form moves \
it back. With them, no password is on the command line.

Stop all gateways of both journals first. The whole journal moves, with its numbers and its identity, so readers and \
subscribers do not notice. The target must be empty. An interrupted migration resumes when the command is repeated; until \
it is finished, no gateway opens the target. At the end both sides are read again and compared. The source is not changed: \
remove it when the gateway runs with the target, and never start a gateway with both.

Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Move the journal from a folder to a PostgreSQL database, or back.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Migrate {
    /// Journal to move: a folder, or postgres://USER@HOST/DATABASE. Default: the journal of the configuration.
    #[arg(long, value_name = "JOURNAL", required_unless_present = "to")]
    from: Option<String>,
    /// Empty folder, or postgres://USER@HOST/DATABASE of an empty database. Default: the journal of the configuration.
    #[arg(long, value_name = "JOURNAL")]
    to: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
}

impl Migrate {
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = self.config.load(&Flags::default())?;
        let location = |given: Option<String>| match given {
            Some(text) => store_location::parse(&text),
            None => Ok(config.store()?),
        };
        let (from, to) = (location(self.from)?, location(self.to)?);
        let database = [&from, &to].into_iter().find(|side| matches!(side, StoreLocation::Postgres(_)));
        let connection = store_location::connection_options(database.unwrap_or(&from), &config)?;
        let (copied, compared) = (Progress::new("copied"), Progress::new("compared"));
        let migrated = migrate(&from, &to, &connection, &mut |step, done, all| match step {
            MigrationStep::Copy => copied.update(done, all),
            MigrationStep::Compare => {
                copied.finish();
                compared.update(done, all);
            }
        });
        copied.finish();
        compared.finish();
        let summary = migrated.map_err(|error| Failure::Failed(error.to_string()))?;
        print_text(&report(&summary, &to))
    }
}

/// Describes each table of both sides, and the target.
fn report(summary: &MigrationSummary, target: &StoreLocation) -> String {
    let mut report = String::new();
    for table in &summary.tables {
        report += &format!("{}: {} in the source; {} in the target\n", table.table, table.source, table.target);
    }
    let MigrationSummary { identity, head, .. } = summary;
    report + &format!("{target} has the journal {identity}; its newest change is {head}\n")
}
