//! Progress of one change at each subscription, as far as this node knows.

use std::sync::Arc;

use super::Subscriptions;
use crate::{
    delivery::{AttemptLog, AttemptOutcome, Definition, StatusSnapshot, engine::select},
    journal::{JournalError, RecordedChange, subscriptions::MadeBy},
    model::{Seq, SubscriptionName, Timestamp},
};

/// Progress of a change at one subscription.
#[derive(Clone, Debug)]
pub struct ChangeProgress {
    /// Name of the subscription.
    pub name: SubscriptionName,
    /// Origin of its definition.
    pub made_by: MadeBy,
    /// Whether its filter selects the change and its format has a message for it; `None` without a working definition.
    pub is_selected: Option<bool>,
    /// Whether the cursor has passed the change.
    pub is_passed: bool,
    /// Whether the engine of this node has handled the change, with the present definition, since it started.
    pub is_handled_here: bool,
    /// Time at which the receiver accepted the change, if an attempt says so.
    pub accepted: Option<Timestamp>,
}

/// A subscription, and the facts that need no look at the change.
struct Candidate {
    definition: Option<Arc<Definition>>,
    progress: ChangeProgress,
}

impl Subscriptions {
    /// Returns the progress of a change at each subscription, sorted by name.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or the change is damaged.
    pub async fn change_progress(&self, change: &Arc<RecordedChange>) -> Result<Vec<ChangeProgress>, JournalError> {
        let seq = change.seq();
        let candidates: Vec<_> = self
            .0
            .entries()
            .iter()
            .map(|(name, entry)| {
                let StatusSnapshot { cursor, handled_after, unroutable, .. } = entry.status.snapshot();
                let progress = ChangeProgress {
                    name: name.clone(),
                    made_by: entry.made_by,
                    is_selected: None,
                    is_passed: cursor >= seq,
                    // Of messages that no queue received, only the number is known.
                    is_handled_here: handled_after < seq && seq <= cursor && unroutable == 0,
                    accepted: accepted(&entry.attempts, seq),
                };
                Candidate { definition: entry.definition.clone(), progress }
            })
            .collect();
        let change = Arc::clone(change);
        // A change can be large, and there can be a thousand filters.
        let select_all = move |_: &_| {
            let mut all = Vec::with_capacity(candidates.len());
            for Candidate { definition, progress } in candidates {
                let selected = definition.map(|definition| select(&change, &definition.filter, definition.format));
                let is_selected = selected.transpose()?.map(|selected| selected.is_some());
                all.push(ChangeProgress { is_selected, ..progress });
            }
            Ok(all)
        };
        self.0.journal.query_in_a_row(select_all).await
    }
}

/// Returns when the receiver accepted a change. A message of several changes says so only of its first one.
fn accepted(attempts: &AttemptLog, seq: Seq) -> Option<Timestamp> {
    let attempts = attempts.list();
    let accepted = attempts.iter().find(|one| one.seq == seq && one.outcome == AttemptOutcome::Delivered)?;
    let millis = i64::try_from(accepted.millis).unwrap_or(0);
    Timestamp::from_millis(accepted.at.millis().saturating_add(millis))
}
