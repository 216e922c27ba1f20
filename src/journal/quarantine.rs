//! What a source sent and no dialect could read: kept, shown, replayable, never lost.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{SourceName, Timestamp};

/// Identifies a message in the quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuarantineId(pub u64);

impl fmt::Display for QuarantineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many messages were dropped to make room for newer ones, since the program started.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Counts messages that were dropped to make room.
pub(in crate::journal) fn count_dropped(messages: u64) {
    if messages > 0 {
        tracing::warn!(messages, "the quarantine is full: its oldest messages were dropped");
        DROPPED.fetch_add(messages, Ordering::Relaxed);
    }
}

/// A message to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQuarantined {
    /// Who sent it.
    pub source: SourceName,
    /// When it was received.
    pub received: Timestamp,
    /// The media type that the sender gave.
    pub content_type: Option<String>,
    /// Those headers that its dialect reads; others may be credentials and are not kept.
    pub headers: Vec<(String, String)>,
    /// The bytes.
    pub body: Bytes,
    /// Where the trouble is.
    pub place: String,
    /// What the trouble is.
    pub reason: String,
}

/// A message that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Its identifier.
    pub id: QuarantineId,
    /// The size of its body in bytes.
    pub size: u64,
    /// The message; its body is empty in a listing.
    pub message: NewQuarantined,
}
