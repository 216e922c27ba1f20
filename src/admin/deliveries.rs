//! `GET /changes/{id}/deliveries`: which subscriptions were notified of a change, and when.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    flow::{Flow, Passage},
    journal_problem,
    subscriptions::problem,
};
use crate::{
    delivery::{ChangeProgress, SKIPPED_BY, Subscriptions},
    journal::subscriptions::{DeadLetterId, DeadLetterNote, MadeBy},
    model::{ChangeId, Seq, SubscriptionName, Text, Timestamp},
    view::changes::Changes,
    web::{Path, Problem, problems},
};

/// State of this surface.
#[derive(Clone)]
pub struct Deliveries {
    /// The journal.
    pub changes: Changes,
    /// The subscriptions.
    pub subscriptions: Subscriptions,
    /// The flow, whose record says when cursors moved.
    pub flow: Flow,
}

/// The deliveries of a change.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangeDeliveries)]
struct DeliveriesView {
    /// Number of the change.
    seq: Seq,
    /// Identifier of the change.
    id: ChangeId,
    /// One element for each subscription, ordered by name.
    deliveries: Vec<DeliveryView>,
}

/// Delivery of a change by one subscription.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChangeDelivery)]
struct DeliveryView {
    /// Name of the subscription.
    name: SubscriptionName,
    /// Origin of the definition: `config`, `api` or `hub`.
    #[schema(value_type = String)]
    from: MadeBy,
    /// Whether the filter of the subscription selects the change, and its format has a message for it, by the present
    /// definition; `null` without a working definition.
    #[schema(required = true)]
    selected: Option<bool>,
    /// Outcome of the delivery.
    outcome: Outcome,
    /// Time at which the receiver accepted the change, refused it for the last time, or somebody skipped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    at: Option<Timestamp>,
    /// Times between which the cursor has passed the change, if `at` is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    between: Option<Between>,
    /// Identifier of the dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, nullable = false)]
    dead_letter: Option<DeadLetterId>,
    /// Reason of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    reason: Option<Text>,
}

/// Two times between which something happened.
#[derive(Serialize, ToSchema)]
#[schema(as = Between)]
struct Between {
    /// The last time at which it is known not to have happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    after: Option<Timestamp>,
    /// The first time at which it is known to have happened.
    before: Timestamp,
}

/// Outcome of the delivery of a change, as far as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = ChangeDeliveryOutcome)]
enum Outcome {
    /// The receiver has accepted the change.
    Delivered,
    /// The cursor is behind the change, and this node did not see how: the change was delivered before the gateway started
    /// or by another node, or the subscription began after it, or the cursor was moved, or no queue received it.
    Passed,
    /// The change is not delivered yet.
    Waiting,
    /// The receiver has refused the change.
    DeadLetter,
    /// Somebody has skipped the change.
    Skipped,
    /// The subscription does not deliver the change.
    NotSelected,
}

problems!(Problems: NotFound, Gone, Unavailable, DamagedChange);

/// Which subscriptions were notified of a change, and when.
///
/// # Errors
/// `not-found`; `gone` if the number is that of a change that has been removed; `damaged-change`; `unavailable` if the
/// journal cannot be read.
#[utoipa::path(
    get,
    path = "/changes/{id}/deliveries",
    operation_id = "listChangeDeliveries",
    tag = "administration",
    params(
        ("id" = String, Path, description = "Identifier of the change (a UUID, or `urn:uuid:` and a UUID) or its number."),
    ),
    responses((status = 200, description = "The deliveries.", body = DeliveriesView), Problems),
)]
pub async fn list(State(deliveries): State<Deliveries>, Path(name): Path<String>) -> Result<Response, Problem> {
    let Deliveries { changes, subscriptions, flow } = deliveries;
    let change = changes.find(&name).await?;
    let seq = change.seq();
    let id = change.id().map_err(|error| journal_problem(error.into()))?;
    subscriptions.refresh().await.map_err(problem)?;
    let all = subscriptions.change_progress(&change).await.map_err(journal_problem)?;
    // After the cursors, because a refused change is a dead letter before the cursor passes it.
    let letters = changes.journal.dead_letters_of(seq).await.map_err(journal_problem)?;
    let mut letters: BTreeMap<_, _> = letters.into_iter().map(|letter| (letter.subscription.clone(), letter)).collect();
    let delivery = |progress: ChangeProgress| {
        let (letter, passage) = (letters.remove(&progress.name), flow.passage(&progress.name, seq));
        view(progress, letter, passage)
    };
    let deliveries = all.into_iter().map(delivery).collect();
    Ok(Json(DeliveriesView { seq, id, deliveries }).into_response())
}

fn view(progress: ChangeProgress, letter: Option<DeadLetterNote>, passage: Option<Passage>) -> DeliveryView {
    let ChangeProgress { name, made_by: from, is_selected: selected, is_passed, is_handled_here, accepted } = progress;
    let without_letter = DeliveryView {
        name,
        from,
        selected,
        outcome: Outcome::Waiting,
        at: None,
        between: None,
        dead_letter: None,
        reason: None,
    };
    let (passed, at) = match accepted {
        Some(_) => (Outcome::Delivered, accepted),
        None if is_handled_here => (Outcome::Delivered, None),
        None => (Outcome::Passed, None),
    };
    match (letter, selected) {
        (Some(DeadLetterNote { id, refused, reason, .. }), _) => {
            let is_skipped = reason.as_str().starts_with(SKIPPED_BY);
            let outcome = if is_skipped { Outcome::Skipped } else { Outcome::DeadLetter };
            DeliveryView { outcome, at: Some(refused), dead_letter: Some(id), reason: Some(reason), ..without_letter }
        }
        (None, Some(false)) if accepted.is_none() => DeliveryView { outcome: Outcome::NotSelected, ..without_letter },
        _ if accepted.is_some() || is_passed => {
            let between = passage.filter(|_| at.is_none()).map(|Passage { after, before }| Between { after, before });
            DeliveryView { outcome: passed, at, between, ..without_letter }
        }
        _ => without_letter,
    }
}
