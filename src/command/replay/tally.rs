//! Counts of the outcomes.

use std::fmt;

use super::post::PostOutcome;

/// Number of messages for each outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    accepted: usize,
    duplicate: usize,
    unchanged: usize,
    refused: usize,
    failed: usize,
}

impl Tally {
    pub(super) fn count(&mut self, outcome: &PostOutcome) {
        let counter = match outcome {
            PostOutcome::Accepted => &mut self.accepted,
            PostOutcome::Duplicate => &mut self.duplicate,
            PostOutcome::Unchanged => &mut self.unchanged,
            PostOutcome::Refused(_) => &mut self.refused,
            PostOutcome::Failed(_) | PostOutcome::HookUnusable(_) => &mut self.failed,
        };
        *counter += 1;
    }

    /// Returns the number of messages that were posted, successfully or not.
    pub(super) fn posted(&self) -> usize {
        self.accepted + self.duplicate + self.unchanged + self.refused + self.failed
    }

    /// Returns whether no message was refused and none failed.
    pub(super) fn all_accepted(&self) -> bool {
        self.refused == 0 && self.failed == 0
    }
}

/// The summary line, which scripts may parse.
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
