//! Wiring of the HTTP interface: gives each route the part of the gateway that it shows.

use std::{collections::BTreeMap, sync::Arc};

use super::{SharedJournal, hub};
use crate::{
    admin::{
        connect::ConnectExamples,
        filesets::Filesets,
        flow::Flow,
        health::Readiness,
        home::Home,
        metrics::Metrics,
        quarantine::Quarantine,
        registry::RegistrySeeder,
        reload::ReloadConfig,
        sources::{ConfiguredSource, Sources},
        status::{FilesPlace, Status, StatusParts},
    },
    audit::Audits,
    config::{self, Config, MessageRate, SourceConfig},
    delivery::{Subscriptions, websub::Hub, xesam::Crawlers},
    files::FileStoreLocation,
    filesets::IngestMonitor,
    harvest::Harvests,
    intake::Intake,
    journal::{Journal, retention::Retention},
    model::{SourceName, Timestamp},
    openapi::Documentation,
    publish::Publication,
    router::{self, Surfaces},
    segments::Segments,
    source::{http::Hooks, rate::RateLimiter},
    view::{
        changes::Changes,
        digests::RegistryDigests,
        feed::{FeedLabels, FeedView},
        files::Files,
        iiif_discovery::IiifDiscovery,
        ldes::Ldes,
        live_readers::LiveReaders,
        oai_pmh::{ListKeptRecords, OaiPmh},
        resourcesync::ResourceSync,
        segments::SegmentsView,
        service::{Hook, Service},
    },
    web::{SignatureHeader, Tls},
};

/// Parts of the gateway that routes show.
pub(super) struct SurfaceParts {
    pub(super) shared: SharedJournal,
    pub(super) sources: BTreeMap<String, ConfiguredSource>,
    pub(super) harvests: Harvests,
    pub(super) audits: Audits,
    pub(super) publication: Option<Publication>,
    pub(super) subscriptions: Subscriptions,
    pub(super) readers: LiveReaders,
    pub(super) feed: FeedView,
    pub(super) iiif_discovery: Option<IiifDiscovery>,
    pub(super) ldes: Option<Ldes>,
    pub(super) resourcesync: ResourceSync,
    pub(super) files: Files,
    pub(super) segments: Option<Segments>,
    pub(super) ingests: IngestMonitor,
    pub(super) hub: Option<Hub>,
    pub(super) crawlers: Option<Crawlers>,
    pub(super) metrics: Metrics,
    pub(super) tls: Option<Tls>,
    pub(super) reload: Option<ReloadConfig>,
}

/// Creates the view of the feed.
pub(super) fn feed(config: &Config, journal: &Journal, public_url: &str, readers: &LiveReaders) -> FeedView {
    let (data, hub) = (&config.journal.data, hub::url(config, public_url));
    let labels = FeedLabels { title: config.feed.title.clone(), author: config.feed.author.clone() };
    FeedView::new(journal.clone(), public_url, data, hub, readers.spool().clone(), labels)
}

/// Creates the view of the IIIF Change Discovery API; `None` if it is not enabled.
pub(super) fn iiif_discovery(
    config: &Config,
    journal: &Journal,
    public_url: &str,
    readers: &LiveReaders,
) -> Option<IiifDiscovery> {
    let settings = config.iiif_discovery.settings(super::retention(config) != Retention::default())?;
    Some(IiifDiscovery::new(journal.clone(), readers.spool().clone(), public_url, settings))
}

/// Creates the view of the Linked Data Event Stream; `None` if it is not enabled.
pub(super) fn ldes(config: &Config, journal: &Journal, public_url: &str, readers: &LiveReaders) -> Option<Ldes> {
    let settings = config.ldes.settings(super::retention(config))?;
    Some(Ldes::new(journal.clone(), readers.spool().clone(), public_url, settings))
}

/// Creates the source with ResourceSync.
pub(super) fn resourcesync(
    config: &Config,
    journal: &Journal,
    public_url: &str,
    readers: &LiveReaders,
) -> ResourceSync {
    let hub = hub::url(config, public_url).filter(|_| config.resourcesync.notifications);
    ResourceSync::new(journal.clone(), public_url, readers.spool().clone(), hub)
}

