//! Readers that wait for changes, on streams and in long polls: how many there may be, and what wakes them.
//!
//! Each holds a connection for as long as it waits, so there is a bound on how many there are together.
//!
//! They are not woken by the journal's writer itself: to wake ten thousand readers takes milliseconds, and
//! whoever appends would wait for that. A [`Herald`] waits for the writer, and wakes them from a task of its
//! own, and where there are many not for each change by itself. When it ends, all of them come to their end: that is how they learn that the gateway stops.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::metrics::Gauge;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{behind::Behind, metrics, stream::LargeEvents};
use crate::{
    journal::{Journal, JournalError, RecordedChange},
    model::Seq,
    web::{Client, Limit, Problem, ProblemCode, Spool, limit_hit},
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
    /// How many of them one client may have.
    pub per_client: usize,
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
    of_clients: Arc<Mutex<HashMap<Client, usize>>>,
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
    _share: Share,
    open: Gauge,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}

/// One of the places that a client has; dropping it gives it back.
struct Share {
    of_clients: Arc<Mutex<HashMap<Client, usize>>>,
    client: Client,
}

impl Share {
    /// Takes one, unless the client has `most` already. Clients on the gateway's own machine are not bounded.
    fn take(of_clients: &Arc<Mutex<HashMap<Client, usize>>>, client: &Client, most: usize) -> Option<Self> {
        let mut counts = of_clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(client.clone()).or_default();
        if *count >= most && *client != Client::Local {
            return None;
        }
        *count += 1;
        Some(Self { of_clients: Arc::clone(of_clients), client: client.clone() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.of_clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
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
        let of_clients = Arc::default();
        (Self(Arc::new(Parts { journal, head, places, of_clients, behind, spool, large_events, bounds })), herald)
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
    /// `unavailable` when there is none, or the client has its share of them.
    pub(super) fn admit(&self, kind: &'static str, client: &Client) -> Result<Place, Problem> {
        let most = self.0.bounds.per_client;
        let share = Share::take(&self.0.of_clients, client, most).ok_or_else(|| {
            limit_hit(Limit::ClientPercent);
            let who = if matches!(client, Client::Token(_)) { "token" } else { "address" };
            let detail = format!(
                "{most} readers with this {who} are waiting for changes already, and one {who} may have no more of them. \
                 Close some, try again later, or raise limits.client_percent in the configuration."
            );
            Problem::new(ProblemCode::Unavailable, detail).retry_after(TRY_AGAIN)
        })?;
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
        Ok(Place { _permit: permit, _share: share, open })
    }

    /// Waits until there is a change after `after`, for `wait` at the most, or until the gateway stops.
    ///
    /// # Errors
    /// `unavailable` when too many wait.
    pub(super) async fn change_after(&self, after: Seq, wait: Duration, client: &Client) -> Result<(), Problem> {
        let _place = self.admit("poll", client)?;
        let until = Instant::now() + wait.min(self.0.bounds.wait);
        let mut head = self.head();
        // It is closed when the gateway stops.
        let _ = timeout_at(until, head.wait_for(|head| *head > after)).await;
        Ok(())
    }

    /// What [`Waiting::read`] gives, where nobody has to wait for the disk; else `None`.
    pub(super) fn in_memory(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
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
    ) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        self.0.behind.after(&self.0.journal, after, limit, bytes).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use super::{Client, Share, pause_after_waking};

    #[test]
    fn a_client_has_its_share_of_places_and_gives_them_back() {
        let counts = Arc::default();
        let (one, other) = (Client::Token("one".into()), Client::Token("other".into()));
        let take = |client: &Client| Share::take(&counts, client, 2);
        let held = [take(&one), take(&one)].map(Option::unwrap);
        assert!(take(&one).is_none() && take(&other).is_some());
        drop(held);
        assert!(counts.lock().unwrap().is_empty());
        assert!(take(&one).is_some());
        let own = [(); 3].map(|()| take(&Client::Local));
        assert!(own.iter().all(Option::is_some), "the gateway's own machine is not bounded");
    }

    #[test]
    fn many_readers_are_not_woken_for_each_change_and_few_are() {
        for (readers, millis) in [(0, 0), (1, 0), (19, 0), (20, 1), (1_000, 50), (2_000, 100), (usize::MAX, 100)] {
            assert_eq!(pause_after_waking(readers), Duration::from_millis(millis), "{readers} readers");
        }
    }
}
