//! `tidings completions`: prints the script that completes the command line in a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failure, Output, print};

const EXAMPLES: &str = "\
Examples:
  tidings completions bash > /etc/bash_completion.d/tidings
  tidings completions zsh > /usr/local/share/zsh/site-functions/_tidings
  tidings completions fish > ~/.config/fish/completions/tidings.fish

Exit codes:
  0  done
  1  standard output cannot be written
  2  wrong usage";

/// Print the script that completes the command line in a shell.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tidings", &mut script);
        print(&Output::Document(&script))
    }
}
