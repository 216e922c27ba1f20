//! Receipts: the outcome of each message, and the response to its sender.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    journal::DraftOutcome,
    model::{ChangeId, Seq},
};

named_values! {
    /// Outcome of a message, or of one of its drafts. The order is that of the news: the outcome of a message is the first
    /// of those of its drafts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Outcome {
        /// It made a change.
        Accepted = "accepted",
        /// The journal had its change already.
        Duplicate = "duplicate",
        /// It changed nothing.
        Unchanged = "unchanged",
        /// The message could not be parsed, or exceeds a limit, and is in the quarantine.
        Quarantined = "quarantined",
    }
}

/// Outcomes of the drafts of a message that was parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Outcomes of the drafts in order; empty if the message contained none.
    pub outcomes: Vec<DraftOutcome>,
    /// Reason why the message contained no drafts.
    pub empty_reason: Option<&'static str>,
}

/// Reason in the response to a message whose drafts changed nothing.
const NOTHING_NEW: &str = "the registry already has this content and state";

/// A change that the journal has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedChange {
    /// Number of the change.
    pub seq: Seq,
    /// Identifier of the change.
    pub id: ChangeId,
}

/// The outcome of a message.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct IngestResponse {
    /// `accepted`, `duplicate` or `unchanged`.
    outcome: &'static str,
    /// The reason why nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<&'static str>,
    /// The outcome of each reported change, in order.
    changes: Vec<ChangeReceipt>,
}

/// The outcome of one reported change.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ChangeReceipt {
    /// `accepted`, `duplicate` or `unchanged`.
    outcome: &'static str,
    /// The identifier of the change, if the journal has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ChangeId)]
    id: Option<ChangeId>,
    /// The number of the change, if the journal has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq)]
    seq: Option<Seq>,
}

impl Receipt {
    /// Returns the new changes.
    pub fn accepted(&self) -> impl Iterator<Item = AcceptedChange> {
        self.outcomes.iter().filter_map(|outcome| match *outcome {
            DraftOutcome::Accepted { seq, id } => Some(AcceptedChange { seq, id }),
            DraftOutcome::Duplicate { .. }
            | DraftOutcome::Unchanged
            | DraftOutcome::TooManyItems
            | DraftOutcome::Refused
            | DraftOutcome::OtherObject { .. } => None,
        })
    }

    /// Returns the outcome of the whole message: accepted if any change is new, else duplicate if the journal already had
    /// any of them, else unchanged.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcomes.iter().map(Outcome::of).min().unwrap_or(Outcome::Unchanged)
    }

    /// Builds the response to the sender: the outcome, the reason why nothing changed, and the outcome,
    /// identifier and number of each change.
    #[must_use]
    pub fn to_response(&self) -> IngestResponse {
        let receipt = |outcome: &DraftOutcome| {
            let (id, seq) = match *outcome {
                DraftOutcome::Accepted { seq, id } => (Some(id), Some(seq)),
                DraftOutcome::Duplicate { seq, id } => (id, Some(seq)),
                DraftOutcome::Unchanged
                | DraftOutcome::TooManyItems
                | DraftOutcome::Refused
                | DraftOutcome::OtherObject { .. } => (None, None),
            };
            ChangeReceipt { outcome: Outcome::of(outcome).name(), id, seq }
        };
        let (outcome, reason) = (self.outcome().name(), self.reason());
        IngestResponse { outcome, reason, changes: self.outcomes.iter().map(receipt).collect() }
    }

    /// Returns the reason why nothing changed, if nothing did.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.empty_reason.or((self.outcome() == Outcome::Unchanged).then_some(NOTHING_NEW))
    }
}

impl Outcome {
    fn of(outcome: &DraftOutcome) -> Self {
        match outcome {
            DraftOutcome::Accepted { .. } => Self::Accepted,
            DraftOutcome::Duplicate { .. } => Self::Duplicate,
            DraftOutcome::Unchanged => Self::Unchanged,
            DraftOutcome::TooManyItems | DraftOutcome::Refused | DraftOutcome::OtherObject { .. } => Self::Quarantined,
        }
    }
}
