//! The sources: `GET /sources` and `GET /sources/{name}` show them, and `POST …/pause`, `…/resume` and `…/reconnect` control
//! those that read a broker.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, atomic::Ordering},
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
    journal::{Journal, sources::SourceRecord},
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
    /// Times of the events of sources, as of the last [`Sources::refresh`].
    records: Arc<RwLock<BTreeMap<SourceName, SourceRecord>>>,
}

impl Sources {
    /// Creates the sources, without the times of their events.
    #[must_use]
    pub fn new(configured: BTreeMap<String, ConfiguredSource>, harvests: Harvests) -> Self {
        Self { configured: Arc::new(configured), harvests, records: Arc::default() }
    }

    /// Reads the times of the events of all sources from the journal. If that fails, the former ones stay.
    pub async fn refresh(&self, journal: &Journal) {
        // The journal notes a failure as its outage.
        if let Ok(records) = journal.sources().await {
            let records = records.into_iter().map(|record| (record.source.clone(), record)).collect();
            *self.records.write().unwrap_or_else(PoisonError::into_inner) = records;
        }
    }

    /// Returns the times of the events of all sources that have made a change, by name.
    pub(super) fn records(&self) -> RwLockReadGuard<'_, BTreeMap<SourceName, SourceRecord>> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

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

    fn respond(&self, name: &SourceName) -> Result<Response, Problem> {
        let listed = self.get(name).ok_or_else(|| no_source(name))?;
        Ok(Json(view(name.as_str(), &listed, &self.records())).into_response())
    }
}

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
    /// Time of the last message that made a change, from the journal, as of a few seconds ago.
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

problems!(ListProblems:);
problems!(OneProblems: NotFound);
problems!(ControlProblems: NotFound, Conflict, Unavailable);

/// All sources, with the state of their connection, the time of their last change, and the numbers of their messages by
/// outcome since the gateway started.
#[utoipa::path(
    get,
    path = "/sources",
    operation_id = "listSources",
    tag = "administration",
    responses((status = 200, description = "All sources.", body = SourcesView), ListProblems),
)]
pub async fn list(State(sources): State<Sources>) -> Response {
    let (all, records) = (sources.all(), sources.records());
    let sources = all.iter().map(|(name, listed)| view(name, listed, &records)).collect();
    Json(SourcesView { sources }).into_response()
}

/// One source.
///
/// # Errors
/// `not-found`.
#[utoipa::path(
    get,
    path = "/sources/{name}",
    operation_id = "getSource",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The source.", body = SourceView), OneProblems),
)]
pub async fn one(State(sources): State<Sources>, Path(name): Path<SourceName>) -> Result<Response, Problem> {
    sources.respond(&name)
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
    sources.respond(&name)
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
    sources.respond(&name)
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
    sources.respond(&name)
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

fn view<'a>(
    name: &'a str,
    listed: &'a ConfiguredSource,
    records: &BTreeMap<SourceName, SourceRecord>,
) -> SourceView<'a> {
    let counts = listed.source.counts();
    SourceView {
        name,
        transport: listed.transport,
        dialect: listed.source.kind().name,
        destination: listed.destination.as_deref(),
        last_event: records.get(listed.source.name()).map(|record| record.last_event),
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
