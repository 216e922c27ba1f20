//! Least rate of a transfer.

use std::time::Duration;

use super::TransferError;

/// Time after which the bytes of a transfer are counted, and their least number: 1 kB/s.
const RATE_WINDOW: Duration = Duration::from_secs(60);
const LEAST_BYTES: u64 = 60 * 1000;

/// Count of the bytes of a transfer, so that a server that drips does not hold a place of others.
#[derive(Default)]
pub(super) struct RateWindow {
    /// Time that was spent waiting for the server. The time of the disk does not count.
    waited: Duration,
    bytes: u64,
}

impl RateWindow {
    /// Returns the time until the bytes are counted.
    pub(super) fn left(&self) -> Duration {
        RATE_WINDOW.saturating_sub(self.waited)
    }

    /// Adds a wait with the bytes that have arrived after it.
    ///
    /// # Errors
    /// Fails at the end of a window with too few bytes.
    pub(super) fn add(&mut self, waited: Duration, bytes: usize) -> Result<(), TransferError> {
        self.waited += waited;
        self.bytes += bytes as u64;
        if self.waited < RATE_WINDOW {
            return Ok(());
        }
        let Self { bytes, .. } = std::mem::take(self);
        if bytes >= LEAST_BYTES {
            return Ok(());
        }
        Err(TransferError::TooSlow(format!(
            "the server has sent {bytes} bytes in a minute; {LEAST_BYTES} are the least"
        )))
    }
}
