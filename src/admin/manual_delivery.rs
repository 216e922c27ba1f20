//! Deliveries that an administrator asks for: `POST /subscriptions/{name}/send`, `…/skip` and `…/replay`.

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
    delivery::{DeliveryOutcome, RepeatedChanges, SentChange, StartPosition, Subscriptions},
    model::{Filter, Seq, SubscriptionName, Uri},
    web::{Body, Client, Path, Problem, ProblemCode, problems},
};

/// A change to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeToSend)]
struct ChangeToSend {
    /// Number of the change. Default: the newest one that the subscription delivers.
    #[serde(default)]
    #[schema(value_type = Option<Seq>, required = false)]
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

/// Changes to send again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangesToReplay)]
struct ChangesToReplay {
    /// The first change: `"beginning"`, a number or a time.
    from: StartPosition,
    /// Number of the last change. Default: the newest one.
    #[serde(default)]
    #[schema(value_type = Option<Seq>, required = false)]
    to: Option<Seq>,
    /// Conditions on the changes, besides those of the subscription.
    #[serde(default)]
    #[schema(required = false)]
    filter: Filter,
    /// Objects of the changes, at most 1000. Default: all.
    #[serde(default)]
    #[schema(required = false, max_items = 1000)]
    objects: Vec<Uri>,
}

/// Maximum number of objects whose changes are sent again.
const MAX_OBJECTS: usize = 1000;

/// Number of changes that are sent again.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayedChanges)]
struct ReplayView {
    /// The number.
    changes: u64,
}

/// Answer of the receiver to one change.
#[derive(Serialize, ToSchema)]
#[schema(as = SentChange)]
struct SentView {
    /// Number of the change.
    change: Seq,
    /// Meaning of the answer: `delivered`, `unroutable`, `retry`, `too-large`, `refused` or `gone`.
    outcome: &'static str,
    /// Cause of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
}

problems!(SendProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, InvalidSubscription, Unavailable);
problems!(ReplayProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, InvalidSubscription, Unavailable);
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

/// Sends a part of the journal again, in order, beside the running delivery: the changes of a range that the subscription
/// selects. Each is a message of its own with the header `tidings-repeat`, where the delivery has headers. Until it is
/// accepted, it is among the dead letters with `attempts` 0; the limit of dead letters applies. The cursor does not move.
///
/// # Errors
/// `not-found`; `conflict` if there are too many changes; `invalid-subscription` if the range is invalid; `bad-request`;
/// `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/replay",
    operation_id = "replayChanges",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    request_body(content = ChangesToReplay, description = "The changes."),
    responses((status = 202, description = "The changes wait to be sent.", body = ReplayView), ReplayProblems),
)]
pub async fn replay(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    client: Client,
    Body(body): Body,
) -> Result<Response, Problem> {
    let ChangesToReplay { from, to, filter, objects } = json(&body)?;
    if objects.len() > MAX_OBJECTS {
        let detail = format!("There are {} objects; give at most {MAX_OBJECTS} in one request.", objects.len());
        return Err(Problem::new(ProblemCode::InvalidSubscription, detail));
    }
    let changes = RepeatedChanges { from, through: to, filter, objects };
    let changes = all.replay_range(&name, changes, &client.to_string()).await.map_err(problem)?;
    Ok((StatusCode::ACCEPTED, Json(ReplayView { changes })).into_response())
}
