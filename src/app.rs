//! Wiring: puts the parts together, starts them, and stops them in order. The only place that starts
//! anything. A thread or task that dies by a fault of the program stops the gateway as well ([`supervision`](crate::supervision)).
//!
//! Stopping: first nothing new is accepted, then what was accepted is finished, then what is on its way
//! to subscribers is confirmed and where they are is written, then the journal is closed; all of it within the grace time.

mod hub;
mod signals;
mod sources;

use std::{collections::BTreeMap, io::Write, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    admin::{health::Ready, metrics::Metrics, quarantine::Quarantine, registry::Seeds, sources::Listed},
    config::{Config, MessageRate, SourceConfig},
    delivery::{OperationError, Subscriptions, Tuning},
    http_client::{ClientError, OutboundPolicy},
    intake::Intake,
    journal::{
        self, Journal, JournalThreads,
        retention::Retention,
        store::{self, FolderContent, OpenError, StoreError, StoreLimits, inspect},
    },
    model::SourceName,
    openapi::Documentation,
    router::{self, Surfaces, router},
    source::{http::Hooks, rate::RateLimiter},
    supervision::{Death, Supervisor, Worker},
    view::{
        changes::Changes,
        feed::FeedView,
        service::{Hook, Service},
        waiting::{self, Waiting},
    },
    web::{OwnSite, Scope, Spool, Tls, TlsError, server},
};

/// How much of the grace time is kept for closing the journal, after the last request.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// How much of it, at the most, for what is on its way to subscribers.
const DRAINING_TIME: Duration = Duration::from_secs(3);

