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
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    broker::{ConnectionStatus, Shown},
    intake::Source,
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
    connection: Option<Shown>,
    /// What has become of them since the gateway started.
    messages: MessagesView,
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

fn view<'a>(name: &'a str, listed: &Listed) -> SourceView<'a> {
    let counts = listed.source.counts();
    SourceView {
        name,
        transport: listed.transport,
        dialect: listed.source.kind().name,
        connection: listed.connection.as_ref().map(|connection| connection.shown()),
        messages: MessagesView {
            accepted: counts.accepted.load(Ordering::Relaxed),
            duplicate: counts.duplicate.load(Ordering::Relaxed),
            unchanged: counts.unchanged.load(Ordering::Relaxed),
            quarantined: counts.quarantined.load(Ordering::Relaxed),
        },
    }
}
