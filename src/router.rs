//! All routes with their access rules. The path and the method of a route are declared at its handler;
//! `docs/access.md` lists them all.

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
        attempts, audit,
        connect::{self, ConnectExamples},
        crawlers, dead_letters,
        deliveries::{self, Deliveries},
        due, favicon,
        filesets::{self, Filesets},
        flow::{self, Flow},
        harvests,
        health::{self, Readiness},
        home::{self, Home},
        manual_delivery,
        metrics::{self, Metrics},
        nodes, notifications, page, publication,
        quarantine::{self, Quarantine},
        registry::{self, RegistrySeeder},
        reload::{self, ReloadConfig},
        sources::{self, Sources},
        status::{Status, view},
        subscriptions,
    },
    audit::Audits,
    cluster::Cluster,
    delivery::{
        Subscriptions,
        websub::{self, Hub},
        xesam::Crawlers,
    },
    harvest::Harvests,
    journal::Journal,
    openapi::{self, Documentation},
    publish::Publication,
    source::{
        challenge::{self, ChallengedSources},
        http::{self, Hooks},
    },
    view::{
        changes::{self, Changes},
        digests::{self, RegistryDigests},
        feed::{self, FeedView},
        files::{self, Files},
        iiif_discovery::{self, IiifDiscovery},
        ldes::{self, Ldes},
        live_readers::LiveReaders,
        oai_pmh::{self, OaiPmh},
        objects,
        resourcesync::{self, ResourceSync},
        segments::{self, SegmentsView},
        service::{self, Service},
        snapshot, stream,
    },
    web::{
        self, Access, OwnSite, RequestPolicy, Routes,
        Rule::{Admin, Open, Publish, Read, View},
        Surface,
    },
};

/// State of the HTTP surfaces.
pub struct Surfaces {
    /// The journal.
    pub journal: Journal,
    /// The nodes that share the journal.
    pub nodes: Cluster,
    /// The hooks.
    pub hooks: Hooks,
    /// The hooks whose senders ask whether they are there.
    pub challenged: ChallengedSources,
    /// State of the journal's pages.
    pub changes: Changes,
    /// The feed.
    pub feed: FeedView,
    /// The repository with OAI-PMH, if configured.
    pub oai_pmh: Option<OaiPmh>,
    /// The IIIF Change Discovery API, if enabled.
    pub iiif_discovery: Option<IiifDiscovery>,
    /// The Linked Data Event Stream, if enabled.
    pub ldes: Option<Ldes>,
    /// The source with ResourceSync.
    pub resourcesync: ResourceSync,
    /// The readers that wait for changes.
    pub readers: LiveReaders,
    /// The stored files.
    pub files: Files,
    /// The sealed segments.
    pub segments: SegmentsView,
    /// The AtomPub service document.
    pub service: Service,
    /// The quarantine.
    pub quarantine: Quarantine,
    /// State of `/`.
    pub home: Home,
    /// Readiness checks.
    pub readiness: Readiness,
    /// The reload of the configuration, if there is one.
    pub reload: Option<ReloadConfig>,
    /// The status.
    pub status: Status,
    /// The recorded flow.
    pub flow: Flow,
    /// Examples of what can be connected.
    pub connect: ConnectExamples,
    /// The digests of the registry.
    pub digests: RegistryDigests,
    /// The sources.
    pub sources: Sources,
    /// The harvests.
    pub harvests: Harvests,
    /// The audits.
    pub audits: Audits,
    /// The published copy, if there is one.
    pub publication: Option<Publication>,
    /// The jobs that archive datasets.
    pub filesets: Filesets,
    /// Seeding of the registry from the sources' repositories.
    pub seeds: RegistrySeeder,
    /// The subscriptions.
    pub subscriptions: Subscriptions,
    /// The WebSub hub, if enabled.
    pub hub: Option<Hub>,
    /// The crawlers on D-Bus, if enabled.
    pub crawlers: Option<Crawlers>,
    /// The metrics.
    pub metrics: Metrics,
    /// The description of the HTTP interface.
    pub documentation: Documentation,
}

/// Limits on requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Maximum size of a request body, in bytes.
    pub body: usize,
    /// Maximum size of all request bodies in memory, in bytes.
    pub held: usize,
    /// Maximum time until the response to a request begins.
    pub time: Duration,
    /// Maximum additional time if a request asks to wait for changes.
    pub wait: Duration,
}

