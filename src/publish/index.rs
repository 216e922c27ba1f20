//! `publication.json`: what the copy contains, for its readers and for the next run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{Seq, Timestamp};

/// Name of the index.
pub(super) const NAME: &str = "publication.json";

/// The index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Index {
    /// Identity of the journal.
    pub(super) journal: Uuid,
    /// Number of the newest change that the copy goes up to. A reader continues after it at the gateway.
    pub(super) head: Seq,
    /// Time of the run.
    pub(super) published: Timestamp,
    /// The faces by their names.
    pub(super) faces: BTreeMap<String, FaceIndex>,
}

/// What the copy has of a face.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FaceIndex {
    /// Folder of the closed documents.
    pub(super) folder: String,
    /// Number of the first closed document.
    pub(super) first: u64,
    /// Number of the last closed document.
    pub(super) last: u64,
}
