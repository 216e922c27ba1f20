//! Supervision of the threads and tasks that run for as long as the gateway does. The first one that panics, or that
//! returns although nothing has stopped the gateway, is logged and remembered, and the gateway stops.
//!
//! Every such thread and task is a [`Worker`] and runs under [`Supervisor::run`] or [`Supervisor::guard`].

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tokio_util::sync::CancellationToken;

/// Names the worker that panics as soon as it starts. Read in builds with debug assertions alone, for the tests.
#[cfg(debug_assertions)]
const FAULT_POINT: &str = "FAULT_POINT";

named_values! {
    /// A thread or task that runs for as long as the gateway does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Worker {
        /// The thread that settles drafts and writes them to the store.
        JournalWriter = "journal-writer",
        /// The thread that maintains the store.
        JournalUpkeep = "journal-upkeep",
        /// The task that waits for SIGTERM and Ctrl-C.
        Signals = "signals",
        /// The task that reads the certificate again at SIGHUP.
        CertificateReload = "certificate-reload",
        /// A task that reads a source from its broker.
        Source = "source",
        /// A task that asks a source's repository about incomplete changes.
        FollowUps = "follow-ups",
        /// The task that removes old changes.
        Retention = "retention",
        /// The task that starts the engines and writes their cursors.
        Deliveries = "deliveries",
        /// The engine of a subscription.
        Engine = "engine",
        /// The WebSub hub.
        Hub = "hub",
        /// The task that wakes streams and long polls.
        Herald = "herald",
        /// The task that maintains the metrics.
        Metrics = "metrics",
    }
}

/// The end of a worker that ended by a fault of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The worker.
    pub worker: Worker,
    /// The source or subscription that it worked for.
    pub of: Option<String>,
    /// Whether it panicked; otherwise it returned too early.
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

/// Collects the deaths of workers. Clones are handles to the same.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<State>);

#[derive(Debug, Default)]
struct State {
    stop: CancellationToken,
    first: OnceLock<Death>,
}

impl Supervisor {
    /// A supervisor for workers that may return once `stop` is cancelled, as it is when one dies.
    #[must_use]
    pub fn new(stop: CancellationToken) -> Self {
        Self(Arc::new(State { stop, first: OnceLock::new() }))
    }

    /// The token after which workers may return.
    #[must_use]
    pub fn stop_token(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// The first death, if a worker has died.
    #[must_use]
    pub fn death(&self) -> Option<&Death> {
        self.0.first.get()
    }

    /// Runs a worker's task. Dropping the future before it is ready is no death.
    pub async fn run(self, worker: Worker, of: Option<String>, task: impl Future<Output = ()>) {
        let guard = self.guard(worker, of);
        task.await;
        guard.returned();
    }

    /// Watches the worker that holds the guard, usually a thread, for a panic.
    #[must_use]
    pub fn guard(self, worker: Worker, of: Option<String>) -> WorkerGuard {
        let guard = WorkerGuard { supervisor: self, worker, of };
        fault_point(worker);
        guard
    }

    /// Remembers and logs the first death. Workers that fail because of it are not logged.
    fn report(&self, death: Death) {
        let line = death.to_string();
        if self.0.first.set(death).is_ok() {
            tracing::error!("{line}, which is a fault of this program: the gateway stops; please report it");
            self.0.stop.cancel();
        }
    }
}

/// Reports a panic of the thread or task that holds it.
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

/// Panics where a test has asked for it.
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
    async fn an_early_return_and_a_panic_are_deaths_and_a_return_after_stop_and_an_abort_are_none() {
        let stop = CancellationToken::new();
        let supervisor = Supervisor::new(stop.clone());
        let aborted = tokio::spawn(supervisor.clone().run(Worker::Herald, None, std::future::pending()));
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
