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
    web::{MayRead, Problem, ProblemCode, problems},
};

/// How the gateway is.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`; or `ready`; or `degraded`: readers and hooks are served, and a source is not read or a subscription fails.
    pub(super) status: &'static str,
    /// The number of the newest change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = false)]
    pub(super) head: Option<Seq>,
    /// The sources that have a connection, and what each is doing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(super) sources: Vec<SourceHealth>,
    /// The subscriptions that do not deliver, but for paused ones and those of WebSub subscribers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(super) subscriptions: Vec<SubscriptionHealth>,
}

impl Health {
    /// A status without details.
    fn of_status(status: &'static str) -> Self {
        Self { status, head: None, sources: Vec::new(), subscriptions: Vec::new() }
    }
}

/// How the connection of a source is.
#[derive(Serialize, ToSchema)]
pub(super) struct SourceHealth {
    /// The name of the source.
    pub(super) name: String,
    /// What its connection is doing.
    pub(super) state: ConnectionState,
}

/// State of a subscription that does not deliver.
#[derive(Serialize, ToSchema)]
pub(super) struct SubscriptionHealth {
    /// The name of the subscription.
    pub(super) name: SubscriptionName,
    /// What it is doing.
    pub(super) state: SubscriptionState,
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
    /// Checks whether the journal can be read and written, which sources are connected, and which subscriptions fail.
    ///
    /// # Errors
    /// `unavailable` when the gateway is not ready; the detail says why.
    pub(super) async fn check(&self) -> Result<Health, Problem> {
        let head = self.journal.head();
        self.journal.stored_head().await.map_err(failed)?;
        if !self.journal.accepts_commands() {
            let detail = "The journal's writer takes no orders: its queue is full, or the gateway is stopping.";
            return Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(std::time::Duration::from_secs(1)));
        }
        self.journal.check_writable().await.map_err(failed)?;
        let (sources, subscriptions) = (self.sources(), self.failing_subscriptions());
        let all_connected = sources.iter().all(|source| source.state == ConnectionState::Connected);
        let status = if all_connected && subscriptions.is_empty() { "ready" } else { "degraded" };
        Ok(Health { status, head: Some(head), sources, subscriptions })
    }

    fn sources(&self) -> Vec<SourceHealth> {
        let connected = self.sources.iter().filter_map(|(name, listed)| Some((name, listed.connection.as_ref()?)));
        connected.map(|(name, status)| SourceHealth { name: name.clone(), state: status.view().state }).collect()
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
    Json(Health::of_status("ok")).into_response()
}

/// The journal can be read, and a message of usual size can be written: after a write that failed the gateway is not ready
/// until a message or a probe is written. A source whose broker is away, or a subscription that fails, does not make the
/// gateway unready, since readers and hooks are served; the status is `degraded` then. Without a token that may read, the
/// answer is the status alone, unless there is no access control.
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
pub async fn ready(State(ready): State<Ready>, MayRead(may_read): MayRead) -> Result<Response, Problem> {
    match ready.check().await {
        Ok(health) if may_read => Ok(Json(health).into_response()),
        Ok(Health { status, .. }) => Ok(Json(Health::of_status(status)).into_response()),
        Err(problem) if may_read => Err(problem),
        Err(problem) => {
            Err(problem.with_detail("The gateway is not ready. Send a token that may read, and the answer says why."))
        }
    }
}
