//! Recent delivery attempts: `GET /subscriptions/{name}/attempts`.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::subscriptions::problem;
use crate::{
    delivery::{Attempt, Subscriptions},
    model::SubscriptionName,
    web::{Path, Problem, problems},
};

/// Recent delivery attempts of a subscription.
#[derive(Serialize, ToSchema)]
#[schema(as = DeliveryAttempts)]
struct AttemptsView {
    /// The attempts, newest first.
    attempts: Vec<Attempt>,
}

problems!(AttemptsProblems: NotFound);

/// Recent delivery attempts of a webhook since the gateway started: the last 20 successful and the last 50 failed
/// ones.
///
/// # Errors
/// `not-found`.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}/attempts",
    operation_id = "listDeliveryAttempts",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    responses((status = 200, description = "The attempts; empty for other kinds of delivery.", body = AttemptsView), AttemptsProblems),
)]
pub async fn list(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    let attempts = all.attempts(&name).map_err(problem)?;
    Ok(Json(AttemptsView { attempts }).into_response())
}
