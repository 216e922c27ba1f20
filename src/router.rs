//! Every URL on one page.

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware::from_fn_with_state};
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{
        CompressionLayer, Predicate,
        predicate::{NotForContentType, SizeAbove},
    },
};

use crate::{
    admin::{
        attempts, dead_letters,
        health::{self, Ready},
        home,
        metrics::{self, Metrics},
        quarantine::{self, Quarantine},
        registry::{self, Seeds},
        sources::{self, Sources},
        subscriptions,
    },
    delivery::{
        Subscriptions,
        websub::{self, Hub},
    },
    journal::Journal,
    openapi::{self, Documentation},
    source::http::{self, Hooks},
    view::{
        changes::{self, Changes},
        feed::{self, FeedView},
        live, objects,
        service::{self, Service},
        snapshot, stream,
        waiting::Waiting,
    },
    web::{
        self, Access, Around, OwnSite, Routes,
        Rule::{Admin, Open, Publish, Read},
    },
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
    /// The readers that wait for changes.
    pub waiting: Waiting,
    /// The AtomPub service document.
    pub service: Service,
    /// The quarantine.
    pub quarantine: Quarantine,
    /// Whether the gateway can do its work.
    pub ready: Ready,
    /// The sources.
    pub sources: Sources,
    /// What fills the registry from the sources' repositories.
    pub seeds: Seeds,
    /// The subscriptions.
    pub subscriptions: Subscriptions,
    /// The WebSub hub, where there is one.
    pub hub: Option<Hub>,
    /// What is counted and measured.
    pub metrics: Metrics,
    /// The description of this very interface.
    pub documentation: Documentation,
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
    /// How much longer, at the most, if it asks to wait for what is not there yet.
    pub wait: Duration,
}

/// The route whose requests may ask to wait for changes.
const CHANGES: &str = "/changes";

/// Every route, and who may use it.
#[must_use]
pub fn routes() -> Routes<Surfaces> {
    Routes::<Surfaces>::default()
        .get("/", Open, home::page, |all| all.ready.clone())
        .post("/hooks/{source}", Publish, http::receive, |all| all.hooks.clone())
        .get("/feed", Read, feed::newest, |all| all.feed.clone())
        .get("/feed/archive/{page}", Read, feed::archive, |all| all.feed.clone())
        .post("/hub", Read, websub::http::receive, |all| all.hub.clone())
        .get(CHANGES, Read, changes::page, |all| all.changes.clone())
        .get("/changes/{id}", Read, changes::one, |all| all.changes.clone())
        .get("/stream", Read, stream::follow, |all| all.waiting.clone())
        .get("/live", Read, live::page, |_| ())
        .get("/snapshot", Read, snapshot::page, |all| all.changes.clone())
        .get("/objects", Read, objects::one, |all| all.changes.clone())
        .get("/service", Read, service::document, |all| all.service.clone())
        .get("/sources", Admin, sources::list, |all| all.sources.clone())
        .get("/sources/{name}/registry", Admin, registry::show, |all| all.seeds.clone())
        .post("/sources/{name}/registry", Admin, registry::take, |all| all.seeds.clone())
        .get("/quarantine", Admin, quarantine::list, |all| all.quarantine.clone())
        .get("/quarantine/{id}", Admin, quarantine::one, |all| all.quarantine.clone())
        .delete("/quarantine/{id}", Admin, quarantine::delete, |all| all.quarantine.clone())
        .post("/quarantine/{id}/retry", Admin, quarantine::retry, |all| all.quarantine.clone())
        .get("/subscriptions", Admin, subscriptions::list, |all| all.subscriptions.clone())
        .get("/subscriptions/{name}", Admin, subscriptions::one, |all| all.subscriptions.clone())
        .put("/subscriptions/{name}", Admin, subscriptions::put, |all| all.subscriptions.clone())
        .delete("/subscriptions/{name}", Admin, subscriptions::delete, |all| all.subscriptions.clone())
        .post("/subscriptions/{name}/pause", Admin, subscriptions::pause, |all| all.subscriptions.clone())
        .post("/subscriptions/{name}/resume", Admin, subscriptions::resume, |all| all.subscriptions.clone())
        .post("/subscriptions/{name}/rewind", Admin, subscriptions::rewind, |all| all.subscriptions.clone())
        .get("/subscriptions/{name}/attempts", Admin, attempts::list, |all| all.subscriptions.clone())
        .get("/subscriptions/{name}/dead-letters", Admin, dead_letters::list, |all| all.subscriptions.clone())
        .delete("/subscriptions/{name}/dead-letters", Admin, dead_letters::delete_all, |all| all.subscriptions.clone())
        .post("/subscriptions/{name}/dead-letters/replay", Admin, dead_letters::replay_all, |all| {
            all.subscriptions.clone()
        })
        .get("/subscriptions/{name}/dead-letters/{id}", Admin, dead_letters::one, |all| all.subscriptions.clone())
        .delete("/subscriptions/{name}/dead-letters/{id}", Admin, dead_letters::delete, |all| all.subscriptions.clone())
        .post("/subscriptions/{name}/dead-letters/{id}/replay", Admin, dead_letters::replay, |all| {
            all.subscriptions.clone()
        })
        .get("/healthz", Open, health::alive, |_| ())
        .get("/readyz", Open, health::ready, |all| all.ready.clone())
        .get("/metrics", Read, metrics::scrape, |all| all.metrics.clone())
        .get("/openapi.json", Read, openapi::document, |all| all.documentation.clone())
        .get("/docs", Read, openapi::page, |_| ())
}

/// Routes, and what holds for all of them.
pub fn router(surfaces: &Surfaces, bounds: Bounds, access: &Arc<Access>, site: OwnSite) -> Router {
    surrounded(routes().into_router(surfaces, access), bounds, site)
}

/// What holds for all routes, put around these. It is one layer, from the outermost inwards: axum copies
/// each that it is given, and all inside it, for each request.
pub fn surrounded(routes: Router, bounds: Bounds, site: OwnSite) -> Router {
    let around = Around::new(bounds.body, bounds.held, bounds.time, bounds.wait).waiting_on(CHANGES).of_site(site);
    routes.fallback(web::not_found).method_not_allowed_fallback(web::method_not_allowed).layer((
        from_fn_with_state(around, web::around),
        CatchPanicLayer::custom(web::panicked),
        // An event that waits for others to be compressed with comes late.
        CompressionLayer::new().compress_when(SizeAbove::new(1024).and(NotForContentType::SSE).and(HasNoTag)),
    ))
}

/// A document with an entity tag is compressed where it is made: its tag is for these very bytes.
#[derive(Clone, Copy)]
struct HasNoTag;

impl Predicate for HasNoTag {
    fn should_compress<B: axum::body::HttpBody>(&self, response: &axum::http::Response<B>) -> bool {
        !response.headers().contains_key(axum::http::header::ETAG)
    }
}