/// Returns all routes with their access rules.
#[must_use]
pub fn routes() -> Routes<Surfaces> {
    Routes::<Surfaces>::default()
        .add(Open, routes!(home::page), |all| all.home.clone())
        .add(Open, routes!(favicon::icon), |_| ())
        .add(Publish, routes!(http::receive), |all| all.hooks.clone())
        .add(Open, routes!(challenge::respond), |all| all.challenged.clone())
        .add(View(&[Surface::Feed]), routes!(feed::newest), |all| all.feed.clone())
        .add(Read, routes!(feed::archive), |all| all.feed.clone())
        .add(View(&[Surface::Feed]), routes!(feed::style::style), |_| ())
        .add(View(&[]), routes!(websub::http::receive), |all| all.hub.clone())
        .add(View(&[Surface::Changes]), routes!(changes::page), |all| all.changes.clone())
        .add(View(&[Surface::Changes]), routes!(changes::durable_stream::read), |all| all.changes.clone())
        .add(View(&Surface::ALL), routes!(changes::one::change), |all| all.changes.clone())
        .add(Admin, routes!(deliveries::list), |all| Deliveries {
            changes: all.changes.clone(),
            subscriptions: all.subscriptions.clone(),
            flow: all.flow.clone(),
        })
        .add(View(&[Surface::Stream, Surface::Live]), routes!(stream::follow), |all| all.readers.clone())
        .add(Open, routes!(page::live), |all| all.home.has_page)
        .add(View(&[Surface::Snapshot]), routes!(snapshot::page), |all| all.changes.clone())
        .add(View(&[Surface::Objects]), routes!(objects::one), |all| all.changes.clone())
        .add(View(&[Surface::Oai]), routes!(oai_pmh::get, oai_pmh::post), |all| all.oai_pmh.clone())
        .add(Open, routes!(oai_pmh::schemas::one), |_| ())
        .add(View(&[Surface::Iiif]), routes!(iiif_discovery::entry), |all| all.iiif_discovery.clone())
        .add(View(&[Surface::Iiif]), routes!(iiif_discovery::document), |all| all.iiif_discovery.clone())
        .add(View(&[Surface::Ldes]), routes!(ldes::entry), |all| all.ldes.clone())
        .add(View(&[Surface::Ldes]), routes!(ldes::document), |all| all.ldes.clone())
        .add(View(&[Surface::ResourceSync]), routes!(resourcesync::description), |all| all.resourcesync.clone())
        .add(View(&[Surface::ResourceSync]), routes!(resourcesync::document), |all| all.resourcesync.clone())
        .add(View(&[]), routes!(digests::get, digests::post), |all| all.digests.clone())
        .add(Read, routes!(files::one), |all| all.files.clone())
        .add(Read, routes!(segments::list), |all| all.segments.clone())
        .add(Read, routes!(segments::one), |all| all.segments.clone())
        .add(Read, routes!(service::document), |all| all.service.clone())
        .add(Admin, routes!(view::show), |all| all.status.clone())
        .add(Admin, routes!(flow::show), |all| all.flow.clone())
        .add(Admin, routes!(connect::list), |all| all.connect.clone())
        .add(Admin, routes!(reload::reload), |all| all.reload.clone())
        .add(Admin, routes!(nodes::list), |all| all.nodes.clone())
        .add(Admin, routes!(due::list), |all| all.journal.clone())
        .add(Admin, routes!(sources::list), |all| all.sources.clone())
        .add(Admin, routes!(sources::one), |all| all.sources.clone())
        .add(Admin, routes!(sources::pause), |all| all.sources.clone())
        .add(Admin, routes!(sources::resume), |all| all.sources.clone())
        .add(Admin, routes!(sources::reconnect), |all| all.sources.clone())
        .add(Admin, routes!(harvests::list, harvests::add), |all| all.harvests.clone())
        .add(Admin, routes!(harvests::one, harvests::remove), |all| all.harvests.clone())
        .add(Admin, routes!(harvests::pause), |all| all.harvests.clone())
        .add(Admin, routes!(harvests::resume), |all| all.harvests.clone())
        .add(Admin, routes!(harvests::run), |all| all.harvests.clone())
        .add(Admin, routes!(harvests::retire), |all| all.harvests.clone())
        .add(Admin, routes!(harvests::records), |all| all.harvests.clone())
        .add(Open, routes!(notifications::confirm, notifications::notify), |all| all.harvests.clone())
        .add(Admin, routes!(filesets::list), |all| all.filesets.clone())
        .add(Admin, routes!(filesets::one, filesets::cancel), |all| all.filesets.clone())
        .add(Admin, routes!(registry::show, registry::seed), |all| all.seeds.clone())
        .add(Admin, routes!(audit::show, audit::start, audit::stop), |all| all.audits.clone())
        .add(Admin, routes!(publication::show, publication::run), |all| all.publication.clone())
        .add(Admin, routes!(quarantine::list), |all| all.quarantine.clone())
        .add(Admin, routes!(quarantine::one, quarantine::delete), |all| all.quarantine.clone())
        .add(Admin, routes!(quarantine::retry), |all| all.quarantine.clone())
        .add(Admin, routes!(quarantine::dry_run), |all| all.quarantine.clone())
        .add(Admin, routes!(subscriptions::list), |all| (all.subscriptions.clone(), all.crawlers.clone()))
        .add(Admin, routes!(crawlers::invalidate), |all| all.crawlers.clone())
        .add(Admin, routes!(subscriptions::one, subscriptions::put, subscriptions::delete), |all| {
            all.subscriptions.clone()
        })
        .add(Admin, routes!(subscriptions::pause), |all| all.subscriptions.clone())
        .add(Admin, routes!(subscriptions::resume), |all| all.subscriptions.clone())
        .add(Admin, routes!(subscriptions::rewind), |all| all.subscriptions.clone())
        .add(Admin, routes!(manual_delivery::send), |all| all.subscriptions.clone())
        .add(Admin, routes!(manual_delivery::skip), |all| all.subscriptions.clone())
        .add(Admin, routes!(manual_delivery::replay), |all| all.subscriptions.clone())
        .add(Admin, routes!(attempts::list), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::list, dead_letters::delete_all), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::replay_all), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::one, dead_letters::delete), |all| all.subscriptions.clone())
        .add(Admin, routes!(dead_letters::replay), |all| all.subscriptions.clone())
        .add(Open, routes!(health::alive), |_| ())
        .add(Open, routes!(health::ready), |all| all.readiness.clone())
        .add(Read, routes!(metrics::scrape), |all| all.metrics.clone())
        .add(Read, routes!(openapi::document), |all| all.documentation.clone())
        .add(Open, routes!(page::docs), |all| all.home.has_page)
}

