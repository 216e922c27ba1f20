//! `GET /healthz`: the process answers. `GET /readyz`: it can do its work.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{failed, sources::Sources};
use crate::{
    broker::ConnectionState,
    journal::Journal,
    model::Seq,
    web::{Problem, ProblemCode, problems},
};

/// How the gateway is.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`; or `ready`; or `degraded`: readers and hooks are served, and a source is not read.
    status: &'static str,
    /// The number of the newest change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = false)]
    head: Option<Seq>,
    /// The sources that have a connection, and what each is doing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    sources: Vec<SourceHealth>,
}

/// How the connection of a source is.
#[derive(Serialize, ToSchema)]
struct SourceHealth {
    /// The name of the source.
    name: String,
    /// What its connection is doing.
    state: ConnectionState,
}

/// What is asked whether the gateway can do its work.
#[derive(Clone)]
pub struct Ready {
    /// The journal.
    pub journal: Journal,
    /// The sources.
    pub sources: Sources,
}

impl Ready {
    fn sources(&self) -> Vec<SourceHealth> {
        let connected = self.sources.iter().filter_map(|(name, listed)| Some((name, listed.connection.as_ref()?)));
        connected.map(|(name, status)| SourceHealth { name: name.clone(), state: status.shown().state }).collect()
    }
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
    Json(Health { status: "ok", head: None, sources: Vec::new() }).into_response()
}

/// The journal can be read, and its writer takes orders. A source whose broker is away does not make the
/// gateway unready, since readers and hooks are served; the status is `degraded` then.
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
pub async fn ready(State(ready): State<Ready>) -> Result<Response, Problem> {
    let journal = &ready.journal;
    let head = journal.head();
    journal.stored_head().await.map_err(failed)?;
    if !journal.takes_orders() {
        let detail = "The journal's writer takes no orders: its queue is full, or the gateway is stopping.";
        return Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(std::time::Duration::from_secs(1)));
    }
    let sources = ready.sources();
    let all_well = sources.iter().all(|source| source.state == ConnectionState::Connected);
    let status = if all_well { "ready" } else { "degraded" };
    Ok(Json(Health { status, head: Some(head), sources }).into_response())
}
