//! Patterns of URLs, for settings.

use regex_lite::Regex;
use serde::{Deserialize, Deserializer};

use super::deserialize_str::deserialize_str;

/// A regular expression that matches whole URLs.
#[derive(Clone, Debug)]
pub struct UrlPattern(Regex);

/// Error for a text that is not a regular expression.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{pattern:?} is not a regular expression: {reason}; write it as in https?://.*[.]pdf")]
pub struct InvalidUrlPattern {
    pattern: String,
    reason: String,
}

impl UrlPattern {
    /// Parses a regular expression, which must match a URL from its beginning to its end.
    ///
    /// # Errors
    /// Fails if the text is not a regular expression, or if it is too large.
    pub fn parse(pattern: &str) -> Result<Self, InvalidUrlPattern> {
        let invalid = |error: regex_lite::Error| InvalidUrlPattern {
            pattern: pattern.chars().take(200).collect(),
            reason: error.to_string(),
        };
        // The pattern alone first, because a parenthesis could otherwise end the group around it.
        Regex::new(pattern).map_err(invalid)?;
        Regex::new(&format!("^(?:{pattern})$")).map(Self).map_err(invalid)
    }

    /// Returns whether the pattern matches the whole URL.
    #[must_use]
    pub fn is_match(&self, url: &str) -> bool {
        self.0.is_match(url)
    }
}

impl<'de> Deserialize<'de> for UrlPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::UrlPattern;

    #[test]
    fn whole_urls_match() {
        let pattern = UrlPattern::parse("https?://h/.*[.]pdf|http://h/a").unwrap();
        for (url, expected) in [
            ("http://h/1/b.pdf", true),
            ("https://h/b.pdf", true),
            ("http://h/a", true),
            ("http://h/a/b", false),
            ("see http://h/b.pdf", false),
            ("http://h/b.pdf?x", false),
        ] {
            assert_eq!(pattern.is_match(url), expected, "{url}");
        }
        assert!(UrlPattern::parse("a)|(b").unwrap_err().to_string().contains("is not a regular expression"));
    }
}
