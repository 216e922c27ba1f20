//! What a source sent and no dialect could read: kept, shown, replayable, never lost.

use std::fmt;

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

/// A message to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQuarantinedMessage {
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
    pub location: String,
    /// What the trouble is.
    pub reason: String,
}

/// How much the quarantine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarantineSize {
    /// How many messages.
    pub messages: u64,
    /// How many bytes of bodies.
    pub bytes: u64,
}

/// A message that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedMessage {
    /// Its identifier.
    pub id: QuarantineId,
    /// The size of its body in bytes.
    pub size: u64,
    /// The message; its body is empty in a listing.
    pub message: NewQuarantinedMessage,
}