/// Returns the router of the gateway: all routes with the policy of all requests.
pub fn router(surfaces: &Surfaces, limits: RequestLimits, access: &Arc<Access>, site: OwnSite) -> Router {
    with_request_policy(routes().into_router(surfaces, access), limits, site)
}

/// Wraps routes with the policy of all requests. It is one layer, because axum clones each layer and all layers
/// inside it for each request. The elements are in order from the outermost to the innermost.
pub fn with_request_policy(routes: Router, limits: RequestLimits, site: OwnSite) -> Router {
    let policy = RequestPolicy::new(limits.body, limits.held, limits.time, limits.wait)
        .waiting_on(&[changes::WAITING, changes::durable_stream::WAITING])
        .of_site(site);
    routes.fallback(web::not_found).method_not_allowed_fallback(web::method_not_allowed).layer((
        from_fn_with_state(policy, web::apply_request_policy),
        CatchPanicLayer::custom(web::panic_response),
        // Compression would delay server-sent events until more data arrives.
        CompressionLayer::new().compress_when(SizeAbove::new(1024).and(NotForContentType::SSE).and(HasNoStrongTag)),
    ))
}

/// Excludes documents with a strong entity tag, which are compressed before, because the tag identifies the exact bytes.
#[derive(Clone, Copy)]
struct HasNoStrongTag;

impl Predicate for HasNoStrongTag {
    fn should_compress<B: axum::body::HttpBody>(&self, response: &axum::http::Response<B>) -> bool {
        let tag = response.headers().get(axum::http::header::ETAG);
        tag.is_none_or(|tag| tag.as_bytes().starts_with(b"W/"))
    }
}
