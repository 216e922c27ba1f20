//! The quarantine: messages that no dialect could read, stored for inspection and replay.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

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

/// Messages that the quarantine has deleted to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuarantineLoss {
    /// Number of deleted messages.
    pub(super) messages: u64,
    /// Number of messages that the quarantine had after the last deletion.
    pub(super) left: u64,
}

/// The messages that the quarantine has deleted since it is full, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct QuarantineLosses(Mutex<Option<QuarantineLoss>>);

impl QuarantineLosses {
    /// Adds deleted messages.
    pub(super) fn add(&self, messages: u64, left: u64) {
        let mut loss = self.lock();
        let before = loss.map_or(0, |loss| loss.messages);
        *loss = Some(QuarantineLoss { messages: before.saturating_add(messages), left });
    }

    /// Returns the loss, if there is one.
    pub(super) fn get(&self) -> Option<QuarantineLoss> {
        *self.lock()
    }

    /// Ends a loss, unless messages were deleted after the caller had got it.
    pub(super) fn end(&self, loss: QuarantineLoss) {
        let mut present = self.lock();
        *present = present.filter(|present| *present != loss);
    }

    fn lock(&self) -> MutexGuard<'_, Option<QuarantineLoss>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

#[cfg(test)]
mod tests {
    use super::{QuarantineLoss, QuarantineLosses};

    #[test]
    fn losses_add_up_until_they_end() {
        let losses = QuarantineLosses::default();
        assert_eq!(losses.get(), None);
        losses.add(2, 10);
        let known = losses.get().unwrap();
        losses.add(1, 9);
        losses.end(known);
        assert_eq!(losses.get(), Some(QuarantineLoss { messages: 3, left: 9 }), "a later deletion is not forgotten");
        losses.end(losses.get().unwrap());
        assert_eq!(losses.get(), None);
    }
}
