//! Operations on one change of a subscription: `POST /subscriptions/{name}/send` and `POST /subscriptions/{name}/skip`.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::subscriptions::{self, json, problem};
use crate::{
    delivery::{DeliveryOutcome, SentChange, Subscriptions},
    model::{Seq, SubscriptionName},
    web::{Body, Client, Path, Problem, problems},
};

/// A change to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeToSend)]
struct ChangeToSend {
    /// Number of the change. Default: the newest one that the subscription delivers.
    #[serde(default)]
    #[schema(value_type = Seq, required = false)]
    change: Option<Seq>,
}

/// A change to skip.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeToSkip)]
struct ChangeToSkip {
    /// Number of the next change that the subscription delivers, such as `stuckAt`.
    change: Seq,
}

/// Answer of the receiver to one change.
#[derive(Serialize, ToSchema)]
#[schema(as = SentChange)]
struct SentView {
    /// Number of the change.
    change: Seq,
    /// What the answer means: `delivered`, `unroutable`, `retry`, `too-large`, `refused` or `gone`.
    outcome: &'static str,
    /// Cause of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
}

problems!(SendProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, InvalidSubscription, Unavailable);
problems!(SkipProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, InvalidSubscription, Unavailable);

/// Sends one change to the receiver of a subscription now, beside the running delivery, and returns the answer: a test of the
/// receiver, or a repetition of a change that it has lost. It has the identifier of the change, so a receiver that ignores
/// repetitions ignores it. The cursor does not move, and a refused change becomes no dead letter.
///
/// # Errors
/// `not-found` if the subscription or the change does not exist; `conflict` if the subscription does not deliver the change;
/// `bad-request`; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/send",
    operation_id = "sendChange",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    request_body(content = ChangeToSend, description = "The change; `{}` for the newest one."),
    responses((status = 200, description = "The answer of the receiver.", body = SentView), SendProblems),
)]
pub async fn send(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let ChangeToSend { change } = json(&body)?;
    let SentChange { seq, outcome } = all.send_one(&name, change).await.map_err(problem)?;
    let (outcome, reason) = match outcome {
        DeliveryOutcome::Delivered => ("delivered", None),
        DeliveryOutcome::Unroutable => ("unroutable", None),
        DeliveryOutcome::Retry { reason, .. } => ("retry", Some(reason)),
        DeliveryOutcome::TooLarge { reason } => ("too-large", Some(reason)),
        DeliveryOutcome::Refused { reason } => ("refused", Some(reason)),
        DeliveryOutcome::Gone { reason } => ("gone", Some(reason)),
    };
    Ok(Json(SentView { change: seq, outcome, reason }).into_response())
}

/// Skips the next change that a subscription delivers, because its receiver will never accept it. The change becomes a dead
/// letter, and the delivery continues after it.
///
/// # Errors
/// `not-found`; `conflict` if the change is not the next one; `bad-request`; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/skip",
    operation_id = "skipChange",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    request_body(content = ChangeToSkip, description = "The change."),
    responses(
        (status = 200, description = "The change is skipped.", body = subscriptions::SubscriptionView),
        SkipProblems,
    ),
)]
pub async fn skip(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    client: Client,
    Body(body): Body,
) -> Result<Response, Problem> {
    let ChangeToSkip { change } = json(&body)?;
    all.skip(&name, change, &client.to_string()).await.map_err(problem)?;
    subscriptions::respond(&all, &name, StatusCode::OK).await
}
