//! Moving what was written from the write-ahead log into the file, beside the appends.
//!
//! SQLite does this itself, within the commit that makes the log too long: that commit, and who waits
//! for it, then waits for the whole file to be synced. Here another thread does it over another
//! connection, while appends go on. SQLite's own limit stays, further out, so that the log is bounded
//! if this does not keep up.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use rusqlite::Connection;

use crate::journal::store::{Decision, StoreError};

/// After about so many pages the log is moved: 32 MiB of pages of 8 KiB.
const DUE: u64 = 4096;

/// At so many pages SQLite does it within a commit: 128 MiB.
pub(super) const LIMIT: i64 = 16_384;

/// The write-ahead log.
pub(super) struct Log {
    connection: Mutex<Connection>,
    /// An estimate of the pages that have been added to it since it was moved.
    grown: AtomicU64,
}

impl Log {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection: Mutex::new(connection), grown: AtomicU64::new(0) }
    }

    /// Takes a commit into account: it writes the ends of some trees, and of others a page for a few rows.
    pub(super) fn grown_by(&self, decisions: &[Decision]) {
        let rows: usize = decisions.iter().map(|decision| decision.changes.len() + decision.objects.len()).sum();
        self.grown.fetch_add(6 + rows as u64 / 8, Ordering::Relaxed);
    }

    /// How many pages have come since it was last moved, about.
    pub(super) fn grown(&self) -> u64 {
        self.grown.load(Ordering::Relaxed)
    }

    pub(super) fn is_due(&self) -> bool {
        self.grown.load(Ordering::Relaxed) >= DUE
    }

    /// Moves as much as no reader still needs where it is.
    pub(super) fn checkpoint(&self) -> Result<(), StoreError> {
        self.grown.store(0, Ordering::Relaxed);
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
    }
}
