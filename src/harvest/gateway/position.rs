//! Position in the journal of another gateway: everything that the next page needs.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{Seq, Uri};

/// Position of a harvest, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Position {
    /// Before the first page of the snapshot.
    #[default]
    Beginning,
    /// Within the snapshot.
    Snapshot {
        /// Facts of the first page.
        start: SnapshotStart,
        /// The last object that has been read.
        after: Uri,
    },
    /// After the snapshot.
    Changes {
        /// Identity of the journal that the number belongs to.
        journal: Uuid,
        /// Number of the last change that has been read.
        after: Seq,
        /// Number of the last change that the snapshot may contain.
        repeated: Seq,
    },
}

/// Facts of the first page of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotStart {
    /// Identity of the journal.
    pub(super) journal: Uuid,
    /// Newest change that the snapshot contains for sure.
    pub(super) head: Seq,
    /// Number of objects that crawls had added without a change.
    pub(super) seeds: u64,
}

impl Position {
    /// Parses a position. One that this version cannot parse begins the harvest again, which repeats no change.
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the position as text.
    pub(super) fn text(&self) -> String {
        // Serialization cannot fail: every value has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}
