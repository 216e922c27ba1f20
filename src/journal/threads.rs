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
use crate::{
    outage::Outage,
    supervision::{Supervisor, Worker},
};

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
    let outage = Outage::of("maintain the journal");
    while !matches!(wake_ups.recv_timeout(MAINTENANCE_INTERVAL), Err(RecvTimeoutError::Disconnected)) {
        match store.maintain() {
            Ok(()) => outage.works(),
            Err(error) => outage.failed(&error),
        };
    }
}

/// Publishes the changes of other nodes until `stop` is cancelled.
pub(super) fn run_follower(store: &dyn Store, publisher: &Publisher, stop: &CancellationToken) {
    let Some(mut watch) = store.watch(stop.clone()) else { return };
    let outage = Outage::of("read the changes of other nodes");
    while !stop.is_cancelled() {
        match watch.next().and_then(|state| publisher.follow(state)) {
            Ok(()) => {
                outage.works();
            }
            Err(error) if !stop.is_cancelled() => {
                outage.failed(&error);
            }
            Err(_) => {}
        }
    }
}
