//! Wiring: builds the components, starts them, and stops them in order. Only this module starts threads and tasks. A
//! thread or task that dies because of a bug stops the gateway ([`supervision`](crate::supervision)).
//!
//! Order of a shutdown, all within the grace time: refuse new requests and messages, hand duties over to other nodes,
//! finish accepted requests, wait for confirmations of in-flight deliveries, write the subscription cursors, leave the
//! nodes, close the journal.

mod audits;
mod dbus;
mod error;
mod harvests;
mod hub;
mod journal;
mod nodes;
mod process;
mod publication;
mod reload;
mod segments;
mod signals;
mod sources;
mod surfaces;
mod warnings;

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::hub::OwnTopics;
use self::process::ProcessParts;
use self::publication::PublishedFaces;
use self::surfaces::SurfaceParts;
pub use self::{
    error::ServeError,
    journal::connection_options,
    process::{check_address, serve},
    reload::ConfigSource,
    warnings::warnings,
};
use crate::{
    admin::{metrics::Metrics, reload::ReloadConfig},
    audit::AuditRunner,
    cluster::{Cluster, MembershipThread},
    config::Config,
    delivery::{EngineTimeouts, Subscriptions},
    filesets::IngestMonitor,
    harvest::HarvestRunner,
    http_client::OutboundPolicy,
    journal::{Journal, JournalThreads, retention::Retention},
    router::{self, router},
    segments::KeptSegments,
    supervision::{Supervisor, Worker},
    view::{
        files::Files,
        live_readers::{self, LiveReaders},
    },
    web::{OwnSite, Spool, Tls, server},
};

/// Part of the grace time that is reserved for closing the journal, after the last request.
const JOURNAL_CLOSE_TIME: Duration = Duration::from_secs(2);

/// Maximum part of the grace time that is reserved for in-flight deliveries.
const MAX_DELIVERY_DRAIN_TIME: Duration = Duration::from_secs(3);

/// Interval at which measurements are aggregated into their histograms.
const METRICS_INTERVAL: Duration = Duration::from_secs(5);

/// The journal, and the nodes that share it: what work under a duty needs.
#[derive(Clone)]
struct SharedJournal {
    journal: Journal,
    cluster: Cluster,
}

/// Gateway that is set up and listening. [`Gateway::run`] serves requests. Dropping the gateway ends its tasks.
pub struct Gateway {
    url: String,
    grace: Duration,
    server: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Stops everything. The supervisor's token is its child and is cancelled first; it stops only components that
    /// accept messages and requests.
    stop: CancellationToken,
    supervisor: Supervisor,
    sources: JoinSet<()>,
    follow_ups: JoinSet<()>,
    deliveries: JoinSet<()>,
    retention: Option<AbortOnDropHandle<()>>,
    cluster: Cluster,
    membership: Option<MembershipThread>,
    /// Tasks that are aborted when the gateway is dropped.
    _background: [AbortOnDropHandle<()>; 5],
    writer: JournalThreads,
}

