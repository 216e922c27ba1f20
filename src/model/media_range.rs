//! Media ranges: media types with a wildcard, for filters.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{MediaType, deserialize_str::deserialize_str};

/// A media type without parameters (`image/jpeg`), or all subtypes of a type (`image/*`), compared without regard
/// to case (RFC 6838 section 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MediaRange(String);

/// Error for a text that is not a media range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a media type; write it as in image/jpeg or image/*, without parameters")]
pub struct InvalidMediaRange(String);

impl MediaRange {
    /// Parses `type/subtype` or `type/*`.
    ///
    /// # Errors
    /// Fails if the text has another form.
    pub fn parse(raw: &str) -> Result<Self, InvalidMediaRange> {
        let invalid = || InvalidMediaRange(raw.chars().take(64).collect());
        // For the validation, `x` replaces the star.
        let whole = raw.strip_suffix("/*").map_or_else(|| raw.to_owned(), |kind| format!("{kind}/x"));
        let plain = !whole.contains([';', ' ']) && MediaType::parse(&whole).is_ok();
        if plain { Ok(Self(raw.to_ascii_lowercase())) } else { Err(invalid()) }
    }

    /// Returns whether the range contains the media type. Parameters are ignored.
    #[must_use]
    pub fn matches(&self, media_type: &MediaType) -> bool {
        let names = media_type.as_str().split(';').next().unwrap_or_default().trim_end();
        match self.0.strip_suffix('*') {
            Some(kind) => names.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)),
            None => names.eq_ignore_ascii_case(&self.0),
        }
    }

    /// Returns the range in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MediaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MediaRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::{MediaRange, MediaType};

    #[test]
    fn matches_the_media_types_of_the_range() {
        let matches = |range: &str, media_type: &str| {
            MediaRange::parse(range).unwrap().matches(&MediaType::parse(media_type).unwrap())
        };
        assert!(matches("image/*", "image/jpeg") && matches("IMAGE/*", "Image/JPEG"));
        assert!(matches("text/xml", "text/xml; charset=UTF-8") && matches("text/XML", "text/xml ;q=1"));
        assert!(!matches("image/*", "text/xml") && !matches("text/xml", "text/html") && !matches("im/*", "image/png"));
        for raw in ["", "*", "*/*", "image", "image/", "image/*;q=1", "text/xml; charset=UTF-8"] {
            assert!(MediaRange::parse(raw).is_err(), "{raw}");
        }
    }
}
