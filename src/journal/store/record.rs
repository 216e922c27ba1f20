//! Records of changes and quarantined messages, as a store writes and returns them.

use bytes::Bytes;

use super::EventKey;
use crate::{
    journal::quarantine::QuarantineId,
    model::{Change, MissingFacts, Seq},
};

/// Result of an insertion into the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineReceipt {
    /// Identifiers of the messages, in their order.
    pub ids: Vec<QuarantineId>,
    /// Number of older messages that were dropped because of the limits.
    pub dropped: u64,
}

/// A change to write.
#[derive(Debug)]
pub struct NewChange {
    /// The change.
    pub change: Change,
    /// JSON of the change.
    pub json: Bytes,
    /// JSON of the [`VisibilityNotes`](crate::model::VisibilityNotes), if there are any.
    pub visibility: Option<Bytes>,
    /// Key of the event; `None` if repeats of the event cannot be detected.
    pub key: Option<EventKey>,
    /// Facts to look up again, if the repository did not answer completely.
    pub incomplete: Option<MissingFacts>,
}

/// A change whose lookup must be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteChange {
    /// Number of the change.
    pub seq: Seq,
    /// Facts to look up.
    pub missing: MissingFacts,
    /// JSON of the change. The row contains it, because retention may have removed the change itself.
    pub json: Bytes,
}

/// A change as the store returns it, with unparsed JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChange {
    /// Number of the change.
    pub seq: Seq,
    /// JSON of the change.
    pub json: Bytes,
    /// JSON of the [`VisibilityNotes`](crate::model::VisibilityNotes), if there are any.
    pub visibility: Option<Bytes>,
}
