//! `GET /healthz`: the process answers. `GET /readyz`: it can do its work.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::failed;
use crate::{
    journal::Journal,
    web::{Problem, ProblemCode},
};

/// The process answers.
pub async fn alive() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// The journal can be read, and its writer takes orders.
///
/// # Errors
/// `unavailable` when not; the detail says which.
pub async fn ready(State(journal): State<Journal>) -> Result<Response, Problem> {
    let head = journal.head();
    journal.stored_head().await.map_err(failed)?;
    if !journal.takes_orders() {
        let detail = "The journal's writer takes no orders: its queue is full, or the gateway is stopping.";
        return Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(std::time::Duration::from_secs(1)));
    }
    Ok(Json(json!({ "status": "ready", "head": head })).into_response())
}
