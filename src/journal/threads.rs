//! The two threads of the journal: the writer, and the maintenance of the store.

use std::{sync::mpsc::Receiver, thread::JoinHandle};

use super::store::{Store, StoreError};
use crate::supervision::{Supervisor, Worker};

/// The journal's threads. They end when every [`Journal`](super::Journal) has been dropped and every command is executed.
#[must_use = "the journal is closed properly by joining its threads"]
pub struct JournalThreads(pub(super) [JoinHandle<()>; 2]);

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

/// Runs the store's maintenance at each wake-up, until the writer has ended.
pub(super) fn run_maintenance(store: &dyn Store, wake_ups: &Receiver<()>) {
    while wake_ups.recv().is_ok() {
        if let Err(error) = store.maintain() {
            tracing::warn!(%error, "the maintenance of the journal failed; retrying");
        }
    }
}
