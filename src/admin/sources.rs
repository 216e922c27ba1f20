//! The sources: `GET /sources` and `GET /sources/{name}` show them, and `POST …/pause`, `…/resume` and `…/reconnect` control
//! those that read a broker.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, SubsecRound, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::journal_problem;
use crate::{
    broker::{ConnectionFailure, ConnectionStatus, ConnectionView},
    cluster::source_control::SourceControl,
    harvest::{Harvest, Harvests},
    intake::{EnrichmentStatus, Source},
    journal::Journal,
    lookup::Health,
    model::{SourceName, Timestamp},
    web::{Path, Problem, ProblemCode, problems},
};

/// Source with its transport.
#[derive(Clone)]
pub struct ConfiguredSource {
    /// The source.
    pub source: Arc<Source>,
    /// Name of its transport.
    pub transport: &'static str,
    /// State of its connection to a broker, if it has one.
    pub connection: Option<Arc<ConnectionStatus>>,
    /// Control of its reader, if it reads a broker.
    pub control: Option<Arc<SourceControl>>,
    /// Place that messages are read from, without credentials; `None` for a hook and for a harvest.
    pub destination: Option<String>,
    /// Configured time without a change after which the source is silent.
    pub silent_after: Option<Duration>,
    /// Warning about its settings, if they may lose messages or secrets.
    pub warning: Option<&'static str>,
    /// Whether senders post messages to `/hooks/NAME`.
    pub has_hook: bool,
}

/// All sources: those of the configuration, and those of harvests that were made over HTTP.
#[derive(Clone)]
pub struct Sources {
    /// The sources of the configuration, by name.
    pub configured: Arc<BTreeMap<String, ConfiguredSource>>,
    /// The harvests.
    pub harvests: Harvests,
    /// The journal.
    pub journal: Journal,
}

impl Sources {
    /// Returns the source with this name.
    #[must_use]
    pub fn get(&self, name: &SourceName) -> Option<ConfiguredSource> {
        let configured = self.configured.get(name.as_str()).cloned();
        configured.or_else(|| self.harvests.get(name).map(|harvest| ConfiguredSource::harvested(&harvest)))
    }

    /// Returns all sources, by name.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, ConfiguredSource> {
        let mut all = (*self.configured).clone();
        for harvest in self.harvests.list() {
            let harvested = || ConfiguredSource::harvested(&harvest);
            all.entry(harvest.source.name().to_string()).or_insert_with(harvested);
        }
        all
    }
}

impl Sources {
    /// Returns the times of the last events that made changes.
    async fn last_events(&self) -> Result<LastEvents, Problem> {
        let records = self.journal.sources().await.map_err(journal_problem)?;
        Ok(records.into_iter().map(|record| (record.source, record.last_event)).collect())
    }

    /// Returns the control of a source that reads a broker.
    fn control(&self, name: &SourceName) -> Result<Arc<SourceControl>, Problem> {
        let listed = self.get(name).ok_or_else(|| no_source(name))?;
        listed.control.ok_or_else(|| {
            let advice = match listed.has_hook {
                true => "senders post its messages; stop them there",
                false => "it is a harvest; use /harvests/NAME",
            };
            Problem::new(ProblemCode::Conflict, format!("The source {name} reads no broker: {advice}."))
        })
    }

    async fn respond(&self, name: &SourceName) -> Result<Response, Problem> {
        let (listed, last_events) = (self.get(name).ok_or_else(|| no_source(name))?, self.last_events().await?);
        Ok(Json(view(name.as_str(), &listed, &last_events)).into_response())
    }
}

/// Times of the last events that made changes, by source.
type LastEvents = BTreeMap<SourceName, Timestamp>;

fn no_source(name: &SourceName) -> Problem {
    Problem::new(ProblemCode::NotFound, format!("There is no source {name}. GET /sources lists all."))
}

impl ConfiguredSource {
    fn harvested(harvest: &Harvest) -> Self {
        let (source, transport) = (Arc::clone(&harvest.source), harvest.transport);
        let (connection, control, destination) = (None, None, None);
        let (silent_after, warning, has_hook) = (None, None, false);
        Self { source, transport, connection, control, destination, silent_after, warning, has_hook }
    }
}

/// All sources.
#[derive(Serialize, ToSchema)]
#[schema(as = Sources)]
struct SourcesView<'a> {
    /// The sources, ordered by name.
    sources: Vec<SourceView<'a>>,
}

/// A configured origin of events.
#[derive(Serialize, ToSchema)]
#[schema(as = Source)]
#[serde(rename_all = "camelCase")]
struct SourceView<'a> {
    /// Name of the source.
    name: &'a str,
    /// Transport of its messages.
    transport: &'static str,
    /// Dialect of its messages.
    dialect: &'static str,
    /// Place that its messages are read from; absent for a hook and for a harvest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    destination: Option<&'a str>,
    /// Time of the last message that made a change, from the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_event: Option<Timestamp>,
    /// Messages per second over the last ten seconds, on this node.
    rate: f64,
    /// State of its connection to a broker; absent for a hook and for a harvest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    connection: Option<ConnectionView>,
    /// State of lookups in its repository; absent without lookups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lookup: Option<LookupView>,
    /// Numbers of messages by outcome.
    messages: MessagesView,
}

