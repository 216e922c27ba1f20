//! Whether the journal could be written lately. A failed write counts until a message is written, or a probe succeeds.

use std::sync::atomic::{AtomicBool, Ordering};

use super::store::StoreError;

/// Outcome of the last write. Unproven until the first one.
#[derive(Debug, Default)]
pub(super) struct Writable(AtomicBool);

impl Writable {
    /// Whether the last message that was to be written was written.
    pub(super) fn is_proven(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Notes the outcome of writing a message, or a probe of its size.
    pub(super) fn note<T>(&self, written: &Result<T, StoreError>) {
        match written {
            Ok(_) => self.0.store(true, Ordering::Release),
            Err(error) => self.failed(error),
        }
    }

    /// Notes a failure. A refusal concerns one batch alone.
    pub(super) fn failed(&self, error: &StoreError) {
        if !matches!(error, StoreError::Refused(_)) {
            self.0.store(false, Ordering::Release);
        }
    }
}
