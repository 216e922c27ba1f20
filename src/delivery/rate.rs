//! How many messages a second have been delivered lately.

use std::time::{Duration, Instant};

/// Over how many seconds the rate is taken.
const SECONDS: usize = 10;

/// Messages in each of the last seconds.
#[derive(Debug)]
pub(super) struct Rate {
    began: Instant,
    /// Of each second modulo [`SECONDS`]: which one it is, and how many messages it had.
    seconds: [(u64, u64); SECONDS],
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, seconds: [(0, 0); SECONDS] }
    }

    pub(super) fn count(&mut self, now: Instant, messages: u64) {
        let second = self.second(now);
        let slot = &mut self.seconds[usize::try_from(second).unwrap_or(0) % SECONDS];
        if slot.0 != second {
            *slot = (second, 0);
        }
        slot.1 += messages;
    }

    /// Messages a second, over the last whole seconds.
    pub(super) fn per_second(&self, now: Instant) -> f64 {
        let second = self.second(now);
        let lately = |(of, _): &&(u64, u64)| *of < second && *of + SECONDS as u64 > second;
        let messages: u64 = self.seconds.iter().filter(lately).map(|(_, messages)| messages).sum();
        let whole = second.min(SECONDS as u64 - 1);
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
    use super::{Duration, Instant, Rate};

    #[test]
    fn tells_of_the_last_whole_seconds() {
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        let mut rate = Rate::new(began);
        assert!(rate.per_second(at(0)).abs() < 1e-9);
        for second in 0..30 {
            rate.count(at(second), 7);
        }
        assert!((rate.per_second(at(30)) - 7.0).abs() < 1e-9);
        assert!((rate.per_second(at(35)) - 28.0 / 9.0).abs() < 1e-9);
        assert!(rate.per_second(at(60)).abs() < 1e-9);
    }
}
