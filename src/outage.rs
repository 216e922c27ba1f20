//! Log of a trouble that lasts, such as an outage of the database: one line when it begins, and one when it has ended.

use std::{
    fmt::Display,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// Work of several callers that may fail for a while. The first failure is logged as a warning and the next success as
/// its end; the failures between them are logged at `debug`.
#[derive(Debug)]
pub(crate) struct Outage {
    work: &'static str,
    /// Whether the last attempt failed. A success usually reads only this.
    is_on: AtomicBool,
    state: Mutex<Option<Begun>>,
}

#[derive(Debug)]
struct Begun {
    at: Instant,
    failures: u64,
    /// The newest error.
    error: String,
}

impl Outage {
    /// Creates the log of work that works. `work` completes the lines "cannot …" and "can … again".
    #[must_use]
    pub(crate) const fn of(work: &'static str) -> Self {
        Self { work, is_on: AtomicBool::new(false), state: Mutex::new(None) }
    }

    /// Records a failed attempt, which will be repeated. Returns whether it is the first one.
    pub(crate) fn failed(&self, error: &dyn Display) -> bool {
        let mut state = self.lock();
        self.is_on.store(true, Ordering::Release);
        match &mut *state {
            Some(begun) => {
                begun.failures += 1;
                begun.error = error.to_string();
                tracing::debug!(%error, "still cannot {}", self.work);
                false
            }
            None => {
                *state = Some(Begun { at: Instant::now(), failures: 1, error: error.to_string() });
                tracing::warn!(%error, "cannot {}; retrying", self.work);
                true
            }
        }
    }

    /// Records a successful attempt. Returns whether it ends an outage.
    pub(crate) fn works(&self) -> bool {
        if !self.is_on.load(Ordering::Acquire) {
            return false;
        }
        let ended = self.lock().take();
        self.is_on.store(false, Ordering::Release);
        ended.is_some_and(|Begun { at, failures, .. }| {
            let seconds = at.elapsed().as_secs_f64();
            tracing::info!(seconds, failures, "can {} again", self.work);
            true
        })
    }

    /// Returns the newest error while the outage lasts.
    pub(crate) fn error(&self) -> Option<String> {
        if !self.is_on.load(Ordering::Acquire) {
            return None;
        }
        self.lock().as_ref().map(|begun| begun.error.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Outage;

    #[test]
    fn an_outage_begins_once_and_ends_once() {
        let outage = Outage::of("work");
        assert!(!outage.works());
        for _ in 0..2 {
            assert_eq!(outage.error(), None);
            assert!(outage.failed(&"broken"));
            assert!(!outage.failed(&"still broken"));
            assert_eq!(outage.error().as_deref(), Some("still broken"));
            assert!(outage.works() && !outage.works());
        }
    }
}
