//! Every route, and who may use it. The path and the method of each stand above its handler; `docs/access.md` has them all.

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware::from_fn_with_state};
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{
        CompressionLayer, Predicate,
        predicate::{NotForContentType, SizeAbove},
    },
};
use utoipa_axum::routes;

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

/// Every route, and who may use it.
#[must_use]
pub fn routes() -> Routes<Surfaces> {
    Routes::<Surfaces>::default()
        .add(Open, routes!(home::page), |all| all.ready.clone())
        .add(Publish, routes!(http::receive), |all| all.hooks.clone())
        .add(Read, routes!(feed::newest), |all| all.feed.clone())
        .add(Read, routes!(feed::archive), |all| all.feed.clone())
        .add(Read, routes!(websub::http::receive), |all| all.hub.clone())
        .add(Read, routes!(changes::page), |all| all.changes.clone())
        .add(Read, routes!(changes::one), |all| all.changes.clone())
        .add(Read, routes!(stream::follow), |all| all.waiting.clone())
        .add(Read, routes!(live::page), |_| ())
        .add(Read, routes!(snapshot::page), |all| all.changes.clone())
        .add(Read, routes!(objects::one), |all| all.changes.clone())
        .add(Read, routes!(service::document), |all| all.service.clone())
        .add(Admin, routes!(sources::list), |all| all.sources.clone())
        .add(Admin, routes!(registry::show, registry::take), |all| all.seeds.clone())
        .add(Admin, routes!(quarantine::list), |all| all.quarantine.clone())
        .add(Admin, routes!(quarantine::one, quarantine::delete), |all| all.quarantine.clone())
        .add(Admin, routes!(quarantine::retry), |all| all.quarantine.clone())
        .add(Admin, routes!(subscriptions::list), |all| all.subscriptions.clone())
        .add(Admin, routes!(subscriptions::one, subscriptions::put, subscriptions::delete), |all| {
            all.subscriptions.clone()
        })
        .add(Admin, routes!(subscriptions::pause), |all| all.subscriptions.clone())
        .add(Admin, routes!(subscriptions::resume), |all| all.subscriptions.clone())
        .add(Admin, routes!(subscriptions::rewind), |all| all.subscriptions.clone())
        .add(Admin, routes!(attempts::list), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::list, dead_letters::delete_all), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::replay_all), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::one, dead_letters::delete), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::replay), |all| all.subscriptions.clone())
        .add(Open, routes!(health::alive), |_| ())
        .add(Open, routes!(health::ready), |all| all.ready.clone())
        .add(Read, routes!(metrics::scrape), |all| all.metrics.clone())
        .add(Read, routes!(openapi::document), |all| all.documentation.clone())
        .add(Read, routes!(openapi::page), |_| ())
}

/// Routes, and what holds for all of them.
pub fn router(surfaces: &Surfaces, bounds: Bounds, access: &Arc<Access>, site: OwnSite) -> Router {
    surrounded(routes().into_router(surfaces, access), bounds, site)
}

/// What holds for all routes, put around these. It is one layer, from the outermost inwards: axum copies
/// each that it is given, and all inside it, for each request.
pub fn surrounded(routes: Router, bounds: Bounds, site: OwnSite) -> Router {
    let around =
        Around::new(bounds.body, bounds.held, bounds.time, bounds.wait).waiting_on(changes::PATH).of_site(site);
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
