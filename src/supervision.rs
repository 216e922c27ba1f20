//! Supervision of threads and tasks that run as long as the gateway. The first one that panics, or that returns
//! although the gateway is not stopping, is logged and recorded, and the gateway stops.
//!
//! Each such thread or task is a [`Worker`] and runs under [`Supervisor::run`] or [`Supervisor::guard`].

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tokio_util::sync::CancellationToken;

/// Environment variable with the name of a worker that panics when it starts. For tests, and only in builds with
/// debug assertions.
#[cfg(debug_assertions)]
const FAULT_POINT: &str = "FAULT_POINT";

named_values! {
    /// Thread or task that runs as long as the gateway.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Worker {
        /// Thread that settles drafts and writes them to the store.
        JournalWriter = "journal-writer",
        /// Thread that runs maintenance of the store.
        JournalMaintenance = "journal-maintenance",
        /// Thread that publishes the changes of other nodes.
        JournalFollower = "journal-follower",
        /// Task that waits for the request to stop.
        Signals = "signals",
        /// Task that reloads the configuration at SIGHUP.
        Reload = "reload",
        /// Task that reads a source from its broker.
        Source = "source",
        /// Task that starts the harvests.
        Harvests = "harvests",
        /// Task that harvests a source.
        Harvest = "harvest",
        /// Task that completes changes by lookups in a source's repository.
        FollowUps = "follow-ups",
        /// Task that compares repositories with the registry.
        Audits = "audits",
        /// Task that appends the changes that come due.
        Due = "due",
        /// Task that seals segments of the journal.
        Segments = "segments",
        /// Task that removes expired changes.
        Retention = "retention",
        /// Task that starts the engines and writes their cursors.
        Deliveries = "deliveries",
        /// Engine of a subscription.
        Engine = "engine",
        /// The WebSub hub.
        Hub = "hub",
        /// Task that writes the published copy.
        Publication = "publication",
        /// The target on D-Bus.
        Dbus = "dbus",
        /// Task that notifies streams and long polls of changes.
        Notifier = "notifier",
        /// Thread that renews the lease of the node and takes its duties.
        Node = "node",
        /// Task that aggregates the metrics.
        Metrics = "metrics",
        /// Task that looks for problems of the gateway.
        Status = "status",
        /// Task that records the flow of changes.
        Flow = "flow",
    }
}

/// Unexpected end of a worker, caused by a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The worker.
    pub worker: Worker,
    /// Source or subscription that the worker belongs to.
    pub of: Option<String>,
    /// `true` if the worker panicked, `false` if it returned too early.
    pub panicked: bool,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.worker.name())?;
        if let Some(of) = &self.of {
            write!(f, " of {of}")?;
        }
        f.write_str(if self.panicked { " has panicked" } else { " has ended although the gateway is not stopping" })
    }
}

/// Records the first death of a worker. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<SupervisorState>);

#[derive(Debug, Default)]
struct SupervisorState {
    stop: CancellationToken,
    first_death: OnceLock<Death>,
}

impl Supervisor {
    /// Creates a supervisor for workers that may return once `stop` is cancelled. The death of a worker also cancels
    /// it.
    #[must_use]
    pub fn new(stop: CancellationToken) -> Self {
        Self(Arc::new(SupervisorState { stop, first_death: OnceLock::new() }))
    }

    /// Returns the token after whose cancellation workers may return.
    #[must_use]
    pub fn stop_token(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Returns the first death, if any worker has died.
    #[must_use]
    pub fn death(&self) -> Option<&Death> {
        self.0.first_death.get()
    }

    /// Runs the task of a worker. Dropping the future before it completes is no death.
    pub async fn run(self, worker: Worker, of: Option<String>, task: impl Future<Output = ()>) {
        let guard = self.guard(worker, of);
        task.await;
        guard.returned();
    }

    /// Returns a guard that reports a panic of the worker that holds it, usually a thread.
    #[must_use]
    pub fn guard(self, worker: Worker, of: Option<String>) -> WorkerGuard {
        let guard = WorkerGuard { supervisor: self, worker, of };
        fault_point(worker);
        guard
    }

    /// Records and logs the first death. Later ones may be its consequences and are ignored.
    fn report(&self, death: Death) {
        let message = death.to_string();
        if self.0.first_death.set(death).is_ok() {
            tracing::error!("{message}, which is a bug in Tidings; the gateway stops; please report it");
            self.0.stop.cancel();
        }
    }
}

/// Guard that reports a panic of the thread or task that holds it.
#[derive(Debug)]
pub struct WorkerGuard {
    supervisor: Supervisor,
    worker: Worker,
    of: Option<String>,
}

impl WorkerGuard {
    /// Reports that the worker has returned, unless the gateway is stopping.
    fn returned(mut self) {
        if !self.supervisor.0.stop.is_cancelled() {
            self.report(false);
        }
    }

    fn report(&mut self, panicked: bool) {
        self.supervisor.report(Death { worker: self.worker, of: self.of.take(), panicked });
    }
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.report(true);
        }
    }
}

/// Panics if a test has requested it.
#[cfg(debug_assertions)]
fn fault_point(worker: Worker) {
    let is_named = std::env::var_os(FAULT_POINT).is_some_and(|name| name == worker.name());
    assert!(!is_named, "{FAULT_POINT} is {}", worker.name());
}

#[cfg(not(debug_assertions))]
fn fault_point(_: Worker) {}

#[cfg(test)]
mod tests {
    use super::{CancellationToken, Supervisor, Worker};

    #[tokio::test]
    async fn only_early_returns_and_panics_are_deaths() {
        let stop = CancellationToken::new();
        let supervisor = Supervisor::new(stop.clone());
        let aborted = tokio::spawn(supervisor.clone().run(Worker::Notifier, None, std::future::pending()));
        tokio::task::yield_now().await;
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        assert_eq!(supervisor.death(), None);

        supervisor.clone().run(Worker::Source, Some("s".to_owned()), async {}).await;
        assert!(stop.is_cancelled());
        let death = supervisor.death().unwrap().to_string();
        assert_eq!(death, "source of s has ended although the gateway is not stopping");

        let supervisor = Supervisor::new(stop);
        supervisor.clone().run(Worker::Source, None, async {}).await;
        assert_eq!(supervisor.death(), None);
        let _ = tokio::spawn(supervisor.clone().run(Worker::Hub, None, async { panic!("for the test") })).await;
        assert_eq!(supervisor.death().unwrap().to_string(), "hub has panicked");
    }
}
