//! Why a message could not be read, and where in it.

use std::fmt;

use super::Bound;

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
    /// It is larger in some respect than this gateway takes; the limit can be raised.
    PastBound(Bound),
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

/// How much of a stranger's text a rejection repeats, in characters: a name in a message may be as
/// long as the message.
const LONGEST: usize = 400;

impl Rejection {
    fn new(kind: RejectionKind, place: Place, reason: String) -> Self {
        let place = match place {
            Place::Pointer(pointer) => Place::Pointer(printable(pointer)),
            Place::Header(name) => Place::Header(printable(name)),
            place => place,
        };
        Self { kind, place, reason: printable(reason) }
    }

    /// The bytes are not of the format at all.
    #[must_use]
    pub fn malformed(place: Place, reason: impl Into<String>) -> Self {
        Self::new(RejectionKind::Malformed, place, reason.into())
    }

    /// The format is right and what it says is not.
    #[must_use]
    pub fn unprocessable(place: Place, reason: impl Into<String>) -> Self {
        Self::new(RejectionKind::Unprocessable, place, reason.into())
    }

    /// It is larger than a bound.
    #[must_use]
    pub fn past(bound: Bound, place: Place, reason: impl Into<String>) -> Self {
        Self::new(RejectionKind::PastBound(bound), place, reason.into())
    }
}

/// Text that a terminal and a log can show: without control characters, and not too long.
fn printable(text: String) -> String {
    let is_long = text.len() > LONGEST && text.chars().nth(LONGEST).is_some();
    if !is_long && !text.contains(char::is_control) {
        return text;
    }
    let shown = text.chars().take(LONGEST).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    shown.chain(is_long.then_some('…')).collect()
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
    use super::{LONGEST, Place, Rejection};

    #[test]
    fn places_count_lines_and_characters() {
        let text = "añb\ncd";
        assert_eq!(Place::in_text(text, 0), Place::Line { line: 1, column: 1 });
        assert_eq!(Place::in_text(text, 3), Place::Line { line: 1, column: 3 });
        assert_eq!(Place::in_text(text, 6), Place::Line { line: 2, column: 2 });
        assert_eq!(Place::in_text(text, 99), Place::Line { line: 2, column: 3 });
    }

    #[test]
    fn what_is_repeated_of_a_message_can_be_shown() {
        let rejection = Rejection::malformed(Place::Pointer("/a\u{1b}[2J".into()), "b\n".to_owned() + &"ñ".repeat(999));
        let Rejection { place, reason, .. } = rejection;
        assert_eq!(place.to_string(), "/a\u{FFFD}[2J");
        assert_eq!(reason, format!("b\u{FFFD}{}…", "ñ".repeat(LONGEST - 2)));
        let whole = "ñ".repeat(LONGEST);
        assert_eq!(Rejection::malformed(Place::Message, whole.clone()).reason, whole);
    }
}
