//! Recent rate of messages, in messages per second.

use std::time::{Duration, Instant};

/// Length of the averaging window in seconds.
const WINDOW_SECONDS: usize = 10;

/// Message counts of the last seconds.
#[derive(Debug)]
pub struct MessageRate {
    began: Instant,
    /// Slot per second modulo [`WINDOW_SECONDS`]: the second and its message count.
    seconds: [(u64, u64); WINDOW_SECONDS],
}

impl MessageRate {
    /// Creates the rate of something that begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { began: now, seconds: [(0, 0); WINDOW_SECONDS] }
    }

    /// Counts messages.
    pub fn count(&mut self, now: Instant, messages: u64) {
        let second = self.second(now);
        let slot = &mut self.seconds[usize::try_from(second).unwrap_or(0) % WINDOW_SECONDS];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 += messages;
    }

    /// Returns messages per second, averaged over the last complete seconds.
    #[must_use]
    pub fn per_second(&self, now: Instant) -> f64 {
        let second = self.second(now);
        let lately = |(of, _): &&(u64, u64)| *of < second && *of + WINDOW_SECONDS as u64 > second;
        let messages: u64 = self.seconds.iter().filter(lately).map(|(_, messages)| messages).sum();
        let whole = second.min(WINDOW_SECONDS as u64 - 1);
        if whole == 0 {
            0.0
        } else {
            Duration::from_secs(messages).as_secs_f64() / Duration::from_secs(whole).as_secs_f64()
        }
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, MessageRate};

    #[test]
    fn rate_averages_the_last_complete_seconds() {
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        let mut rate = MessageRate::new(began);
        assert!(rate.per_second(at(0)).abs() < 1e-9);
        for second in 0..30 {
            rate.count(at(second), 7);
        }
        assert!((rate.per_second(at(30)) - 7.0).abs() < 1e-9);
        assert!((rate.per_second(at(35)) - 28.0 / 9.0).abs() < 1e-9);
        assert!(rate.per_second(at(60)).abs() < 1e-9);
    }
}
