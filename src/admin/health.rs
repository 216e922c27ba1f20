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
    delivery::{State as SubscriptionState, Subscriptions},
    journal::Journal,
    model::{Seq, SubscriptionName},
    web::{Problem, ProblemCode, problems},
};

/// How the gateway is.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`; or `ready`; or `degraded`: readers and hooks are served, and a source is not read or a subscription fails.
    status: &'static str,
    /// The number of the newest change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = false)]
    head: Option<Seq>,
    /// The sources that have a connection, and what each is doing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    sources: Vec<SourceHealth>,
    /// The subscriptions that do not deliver, but for paused ones and those of WebSub subscribers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    subscriptions: Vec<SubscriptionHealth>,
}

/// How the connection of a source is.
#[derive(Serialize, ToSchema)]
struct SourceHealth {
    /// The name of the source.
    name: String,
    /// What its connection is doing.
    state: ConnectionState,
}

/// State of a subscription that does not deliver.
#[derive(Serialize, ToSchema)]
struct SubscriptionHealth {
    /// The name of the subscription.
    name: SubscriptionName,
    /// What it is doing.
    state: SubscriptionState,
}

/// What is asked whether the gateway can do its work.
#[derive(Clone)]
pub struct Ready {
    /// The journal.
    pub journal: Journal,
    /// The sources.
    pub sources: Sources,
    /// The subscriptions.
    pub subscriptions: Subscriptions,
}

impl Ready {
    fn sources(&self) -> Vec<SourceHealth> {
        let connected = self.sources.iter().filter_map(|(name, listed)| Some((name, listed.connection.as_ref()?)));
        connected.map(|(name, status)| SourceHealth { name: name.clone(), state: status.shown().state }).collect()
    }

    fn failing_subscriptions(&self) -> Vec<SubscriptionHealth> {
        let failing = self.subscriptions.failing().into_iter();
        failing.map(|(name, state)| SubscriptionHealth { name, state }).collect()
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
    Json(Health { status: "ok", head: None, sources: Vec::new(), subscriptions: Vec::new() }).into_response()
}

/// The journal can be read, and a message of usual size can be written: after a write that failed the gateway is not ready
/// until a message or a probe is written. A source whose broker is away, or a subscription that fails, does not make the
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
    journal.check_writable().await.map_err(failed)?;
    let (sources, subscriptions) = (ready.sources(), ready.failing_subscriptions());
    let all_well = subscriptions.is_empty() && sources.iter().all(|source| source.state == ConnectionState::Connected);
    let status = if all_well { "ready" } else { "degraded" };
    Ok(Json(Health { status, head: Some(head), sources, subscriptions }).into_response())
}
