//! The last attempts to deliver: `GET /subscriptions/{name}/attempts`.

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

/// The last attempts of a subscription.
#[derive(Serialize, ToSchema)]
#[schema(as = DeliveryAttempts)]
struct AttemptsView {
    /// Newest first.
    attempts: Vec<Attempt>,
}

problems!(AttemptsProblems: NotFound);

/// The last attempts of a webhook to deliver since the gateway started: 20 that did, 50 that did not.
///
/// # Errors
/// `not-found`.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}/attempts",
    operation_id = "listDeliveryAttempts",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "The subscription.")),
    responses((status = 200, description = "The last attempts; none of a delivery that has none to show.", body = AttemptsView), AttemptsProblems),
)]
pub async fn list(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    let attempts = all.attempts(&name).map_err(problem)?;
    Ok(Json(AttemptsView { attempts }).into_response())
}
