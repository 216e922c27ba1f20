//! Disk space that the file of a response has reserved.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Disk space that a file reserves in one step, in KiB.
const STEP_KIB: u32 = 1 << 10;

/// Disk space reserved by a file.
#[derive(Debug)]
pub(super) struct DiskReservation {
    /// Unused part of the reservation, in bytes.
    unused: usize,
    permits: Option<OwnedSemaphorePermit>,
    _file_permit: OwnedSemaphorePermit,
}

impl DiskReservation {
    /// Reserves nothing yet, for a file that has a place among those of the spool.
    pub(super) fn new(file_permit: OwnedSemaphorePermit) -> Self {
        Self { unused: 0, permits: None, _file_permit: file_permit }
    }

    /// Reserves space for further bytes.
    ///
    /// # Errors
    /// Fails if `disk` has no space left.
    pub(super) fn reserve(&mut self, disk: &Arc<Semaphore>, bytes: usize) -> Result<(), TryAcquireError> {
        while self.unused < bytes {
            let more = Arc::clone(disk).try_acquire_many_owned(STEP_KIB)?;
            match &mut self.permits {
                Some(permits) => permits.merge(more),
                none => *none = Some(more),
            }
            self.unused += STEP_KIB as usize * 1024;
        }
        self.unused -= bytes;
        Ok(())
    }
}
