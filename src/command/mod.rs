//! The command line: its commands, their output and their exit codes.
//!
//! A command writes its result to standard output and everything else to standard error. Scripts rely on the exit
//! codes.

mod backup;
mod bulk;
mod check;
mod columns;
mod convert;
mod crawl;
mod dataset_copies;
mod dead_letters;
mod definition;
mod file;
mod files;
mod gateway;
mod harvest_progress;
mod harvests;
mod health;
mod http;
mod ingest;
mod log_writer;
mod migrate;
mod nodes;
mod output;
mod progress;
mod quarantine;
mod replay;
mod repository;
mod restore;
mod seed_registry;
mod serve;
mod sources;
mod status;
mod stop_signal;
mod store_location;
mod subscriptions;
mod tail;
mod token;
mod verify;

use std::{path::PathBuf, process::ExitCode, sync::OnceLock};

use clap::{Args, Parser, Subcommand};
use output::{Output, print, print_text, say};
use tidings::{
    config::{ConfigErrors, ConfigParts, Flags},
    journal::store::StoreLocation,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

const EXAMPLES: &str = "\
Try it, in two terminals:
  tidings serve
  tidings replay message.xml --to http://127.0.0.1:8395/hooks/fedora3
Then open http://127.0.0.1:8395/feed

Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Content change notification gateway: repository events in, one durable ordered journal, feeds out.
///
/// Repositories send events over HTTP, AMQP, STOMP or Kafka, each in its own dialect; Tidings harvests the others. It
/// converts every event to one model and appends it to its journal. It serves the changes as feeds and streams, and
/// pushes them to subscribers.
#[derive(Parser)]
#[command(name = "tidings", version = version(), after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Convert(convert::Convert),
    Replay(replay::Replay),
    Tail(tail::Tail),
    Subscriptions(subscriptions::Subscriptions),
    Status(status::Status),
    Sources(sources::Sources),
    Quarantine(quarantine::Quarantine),
    DeadLetters(dead_letters::DeadLetters),
    Nodes(nodes::Nodes),
    Harvests(harvests::Harvests),
    Files(files::Files),
    Ingest(ingest::Ingest),
    Crawl(crawl::Crawl),
    SeedRegistry(seed_registry::SeedRegistry),
    Check(check::Check),
    Health(health::Health),
    Token(token::Token),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Migrate(migrate::Migrate),
    Verify(verify::Verify),
}

/// The option `--config`, shared by all commands that read the configuration.
#[derive(Args)]
struct ConfigFile {
    /// Configuration file (TOML). Default: the file named by the environment variable TIDINGS_CONFIG. Without either,
    /// only the built-in defaults and environment variables apply.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// Merges the layers of the configuration. A command reads only the parts that it needs, because it may lack the secrets
    /// of the others.
    fn load(&self, flags: &Flags) -> Result<ConfigParts, Failure> {
        Ok(ConfigParts::load(self.path().as_deref(), flags)?)
    }

    /// Returns the path of the configuration file, if there is one.
    fn path(&self) -> Option<PathBuf> {
        let from_environment = || std::env::var_os("TIDINGS_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(from_environment)
    }
}

/// Returns the folder of a journal for a command that works only on a folder.
fn journal_folder(config: &ConfigParts) -> Result<PathBuf, Failure> {
    match config.store()? {
        StoreLocation::Folder(folder) => Ok(folder),
        StoreLocation::Postgres(url) => Err(Failure::Failed(format!(
            "the journal is in the database {url}, where this command does not apply; use the tools of PostgreSQL, such as \
             pg_dump and pg_restore (docs/postgresql.md)"
        ))),
    }
}

/// Returns the version of the program, with the commit if the build knew it (`build.rs`).
fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match option_env!("TIDINGS_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{} (commit {commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Reason why a command did not succeed, which determines its exit code.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The command failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The arguments are wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong: exit code 2.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The command has printed what is wrong, and ends with this exit code.
    #[error("what is wrong is printed")]
    Printed(u8),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) | Self::Config(_) => 2,
            Self::Printed(code) => *code,
        }
    }
}

/// Parses the arguments and runs the command.
pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Convert(convert) => convert.run(),
        Command::Replay(replay) => replay.run(),
        Command::Tail(tail) => tail.run(),
        Command::Subscriptions(subscriptions) => subscriptions.run(),
        Command::Status(status) => status.run(),
        Command::Sources(sources) => sources.run(),
        Command::Quarantine(quarantine) => quarantine.run(),
        Command::DeadLetters(dead_letters) => dead_letters.run(),
        Command::Nodes(nodes) => nodes.run(),
        Command::Harvests(harvests) => harvests.run(),
        Command::Files(files) => files.run(),
        Command::Ingest(ingest) => ingest.run(),
        Command::Crawl(crawl) => crawl.run(),
        Command::SeedRegistry(seed_registry) => seed_registry.run(),
        Command::Check(check) => check.run(),
        Command::Health(health) => health.run(),
        Command::Token(token) => token.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::Verify(verify) => verify.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Printed(_)) {
                say(&failure.to_string());
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Builds the runtime of a command that does network I/O.
fn runtime(mut builder: tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Failure> {
    builder.enable_all().build().map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))
}
