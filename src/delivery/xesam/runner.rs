//! Background task of the target: connects to the bus, runs the crawlers' sessions, and reads signals.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use zbus::Message;

use super::{
    CRAWLER_INTERFACE,
    crawler::{CrawlerKey, End},
    crawlers::{Crawlers, Inner, Launch},
    session,
    target::Target,
};
use crate::{
    broker::ConnectionState,
    cluster::Cluster,
    dbus::{self, BusError, Connection, Incoming},
    journal::nodes::DutyName,
    model::Seq,
    retry::Backoff,
};

/// Waits between attempts to connect.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Interval between updates of the gauges.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time to invalidate the crawlers when the gateway is stopping.
const GOODBYE_TIME: Duration = Duration::from_millis(500);

/// Signals that the target needs.
const RULES: [&str; 2] = [
    "type='signal',interface='org.freedesktop.xesam.pmh.Crawler',member='Invalidated'",
    "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',interface='org.freedesktop.DBus',\
     member='NameOwnerChanged'",
];

/// Runs the target. The application spawns [`TargetRunner::run`].
pub struct TargetRunner {
    pub(super) crawlers: Crawlers,
    pub(super) launches: mpsc::Receiver<Launch>,
}

impl TargetRunner {
    /// Runs on the node that has the duty, until `stop` is cancelled. A bus that cannot be reached is tried again.
    pub async fn run(self, stop: CancellationToken, cluster: Cluster) {
        let Self { crawlers: Crawlers(crawlers), launches } = self;
        let launches = tokio::sync::Mutex::new(launches);
        if cluster.is_shared() {
            crawlers.status.set_state(ConnectionState::Elsewhere);
        }
        let work = |tenure: crate::cluster::Tenure| {
            let (crawlers, launches) = (&crawlers, &launches);
            let after = tenure.term().map_or(ConnectionState::Stopped, |_| ConnectionState::Elsewhere);
            async move {
                let _state = StateGuard(crawlers, after);
                if tenure.term().is_some() {
                    let journal = crawlers.pages.journal();
                    // A stop during this wait ends the connection before it begins.
                    let _ = tenure.stop().run_until_cancelled(journal.until_losses_are_known()).await;
                }
                connect_until(crawlers, &mut *launches.lock().await, tenure.stop()).await;
            }
        };
        cluster.run_duty(DutyName::dbus(), &stop, work).await;
        crawlers.status.set_state(ConnectionState::Stopped);
    }
}

/// Sets a state when it is dropped.
struct StateGuard<'a>(&'a Inner, ConnectionState);

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.0.status.set_state(self.1);
    }
}

