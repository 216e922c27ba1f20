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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{RATE_WINDOW, RateWindow, TransferError};

    /// Returns the time after which pieces of this size, each after this pause, end a transfer; `None` after an hour.
    fn end_of(bytes: usize, pause: Duration) -> Option<Duration> {
        let (mut rate, mut passed) = (RateWindow::default(), Duration::ZERO);
        while passed < Duration::from_secs(3600) {
            assert!(!rate.left().is_zero() && rate.left() <= RATE_WINDOW);
            let (waited, bytes) = if pause > rate.left() { (rate.left(), 0) } else { (pause, bytes) };
            passed += waited;
            if let Err(error) = rate.add(waited, bytes) {
                assert!(matches!(error, TransferError::TooSlow(_)));
                return Some(passed);
            }
        }
        None
    }

    #[test]
    fn dripping_server_is_left_after_a_minute() {
        assert_eq!(end_of(1, Duration::from_secs(3)), Some(RATE_WINDOW));
        assert_eq!(end_of(900, Duration::from_secs(1)), Some(RATE_WINDOW));
        assert_eq!(end_of(0, Duration::from_secs(7200)), Some(RATE_WINDOW));
    }

    #[test]
    fn slow_server_may_take_its_time() {
        assert_eq!(end_of(1000, Duration::from_secs(1)), None);
        assert_eq!(end_of(20_000, Duration::from_secs(10)), None);
    }

    #[test]
    fn silence_after_a_quick_start_ends_the_next_minute() {
        let mut rate = RateWindow::default();
        rate.add(Duration::from_secs(1), 1 << 20).unwrap();
        rate.add(rate.left(), 0).unwrap();
        assert!(rate.add(rate.left(), 0).is_err());
    }
}
