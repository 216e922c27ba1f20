//! Why a message could not be read, and where in it.

use std::fmt;

/// A message that a dialect could not read: it goes to the quarantine with this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct Rejection {
    /// What sort of refusal it is.
    pub kind: RejectionKind,
    /// Where the trouble is.
    pub place: Place,
    /// What the trouble is and what was expected, for the person who reads the quarantine.
    pub reason: String,
}

/// What sort of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionKind {
    /// The bytes are not of the format at all: not well-formed, not UTF-8, cut short.
    Malformed,
    /// The format is right and what it says is not: something is missing, wrong, or not meant for us.
    Unprocessable,
}

/// A place in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In text: line and column, both from 1; the column counts characters.
    Line {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// In JSON: a pointer (RFC 6901).
    Pointer(String),
    /// In a header of the transport.
    Header(String),
    /// The message as a whole.
    Message,
}

impl Rejection {
    /// The bytes are not of the format at all.
    #[must_use]
    pub fn malformed(place: Place, reason: impl Into<String>) -> Self {
        Self { kind: RejectionKind::Malformed, place, reason: reason.into() }
    }

    /// The format is right and what it says is not.
    #[must_use]
    pub fn unprocessable(place: Place, reason: impl Into<String>) -> Self {
        Self { kind: RejectionKind::Unprocessable, place, reason: reason.into() }
    }
}

impl Place {
    /// Where byte `offset` of `text` is.
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

impl fmt::Display for Place {
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
    use super::Place;

    #[test]
    fn places_count_lines_and_characters() {
        let text = "añb\ncd";
        assert_eq!(Place::in_text(text, 0), Place::Line { line: 1, column: 1 });
        assert_eq!(Place::in_text(text, 3), Place::Line { line: 1, column: 3 });
        assert_eq!(Place::in_text(text, 6), Place::Line { line: 2, column: 2 });
        assert_eq!(Place::in_text(text, 99), Place::Line { line: 2, column: 3 });
    }
}
