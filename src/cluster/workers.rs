//! Life of a named worker, such as the engine of a subscription or of a harvest.
//!
//! Every node starts and stops all workers that the journal and the configuration define, and one node lets each of them
//! work: the one that has its duty. A worker that is started again waits until the former one of its name has ended. When
//! one node modifies a definition, all nodes read the definitions again ([`keep_synchronized`]).

use std::{convert::Infallible, fmt::Display, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Cluster, Tenure};
use crate::journal::nodes::DutyName;

/// Minimum time between two synchronizations, because each reads all definitions.
const SYNCHRONIZATION_PAUSE: Duration = Duration::from_millis(200);

/// Pause before a failed read of the journal is repeated in a tenure.
const READ_PAUSE: Duration = Duration::from_millis(500);

/// Handle to a worker.
#[derive(Debug)]
pub struct WorkerHandle {
    stop: CancellationToken,
    ended: CancellationToken,
}

impl WorkerHandle {
    /// Returns whether the worker has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Asks the worker to end. The future is ready when it has ended.
    pub fn stop(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stop.cancel();
        self.ended.clone().cancelled_owned()
    }
}

/// A worker to start.
pub struct WorkerLaunch<T> {
    /// Subject of the worker, such as a subscription.
    pub subject: T,
    stop: CancellationToken,
    /// Cancelled when the former worker of the same name has ended.
    before: Option<CancellationToken>,
    /// Signals, when dropped, that this worker has ended.
    ended: DropGuard,
}

impl<T> WorkerLaunch<T> {
    /// Creates a worker that `stop` asks to end. `before` is the former worker of the same name, if it may still run.
    #[must_use]
    pub fn new(subject: T, stop: CancellationToken, before: Option<WorkerHandle>) -> (WorkerHandle, Self) {
        let ended = CancellationToken::new();
        let handle = WorkerHandle { stop: stop.clone(), ended: ended.clone() };
        let before = before.map(|before| before.ended);
        (handle, Self { subject, stop, before, ended: ended.drop_guard() })
    }

    /// Runs `work` whenever this node has the duty, until the worker is to end or the work returns by itself.
    pub async fn run<W>(self, cluster: &Cluster, duty: DutyName, mut work: impl FnMut(&T, Tenure) -> W)
    where
        W: Future<Output = ()>,
    {
        let Self { subject, stop, before, ended } = self;
        if let Some(before) = before {
            before.cancelled().await;
        }
        cluster.run_duty(duty, &stop, |tenure| work(&subject, tenure)).await;
        drop(ended);
    }
}

/// Calls `synchronize`, until it succeeds, whenever a node has modified a definition, or `outdated` says that a worker has
/// found its own to be outdated. Without other nodes there are no `revisions`, and this waits for ever.
pub async fn keep_synchronized<E, F>(
    revisions: Option<watch::Receiver<u64>>,
    outdated: &Notify,
    mut synchronize: impl FnMut() -> F,
) -> Infallible
where
    E: Display,
    F: Future<Output = Result<(), E>>,
{
    let Some(mut revisions) = revisions else { return std::future::pending().await };
    loop {
        tokio::select! {
            changed = revisions.changed() => if changed.is_err() { return std::future::pending().await },
            () = outdated.notified() => {}
        }
        while let Err(error) = synchronize().await {
            tracing::debug!(%error, "cannot read definitions again that a node has modified; retrying");
            sleep(SYNCHRONIZATION_PAUSE).await;
        }
        sleep(SYNCHRONIZATION_PAUSE).await;
    }
}

/// Shows that another node has a duty when it is dropped.
#[must_use = "dropping the guard shows that the tenure has ended"]
pub struct ElsewhereGuard<F: FnMut()>(F);

impl<F: FnMut()> Drop for ElsewhereGuard<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Tenure {
    /// Returns a guard for the work of the tenure, which calls `show` at its end; `None` if the node has the duty for ever.
    pub fn show_elsewhere<F: FnMut()>(&self, show: F) -> Option<ElsewhereGuard<F>> {
        self.term().map(|_| ElsewhereGuard(show))
    }

    /// Reads something from the journal, and repeats a failed read until it succeeds; `None` if the tenure ends before.
    pub async fn read<T, E, F>(&self, mut read: impl FnMut() -> F) -> Option<T>
    where
        E: Display,
        F: Future<Output = Result<T, E>>,
    {
        loop {
            match read().await {
                Ok(value) => return Some(value),
                Err(error) => {
                    tracing::debug!(%error, "cannot read what a duty is about; retrying");
                    self.stop().run_until_cancelled(sleep(READ_PAUSE)).await?;
                }
            }
        }
    }
}
