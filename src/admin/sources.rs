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

use crate::intake::Source;

/// A source with the transport that brings its messages.
#[derive(Clone)]
pub struct Listed {
    /// The source.
    pub source: Arc<Source>,
    /// The name of its transport.
    pub transport: &'static str,
}

/// Every source, by name.
pub type Sources = Arc<BTreeMap<String, Listed>>;

#[derive(Serialize)]
struct SourceView<'a> {
    name: &'a str,
    transport: &'static str,
    dialect: &'static str,
    messages: MessagesView,
}

/// Messages since the gateway started.
#[derive(Serialize)]
struct MessagesView {
    accepted: u64,
    duplicate: u64,
    unchanged: u64,
    quarantined: u64,
}

/// Every source, with how many of its messages had which outcome since the gateway started.
pub async fn list(State(sources): State<Sources>) -> Response {
    let views: Vec<_> = sources.iter().map(|(name, listed)| view(name, listed)).collect();
    Json(serde_json::json!({ "sources": views })).into_response()
}

fn view<'a>(name: &'a str, listed: &Listed) -> SourceView<'a> {
    let counts = listed.source.counts();
    SourceView {
        name,
        transport: listed.transport,
        dialect: listed.source.kind().name,
        messages: MessagesView {
            accepted: counts.accepted.load(Ordering::Relaxed),
            duplicate: counts.duplicate.load(Ordering::Relaxed),
            unchanged: counts.unchanged.load(Ordering::Relaxed),
            quarantined: counts.quarantined.load(Ordering::Relaxed),
        },
    }
}
