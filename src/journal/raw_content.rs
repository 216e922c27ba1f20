//! The location of an item's content as unparsed JSON.
//!
//! The location moves from a change to the registry row of its item and back. Most events replace the location, so
//! the old one is never parsed; parsing it for each event took 7 % of the time of the settling thread.

use std::sync::Arc;

use super::{store::StoreError, write_json};
use crate::model::ContentLocation;

/// Initial capacity for the JSON of a location, in bytes: enough for most.
const TYPICAL_JSON_BYTES: usize = 256;

/// JSON of a [`ContentLocation`], parsed on demand. Clones share the text.
#[derive(Clone, Debug)]
pub struct RawContentLocation(Arc<str>);

impl RawContentLocation {
    /// Wraps JSON that [`RawContentLocation::json`] returned earlier.
    pub(super) fn from_json(json: &str) -> Self {
        Self(json.into())
    }

    /// Returns the JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    /// Parses the JSON.
    ///
    /// # Errors
    /// Fails if the JSON is not a content location: the journal is damaged.
    pub fn parse(&self) -> Result<ContentLocation, StoreError> {
        serde_json::from_str(&self.0)
            .map_err(|error| StoreError::Damaged(format!("cannot parse a content location: {error}")))
    }
}

impl From<&ContentLocation> for RawContentLocation {
    #[expect(clippy::expect_used, reason = "JSON is UTF-8")]
    fn from(content: &ContentLocation) -> Self {
        let mut json = Vec::with_capacity(TYPICAL_JSON_BYTES);
        write_json(&mut json, content);
        Self(std::str::from_utf8(&json).expect("JSON is UTF-8").into())
    }
}

/// Compares the parsed locations unless the texts are equal. A text that cannot be parsed equals only itself.
impl PartialEq for RawContentLocation {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.parse().ok().is_some_and(|content| other.parse().is_ok_and(|other| content == other))
    }
}

impl Eq for RawContentLocation {}

/// Compares the parsed location.
impl PartialEq<ContentLocation> for RawContentLocation {
    fn eq(&self, other: &ContentLocation) -> bool {
        self.parse().is_ok_and(|content| content == *other)
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentLocation, RawContentLocation, StoreError};
    use crate::model::Uri;

    #[test]
    fn comparison_ignores_the_spelling_of_the_json() {
        let content =
            ContentLocation { size: Some(5), ..ContentLocation::at(Uri::parse("http://h/1?asOf=1").unwrap()) };
        let raw = RawContentLocation::from(&content);
        assert_eq!(raw.json(), r#"{"url":"http://h/1?asOf=1","size":5}"#);
        assert_eq!(raw.parse().unwrap(), content);
        assert!(raw == content);
        let spelt_otherwise = RawContentLocation::from_json(r#"{ "size": 5, "url": "http:\/\/h/1?asOf=1" }"#);
        assert!(spelt_otherwise == raw && spelt_otherwise == content);
        let different = RawContentLocation::from_json(r#"{"url":"http://h/1?asOf=1","size":6}"#);
        assert!(different != raw && different != content);
    }

    #[test]
    fn damaged_json_is_reported_when_parsed_and_equals_nothing_else() {
        let damaged = RawContentLocation::from_json(r#"{"url":"http://h/1"#);
        assert!(matches!(damaged.parse(), Err(StoreError::Damaged(_))));
        assert!(damaged != ContentLocation::at(Uri::parse("http://h/1").unwrap()));
        assert!(damaged != RawContentLocation::from_json(r#"{"url":"http://h/1"}"#));
    }
}
