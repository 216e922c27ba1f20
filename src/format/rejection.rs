//! Rejection of a message, with the location and the reason.

use std::fmt;

use super::MessageLimit;
use crate::text::line;

/// Reason why a dialect cannot read a message. Both go to the quarantine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {reason}")]
pub struct Rejection {
    /// Kind of rejection.
    pub kind: RejectionKind,
    /// Location of the error.
    pub location: Location,
    /// The error and the expected content, for people who inspect the quarantine.
    pub reason: String,
}

/// Kind of rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionKind {
    /// The bytes do not have the format's syntax: malformed, not UTF-8, or truncated.
    Malformed,
    /// The syntax is valid but the content is not: incomplete, wrong, or not for this source.
    Unprocessable,
    /// The message exceeds a configurable limit.
    LimitExceeded(MessageLimit),
}

/// A location in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Line and column in text, both from 1. The column counts characters.
    Line {
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// JSON pointer (RFC 6901).
    Pointer(String),
    /// Header of the transport.
    Header(String),
    /// The whole message.
    Message,
}

/// Maximum number of characters of a message that a rejection quotes, because a name may be as long as the
/// message.
const MAX_CHARS: usize = 400;

impl Rejection {
    fn new(kind: RejectionKind, location: Location, reason: &str) -> Self {
        let location = match location {
            Location::Pointer(pointer) => Location::Pointer(quoted(&pointer)),
            Location::Header(name) => Location::Header(quoted(&name)),
            location => location,
        };
        Self { kind, location, reason: quoted(reason) }
    }

    /// Creates a rejection for invalid syntax.
    #[must_use]
    pub fn malformed(location: Location, reason: impl Into<String>) -> Self {
        Self::new(RejectionKind::Malformed, location, &Into::<String>::into(reason))
    }

    /// Creates a rejection for invalid content.
    #[must_use]
    pub fn unprocessable(location: Location, reason: impl Into<String>) -> Self {
        Self::new(RejectionKind::Unprocessable, location, &Into::<String>::into(reason))
    }

    /// Creates a rejection for a message above a limit.
    #[must_use]
    pub fn over_limit(limit: MessageLimit, location: Location, reason: impl Into<String>) -> Self {
        Self::new(RejectionKind::LimitExceeded(limit), location, &Into::<String>::into(reason))
    }
}

/// Shows a text, which may quote the message, in one line.
fn quoted(text: &str) -> String {
    line(text, MAX_CHARS).to_string()
}

impl Location {
    /// Returns the location of the byte at `offset` in `text`.
    #[must_use]
    pub fn in_text(text: &str, offset: usize) -> Self {
        let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
        let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
        let is_first_byte_of_char = |b: &&u8| **b & 0xC0 != 0x80;
        Self::Line {
            line: before.iter().filter(|b| **b == b'\n').count() + 1,
            column: before[line_start..].iter().filter(is_first_byte_of_char).count() + 1,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line, column } => write!(f, "line {line}, column {column}"),
            Self::Pointer(pointer) if pointer.is_empty() => f.write_str("the JSON document"),
            Self::Pointer(pointer) => f.write_str(pointer),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Message => f.write_str("the message"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Location, MAX_CHARS, Rejection};

    #[test]
    fn locations_count_lines_and_characters() {
        let text = "añb\ncd";
        assert_eq!(Location::in_text(text, 0), Location::Line { line: 1, column: 1 });
        assert_eq!(Location::in_text(text, 3), Location::Line { line: 1, column: 3 });
        assert_eq!(Location::in_text(text, 6), Location::Line { line: 2, column: 2 });
        assert_eq!(Location::in_text(text, 99), Location::Line { line: 2, column: 3 });
    }

    #[test]
    fn quoted_text_is_printable() {
        let rejection =
            Rejection::malformed(Location::Pointer("/a\u{1b}[2J".into()), "b\n".to_owned() + &"ñ".repeat(999));
        let Rejection { location, reason, .. } = rejection;
        assert_eq!(location.to_string(), "/a\\u{1b}[2J");
        assert_eq!(reason, format!("b\\n{}…", "ñ".repeat(MAX_CHARS - 2)));
        let whole = "ñ".repeat(MAX_CHARS);
        assert_eq!(Rejection::malformed(Location::Message, whole.clone()).reason, whole);
    }
}
