//! `GET /sources`: where events come from, and what has become of their messages.

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
    intake::{EnrichmentStatus, Source},
    lookup::Health,
    web::problems,
};

/// A source with the transport that brings its messages.
#[derive(Clone)]
pub struct Listed {
    /// The source.
    pub source: Arc<Source>,
    /// The name of its transport.
    pub transport: &'static str,
    /// The state of its connection, where it has one.
    pub connection: Option<Arc<ConnectionStatus>>,
}

/// Every source, by name.
pub type Sources = Arc<BTreeMap<String, Listed>>;

/// Every source.
#[derive(Serialize, ToSchema)]
#[schema(as = Sources)]
struct SourcesView<'a> {
    /// By name.
    sources: Vec<SourceView<'a>>,
}

/// A configured origin of events.
#[derive(Serialize, ToSchema)]
#[schema(as = Source)]
struct SourceView<'a> {
    /// Its name.
    name: &'a str,
    /// How its messages come in.
    transport: &'static str,
    /// Which wire format they have.
    dialect: &'static str,
    /// How its connection is; a hook has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    connection: Option<ConnectionView>,
    /// How things are with its repository; there is none, where no repository is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lookup: Option<LookupView>,
    /// What has become of them since the gateway started.
    messages: MessagesView,
}

/// The repository that is asked what a source's messages do not say.
#[derive(Serialize, ToSchema)]
#[schema(as = Lookup)]
#[serde(rename_all = "camelCase")]
struct LookupView {
    /// What is done where it does not answer: `best-effort` or `required`.
    mode: &'static str,
    /// Where it is.
    repository: String,
    /// `asked`; or `circuit-open` after five failed requests in a row: nothing is sent until `nextAttempt`.
    state: &'static str,
    /// How many events wait for an answer that has failed to come.
    waiting: u64,
    /// About how many changes are in the journal of which it is asked again.
    incomplete: u64,
    /// What went wrong last, if anything has since the gateway started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_error: Option<ConnectionFailure>,
    /// Time of the next request, while the circuit is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    next_attempt: Option<DateTime<Utc>>,
}

/// Messages since the gateway started.
#[derive(Serialize, ToSchema)]
#[schema(as = Messages)]
struct MessagesView {
    /// They told of at least one change.
    accepted: u64,
    /// They were in the journal already.
    duplicate: u64,
    /// They changed nothing.
    unchanged: u64,
    /// No dialect could read them.
    quarantined: u64,
}

problems!(Problems:);

/// Every source, with how its connection is and how many of its messages had which outcome since the
/// gateway started.
#[utoipa::path(
    get,
    path = "/sources",
    operation_id = "listSources",
    tag = "administration",
    responses((status = 200, description = "Every source.", body = SourcesView), Problems),
)]
pub async fn list(State(sources): State<Sources>) -> Response {
    let sources = sources.iter().map(|(name, listed)| view(name, listed)).collect();
    Json(SourcesView { sources }).into_response()
}

impl LookupView {
    fn of(status: EnrichmentStatus) -> Self {
        let EnrichmentStatus { mode, url, waiting, incomplete, health: Health { circuit_open_for, last_error } } =
            status;
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

fn view<'a>(name: &'a str, listed: &Listed) -> SourceView<'a> {
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
