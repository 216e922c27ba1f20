//! A hook without a journal. The server, the middleware, the access rule, the dialect, the event key and the response
//! are those of the gateway. Instead of submitting the draft to the journal, the hook invents an outcome.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use tidings::{
    admin::metrics::Metrics,
    format::{self, Dialect, DialectKind, Headers, Limits, Message, ParsedMessage},
    intake::{EVENTS, Receipt, SourceName},
    journal::{
        DraftOutcome,
        store::{EventIdentity, event_key},
    },
    model::{ChangeId, Seq},
    router::{RequestLimits, with_request_policy},
    web::{self, Access, OwnSite, Routes, Rule, server},
};
use tokio_util::sync::CancellationToken;
use utoipa_axum::routes;

/// Running server in this process.
pub(crate) struct BareServer {
    pub(crate) url: String,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Hook {
    source: SourceName,
    kind: &'static DialectKind,
    dialect: Arc<dyn Dialect>,
    head: Arc<AtomicU64>,
}

impl BareServer {
    pub(crate) fn start() -> Self {
        // The log costs as much as in the gateway.
        let log = tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr);
        let _ = log.try_init();
        let metrics = Metrics::install().unwrap();
        let kind = format::dialect("fedora-apim").unwrap();
        let hook = Hook {
            source: SourceName::parse("fedora3").unwrap(),
            kind,
            dialect: (kind.build)(serde_json::json!({}), Limits::default()).unwrap().into(),
            head: Arc::default(),
        };
        let routes = Routes::default().add(Rule::Publish, routes!(receive), |hook: &Hook| hook.clone());
        let limits =
            RequestLimits { body: 4 << 20, held: 256 << 20, time: Duration::from_secs(30), wait: Duration::ZERO };
        let router = with_request_policy(
            routes.into_router(&hook, &Arc::new(Access::default())),
            limits,
            OwnSite::new(&[], &[], false, true),
        );
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let limits = server::ConnectionLimits {
            connections: 800,
            per_client: 800,
            header_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
        };
        runtime.spawn(server::serve(listener, None, router, CancellationToken::new(), limits));
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                metrics.aggregate();
            }
        });
        Self { url, _runtime: runtime }
    }
}

/// Receives a message like the gateway.
#[utoipa::path(post, path = "/hooks/{source}")]
async fn receive(
    State(hook): State<Hook>,
    web::Path(name): web::Path<String>,
    headers: HeaderMap,
    web::Body(body): web::Body,
) -> Response {
    assert_eq!(name, hook.source.as_str());
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let text = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let headers: Headers = headers.iter().filter_map(text).collect();
    let Ok(ParsedMessage::Drafts(drafts)) =
        hook.dialect.read(&Message { content_type, headers: &headers, body: &body })
    else {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    };
    for draft in drafts.into_vec() {
        let id = draft.event_id.as_ref().unwrap().as_str();
        black_box(event_key(&hook.source, EventIdentity::Id(id), 0));
        black_box(draft);
    }
    let id = ChangeId::from(uuid::Uuid::now_v7());
    let seq = Seq(hook.head.fetch_add(1, Ordering::Relaxed) + 1);
    let receipt = Receipt { outcomes: vec![DraftOutcome::Accepted { seq, id }], empty_reason: None };
    let outcome = receipt.outcome();
    metrics::counter!(EVENTS, "source" => name, "dialect" => hook.kind.name, "outcome" => outcome.name()).increment(1);
    (StatusCode::CREATED, [(header::LOCATION, format!("/changes/{}", id.uuid()))], Json(receipt.to_response()))
        .into_response()
}
