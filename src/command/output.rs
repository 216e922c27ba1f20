//! Output of commands. All of it goes through this module, because a terminal obeys the controls in a text: text and JSON are
//! shown with escapes for everything that controls a terminal, reorders text or is invisible.

use std::io::{self, IsTerminal, Write};

use tidings::text;

use super::Failure;

/// Result of a command.
pub(super) enum Output<'a> {
    /// Text for people, with its line breaks.
    Text(&'a str),
    /// JSON for programs: one document, or one on each line.
    Json(&'a str),
    /// A converted message, octet by octet, in whichever format was asked for.
    Message(&'a [u8]),
    /// A file that the program contains or generates, octet by octet: it has no text of others.
    Document(&'a [u8]),
}

impl Output<'_> {
    /// Writes to standard output.
    ///
    /// # Errors
    /// Fails if standard output cannot be written, for example because it is a closed pipe.
    pub(super) fn write(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self::Text(result) => out.write_all(text::lines(result).as_bytes())?,
            Self::Json(result) => out.write_all(text::json(result).as_bytes())?,
            Self::Message(result) | Self::Document(result) => out.write_all(result)?,
        }
        out.flush()
    }
}

/// Writes the result of a command to standard output. A closed pipe (`| head`) is not a failure.
pub(super) fn print(result: &Output<'_>) -> Result<(), Failure> {
    match result.write() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes text for people to standard output, as [`print`] does.
pub(super) fn print_text(result: &str) -> Result<(), Failure> {
    print(&Output::Text(result))
}

/// Returns whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes a message for people to standard error. Errors are ignored, because nobody reads a closed standard error.
pub(super) fn say(message: &str) {
    let _ = writeln!(io::stderr().lock(), "tidings: {}", text::lines(message));
}

/// Returns a text of a partner or of a gateway as it appears in a line or in a cell of a table.
pub(super) fn cell(content: &str) -> String {
    text::line(content, usize::MAX).to_string()
}

/// Returns a number with its noun.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
