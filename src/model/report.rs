//! Reports of sources: messages that a change passes on as a whole, for formats that write the same messages.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::value::RawValue;

/// Message of a source about work on an object. Most changes have none, because their own members say everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Report {
    /// Request for work.
    Request(JsonDocument),
    /// Result of work. The journal keeps the newest one of each object.
    Result(JsonDocument),
}

impl Report {
    /// Returns the message.
    #[must_use]
    pub fn document(&self) -> &JsonDocument {
        match self {
            Self::Request(document) | Self::Result(document) => document,
        }
    }

    /// Returns the message if it is a result.
    #[must_use]
    pub fn result(&self) -> Option<&JsonDocument> {
        match self {
            Self::Result(document) => Some(document),
            Self::Request(_) => None,
        }
    }
}

/// JSON on one line. Clones share the text.
#[derive(Clone)]
pub struct JsonDocument(Arc<RawValue>);

impl JsonDocument {
    /// Writes a value as JSON.
    ///
    /// # Errors
    /// Fails for a value that JSON cannot represent.
    pub fn new(value: &impl Serialize) -> serde_json::Result<Self> {
        let text = serde_json::to_string(value)?;
        Ok(Self(RawValue::from_string(without_nul(text))?.into()))
    }

    /// Returns the JSON.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

/// Replaces U+0000, which no text of PostgreSQL can have, by U+FFFD.
fn without_nul(text: String) -> String {
    const NUL: &str = "\\u0000";
    if !text.contains(NUL) {
        return text;
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        result.push_str(before);
        if let Some(after) = escape.strip_prefix(NUL) {
            result.push('\u{FFFD}');
            rest = after;
        } else {
            // A backslash and the character that it escapes, which may be another backslash.
            let (pair, after) = escape.split_at(2.min(escape.len()));
            result.push_str(pair);
            rest = after;
        }
    }
    result + rest
}

impl PartialEq for JsonDocument {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonDocument {}

impl fmt::Debug for JsonDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for JsonDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Removes line breaks and U+0000, because a change is one line of a stream, and text of PostgreSQL.
impl<'de> Deserialize<'de> for JsonDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if !text.get().contains(['\n', '\r']) && !text.get().contains("\\u0000") {
            return Ok(Self(text.into()));
        }
        let value: serde_json::Value = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Self::new(&value).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonDocument, Report};

    #[test]
    fn document_has_no_nul() {
        let document = JsonDocument::new(&["a\0b", "\\u0000", "\\\0"]).unwrap();
        let read: Vec<String> = serde_json::from_str(document.as_str()).unwrap();
        assert_eq!(read, ["a\u{FFFD}b", "\\u0000", "\\\u{FFFD}"]);
    }

    #[test]
    fn report_is_one_line_and_says_its_kind() {
        let text = "{\"result\":{\"hit\":true,\n  \"status\":\"success\"}}";
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&report).unwrap(), r#"{"result":{"hit":true,"status":"success"}}"#);
        assert!(report.result().is_some());
        let request = Report::Request(JsonDocument::new(&["a"]).unwrap());
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"request":["a"]}"#);
        assert!(request.result().is_none());
    }
}
