//! The quarantine: messages that no dialect could read, stored for inspection and replay.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{SourceName, Text, Timestamp};

/// Identifies a message in the quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuarantineId(pub u64);

impl fmt::Display for QuarantineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message to store in the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQuarantinedMessage {
    /// Name of the source that sent the message.
    pub source: SourceName,
    /// Time of receipt.
    pub received: Timestamp,
    /// Media type, as the sender declared it.
    pub content_type: Option<Text>,
    /// Headers that the dialect reads. Other headers are not stored, because they may be credentials.
    pub headers: Vec<(String, String)>,
    /// Body of the message.
    pub body: Bytes,
    /// Location of the error in the message.
    pub location: Text,
    /// Description of the error.
    pub reason: Text,
}

/// Size of the quarantine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarantineSize {
    /// Number of messages.
    pub messages: u64,
    /// Number of bytes of all bodies.
    pub bytes: u64,
}

/// Messages of one source in the quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineShare {
    /// Their size.
    pub size: QuarantineSize,
    /// Time of receipt of the newest one.
    pub newest: Timestamp,
}

/// Reason for which messages of a source are in the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineReason {
    /// Name of the source.
    pub source: SourceName,
    /// The reason.
    pub reason: Text,
    /// Number of messages.
    pub messages: u64,
}

/// A message in the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedMessage {
    /// Identifier of the message.
    pub id: QuarantineId,
    /// Size of the body, in bytes.
    pub size: u64,
    /// The message; in a listing its body is empty.
    pub message: NewQuarantinedMessage,
}
