//! The threads of the journal: the writer, the maintenance of the store, and the follower of other nodes.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread::JoinHandle,
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    publisher::Publisher,
    store::{Store, StoreError},
};
use crate::supervision::{Supervisor, Worker};

/// Interval of the maintenance while nothing is written.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// The journal's threads. They end when every [`Journal`](super::Journal) has been dropped and every command is executed.
#[must_use = "the journal is closed properly by joining its threads"]
pub struct JournalThreads(pub(super) Vec<JoinHandle<()>>);

impl JournalThreads {
    /// Waits until every command is executed and the journal is closed.
    pub fn join(self) {
        for thread in self.0 {
            // A writer that panicked has nothing more to write; everything that it acknowledged is on disk.
            let _ = thread.join();
        }
    }
}

/// Starts a thread of the journal. The supervisor is notified only of a panic, because a thread returns normally
/// when the journal is closed and when the other thread has panicked.
pub(super) fn spawn(
    worker: Worker,
    supervisor: &Supervisor,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    let supervisor = supervisor.clone();
    let supervised = move || {
        let _guard = supervisor.guard(worker, None);
        work();
    };
    let spawned = std::thread::Builder::new().name(worker.name().to_owned()).spawn(supervised);
    spawned.map_err(|error| StoreError::Io(format!("cannot start the thread {}: {error}", worker.name())))
}

/// Runs the store's maintenance at each wake-up and each [`MAINTENANCE_INTERVAL`], until the writer has ended. Logs a
/// failure that lasts once.
pub(super) fn run_maintenance(store: &dyn Store, wake_ups: &Receiver<()>) {
    let mut is_failing = false;
    while !matches!(wake_ups.recv_timeout(MAINTENANCE_INTERVAL), Err(RecvTimeoutError::Disconnected)) {
        match store.maintain() {
            Ok(()) => is_failing = false,
            Err(error) if !std::mem::replace(&mut is_failing, true) => {
                tracing::warn!(%error, "the maintenance of the journal failed; retrying");
            }
            Err(_) => {}
        }
    }
}

/// Publishes the changes of other nodes until `stop` is cancelled.
pub(super) fn run_follower(store: &dyn Store, publisher: &Publisher, stop: &CancellationToken) {
    let Some(mut watch) = store.watch(stop.clone()) else { return };
    let mut is_failing = false;
    while !stop.is_cancelled() {
        match watch.next().and_then(|state| publisher.follow(state)) {
            Ok(()) => {
                if std::mem::take(&mut is_failing) {
                    tracing::info!("the changes of other nodes can be read again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) && !stop.is_cancelled() {
                    tracing::warn!(%error, "cannot read the changes of other nodes; retrying");
                }
            }
        }
    }
}
