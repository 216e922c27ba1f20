//! The writer of log lines. Partners can put any text into a log line, as a reason or a name, and lines of all parts pass
//! this one place: it escapes characters that control a terminal, reorder a line, hide a part of it or begin another line.

use std::io::{self, Stderr, Write};

use tidings::text;

/// Notation of the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notation {
    /// A line of text for each event; with escape sequences for colours if the log is a terminal. The formatter escapes
    /// the escape characters of all values, so those that are left are its own.
    Text {
        /// Whether there are colours.
        colours: bool,
    },
    /// A JSON object for each event.
    Json,
}

/// Writer of one log line to standard error.
pub(super) struct LogWriter {
    out: Stderr,
    notation: Notation,
}

impl LogWriter {
    pub(super) fn new(notation: Notation) -> Self {
        Self { out: io::stderr(), notation }
    }
}

impl Write for LogWriter {
    /// Writes a line, which the subscriber passes as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.out.lock().write_all(escape_line(&text, self.notation).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn escape_line(line: &str, notation: Notation) -> String {
    let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
    let content = match notation {
        Notation::Json => text::json(content).into_owned(),
        Notation::Text { colours: false } => text::line(content, usize::MAX).to_string(),
        Notation::Text { colours: true } => {
            let parts = content.split('\u{1b}').map(|part| text::line(part, usize::MAX).to_string());
            parts.collect::<Vec<_>>().join("\u{1b}")
        }
    };
    content + end
}

#[cfg(test)]
mod tests {
    use super::{Notation, escape_line};

    #[test]
    fn a_line_has_nothing_that_controls_hides_or_begins_another_line() {
        let line = " WARN a: no such\u{9b}31m\u{202e}\nERROR forged\n";
        let escaped = " WARN a: no such\\u{9b}31m\\u{202e}\\nERROR forged\n";
        assert_eq!(escape_line(line, Notation::Text { colours: false }), escaped);
        let coloured = "\u{1b}[33m WARN\u{1b}[0m a\u{202e}\n";
        assert_eq!(escape_line(coloured, Notation::Text { colours: true }), "\u{1b}[33m WARN\u{1b}[0m a\\u{202e}\n");
        assert_eq!(escape_line("{\"a\":\"\u{202e}\"}\n", Notation::Json), "{\"a\":\"\\u202e\"}\n");
    }
}
