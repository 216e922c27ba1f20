//! Which media types a reader wants.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{MediaType, deserialize_str::deserialize_str};

/// A media type without parameters, as in `image/jpeg`, or all of a type, as in `image/*`. Letters
/// count alike in either case (RFC 6838 section 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MediaRange(String);

/// Why a text is not a range of media types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a media type; write it as in image/jpeg or image/*, without parameters")]
pub struct InvalidMediaRange(String);

impl MediaRange {
    /// Takes `type/subtype` or `type/*`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(raw: &str) -> Result<Self, InvalidMediaRange> {
        let invalid = || InvalidMediaRange(raw.chars().take(64).collect());
        // Any subtype stands for the star while the rest is looked at.
        let whole = raw.strip_suffix("/*").map_or_else(|| raw.to_owned(), |kind| format!("{kind}/x"));
        let plain = !whole.contains([';', ' ']) && MediaType::parse(&whole).is_ok();
        if plain { Ok(Self(raw.to_ascii_lowercase())) } else { Err(invalid()) }
    }

    /// Whether the media type, whatever its parameters, is of this range.
    #[must_use]
    pub fn takes(&self, media_type: &MediaType) -> bool {
        let names = media_type.as_str().split(';').next().unwrap_or_default().trim_end();
        match self.0.strip_suffix('*') {
            Some(kind) => names.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)),
            None => names.eq_ignore_ascii_case(&self.0),
        }
    }

    /// The range, in small letters.
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
    fn takes_what_is_of_the_range() {
        let takes = |range: &str, media_type: &str| {
            MediaRange::parse(range).unwrap().takes(&MediaType::parse(media_type).unwrap())
        };
        assert!(takes("image/*", "image/jpeg") && takes("IMAGE/*", "Image/JPEG"));
        assert!(takes("text/xml", "text/xml; charset=UTF-8") && takes("text/XML", "text/xml ;q=1"));
        assert!(!takes("image/*", "text/xml") && !takes("text/xml", "text/html") && !takes("im/*", "image/png"));
        for raw in ["", "*", "*/*", "image", "image/", "image/*;q=1", "text/xml; charset=UTF-8"] {
            assert!(MediaRange::parse(raw).is_err(), "{raw}");
        }
    }
}
