//! Outages of the journal: a failure of its storage is logged once when it begins and once when it has ended, however
//! many callers fail meanwhile.

use super::{JournalError, metrics};
use crate::outage::Outage;

/// Logs of reads and writes.
#[derive(Debug)]
pub(super) struct Outages {
    reads: Outage,
    writes: Outage,
}

impl Default for Outages {
    fn default() -> Self {
        Self { reads: Outage::of("read the journal"), writes: Outage::of("write the journal") }
    }
}

impl Outages {
    /// Returns the newest error while the journal cannot be read or written.
    pub(super) fn error(&self) -> Option<String> {
        self.writes.error().or_else(|| self.reads.error())
    }

    /// Notes the outcome of a read, and returns it.
    pub(super) fn read<T>(&self, result: Result<T, JournalError>) -> Result<T, JournalError> {
        note(&self.reads, result)
    }

    /// Notes the outcome of a write, and returns it.
    pub(super) fn wrote<T>(&self, result: Result<T, JournalError>) -> Result<T, JournalError> {
        note(&self.writes, result)
    }
}

fn note<T>(outage: &Outage, result: Result<T, JournalError>) -> Result<T, JournalError> {
    match &result {
        Ok(_) => {
            outage.works();
        }
        Err(error) => {
            metrics::failed(error);
            if error.is_outage() {
                outage.failed(error);
            }
        }
    }
    result
}
