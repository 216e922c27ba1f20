//! Every URL on one page.

use std::time::Duration;

use axum::{
    Extension, Router,
    middleware::{from_fn_with_state, map_response},
    routing::{get, post},
};
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{CompressionLayer, Predicate, predicate::SizeAbove},
    trace::TraceLayer,
};

use crate::{
    admin::{
        health,
        quarantine::{self, Quarantine},
        sources::{self, Sources},
    },
    journal::Journal,
    source::http::{self, Hooks},
    view::{
        changes::{self, Changes},
        feed::{self, FeedView},
        objects,
        service::{self, Service},
    },
    web::{self, BodyLimit, HeldBytes},
};

/// What the surfaces work with.
pub struct Surfaces {
    /// The journal.
    pub journal: Journal,
    /// The hooks.
    pub hooks: Hooks,
    /// The journal's pages.
    pub changes: Changes,
    /// The feed.
    pub feed: FeedView,
    /// The AtomPub service document.
    pub service: Service,
    /// The quarantine.
    pub quarantine: Quarantine,
    /// The sources.
    pub sources: Sources,
}

/// Bounds on requests.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The largest request body, in bytes.
    pub body: usize,
    /// How many bytes of request bodies are held at once.
    pub held: usize,
    /// How long a request may take until its answer begins.
    pub time: Duration,
}

/// Routes, and what holds for all of them.
pub fn router(surfaces: Surfaces, bounds: Bounds) -> Router {
    let Surfaces { journal, hooks, changes, feed, service, quarantine, sources } = surfaces;
    Router::new()
        .route("/hooks/{source}", post(http::receive).with_state(hooks))
        .route("/feed", get(feed::newest).with_state(feed.clone()))
        .route("/feed/archive/{page}", get(feed::archive).with_state(feed))
        .route("/changes", get(changes::page).with_state(changes.clone()))
        .route("/changes/{id}", get(changes::one).with_state(changes))
        .route("/objects", get(objects::one).with_state(journal.clone()))
        .route("/service", get(service::document).with_state(service))
        .route("/sources", get(sources::list).with_state(sources))
        .route("/quarantine", get(quarantine::list).with_state(quarantine.clone()))
        .route("/quarantine/{id}", get(quarantine::one).delete(quarantine::delete).with_state(quarantine.clone()))
        .route("/quarantine/{id}/retry", post(quarantine::retry).with_state(quarantine))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready).with_state(journal))
        .fallback(web::not_found)
        .method_not_allowed_fallback(web::method_not_allowed)
        .layer(from_fn_with_state(bounds.time, web::time_limit))
        .layer(Extension(BodyLimit(bounds.body)))
        .layer(Extension(HeldBytes::new(bounds.held)))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(1024).and(HasNoTag)))
        .layer(map_response(web::every_error_is_a_problem))
        .layer(CatchPanicLayer::custom(web::panicked))
        .layer(TraceLayer::new_for_http())
}

/// A document with an entity tag is compressed where it is made: its tag is for these very bytes.
#[derive(Clone, Copy)]
struct HasNoTag;

impl Predicate for HasNoTag {
    fn should_compress<B: axum::body::HttpBody>(&self, response: &axum::http::Response<B>) -> bool {
        !response.headers().contains_key(axum::http::header::ETAG)
    }
}
