//! State of the harvest of a folder between two pages.

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

/// Position of the harvest, stored as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Position {
    /// The present list; absent between two runs and while missing files are looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) listing: Option<Listing>,
    /// The search for missing files, after the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sweep: Option<Sweep>,
    /// The newest complete list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) listed: Option<List>,
}

/// A list that is being read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Listing {
    /// The list.
    #[serde(flatten)]
    pub(super) list: List,
    /// Path of the last file, in the form of URLs; empty before the first one.
    pub(super) after: String,
    /// Whether a folder could not be read, so that files that are not listed may exist.
    pub(super) is_short: bool,
}

/// A list of all files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct List {
    /// Start of the list.
    pub(super) began: Timestamp,
    /// Number of its files.
    pub(super) files: u64,
    /// Size and time of the archive; empty for a folder.
    pub(super) archive: String,
    /// Whether the files that it lacks have been deleted.
    pub(super) is_swept: bool,
}

/// A search for missing files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sweep {
    /// URL of the last missing file that was examined; empty before the first one.
    pub(super) after: String,
}

impl Position {
    /// Parses a stored position. A position of another kind of harvest counts as none, so that all files are listed.
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the position as the journal stores it.
    pub(super) fn text(&self) -> String {
        // Serialization fails only for maps without text keys, and the type has none.
        serde_json::to_string(self).unwrap_or_default()
    }
}
