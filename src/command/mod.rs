//! The command line: its commands, their output and their exit codes.
//!
//! A command writes its result to standard output and everything else to standard error. Scripts rely on the exit
//! codes.

mod audit;
mod backup;
mod bulk;
mod check;
mod columns;
mod compare;
mod completions;
mod config;
mod config_file;
mod convert;
#[cfg(feature = "dbus")]
mod crawl;
mod dataset_copies;
mod dead_letters;
mod definition;
mod environment_file;
mod export;
mod file;
mod files;
mod gateway;
mod harvest_progress;
mod harvests;
mod health;
mod http;
mod ingest;
mod log_writer;
mod man;
mod migrate;
mod nodes;
mod output;
mod progress;
mod publish;
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
mod top;
mod verify;

use std::{path::PathBuf, process::ExitCode, sync::OnceLock};

use clap::{Parser, Subcommand};
use config_file::ConfigFile;
use output::{Output, print, print_text, say};
use tidings::{
    config::{ConfigErrors, ConfigParts},
    journal::store::StoreLocation,
};

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
    Top(top::Top),
    Sources(sources::Sources),
    Quarantine(quarantine::Quarantine),
    DeadLetters(dead_letters::DeadLetters),
    Nodes(nodes::Nodes),
    Harvests(harvests::Harvests),
    Files(files::Files),
    Ingest(ingest::Ingest),
    #[cfg(feature = "dbus")]
    Crawl(crawl::Crawl),
    SeedRegistry(seed_registry::SeedRegistry),
    Audit(audit::Audit),
    Compare(compare::Compare),
    Export(export::Export),
    Publish(publish::Publish),
    Check(check::Check),
    Config(config::Config),
    Health(health::Health),
    Token(token::Token),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Migrate(migrate::Migrate),
    Verify(verify::Verify),
    Completions(completions::Completions),
    Man(man::Man),
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
        Command::Top(top) => top.run(),
        Command::Sources(sources) => sources.run(),
        Command::Quarantine(quarantine) => quarantine.run(),
        Command::DeadLetters(dead_letters) => dead_letters.run(),
        Command::Nodes(nodes) => nodes.run(),
        Command::Harvests(harvests) => harvests.run(),
        Command::Files(files) => files.run(),
        Command::Ingest(ingest) => ingest.run(),
        #[cfg(feature = "dbus")]
        Command::Crawl(crawl) => crawl.run(),
        Command::SeedRegistry(seed_registry) => seed_registry.run(),
        Command::Audit(audit) => audit.run(),
        Command::Compare(compare) => compare.run(),
        Command::Export(export) => export.run(),
        Command::Publish(publish) => publish.run(),
        Command::Check(check) => check.run(),
        Command::Config(config) => config.run(),
        Command::Health(health) => health.run(),
        Command::Token(token) => token.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::Verify(verify) => verify.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
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
