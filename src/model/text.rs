//! Human-readable text that every format can carry.

use std::{convert::Infallible, fmt};

use serde::{Deserialize, Deserializer, Serialize};

use super::deserialize_str::deserialize_str;

/// Text without the characters that XML 1.0 cannot carry (section 2.2, `Char`), without leading or
/// trailing white space, and at most [`Text::MAX_CHARS`] characters long.
///
/// Making one never fails: what does not fit is left out, since a description is for people and
/// must not be a reason to lose an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// The longest text kept, in characters.
    pub const MAX_CHARS: usize = 4096;

    /// Keeps of `raw` what every format can carry.
    #[must_use]
    pub fn new(raw: &str) -> Self {
        let raw = raw.trim();
        if raw.len() <= Self::MAX_CHARS && is_clean_ascii(raw) {
            return Self(raw.to_owned());
        }
        let cleaned: String = raw.chars().filter(|c| is_xml_char(*c)).take(Self::MAX_CHARS).collect();
        // Dropping a character can bare white space at either end.
        match cleaned.trim() {
            trimmed if trimmed.len() == cleaned.len() => Self(cleaned),
            trimmed => Self(trimmed.to_owned()),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
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

/// Whether there are only characters of ASCII that XML can carry, as nearly always: to look at each character and to copy it by
/// itself takes longer than all at once.
fn is_clean_ascii(raw: &str) -> bool {
    raw.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r'))
}

/// Whether XML 1.0 allows the character in a document (section 2.2, production `Char`).
pub(super) fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}')
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn keeps_only_what_xml_can_carry() {
        assert_eq!(Text::new("  a\u{0}b\u{1b}[0m\u{fffe} \u{7}").as_str(), "ab[0m");
        assert_eq!(Text::new(" a\u{0}b\tc\r\nd\u{1b} ").as_str(), "ab\tc\r\nd");
        assert_eq!(Text::new("\t a\tb\r\nc~ \n").as_str(), "a\tb\r\nc~");
    }

    #[test]
    fn is_bounded() {
        for one in ["é", "e"] {
            assert_eq!(Text::new(&one.repeat(5000)).as_str().chars().count(), Text::MAX_CHARS);
        }
    }
}