impl Gateway {
    /// Opens the journal, listens, and starts everything except the HTTP server. The gateway stops when `stop_signal`
    /// is ready.
    ///
    /// # Errors
    /// When a component cannot be set up, or a thread or task has died meanwhile.
    pub async fn build(
        config: Config,
        stop_signal: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, ServeError> {
        Self::build_in(config, &mut ProcessParts::default(), stop_signal).await
    }

    async fn build_in(
        config: Config,
        process: &mut ProcessParts,
        stop_signal: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, ServeError> {
        let stop = CancellationToken::new();
        let supervisor = Supervisor::new(stop.child_token());
        let stop_accepting = supervisor.stop_token().clone();
        let signals = async move {
            stop_signal.await;
            stop_accepting.cancel();
        };
        let signals = spawn(&supervisor, Worker::Signals, signals);
        let result = Self::start(&config, process, stop, supervisor.clone(), signals).await;
        // Any error may be the consequence of a death.
        result.map_err(|error| supervisor.death().map_or(error, |death| ServeError::Died(death.clone())))
    }

    async fn start(
        config: &Config,
        process: &mut ProcessParts,
        stop: CancellationToken,
        supervisor: Supervisor,
        signals: AbortOnDropHandle<()>,
    ) -> Result<Self, ServeError> {
        let stop_accepting = supervisor.stop_token();
        let metrics = Metrics::install()?;
        let mut sources = sources::set_up(config).await?;
        let tls = config.server.tls.as_ref().map(|files| Tls::load(&files.certificate, &files.key)).transpose()?;
        let reload = signals::reload_on_hangup(process.reloader.clone(), tls.clone(), &supervisor)?;
        let address = config.server.listen;
        // Before the journal is opened, so that a start that fails makes no journal. Clients are refused until it is open.
        let socket = process.reserve(address).map_err(|error| ServeError::Listen { address, error })?;
        let (journal, writer) = journal::open(config, &supervisor).await?;
        sources::add_controls(&mut sources, &journal);
        let listener = process.listen(socket).map_err(|error| ServeError::Listen { address, error })?;
        let address = listener.local_addr().map_err(|error| ServeError::Listen { address, error })?;
        let public_url = config.server.public_url_at(address);
        let (cluster, membership) = nodes::join(config, &journal, &sources, &supervisor).await?;
        let guard = OutboundPolicy::restricted(config.delivery.allow.clone());
        let (subscriptions, runner) = Subscriptions::open(
            journal.clone(),
            config.subscriptions.clone(),
            guard.clone(),
            EngineTimeouts::default(),
            cluster.clone(),
        )
        .await?;
        let retention = Some(retention(config)).filter(|limits| *limits != Retention::default());
        let retention = retention.map(|retention| {
            let work = nodes::run_retention(retention, journal.clone(), cluster.clone(), stop_accepting.clone());
            spawn(&supervisor, Worker::Retention, work)
        });
        let shared = SharedJournal { journal: journal.clone(), cluster: cluster.clone() };
        let mut consumers = sources::read_brokers(config, &shared, &sources, stop_accepting, &supervisor);
        let ingests = IngestMonitor::default();
        let (harvests, launches) = harvests::open(config, &journal, &sources, public_url.as_str(), &ingests).await?;
        let runner_of_harvests = HarvestRunner::new(harvests.clone(), launches, shared.cluster.clone());
        let run_harvests = runner_of_harvests.run(stop_accepting.clone(), supervisor.clone());
        consumers.spawn(supervisor.clone().run(Worker::Harvests, None, run_harvests));
        let mut follow_ups = sources::follow_up(&shared, &sources, stop_accepting, &supervisor);
        let due = nodes::run_due(shared.clone(), stop_accepting.clone());
        follow_ups.spawn(supervisor.clone().run(Worker::Due, None, due));
        let segments = segments::of(config, &journal);
        let sealing = nodes::run_sealing(shared.clone(), segments.clone(), stop_accepting.clone());
        follow_ups.spawn(supervisor.clone().run(Worker::Segments, None, sealing));
        let audits = audits::open(config, &journal, &sources, &harvests);
        let run_audits = AuditRunner::new(audits.clone(), shared.cluster.clone()).run(stop_accepting.clone());
        consumers.spawn(supervisor.clone().run(Worker::Audits, None, run_audits));
        let spool = Spool::new(&config.journal.data, config.limits.spool_bytes);
        let (readers, notifier) = LiveReaders::new(journal.clone(), spool, reader_limits(config));
        // Streams end when the notifier ends.
        let notifications =
            spawn(&supervisor, Worker::Notifier, notifier.run(stop_accepting.clone().cancelled_owned()));
        let feed = surfaces::feed(config, &journal, public_url.as_str(), &readers);
        let resourcesync = surfaces::resourcesync(config, &journal, public_url.as_str(), &readers);
        let iiif_discovery = surfaces::iiif_discovery(config, &journal, public_url.as_str(), &readers);
        let ldes = surfaces::ldes(config, &journal, public_url.as_str(), &readers);
        let topics = OwnTopics { feed: feed.clone(), resourcesync: resourcesync.clone() };
        let hub = hub::open(config, topics, subscriptions.clone(), guard, public_url.as_str()).await?;
        let published = PublishedFaces {
            feed: &feed,
            segments: segments.as_ref(),
            iiif_discovery: iiif_discovery.as_ref(),
            ldes: ldes.as_ref(),
            resourcesync: &resourcesync,
        };
        let (publication, publisher) =
            publication::open(config, &shared, &published, readers.spool(), stop_accepting).unzip();
        if let Some(publisher) = publisher {
            let work = publisher.run(stop_accepting.clone());
            consumers.spawn(supervisor.clone().run(Worker::Publication, None, work));
        }
        let target = dbus::open(config, &journal);
        let parts = SurfaceParts {
            shared,
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
            files: Files { store: harvests::file_store(config)? },
            segments,
            ingests,
            hub: hub.as_ref().map(|(hub, _)| hub.clone()),
            crawlers: target.as_ref().map(|(crawlers, _)| crawlers.clone()),
            metrics: metrics.clone(),
            tls: tls.clone(),
            reload: process.reloader.clone().map(|reloader| {
                let tls = tls.clone();
                Arc::new(move || signals::reload(&reloader, tls.as_ref())) as ReloadConfig
            }),
        };
        let surfaces = surfaces::build(config, public_url.as_str(), parts);
        let status = surfaces.status.clone().watch(stop_accepting.clone());
        let status = spawn(&supervisor, Worker::Status, status);
        let mut deliveries = JoinSet::new();
        // Stops with the deliveries, whose end it records.
        let flow = surfaces.flow.clone().record(stop.clone());
        deliveries.spawn(supervisor.clone().run(Worker::Flow, None, flow));
        let limits = &config.limits;
        let request_limits = router::RequestLimits {
            body: limits.body_bytes,
            held: limits.held_bytes,
            time: limits.request_timeout,
            wait: limits.long_poll_wait,
        };
        let url = config.server.url_at(address);
        let urls = [public_url.as_str(), &url];
        let site = OwnSite::new(&urls, &config.server.hosts, config.server.tls.is_some(), config.access.is_open());
        let router = router(&surfaces, request_limits, &Arc::new(config.access.clone()), site);
        drop(surfaces);
        let connections = limits.connections;
        let per_client = limits.share_of(connections);
        let connection_limits = server::ConnectionLimits {
            connections,
            per_client,
            header_timeout: limits.header_timeout,
            stall_timeout: limits.request_timeout,
        };
        let server = Box::pin(server::serve(listener, tls, router, stop_accepting.clone(), connection_limits));

        for warning in warnings(config) {
            tracing::warn!("{warning}");
        }
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, journal = %config.store, "serving");
        let grace = config.server.grace;
        let runner = runner.run(stop.clone(), delivery_drain_time(grace), supervisor.clone());
        deliveries.spawn(supervisor.clone().run(Worker::Deliveries, None, runner));
        if let Some((_, hub)) = hub {
            deliveries.spawn(supervisor.clone().run(Worker::Hub, None, hub.run(stop.clone(), cluster.clone())));
        }
        if let Some((_, target)) = target {
            deliveries.spawn(supervisor.clone().run(Worker::Dbus, None, target.run(stop.clone(), cluster.clone())));
        }
        let metrics_upkeep = spawn(&supervisor, Worker::Metrics, aggregate_metrics(metrics));
        Ok(Self {
            url,
            grace,
            server,
            stop,
            supervisor,
            sources: consumers,
            follow_ups,
            deliveries,
            retention,
            cluster,
            membership,
            _background: [signals, reload, notifications, metrics_upkeep, status],
            writer,
        })
    }

    /// Returns the URL of the socket address that the gateway listens on.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves until the gateway is asked to stop or a thread or task dies, then shuts it down.
    ///
    /// # Errors
    /// When a thread or task has died.
    pub async fn run(mut self) -> Result<(), ServeError> {
        let Self { grace, server, supervisor, sources, cluster, .. } = &mut self;
        let stop_accepting = supervisor.stop_token();
        let deadline = async {
            stop_accepting.cancelled().await;
            tracing::info!("stopping: no new requests are accepted");
            cluster.hand_over();
            tokio::time::sleep(grace.saturating_sub(JOURNAL_CLOSE_TIME + delivery_drain_time(*grace))).await;
        };
        let finished = async {
            server.await;
            while sources.join_next().await.is_some() {}
        };
        tokio::select! {
            () = finished => {}
            () = deadline => tracing::warn!("some requests or messages were aborted: the grace time has elapsed"),
        }
        self.shutdown().await
    }

    /// Aborts unfinished work, writes the subscription cursors, and closes the journal.
    async fn shutdown(self) -> Result<(), ServeError> {
        let Self { server, mut sources, mut follow_ups, mut deliveries, stop, supervisor, .. } = self;
        self.cluster.hand_over();
        drop(server);
        sources.shutdown().await;
        follow_ups.shutdown().await;
        // No more changes arrive. Finish in-flight deliveries and write the subscription cursors.
        stop.cancel();
        while deliveries.join_next().await.is_some() {}
        if let Some(retention) = self.retention {
            retention.abort();
            let _ = retention.await;
        }
        if let Some(membership) = self.membership {
            nodes::leave(membership).await;
        }
        close_journal(self.writer).await;
        supervisor.death().map_or(Ok(()), |death| Err(ServeError::Died(death.clone())))
    }
}

/// Returns the part of the grace time that is reserved for in-flight deliveries.
fn delivery_drain_time(grace: Duration) -> Duration {
    (grace / 4).min(MAX_DELIVERY_DRAIN_TIME)
}

/// Spawns a supervised task, which is aborted when the handle is dropped.
fn spawn(
    supervisor: &Supervisor,
    worker: Worker,
    task: impl Future<Output = ()> + Send + 'static,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(supervisor.clone().run(worker, None, task)))
}

/// Joins the writer. All handles to the journal are dropped by now, so it ends after its last command.
async fn close_journal(writer: JournalThreads) {
    let closed = tokio::task::spawn_blocking(move || writer.join());
    match tokio::time::timeout(JOURNAL_CLOSE_TIME, closed).await {
        Ok(_) => tracing::info!("stopped: the journal is closed"),
        Err(_) => tracing::warn!("stopped before the journal was closed; the next start recovers it"),
    }
}

/// Returns the limits of retention; `None` keeps everything. In the configuration, 0 means no limit. Without a limit it is the
/// default.
fn retention(config: &Config) -> Retention {
    let days = Some(config.journal.keep_days).filter(|days| *days > 0);
    let changes = Some(config.journal.keep_changes).filter(|changes| *changes > 0);
    let has_limit = days.is_some() || changes.is_some();
    let keeps_segments = config.segments.keep == KeptSegments::All
        && config.segments.location(&config.store, &config.journal.data).is_some();
    Retention { days, changes, only_sealed: has_limit && keeps_segments }
}

/// Returns the limits on waiting readers. They always leave one connection for other requests.
fn reader_limits(config: &Config) -> live_readers::ReaderLimits {
    let limits = &config.limits;
    let readers = limits.streams.min(limits.connections - 1).max(1);
    live_readers::ReaderLimits {
        readers,
        per_client: limits.share_of(readers),
        wait: limits.long_poll_wait,
        stream: limits.stream_lifetime,
        heartbeat: config.server.heartbeat,
    }
}

async fn aggregate_metrics(metrics: Metrics) {
    let mut ticks = tokio::time::interval(METRICS_INTERVAL);
    loop {
        ticks.tick().await;
        metrics.aggregate();
    }
}
