//! Writability of the journal. A failed write counts until a message is written or a probe succeeds.

use std::sync::atomic::{AtomicBool, Ordering};

use super::store::StoreError;

/// Outcome of the last write; unproven before the first one.
#[derive(Debug, Default)]
pub(super) struct Writable(AtomicBool);

impl Writable {
    /// Returns whether the last write of a message succeeded.
    pub(super) fn is_proven(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Records the outcome of writing a message or a probe.
    pub(super) fn note<T>(&self, written: &Result<T, StoreError>) {
        match written {
            Ok(_) => self.0.store(true, Ordering::Release),
            Err(error) => self.failed(error),
        }
    }

    /// Records a failure. A refusal and a lost duty are ignored, because they concern only one batch.
    pub(super) fn failed(&self, error: &StoreError) {
        if !matches!(error, StoreError::TooLarge(_) | StoreError::Refused(_) | StoreError::DutyLost) {
            self.0.store(false, Ordering::Release);
        }
    }
}