/// The repository in which incomplete messages of a source are looked up.
#[derive(Serialize, ToSchema)]
#[schema(as = Lookup)]
#[serde(rename_all = "camelCase")]
struct LookupView {
    /// Policy if the repository does not respond: `best-effort` or `required`.
    mode: &'static str,
    /// URL of the repository.
    repository: String,
    /// `asked`, or `circuit-open`: after five consecutive failures, no requests are sent until the next attempt.
    state: &'static str,
    /// Number of events that wait for a failed lookup.
    waiting: u64,
    /// Approximate number of incomplete changes in the journal that are looked up again.
    incomplete: u64,
    /// Last error since the gateway started, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_error: Option<ConnectionFailure>,
    /// Time of the next attempt, while the circuit is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    next_attempt: Option<DateTime<Utc>>,
}

/// Numbers of messages since the gateway started, by outcome.
#[derive(Serialize, ToSchema)]
#[schema(as = Messages)]
struct MessagesView {
    /// Messages with at least one new change.
    accepted: u64,
    /// Messages that were already in the journal.
    duplicate: u64,
    /// Messages that changed nothing.
    unchanged: u64,
    /// Messages that no dialect could parse.
    quarantined: u64,
}

problems!(ListProblems: Unavailable);
problems!(OneProblems: NotFound, Unavailable);
problems!(ControlProblems: NotFound, Conflict, Unavailable);

/// All sources, with the state of their connection, the time of their last change, and the numbers of their messages by
/// outcome since the gateway started.
///
/// # Errors
/// `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/sources",
    operation_id = "listSources",
    tag = "administration",
    responses((status = 200, description = "All sources.", body = SourcesView), ListProblems),
)]
pub async fn list(State(sources): State<Sources>) -> Result<Response, Problem> {
    let (all, last_events) = (sources.all(), sources.last_events().await?);
    let sources = all.iter().map(|(name, listed)| view(name, listed, &last_events)).collect();
    Ok(Json(SourcesView { sources }).into_response())
}

/// One source.
///
/// # Errors
/// `not-found`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/sources/{name}",
    operation_id = "getSource",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The source.", body = SourceView), OneProblems),
)]
pub async fn one(State(sources): State<Sources>, Path(name): Path<SourceName>) -> Result<Response, Problem> {
    sources.respond(&name).await
}

/// Pauses a source that reads a broker, until it is resumed; also a restart does not resume it. Messages that were already
/// read are written and acknowledged; all others stay with the broker.
///
/// # Errors
/// `not-found`; `conflict` if the source reads no broker; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/sources/{name}/pause",
    operation_id = "pauseSource",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The source is paused.", body = SourceView), ControlProblems),
)]
pub async fn pause(State(sources): State<Sources>, Path(name): Path<SourceName>) -> Result<Response, Problem> {
    sources.control(&name)?.pause().await.map_err(journal_problem)?;
    sources.respond(&name).await
}

/// Resumes a source.
///
/// # Errors
/// As for a pause.
#[utoipa::path(
    post,
    path = "/sources/{name}/resume",
    operation_id = "resumeSource",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The source is resumed.", body = SourceView), ControlProblems),
)]
pub async fn resume(State(sources): State<Sources>, Path(name): Path<SourceName>) -> Result<Response, Problem> {
    sources.control(&name)?.resume().await.map_err(journal_problem)?;
    sources.respond(&name).await
}

/// Closes the connection of a source to its broker, if there is one, and connects again without a wait. A paused source stays
/// paused.
///
/// # Errors
/// As for a pause.
#[utoipa::path(
    post,
    path = "/sources/{name}/reconnect",
    operation_id = "reconnectSource",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The source connects again.", body = SourceView), ControlProblems),
)]
pub async fn reconnect(State(sources): State<Sources>, Path(name): Path<SourceName>) -> Result<Response, Problem> {
    sources.control(&name)?.reconnect().await.map_err(journal_problem)?;
    sources.respond(&name).await
}

impl LookupView {
    fn of(status: EnrichmentStatus) -> Self {
        let state = status.state();
        let EnrichmentStatus { mode, url, waiting, incomplete, health } = status;
        let Health { circuit_open_for, last_error, .. } = health;
        Self {
            mode: mode.name(),
            repository: url,
            state,
            waiting,
            incomplete,
            last_error: last_error.map(|(reason, at)| ConnectionFailure { reason, at: at.trunc_subsecs(3) }),
            next_attempt: circuit_open_for.map(|wait| (Utc::now() + wait).trunc_subsecs(3)),
        }
    }
}

fn view<'a>(name: &'a str, listed: &'a ConfiguredSource, last_events: &LastEvents) -> SourceView<'a> {
    let counts = listed.source.counts();
    SourceView {
        name,
        transport: listed.transport,
        dialect: listed.source.kind().name,
        destination: listed.destination.as_deref(),
        last_event: last_events.get(listed.source.name()).copied(),
        rate: listed.source.rate(),
        connection: listed.connection.as_ref().map(|connection| connection.view()),
        lookup: listed.source.enrichment_status().map(LookupView::of),
        messages: MessagesView {
            accepted: counts.accepted.load(Ordering::Relaxed),
            duplicate: counts.duplicate.load(Ordering::Relaxed),
            unchanged: counts.unchanged.load(Ordering::Relaxed),
            quarantined: counts.quarantined.load(Ordering::Relaxed),
        },
    }
}
