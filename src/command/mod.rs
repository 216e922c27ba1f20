//! What the command line takes, and how a command ends: its exit code is a promise to scripts.
//!
//! A command writes its result to standard output and everything else to standard error.

mod backup;
mod check;
mod convert;
mod file;
mod gateway;
mod health;
mod http;
mod progress;
mod replay;
mod restore;
mod seed_registry;
mod serve;
mod subscriptions;
mod tail;
mod token;
mod verify;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::OnceLock,
};

use clap::{Args, Parser, Subcommand};
use tidings::config::{Config, ConfigError, Flags};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

const EXAMPLES: &str = "\
A first look, in two terminals:
  tidings serve
  tidings replay message.xml --to http://127.0.0.1:8395/hooks/fedora3
and then read http://127.0.0.1:8395/feed

Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong usage or configuration";

/// A content change notification gateway: repository events in, one durable ordered journal, feeds out.
///
/// Repositories post what happened to a hook, each in its own dialect. Tidings turns every event
/// into one model, keeps it in its journal, and serves the changes as an Atom feed and as JSON.
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
    SeedRegistry(seed_registry::SeedRegistry),
    Check(check::Check),
    Health(health::Health),
    Token(token::Token),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Verify(verify::Verify),
}

/// Which configuration file.
#[derive(Args)]
struct ConfigFile {
    /// The configuration file (TOML). Without it, the one that the variable TIDINGS_CONFIG names; else the defaults and the
    /// environment count.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn load(&self, flags: &Flags) -> Result<Config, Failure> {
        let of_environment = || std::env::var_os("TIDINGS_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        Ok(Config::load(self.config.clone().or_else(of_environment).as_deref(), flags)?)
    }
}

/// Returns the program's version, with the commit where the build knows it (`build.rs`).
fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match option_env!("TIDINGS_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{} (commit {commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// How a command ends, other than well.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// It failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// What was asked for makes no sense: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong: exit code 2.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) | Self::Config(_) => 2,
        }
    }
}

/// Runs the command that the arguments name.
pub(crate) fn run() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Convert(convert) => convert.run(),
        Command::Replay(replay) => replay.run(),
        Command::Tail(tail) => tail.run(),
        Command::Subscriptions(subscriptions) => subscriptions.run(),
        Command::SeedRegistry(seed_registry) => seed_registry.run(),
        Command::Check(check) => check.run(),
        Command::Health(health) => health.run(),
        Command::Token(token) => token.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Verify(verify) => verify.run(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Writes the result of a command. A reader that has read enough (`| head`) is no failure.
fn print(result: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(result).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says something to the person at the terminal. Where standard error is closed, nobody listens.
fn say(message: &str) {
    let _ = writeln!(io::stderr().lock(), "tidings: {message}");
}

/// A runtime for a command that waits.
fn runtime(mut builder: tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Failure> {
    builder.enable_all().build().map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))
}
