//! What became of a message, and what its sender is told of that.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    journal::DraftOutcome,
    model::{ChangeId, Seq},
};

/// What became of a message that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What became of each change that it told, in order; empty when it told of none.
    pub outcomes: Vec<DraftOutcome>,
    /// Why it told of none.
    pub nothing: Option<&'static str>,
}

/// Why a message that told of something made no change.
const NOTHING_NEW: &str = "what it tells is what the registry holds: content and state stand as they were";

/// A change that the journal has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its number.
    pub seq: Seq,
    /// Its identifier.
    pub id: ChangeId,
}

/// What became of a message, as its sender is told it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Told {
    /// `accepted`, `duplicate` or `unchanged`.
    outcome: &'static str,
    /// Why nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<&'static str>,
    /// What became of each change that it told, in order.
    changes: Vec<ToldChange>,
}

/// What became of one change that a message told.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ToldChange {
    /// `accepted`, `duplicate` or `unchanged`.
    outcome: &'static str,
    /// Its identifier, where there is such a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ChangeId)]
    id: Option<ChangeId>,
    /// Its number, where there is such a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq)]
    seq: Option<Seq>,
}

impl Receipt {
    /// The changes that are new.
    pub fn accepted(&self) -> impl Iterator<Item = Accepted> {
        self.outcomes.iter().filter_map(|outcome| match *outcome {
            DraftOutcome::Accepted { seq, id } => Some(Accepted { seq, id }),
            DraftOutcome::Duplicate { .. } | DraftOutcome::Unchanged | DraftOutcome::TooManyItems => None,
        })
    }

    /// The outcome of the whole message: `accepted` when any change is new, else `duplicate` when
    /// any was there already, else `unchanged`.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        let words: Vec<_> = self.outcomes.iter().map(outcome_word).collect();
        ["accepted", "duplicate"].into_iter().find(|word| words.contains(word)).unwrap_or("unchanged")
    }

    /// What the sender is told: the outcome, why nothing changed, and each change's own outcome,
    /// identifier and number.
    #[must_use]
    pub fn told(&self) -> Told {
        let told = |outcome: &DraftOutcome| {
            let (id, seq) = match *outcome {
                DraftOutcome::Accepted { seq, id } => (Some(id), Some(seq)),
                DraftOutcome::Duplicate { seq, id } => (id, Some(seq)),
                DraftOutcome::Unchanged | DraftOutcome::TooManyItems => (None, None),
            };
            ToldChange { outcome: outcome_word(outcome), id, seq }
        };
        let outcome = self.outcome();
        let reason = self.nothing.or((outcome == "unchanged").then_some(NOTHING_NEW));
        Told { outcome, reason, changes: self.outcomes.iter().map(told).collect() }
    }
}

fn outcome_word(outcome: &DraftOutcome) -> &'static str {
    match outcome {
        DraftOutcome::Accepted { .. } => "accepted",
        DraftOutcome::Duplicate { .. } => "duplicate",
        // A message with too many items goes to the quarantine and has no receipt.
        DraftOutcome::Unchanged | DraftOutcome::TooManyItems => "unchanged",
    }
}
