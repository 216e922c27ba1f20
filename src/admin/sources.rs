//! `GET /sources`: the sources and the outcomes of their messages.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, SubsecRound, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    broker::{ConnectionFailure, ConnectionStatus, ConnectionView},
    harvest::{Harvest, Harvests},
    intake::{EnrichmentStatus, Source},
    lookup::Health,
    model::SourceName,
    web::problems,
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

impl ConfiguredSource {
    fn harvested(harvest: &Harvest) -> Self {
        let (source, transport) = (Arc::clone(&harvest.source), harvest.transport);
        Self { source, transport, connection: None, warning: None, has_hook: false }
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
struct SourceView<'a> {
    /// Name of the source.
    name: &'a str,
    /// Transport of its messages.
    transport: &'static str,
    /// Dialect of its messages.
    dialect: &'static str,
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

problems!(Problems:);

/// All sources, with the state of their connection and the numbers of their messages by outcome since the gateway
/// started.
#[utoipa::path(
    get,
    path = "/sources",
    operation_id = "listSources",
    tag = "administration",
    responses((status = 200, description = "All sources.", body = SourcesView), Problems),
)]
pub async fn list(State(sources): State<Sources>) -> Response {
    let all = sources.all();
    let sources = all.iter().map(|(name, listed)| view(name, listed)).collect();
    Json(SourcesView { sources }).into_response()
}

impl LookupView {
    fn of(status: EnrichmentStatus) -> Self {
        let EnrichmentStatus { mode, url, waiting, incomplete, health } = status;
        let Health { circuit_open_for, last_error, .. } = health;
        Self {
            mode: mode.name(),
            repository: url,
            state: if circuit_open_for.is_some() { "circuit-open" } else { "asked" },
            waiting,
            incomplete,
            last_error: last_error.map(|(reason, at)| ConnectionFailure { reason, at: at.trunc_subsecs(3) }),
            next_attempt: circuit_open_for.map(|wait| (Utc::now() + wait).trunc_subsecs(3)),
        }
    }
}

fn view<'a>(name: &'a str, listed: &ConfiguredSource) -> SourceView<'a> {
    let counts = listed.source.counts();
    SourceView {
        name,
        transport: listed.transport,
        dialect: listed.source.kind().name,
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
