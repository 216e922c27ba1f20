//! `GET /healthz`: the process answers. `GET /readyz`: it can do its work.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::failed;
use crate::{
    journal::Journal,
    model::Seq,
    web::{Problem, ProblemCode, problems},
};

/// How the gateway is.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok` or `ready`.
    status: &'static str,
    /// The number of the newest change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = false)]
    head: Option<Seq>,
}

problems!(AliveProblems:);
problems!(ReadyProblems: Unavailable);

/// The process answers.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "isAlive",
    tag = "administration",
    responses((status = 200, description = "It answers.", body = Health), AliveProblems),
)]
pub async fn alive() -> Response {
    Json(Health { status: "ok", head: None }).into_response()
}

/// The journal can be read, and its writer takes orders.
///
/// # Errors
/// `unavailable` when not; the detail says which.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "isReady",
    tag = "administration",
    responses((status = 200, description = "It is ready.", body = Health), ReadyProblems),
)]
pub async fn ready(State(journal): State<Journal>) -> Result<Response, Problem> {
    let head = journal.head();
    journal.stored_head().await.map_err(failed)?;
    if !journal.takes_orders() {
        let detail = "The journal's writer takes no orders: its queue is full, or the gateway is stopping.";
        return Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(std::time::Duration::from_secs(1)));
    }
    Ok(Json(Health { status: "ready", head: Some(head) }).into_response())
}
