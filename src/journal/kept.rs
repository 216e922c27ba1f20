//! Where the content of an item is, as the registry keeps it: in JSON, which is not read until somebody wants to know.
//!
//! From the change that told it to the row of its item, and back. Most events tell another place: what is known of the item
//! is read from its row, and the place in it replaced unread. To read it each time took a fourteenth of the time of the thread that settles.

use std::sync::Arc;

use super::{store::StoreError, write_json};
use crate::model::ContentLocation;

/// Room for the JSON of most places, in bytes.
const USUAL_JSON: usize = 256;

/// The place of an item's content, unread. Clones share it.
#[derive(Clone, Debug)]
pub struct KeptContent(Arc<str>);

impl KeptContent {
    /// Takes over what is kept, which was written by [`KeptContent::json`].
    pub(super) fn from_json(json: &str) -> Self {
        Self(json.into())
    }

    /// Its JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    /// The place.
    ///
    /// # Errors
    /// When what is kept is no place: the journal is damaged.
    pub fn read(&self) -> Result<ContentLocation, StoreError> {
        serde_json::from_str(&self.0).map_err(|error| StoreError::Damaged(format!("the place of a content: {error}")))
    }
}

impl From<&ContentLocation> for KeptContent {
    #[expect(clippy::expect_used, reason = "JSON is UTF-8")]
    fn from(content: &ContentLocation) -> Self {
        let mut json = Vec::with_capacity(USUAL_JSON);
        write_json(&mut json, content);
        Self(std::str::from_utf8(&json).expect("JSON is UTF-8").into())
    }
}

/// Two are the same when they say the same, in whatever JSON. What cannot be read says nothing.
impl PartialEq for KeptContent {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.read().ok().is_some_and(|content| other.read().is_ok_and(|other| content == other))
    }
}

impl Eq for KeptContent {}

/// As if it were read.
impl PartialEq<ContentLocation> for KeptContent {
    fn eq(&self, other: &ContentLocation) -> bool {
        self.read().is_ok_and(|content| content == *other)
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentLocation, KeptContent, StoreError};
    use crate::model::Uri;

    #[test]
    fn it_is_what_it_says_and_not_how_it_is_written() {
        let content =
            ContentLocation { size: Some(5), ..ContentLocation::at(Uri::parse("http://h/1?asOf=1").unwrap()) };
        let kept = KeptContent::from(&content);
        assert_eq!(kept.json(), r#"{"url":"http://h/1?asOf=1","size":5}"#);
        assert_eq!(kept.read().unwrap(), content);
        assert!(kept == content);
        let otherwise = KeptContent::from_json(r#"{ "size": 5, "url": "http:\/\/h/1?asOf=1" }"#);
        assert!(otherwise == kept && otherwise == content);
        let another = KeptContent::from_json(r#"{"url":"http://h/1?asOf=1","size":6}"#);
        assert!(another != kept && another != content);
    }

    #[test]
    fn what_is_damaged_is_told_when_it_is_read_and_is_nothing_else() {
        let damaged = KeptContent::from_json(r#"{"url":"http://h/1"#);
        assert!(matches!(damaged.read(), Err(StoreError::Damaged(_))));
        assert!(damaged != ContentLocation::at(Uri::parse("http://h/1").unwrap()));
        assert!(damaged != KeptContent::from_json(r#"{"url":"http://h/1"}"#));
    }
}
