//! `tidings man`: prints the manual page, or writes one page for each command.

use std::{fs, io, path::PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;

use super::{Cli, Failure, Output, print};

const EXAMPLES: &str = "\
Examples:
  tidings man | man -l -
  tidings man --out /usr/local/share/man/man1

Exit codes:
  0  done
  1  a page cannot be written; standard error says why
  2  wrong usage";

/// Print the manual page, or write one page for each command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Man {
    /// Folder to write the pages to: tidings.1, tidings-serve.1 and so on. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let mut pages = Vec::new();
        let rendered = render(command, &mut pages);
        rendered.map_err(|error| Failure::Failed(format!("cannot make the manual page: {error}")))?;
        let Some(folder) = self.out else {
            return pages.first().map_or(Ok(()), |(_, page)| print(&Output::Document(page.as_bytes())));
        };
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let write = |(name, page): &(String, String)| fs::write(folder.join(name), page);
        let written = fs::create_dir_all(&folder).and_then(|()| pages.iter().try_for_each(write));
        written
            .map_err(|error| Failure::Failed(format!("cannot write the manual pages to {}: {error}", folder.display())))
    }
}

/// Adds the pages of a command and of the commands below it, each with the name of its file.
fn render(command: Command, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    let below: Vec<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let page = Page::new(command);
    let mut bytes = Vec::new();
    page.render(&mut bytes)?;
    pages.push((page.get_filename(), ascii(&String::from_utf8_lossy(&bytes))));
    below.into_iter().try_for_each(|command| render(command, pages))
}

/// Writes the other characters as troff names them, because it reads its input as Latin-1.
fn ascii(page: &str) -> String {
    page.chars()
        .map(|letter| if letter.is_ascii() { letter.to_string() } else { format!("\\[u{:04X}]", u32::from(letter)) })
        .collect()
}
