//! What became of the messages, counted.

use std::fmt;

use super::post::Outcome;

/// How many messages ended how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    accepted: usize,
    duplicate: usize,
    unchanged: usize,
    refused: usize,
    failed: usize,
}

impl Tally {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Accepted => &mut self.accepted,
            Outcome::Duplicate => &mut self.duplicate,
            Outcome::Unchanged => &mut self.unchanged,
            Outcome::Refused(_) => &mut self.refused,
            Outcome::Failed(_) | Outcome::NoHook(_) => &mut self.failed,
        };
        *counter += 1;
    }

    /// How many were posted, or tried to be.
    pub(super) fn posted(&self) -> usize {
        self.accepted + self.duplicate + self.unchanged + self.refused + self.failed
    }

    /// Whether none was refused and none failed.
    pub(super) fn all_well(&self) -> bool {
        self.refused == 0 && self.failed == 0
    }
}

/// The summary, which scripts may read.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accepted, duplicate, unchanged, refused, failed } = self;
        let posted = self.posted();
        write!(
            f,
            "posted {posted}: {accepted} accepted, {duplicate} duplicate, {unchanged} unchanged, {refused} refused, {failed} failed"
        )
    }
}