/// Builds the surfaces of the HTTP interface.
pub(super) fn build(config: &Config, public_url: &str, parts: SurfaceParts) -> Surfaces {
    let SurfaceParts {
        shared: SharedJournal { journal, cluster: nodes },
        sources,
        harvests,
        audits,
        publication,
        subscriptions,
        readers,
        feed,
        iiif_discovery,
        ldes,
        resourcesync,
        files,
        segments,
        ingests,
        hub,
        crawlers,
        metrics,
        tls,
        reload,
    } = parts;
    let intake = Intake::new(journal.clone());
    let http_sources: BTreeMap<_, _> = sources.iter().filter(|(_, listed)| listed.has_hook).collect();
    let hook = |(name, listed): (&&String, &&ConfiguredSource)| Hook {
        source: (*name).clone(),
        about: listed.source.kind().about,
        accepts: listed.source.kind().accepts,
    };
    let hooks = http_sources.iter().map(hook).collect();
    let http_sources =
        http_sources.into_iter().map(|(name, listed)| (name.clone(), Arc::clone(&listed.source))).collect();
    let sources = Sources::new(sources, harvests.clone());
    let status = Status::new(StatusParts {
        journal: journal.clone(),
        sources: sources.clone(),
        audits: audits.clone(),
        subscriptions: subscriptions.clone(),
        nodes: nodes.clone(),
        crawlers: crawlers.clone(),
        publication: publication.clone(),
        access: Arc::new(config.access.clone()),
        tls,
        folder: config.journal.data.clone(),
        files: files_place(config),
        public_url: public_url.to_owned(),
        retention: super::retention(config),
        started: Timestamp::now(),
    });
    let flow = Flow::new(journal.clone(), sources.clone(), subscriptions.clone(), &config.journal.data);
    let rate = |(name, source): (&SourceName, &SourceConfig)| {
        source.rate.map(|MessageRate { per_second, burst }| (name.to_string(), RateLimiter::new(per_second, burst)))
    };
    let is_asked =
        |source: &SourceConfig| source.signature.as_ref().is_some_and(|key| key.header == SignatureHeader::ExLibris);
    let challenged = config.sources.iter().filter(|(_, source)| is_asked(source)).map(|(name, _)| name.to_string());
    let challenged = Arc::new(challenged.collect());
    let rates = config.sources.iter().filter_map(rate).collect();
    let readiness = Readiness {
        journal: journal.clone(),
        sources: sources.clone(),
        subscriptions: subscriptions.clone(),
        status: status.clone(),
    };
    let oai_pmh = config.oai_pmh.settings(config.limits.message_limits());
    let kept = {
        let harvests = harvests.clone();
        move || harvests.list().iter().flat_map(|harvest| harvest.kept_records()).collect()
    };
    let kept = (files.store.clone(), Arc::new(kept) as ListKeptRecords);
    let oai_pmh =
        oai_pmh.map(|settings| OaiPmh::new((journal.clone(), readers.spool().clone()), kept, public_url, settings));
    let segments = SegmentsView { journal: journal.clone(), segments, spool: readers.spool().clone() };
    Surfaces {
        reload,
        hooks: Hooks { intake: intake.clone(), sources: Arc::new(http_sources), rates: Arc::new(rates) },
        digests: RegistryDigests::new(journal.clone(), readers.spool().clone()),
        challenged,
        changes: Changes {
            journal: journal.clone(),
            readers: readers.clone(),
            segments: segments.segments.clone(),
            max_page: config.limits.page,
        },
        feed,
        oai_pmh,
        iiif_discovery,
        ldes,
        resourcesync,
        readers,
        service: Service { public_url: public_url.into(), feed_title: config.feed.title.as_str().into(), hooks },
        seeds: RegistrySeeder::new(journal.clone(), intake.clone(), sources.clone()),
        quarantine: Quarantine { journal: journal.clone(), intake, sources: sources.clone() },
        home: Home { readiness: readiness.clone(), has_page: config.page.enabled },
        readiness,
        status,
        flow,
        connect: ConnectExamples::new(public_url, config.access.is_open()),
        sources,
        subscriptions,
        harvests,
        audits,
        publication,
        files,
        segments,
        filesets: Filesets { journal: journal.clone(), monitor: ingests },
        hub,
        crawlers,
        metrics,
        nodes,
        documentation: Documentation::new(
            || router::routes().into_interface(),
            [("NewHarvest", config::harvest_schema())],
            public_url,
            config.limits.page,
        ),
        journal,
    }
}

/// Returns the place of the file store, for the status.
fn files_place(config: &Config) -> FilesPlace {
    let location = config.files.location(&config.journal.data);
    let folder = match &location {
        FileStoreLocation::Folder(folder) => Some(folder.clone()),
        FileStoreLocation::S3(_) => None,
    };
    FilesPlace { location: location.to_string(), folder }
}
