//! `GET /healthz`: the process responds. `GET /readyz`: the gateway is ready to work.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    journal_problem,
    sources::Sources,
    status::{self, ProblemView, Status, problem::StatusProblem},
};
use crate::{
    broker::ConnectionState,
    delivery::{SubscriptionState, Subscriptions},
    journal::{Journal, subscriptions::MadeBy},
    model::{Seq, SubscriptionName},
    web::{MayRead, Problem, ProblemCode, problems},
};

/// Health of the gateway.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`, `ready`, or `degraded`: readers and hooks are served, but a problem of the level `error` exists, for example a
    /// source that is not read.
    pub(super) status: &'static str,
    /// Number of the newest change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = false)]
    pub(super) head: Option<Seq>,
    /// Sources that have a connection, with its state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(super) sources: Vec<SourceHealth>,
    /// Subscriptions that do not deliver, except paused ones and those of WebSub subscribers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(super) subscriptions: Vec<SubscriptionHealth>,
    /// Problems of the gateway, the worst first. `GET /status` has more about each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(super) problems: Vec<ProblemView>,
}

impl Health {
    /// Creates a status without details.
    fn of_status(status: &'static str) -> Self {
        Self { status, head: None, sources: Vec::new(), subscriptions: Vec::new(), problems: Vec::new() }
    }
}

/// Health of a source's connection.
#[derive(Serialize, ToSchema)]
pub(super) struct SourceHealth {
    /// Name of the source.
    pub(super) name: String,
    /// State of its connection.
    pub(super) state: ConnectionState,
}

/// Health of a subscription that does not deliver.
#[derive(Serialize, ToSchema)]
pub(super) struct SubscriptionHealth {
    /// Name of the subscription.
    pub(super) name: SubscriptionName,
    /// State of the subscription.
    pub(super) state: SubscriptionState,
}

/// State of the readiness check.
#[derive(Clone)]
pub struct Readiness {
    /// The journal.
    pub journal: Journal,
    /// The sources.
    pub sources: Sources,
    /// The subscriptions.
    pub subscriptions: Subscriptions,
    /// The problems.
    pub status: Status,
}

impl Readiness {
    /// Checks that the journal can be read and written, and finds problems.
    ///
    /// # Errors
    /// `unavailable` if the gateway is not ready; the detail says why.
    pub(super) async fn check(&self) -> Result<Health, Problem> {
        let head = self.journal.head();
        self.journal.stored_head().await.map_err(journal_problem)?;
        if !self.journal.accepts_commands() {
            let detail = "The journal accepts no changes: its queue is full, or the gateway is stopping.";
            return Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(std::time::Duration::from_secs(1)));
        }
        self.journal.check_writable().await.map_err(journal_problem)?;
        let (sources, subscriptions) = (self.sources(), self.failing_subscriptions());
        let problems = self.status.problems().into_iter().map(StatusProblem::without_facts);
        let problems: Vec<_> = problems.map(ProblemView::from).collect();
        let status = status::state(&problems);
        Ok(Health { status, head: Some(head), sources, subscriptions, problems })
    }

    fn sources(&self) -> Vec<SourceHealth> {
        // A harvest has no connection.
        let configured = self.sources.configured.iter();
        let connected = configured.filter_map(|(name, listed)| Some((name, listed.connection.as_ref()?)));
        connected.map(|(name, status)| SourceHealth { name: name.clone(), state: status.view().state }).collect()
    }

    fn failing_subscriptions(&self) -> Vec<SubscriptionHealth> {
        let failing = self.subscriptions.health().into_iter();
        let failing = failing.filter(|health| health.is_failing && health.made_by != MadeBy::Hub);
        failing.map(|health| SubscriptionHealth { name: health.name, state: health.state }).collect()
    }
}

problems!(AliveProblems:);
problems!(ReadyProblems: Unavailable);

/// Reports that the process responds.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "isAlive",
    tag = "administration",
    responses((status = 200, description = "The process responds.", body = Health), AliveProblems),
)]
pub async fn alive() -> Response {
    Json(Health::of_status("ok")).into_response()
}

/// Reports whether the journal can be read and a message of usual size can be written. After a failed write, the
/// gateway is not ready until a message or a probe is written. A source that is not read or a subscription that fails
/// does not make the gateway unready, because readers and hooks are served; the status is then `degraded`. With access
/// control, the response contains details only for tokens with the scope `read`.
///
/// # Errors
/// `unavailable` if the gateway is not ready; the detail says why.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "isReady",
    tag = "administration",
    responses((status = 200, description = "The gateway is ready.", body = Health), ReadyProblems),
)]
pub async fn ready(State(readiness): State<Readiness>, MayRead(may_read): MayRead) -> Result<Response, Problem> {
    match readiness.check().await {
        Ok(health) if may_read => Ok(Json(health).into_response()),
        Ok(Health { status, .. }) => Ok(Json(Health::of_status(status)).into_response()),
        Err(problem) if may_read => Err(problem),
        Err(problem) => {
            Err(problem.with_detail("The gateway is not ready. Send a token with the scope read to see the reason."))
        }
    }
}
