//! `tidings config`: prints a sample configuration, the path of the configuration file, and the effective settings.

use clap::{Args, Subcommand};
use tidings::{
    config::{DEFAULTS, Flags},
    settings::{Origin, RedactedSetting},
};

use super::{
    Failure, Output,
    config_file::{ChosenBy, ConfigFile},
    print, print_text,
};

/// Sample configuration, which packages install as `/etc/tidings/tidings.toml`.
const SAMPLE: &str = include_str!("../../packaging/tidings.toml");

const EXAMPLES: &str = "\
Examples:
  tidings config default > tidings.toml
  tidings config default --all | less
  tidings config path
  tidings config show --config tidings.toml

The lines of `show` are TOML. Secrets are replaced by \"(secret)\", and URLs that may contain one end after the server. \
Settings without a value are left out: `tidings config default --all` explains all.

Exit codes:
  0  done
  1  `path`: there is no configuration file
  2  wrong usage or configuration; standard error says why";

/// Print a sample configuration, the path of the configuration file, or the effective settings.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Config {
    #[command(flatten)]
    file: ConfigFile,
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print a sample configuration file with comments.
    #[command(after_help = EXAMPLES)]
    Default {
        /// Print all settings with their defaults and meanings instead.
        #[arg(long)]
        all: bool,
    },
    /// Print the absolute path of the configuration file that the other commands use.
    #[command(after_help = EXAMPLES)]
    Path,
    /// Print each setting that has a value, with the place where it is given. Secrets are replaced.
    #[command(after_help = EXAMPLES)]
    Show,
}

impl Config {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { file, command } = self;
        match command {
            ConfigCommand::Default { all } => print(&Output::Document(if all { DEFAULTS } else { SAMPLE }.as_bytes())),
            ConfigCommand::Path => match file.path()? {
                Some((path, by)) => {
                    let by = match by {
                        ChosenBy::Option => "from the option --config",
                        ChosenBy::Variable => "from the environment variable TIDINGS_CONFIG",
                        ChosenBy::Default => "which is used because nothing else is named",
                    };
                    super::say(by);
                    print_text(&format!("{}\n", path.display()))
                }
                None => Err(Failure::Failed(
                    "there is no configuration file: the built-in defaults and environment variables apply; give --config, \
                     or make /etc/tidings/tidings.toml"
                        .to_owned(),
                )),
            },
            ConfigCommand::Show => print_text(&listing(&file.load(&Flags::default())?.redacted())),
        }
    }
}

/// Formats settings as lines of TOML, each with its origin in a comment.
fn listing(settings: &[RedactedSetting]) -> String {
    settings
        .iter()
        .map(|RedactedSetting { key, value, origin }| format!("{key} = {value}  # {}\n", place(origin)))
        .collect()
}

fn place(origin: &Origin) -> String {
    match origin {
        Origin::File { line, .. } => format!("{origin}, line {line}"),
        Origin::Defaults | Origin::Environment(_) | Origin::Flag(_) => origin.to_string(),
    }
}