/// Connects, and connects again after each failure, until `stop` is cancelled.
async fn connect_until(crawlers: &Arc<Inner>, launches: &mut mpsc::Receiver<Launch>, stop: &CancellationToken) {
    let mut backoff = Backoff::new(WAITS.0, WAITS.1);
    let mut last = String::new();
    loop {
        crawlers.status.set_state(ConnectionState::Connecting);
        let failed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            opened = open(crawlers) => match opened {
                Ok((connection, incoming)) => serve(crawlers, launches, connection, incoming, stop, &mut backoff).await,
                Err(error) => Err(error),
            },
        };
        crawlers.end_all(|_| Some(End::Disconnected));
        while launches.try_recv().is_ok() {}
        let reason = match failed {
            Ok(()) => return,
            Err(error) => error.to_string(),
        };
        let wait = backoff.next_wait();
        crawlers.status.record_failure(ConnectionState::Waiting, &reason, wait);
        let bus = crawlers.settings.bus.to_string();
        // Repetitions of the same failure are logged at `debug`, however long it lasts.
        if reason == last {
            tracing::debug!(bus, reason, "the D-Bus target still cannot use its bus");
        } else {
            tracing::warn!(bus, reason, "the D-Bus target cannot use its bus; retrying");
        }
        last = reason;
        if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

/// Serves crawlers over one connection. Returns when `stop` is cancelled or the connection has failed.
async fn serve(
    crawlers: &Arc<Inner>,
    launches: &mut mpsc::Receiver<Launch>,
    connection: Connection,
    mut incoming: Incoming,
    stop: &CancellationToken,
    backoff: &mut Backoff,
) -> Result<(), BusError> {
    crawlers.forget_signals();
    let journal = crawlers.pages.journal();
    // The journal's writer does not wake the crawlers itself, because there may be many.
    let (head, heads) = watch::channel(journal.head());
    let mut journal_head = journal.watch();
    let mut ticks = tokio::time::interval(GAUGE_INTERVAL);
    let mut sessions = JoinSet::new();
    let mut set_up = std::pin::pin!(set_up(crawlers, &connection));
    let mut is_set_up = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            signal = incoming.next_signal() => match signal {
                Some(signal) => read_signal(crawlers, &signal),
                None => return Err(BusError::Closed),
            },
            done = &mut set_up, if !is_set_up => {
                done?;
                is_set_up = true;
                backoff.reset();
                let (bus, settings) = (crawlers.settings.bus.to_string(), &crawlers.settings);
                let (name, path) = (settings.name.as_str(), settings.path.as_str());
                tracing::info!(bus, name, path, "crawlers can be installed over D-Bus");
                crawlers.status.set_state(ConnectionState::Connected);
            }
            Some(launch) = launches.recv() => {
                let (crawlers, connection) = (Arc::clone(crawlers), connection.clone());
                let heads = heads.clone();
                sessions.spawn(async move {
                    let max_bytes = crawlers.settings.batch_bytes;
                    session::run(launch, &crawlers.pages, &connection, heads, (max_bytes, &crawlers.permits)).await;
                });
            }
            Some(_) = sessions.join_next() => {}
            changed = journal_head.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let newest: Seq = *journal_head.borrow_and_update();
                head.send_replace(newest);
            }
            _ = ticks.tick() => crawlers.update_gauges(),
        }
    }
    say_goodbye(crawlers, &connection, incoming, sessions).await;
    Ok(())
}

/// Connects to the bus, and exports the target there.
async fn open(crawlers: &Arc<Inner>) -> Result<(Connection, Incoming), BusError> {
    let settings = &crawlers.settings;
    Connection::open(&settings.bus, &settings.path, Target(Arc::clone(crawlers))).await
}

/// Requests the signals, and takes the name.
async fn set_up(crawlers: &Arc<Inner>, connection: &Connection) -> Result<(), BusError> {
    for rule in RULES {
        connection.subscribe(rule).await?;
    }
    connection.take_name(&crawlers.settings.name).await
}

/// Invalidates all crawlers, so that they can install new ones when the target is back.
async fn say_goodbye(crawlers: &Inner, connection: &Connection, mut incoming: Incoming, mut sessions: JoinSet<()>) {
    crawlers.end_all(|_| Some(End::ByTarget("the gateway is stopping; install a new crawler later".to_owned())));
    let ended = async {
        connection.release_name(&crawlers.settings.name).await;
        while sessions.join_next().await.is_some() {}
    };
    let reading = async { while incoming.next_signal().await.is_some() {} };
    tokio::select! {
        () = ended => {}
        () = reading => {}
        () = tokio::time::sleep(GOODBYE_TIME) => {}
    }
}

/// Ends the crawlers that a signal concerns.
fn read_signal(crawlers: &Inner, signal: &Message) {
    let header = signal.header();
    let Some(sender) = header.sender() else { return };
    let is = |interface: &str, member: &str| {
        header.interface().is_some_and(|name| name.as_str() == interface)
            && header.member().is_some_and(|name| name.as_str() == member)
    };
    if is(CRAWLER_INTERFACE, "Invalidated") {
        let path = header.path().and_then(|path| dbus::Path::parse(path.as_str()).ok());
        if let Some(path) = path {
            let key = CrawlerKey { owner: sender.as_str().into(), path };
            crawlers.invalidated(key, signal.primary_header().serial_num().get());
        }
    } else if is("org.freedesktop.DBus", "NameOwnerChanged") && sender.as_str() == "org.freedesktop.DBus" {
        let change = signal.body();
        if let Ok((name, _, "")) = change.deserialize::<(&str, &str, &str)>() {
            crawlers.owner_left(name);
        }
    }
}