/// How often what was measured is sorted into its buckets.
const SETTLE_METRICS: Duration = Duration::from_secs(5);

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// Why the gateway could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A source's settings do not fit its dialect.
    #[error("sources.{name}.settings: {reason}")]
    Source {
        /// The source.
        name: SourceName,
        /// Why.
        reason: String,
    },
    /// What asks a source's repository cannot be set up.
    #[error("sources.{name}.repository: {error}")]
    Repository {
        /// The source.
        name: SourceName,
        /// Why.
        error: ClientError,
    },
    /// The certificate cannot be served with.
    #[error("server.tls: {0}")]
    Tls(#[from] TlsError),
    /// SIGHUP cannot be waited for.
    #[error("SIGHUP cannot be waited for: {0}")]
    Hangup(std::io::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; stop what is there, or give another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// The subscriptions cannot be set up.
    #[error("the subscriptions cannot be set up: {0}")]
    Subscriptions(#[from] OperationError),
    /// The hub cannot be set up.
    #[error("the hub cannot be set up: {0}")]
    Hub(#[from] ClientError),
    /// A thread or task has died, by a fault of the gateway.
    #[error("{0}, which is a fault of this program: the gateway has stopped")]
    Died(Death),
    /// What is counted cannot be received.
    #[error("cannot set up the metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Serves until it is told to stop, by SIGTERM or Ctrl-C.
///
/// # Errors
/// When it cannot start, or a thread or task of it has died.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let gateway = Gateway::build(config, signals::terminated()).await?;
    {
        let mut out = std::io::stdout().lock();
        // Nobody may be reading; that is no reason not to serve.
        let _ = writeln!(out, "tidings is listening on {}", gateway.url()).and_then(|()| out.flush());
    }
    gateway.run().await
}

/// A gateway that is set up and listens. [`Gateway::run`] serves; without it, dropping the gateway ends its tasks.
pub struct Gateway {
    url: String,
    grace: Duration,
    server: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Stops everything. Its child, the token of the supervisor, stops only what accepts messages and requests, and is
    /// cancelled first.
    stop: CancellationToken,
    supervisor: Supervisor,
    sources: JoinSet<()>,
    follow_ups: JoinSet<()>,
    deliveries: JoinSet<()>,
    retention: Option<AbortOnDropHandle<()>>,
    /// Tasks that end with the gateway, whatever they are doing.
    _background: [AbortOnDropHandle<()>; 4],
    writer: JournalThreads,
}

impl Gateway {
    /// Opens the journal, listens, and starts everything but the HTTP server. The gateway stops when `stop_signal` is ready.
    ///
    /// # Errors
    /// When something cannot be set up, or a thread or task has died meanwhile.
    pub async fn build(
        config: Config,
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
        let built = Self::start(&config, stop, supervisor.clone(), signals).await;
        // Whatever failed may have failed because of a death.
        built.map_err(|error| supervisor.death().map_or(error, |death| ServeError::Died(death.clone())))
    }

    async fn start(
        config: &Config,
        stop: CancellationToken,
        supervisor: Supervisor,
        signals: AbortOnDropHandle<()>,
    ) -> Result<Self, ServeError> {
        let stop_accepting = supervisor.stop_token();
        let metrics = Metrics::install()?;
        let sources = sources::set_up(config).await?;
        let tls = config.server.tls.as_ref().map(|files| Tls::load(&files.certificate, &files.key)).transpose()?;
        let reloading = signals::reload_on_hangup(tls.clone(), &supervisor)?;
        let (journal, writer) = open(config, &supervisor)?;
        let address = config.server.listen;
        let listener = TcpListener::bind(address).await.map_err(|error| ServeError::Listen { address, error })?;
        let address = listener.local_addr().map_err(|error| ServeError::Listen { address, error })?;
        let public_url = config.server.public_url_at(address);
        let guard = OutboundPolicy::restricted(config.delivery.allow.clone());
        let (subscriptions, runner) =
            Subscriptions::open(journal.clone(), config.subscriptions.clone(), guard.clone(), Tuning::default())
                .await?;
        let retention =
            retention(config).map(|retention| spawn(&supervisor, Worker::Retention, retention.run(journal.clone())));
        let reading = sources::read_brokers(config, &journal, &sources, stop_accepting, &supervisor);
        let follow_ups = sources::follow_up(&journal, &sources, stop_accepting, &supervisor);
        let spool = Spool::new(&config.journal.data, config.limits.spool_bytes);
        let (waiting, herald) = Waiting::new(journal.clone(), spool, readers(config));
        // Streams end when it does.
        let telling = spawn(&supervisor, Worker::Herald, herald.run(stop_accepting.clone().cancelled_owned()));
        let mut surfaces =
            surfaces(config, journal, sources, subscriptions, waiting, public_url.as_str(), metrics.clone());
        let hub = hub::open(config, &surfaces, guard, public_url.as_str()).await?;
        surfaces.hub = hub.as_ref().map(|(hub, _)| hub.clone());
        let limits = &config.limits;
        let bounds = router::Bounds {
            body: limits.body_bytes,
            held: limits.held_bytes,
            time: limits.request_timeout,
            wait: limits.long_poll_wait,
        };
        let url = config.server.url_at(address);
        let urls = [public_url.as_str(), &url];
        let site = OwnSite::new(&urls, &config.server.hosts, config.server.tls.is_some(), config.access.is_open());
        let router = router(&surfaces, bounds, &Arc::new(config.access.clone()), site);
        drop(surfaces);
        let connections = limits.connections;
        let per_client = limits.share_of(connections);
        let bounds =
            server::Bounds { connections, per_client, head: limits.header_timeout, stall: limits.request_timeout };
        let server = Box::pin(server::serve(listener, tls, router, stop_accepting.clone(), bounds));

        warn_of_access(config);
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, data = %config.journal.data.display(), "serving");
        let grace = config.server.grace;
        let mut deliveries = JoinSet::new();
        let running = runner.run(stop.clone(), draining_time(grace), supervisor.clone());
        deliveries.spawn(supervisor.clone().run(Worker::Deliveries, None, running));
        if let Some((_, hub)) = hub {
            deliveries.spawn(supervisor.clone().run(Worker::Hub, None, hub.run(stop.clone())));
        }
        let settling = spawn(&supervisor, Worker::Metrics, settle_metrics(metrics));
        Ok(Self {
            url,
            grace,
            server,
            stop,
            supervisor,
            sources: reading,
            follow_ups,
            deliveries,
            retention,
            _background: [signals, reloading, telling, settling],
            writer,
        })
    }

    /// The URL of the address that the gateway listens on.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves until the gateway is told to stop or a thread or task of it dies, and shuts it down.
    ///
    /// # Errors
    /// When a thread or task has died.
    pub async fn run(mut self) -> Result<(), ServeError> {
        let Self { grace, server, supervisor, sources, .. } = &mut self;
        let stop_accepting = supervisor.stop_token();
        let cut_off = async {
            stop_accepting.cancelled().await;
            tracing::info!("stopping: no new requests are taken");
            tokio::time::sleep(grace.saturating_sub(CLOSING_TIME + draining_time(*grace))).await;
        };
        let finished = async {
            server.await;
            while sources.join_next().await.is_some() {}
        };
        tokio::select! {
            () = finished => {}
            () = cut_off => tracing::warn!("some messages were cut off: they were not finished within the grace time"),
        }
        self.shutdown().await
    }

    /// Lets go of what was not finished in time, writes where each subscription is, and closes the journal.
    async fn shutdown(self) -> Result<(), ServeError> {
        let Self { server, mut sources, mut follow_ups, mut deliveries, stop, supervisor, .. } = self;
        drop(server);
        sources.shutdown().await;
        follow_ups.shutdown().await;
        // Nothing comes in any more; what is on its way out is finished, and where each subscription is is written.
        stop.cancel();
        while deliveries.join_next().await.is_some() {}
        if let Some(retention) = self.retention {
            retention.abort();
            let _ = retention.await;
        }
        close(self.writer).await;
        supervisor.death().map_or(Ok(()), |death| Err(ServeError::Died(death.clone())))
    }
}

/// How much of the grace time is kept for what is on its way to subscribers when the last request is done.
fn draining_time(grace: Duration) -> Duration {
    (grace / 4).min(DRAINING_TIME)
}

/// Starts a supervised task, which ends when the handle is dropped.
fn spawn(
    supervisor: &Supervisor,
    worker: Worker,
    task: impl Future<Output = ()> + Send + 'static,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(supervisor.clone().run(worker, None, task)))
}

/// What is allowed, and is perhaps not meant.
fn warn_of_access(config: &Config) {
    let Config { server, access, .. } = config;
    if server.lacks_public_url() {
        let url = server.url_on_this_machine();
        tracing::warn!(url, "server.public_url is not set: links lead to an address that only this machine reaches");
    }
    let on_loopback = server.listen.ip().to_canonical().is_loopback();
    if access.is_open() && !on_loopback {
        tracing::warn!("there is no access control: whoever reaches this address may post, read and administer");
    } else if !access.is_open() && !access.grants(&Scope::Read) {
        tracing::warn!("no token may read: nobody can read the feed");
    }
    for (name, source) in config.sources.iter().filter(|(_, source)| source.signature.is_some()) {
        if !source.dialect.headers.is_empty() {
            let (dialect, headers) = (source.dialect.name, source.dialect.headers.join(", "));
            tracing::warn!(
                source = %name, dialect, headers,
                "the dialect also reads headers, and a signature covers the body alone: headers of a message that is let in \
                 by its signature are not read; give senders that need them a token"
            );
        }
    }
    if !access.is_open() && !on_loopback && server.tls.is_none() {
        tracing::warn!("tokens and messages come in unencrypted unless a proxy in front encrypts: see server.tls");
    }
}

/// Every hook of the journal is gone by now, so the writer ends when its last order is done.
async fn close(writer: JournalThreads) {
    let closed = tokio::task::spawn_blocking(move || writer.join());
    match tokio::time::timeout(CLOSING_TIME, closed).await {
        Ok(_) => tracing::info!("stopped: the journal is closed"),
        Err(_) => tracing::warn!("stopped before the journal was closed; it repairs itself when it is opened again"),
    }
}

fn open(config: &Config, supervisor: &Supervisor) -> Result<(Journal, JournalThreads), ServeError> {
    let limits = StoreLimits {
        dedupe_events: config.journal.dedupe_events,
        dedupe_millis: i64::from(config.journal.dedupe_days) * MILLIS_PER_DAY,
        quarantine_entries: config.limits.quarantine_entries,
        quarantine_bytes: config.limits.quarantine_bytes,
    };
    let settings = journal::JournalSettings {
        queue: config.journal.queue,
        batch: config.journal.batch,
        bounds: config.limits.change_bounds(),
        tail: journal::TailBounds { changes: config.journal.tail_changes, bytes: config.journal.tail_bytes },
        ..journal::JournalSettings::default()
    };
    let is_new = inspect(&config.journal.data).is_ok_and(|found| found == FolderContent::Empty);
    let store = store::open(&config.journal.data, limits)?;
    if is_new {
        tracing::info!(data = %config.journal.data.display(), "a new, empty journal was made");
    }
    Ok(Journal::start_supervised(store, settings, supervisor)?)
}

/// What is kept; `None` for everything. In the configuration 0 stands for no bound.
fn retention(config: &Config) -> Option<Retention> {
    let retention = Retention {
        days: Some(config.journal.keep_days).filter(|days| *days > 0),
        changes: Some(config.journal.keep_changes).filter(|changes| *changes > 0),
    };
    Some(retention).filter(|retention| *retention != Retention::default())
}

/// A connection is left for others, however many streams there may be.
fn readers(config: &Config) -> waiting::Bounds {
    let limits = &config.limits;
    let readers = limits.streams.min(limits.connections - 1).max(1);
    waiting::Bounds {
        readers,
        per_client: limits.share_of(readers),
        wait: limits.long_poll_wait,
        stream: limits.stream_lifetime,
        heartbeat: config.server.heartbeat,
    }
}

async fn settle_metrics(metrics: Metrics) {
    let mut ticks = tokio::time::interval(SETTLE_METRICS);
    loop {
        ticks.tick().await;
        metrics.settle();
    }
}

fn surfaces(
    config: &Config,
    journal: Journal,
    sources: BTreeMap<String, Listed>,
    subscriptions: Subscriptions,
    waiting: Waiting,
    public_url: &str,
    metrics: Metrics,
) -> Surfaces {
    let intake = Intake::new(journal.clone());
    let by_http: BTreeMap<_, _> = sources.iter().filter(|(_, listed)| listed.connection.is_none()).collect();
    let hook = |(name, listed): (&&String, &&Listed)| Hook {
        source: (*name).clone(),
        about: listed.source.kind().about,
        accepts: listed.source.kind().accepts,
    };
    let hooks = by_http.iter().map(hook).collect();
    let by_http = by_http.into_iter().map(|(name, listed)| (name.clone(), Arc::clone(&listed.source))).collect();
    let sources = Arc::new(sources);
    let rate = |(name, source): (&SourceName, &SourceConfig)| {
        source.rate.map(|MessageRate { per_second, burst }| (name.to_string(), RateLimiter::new(per_second, burst)))
    };
    let rates = config.sources.iter().filter_map(rate).collect();
    Surfaces {
        hooks: Hooks { intake: intake.clone(), sources: Arc::new(by_http), rates: Arc::new(rates) },
        changes: Changes { journal: journal.clone(), waiting: waiting.clone(), largest_page: config.limits.page },
        feed: FeedView::new(
            journal.clone(),
            public_url,
            &config.journal.data,
            hub::url(config, public_url),
            waiting.spool().clone(),
        ),
        waiting,
        service: Service { public_url: public_url.into(), hooks },
        seeds: Seeds::new(journal.clone(), intake.clone(), Arc::clone(&sources)),
        quarantine: Quarantine { journal: journal.clone(), intake, sources: Arc::clone(&sources) },
        ready: Ready { journal: journal.clone(), sources: Arc::clone(&sources), subscriptions: subscriptions.clone() },
        sources,
        subscriptions,
        hub: None,
        metrics,
        documentation: Documentation::new(router::routes().into_interface(), public_url, config.limits.page),
        journal,
    }
}
