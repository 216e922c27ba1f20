//! Human-readable text that is valid in all formats.

use std::{borrow::Borrow, convert::Infallible, fmt, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize};

use super::deserialize_str::deserialize_str;
use crate::text::cleaned;

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
        Self(cleaned(raw, Self::MAX_CHARS))
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

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
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

impl From<&str> for Text {
    fn from(raw: &str) -> Self {
        Self::new(raw)
    }
}

impl From<String> for Text {
    fn from(raw: String) -> Self {
        Self::new(&raw)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
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
