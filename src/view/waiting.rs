//! Readers that wait for changes, on streams and in long polls: how many there may be, and what wakes them.
//!
//! Each holds a connection for as long as it waits, so there is a bound on how many there are together.
//!
//! They are not woken by the journal's writer itself: to wake ten thousand readers takes milliseconds, and
//! whoever appends would wait for that. A [`Herald`] waits for the writer, and wakes them from a task of its
//! own, and where there are many not for each change by itself. When it ends, all of them come to their end: that is how they learn that the gateway stops.

use std::{sync::Arc, time::Duration};

use ::metrics::Gauge;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{behind::Behind, metrics, stream::LargeEvents};
use crate::{
    journal::{Journal, JournalError, Recorded},
    model::Seq,
    web::{Limit, Problem, ProblemCode, Spool, limit_hit},
};

/// After how many seconds one for whom there is no room is to try again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// For each reader that is woken the next wake-up waits so long, some times as long as it takes to send a few events to one:
/// what comes meanwhile goes to them together, so that little of the time is spent on waking them …
const PAUSE_FOR_EACH: Duration = Duration::from_micros(50);

/// … and so long at the most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Bounds on readers that wait.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many there may be at once.
    pub readers: usize,
    /// How long a long poll waits at the most.
    pub wait: Duration,
    /// How long a stream lasts at the most.
    pub stream: Duration,
    /// After how long without a change a stream shows that it is there.
    pub heartbeat: Duration,
}

/// Readers that wait. Clones are handles to the same.
#[derive(Clone)]
pub struct Waiting(Arc<Parts>);

struct Parts {
    journal: Journal,
    head: watch::Receiver<Seq>,
    places: Arc<Semaphore>,
    behind: Behind,
    spool: Spool,
    large_events: LargeEvents,
    bounds: Bounds,
}

/// What wakes the readers. Somebody must run it.
#[must_use = "without it no reader hears of a change"]
pub struct Herald {
    journal: Journal,
    head: watch::Sender<Seq>,
    places: Arc<Semaphore>,
    readers: usize,
}

impl Herald {
    /// Tells the readers of each new head, until `stop`; then they come to their end.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { journal, head, places, readers } = self;
        let mut moves = journal.watch();
        let telling = async {
            while moves.changed().await.is_ok() {
                let moved = *moves.borrow_and_update();
                head.send_replace(moved);
                let pause = pause_after_waking(readers.saturating_sub(places.available_permits()));
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
        };
        tokio::select! {
            () = stop => {}
            () = telling => {}
        }
    }
}

/// How long those that were woken are left alone. A pause that is too short for a timer is none.
fn pause_after_waking(readers: usize) -> Duration {
    let pause = PAUSE_FOR_EACH.saturating_mul(u32::try_from(readers).unwrap_or(u32::MAX)).min(LONGEST_PAUSE);
    if pause < Duration::from_millis(1) { Duration::ZERO } else { pause }
}

/// A reader's place among those that wait; it is free again when this is dropped.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    open: Gauge,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}

impl Waiting {
    /// Readers of that journal, whose large answers go to `spool`, and what is to be run to wake them.
    pub fn new(journal: Journal, spool: Spool, bounds: Bounds) -> (Self, Herald) {
        let (sender, head) = watch::channel(journal.head());
        let places = Arc::new(Semaphore::new(bounds.readers));
        let herald =
            Herald { journal: journal.clone(), head: sender, places: Arc::clone(&places), readers: bounds.readers };
        let (behind, large_events) = (Behind::default(), LargeEvents::default());
        (Self(Arc::new(Parts { journal, head, places, behind, spool, large_events, bounds })), herald)
    }

    /// The room for large answers.
    #[must_use]
    pub fn spool(&self) -> &Spool {
        &self.0.spool
    }

    pub(super) fn large_events(&self) -> &LargeEvents {
        &self.0.large_events
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.0.journal
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.0.bounds
    }

    /// Tells whenever the head moves; it is closed when the gateway stops.
    pub(super) fn head(&self) -> watch::Receiver<Seq> {
        self.0.head.clone()
    }

    /// Takes a place for a reader of that kind: `stream` or `poll`.
    ///
    /// # Errors
    /// `unavailable` when there is none.
    pub(super) fn admit(&self, kind: &'static str) -> Result<Place, Problem> {
        let permit = Arc::clone(&self.0.places).try_acquire_owned().map_err(|_| {
            limit_hit(Limit::Streams);
            let detail = format!(
                "{} readers are waiting for changes already, and more are not served at once. Try again later, poll without \
                 wait, or raise limits.streams in the configuration.",
                self.0.bounds.readers
            );
            Problem::new(ProblemCode::Unavailable, detail).retry_after(TRY_AGAIN)
        })?;
        let open = metrics::open(kind);
        open.increment(1.0);
        Ok(Place { _permit: permit, open })
    }

    /// Waits until there is a change after `after`, for `wait` at the most, or until the gateway stops.
    ///
    /// # Errors
    /// `unavailable` when too many wait.
    pub(super) async fn change_after(&self, after: Seq, wait: Duration) -> Result<(), Problem> {
        let _place = self.admit("poll")?;
        let until = Instant::now() + wait.min(self.0.bounds.wait);
        let mut head = self.head();
        // It is closed when the gateway stops.
        let _ = timeout_at(until, head.wait_for(|head| *head > after)).await;
        Ok(())
    }

    /// What [`Waiting::read`] gives, where nobody has to wait for the disk; else `None`.
    pub(super) fn in_memory(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<Recorded>>> {
        self.0.behind.in_memory(&self.0.journal, after, limit, bytes)
    }

    /// Up to `limit` changes after `after` for a stream that is behind those in memory, and no more of them once they have
    /// `bytes` of JSON.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn read(
        &self,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<Recorded>>, JournalError> {
        self.0.behind.after(&self.0.journal, after, limit, bytes).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::pause_after_waking;

    #[test]
    fn many_readers_are_not_woken_for_each_change_and_few_are() {
        for (readers, millis) in [(0, 0), (1, 0), (19, 0), (20, 1), (1_000, 50), (2_000, 100), (usize::MAX, 100)] {
            assert_eq!(pause_after_waking(readers), Duration::from_millis(millis), "{readers} readers");
        }
    }
}
