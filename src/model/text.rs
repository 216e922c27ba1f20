//! Human-readable text that is valid in all formats.

use std::{convert::Infallible, fmt};

use serde::{Deserialize, Deserializer, Serialize};

use super::deserialize_str::deserialize_str;

/// Text without the characters that XML 1.0 cannot carry (section 2.2, `Char`), without leading or
/// trailing white space, and at most [`Text::MAX_CHARS`] characters long.
///
/// Construction never fails and drops invalid characters instead, because a faulty description must not cause the
/// loss of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Maximum length of a text, in characters.
    pub const MAX_CHARS: usize = 4096;

    /// Returns `raw` without invalid characters, trimmed and truncated.
    #[must_use]
    pub fn new(raw: &str) -> Self {
        let raw = raw.trim();
        if raw.len() <= Self::MAX_CHARS && is_clean_ascii(raw) {
            return Self(raw.to_owned());
        }
        let cleaned: String = raw.chars().filter(|c| is_xml_char(*c)).take(Self::MAX_CHARS).collect();
        // After the removal of a character there can be white space at either end again.
        match cleaned.trim() {
            trimmed if trimmed.len() == cleaned.len() => Self(cleaned),
            trimmed => Self(trimmed.to_owned()),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, |raw| Ok::<_, Infallible>(Self::new(raw)))
    }
}

/// Returns whether all characters are ASCII and valid in XML. This is true for nearly all texts, and copying such a
/// text as a whole is faster than copying it by character.
fn is_clean_ascii(raw: &str) -> bool {
    raw.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r'))
}

/// Returns whether XML 1.0 allows the character in a document (section 2.2, production `Char`).
pub(super) fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}')
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn drops_characters_that_are_invalid_in_xml() {
        assert_eq!(Text::new("  a\u{0}b\u{1b}[0m\u{fffe} \u{7}").as_str(), "ab[0m");
        assert_eq!(Text::new(" a\u{0}b\tc\r\nd\u{1b} ").as_str(), "ab\tc\r\nd");
        assert_eq!(Text::new("\t a\tb\r\nc~ \n").as_str(), "a\tb\r\nc~");
    }

    #[test]
    fn length_is_bounded() {
        for one in ["é", "e"] {
            assert_eq!(Text::new(&one.repeat(5000)).as_str().chars().count(), Text::MAX_CHARS);
        }
    }
}
