//! Readers that wait for changes on streams and in long polls: their limits and their notification.
//!
//! Each reader occupies a connection while it waits, so their number is limited.
//!
//! The journal's writer does not wake the readers itself: waking ten thousand readers takes milliseconds, which would
//! delay the next append. A [`Notifier`] waits for the writer and wakes the readers from its own task. If there are
//! many readers, it combines several changes into one wake-up. When it ends, all streams end, because the gateway is
//! stopping.

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

use super::{catch_up::CatchUpCache, metrics, stream::LargeEvents};
use crate::{
    journal::{Journal, JournalError, RecordedChange},
    model::Seq,
    web::{Client, Limit, Problem, ProblemCode, Spool, limit_hit},
};

/// Value of `Retry-After` if there are too many readers.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Pause after each wake-up, per reader: a few times the time that it takes to send a few events to one reader.
/// Changes that arrive during the pause are sent together, so that waking takes little of the time.
const PAUSE_PER_READER: Duration = Duration::from_micros(50);

/// Maximum pause after a wake-up.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Limits on readers that wait for changes.
#[derive(Clone, Copy, Debug)]
pub struct ReaderLimits {
    /// Maximum number of readers.
    pub readers: usize,
    /// Maximum number of readers of one client.
    pub per_client: usize,
    /// Maximum duration of a long poll.
    pub wait: Duration,
    /// Maximum duration of a stream.
    pub stream: Duration,
    /// Interval after which a stream without changes sends a heartbeat.
    pub heartbeat: Duration,
}

/// Readers that wait for changes. Clones share the same state.
#[derive(Clone)]
pub struct LiveReaders(Arc<ReadersState>);

struct ReadersState {
    journal: Journal,
    head: watch::Receiver<Seq>,
    permits: Arc<Semaphore>,
    of_clients: Arc<Mutex<HashMap<Client, usize>>>,
    catch_up: CatchUpCache,
    spool: Spool,
    large_events: LargeEvents,
    limits: ReaderLimits,
}

/// Wakes the readers. Its [`run`](Notifier::run) must be spawned.
#[must_use = "without it no reader is notified of changes"]
pub struct Notifier {
    journal: Journal,
    head: watch::Sender<Seq>,
    permits: Arc<Semaphore>,
    readers: usize,
}

impl Notifier {
    /// Notifies the readers of each new head until `stop` is ready, then ends all readers.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { journal, head, permits, readers } = self;
        let mut heads = journal.watch();
        let notifying = async {
            while heads.changed().await.is_ok() {
                let new_head = *heads.borrow_and_update();
                head.send_replace(new_head);
                let pause = wake_up_pause(readers.saturating_sub(permits.available_permits()));
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
        };
        tokio::select! {
            () = stop => {}
            () = notifying => {}
        }
    }
}

/// Returns the pause after waking `readers` readers. A pause too short for a timer is zero.
fn wake_up_pause(readers: usize) -> Duration {
    let pause = PAUSE_PER_READER.saturating_mul(u32::try_from(readers).unwrap_or(u32::MAX)).min(MAX_PAUSE);
    if pause < Duration::from_millis(1) { Duration::ZERO } else { pause }
}

/// Permit of a waiting reader; dropping it releases it.
pub(super) struct ReaderPermit {
    _permit: OwnedSemaphorePermit,
    _share: ClientShare,
    open_readers: Gauge,
}

impl Drop for ReaderPermit {
    fn drop(&mut self) {
        self.open_readers.decrement(1.0);
    }
}

/// One of the permits of a client; dropping it releases it.
struct ClientShare {
    of_clients: Arc<Mutex<HashMap<Client, usize>>>,
    client: Client,
}

impl ClientShare {
    /// Acquires a permit unless the client has `max` already. Clients on this machine are not limited.
    fn try_acquire(of_clients: &Arc<Mutex<HashMap<Client, usize>>>, client: &Client, max: usize) -> Option<Self> {
        let mut counts = of_clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(client.clone()).or_default();
        if *count >= max && *client != Client::Local {
            return None;
        }
        *count += 1;
        Some(Self { of_clients: Arc::clone(of_clients), client: client.clone() })
    }
}

impl Drop for ClientShare {
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

impl LiveReaders {
    /// Creates the readers of a journal, whose large responses go to `spool`, and their notifier.
    pub fn new(journal: Journal, spool: Spool, limits: ReaderLimits) -> (Self, Notifier) {
        metrics::register();
        let (sender, head) = watch::channel(journal.head());
        let permits = Arc::new(Semaphore::new(limits.readers));
        let notifier =
            Notifier { journal: journal.clone(), head: sender, permits: Arc::clone(&permits), readers: limits.readers };
        let (catch_up, large_events) = (CatchUpCache::default(), LargeEvents::default());
        let of_clients = Arc::default();
        (
            Self(Arc::new(ReadersState { journal, head, permits, of_clients, catch_up, spool, large_events, limits })),
            notifier,
        )
    }

    /// Returns the spool for large responses.
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

    pub(super) fn limits(&self) -> ReaderLimits {
        self.0.limits
    }

    /// Returns a channel of the head, which closes when the gateway stops.
    pub(super) fn head(&self) -> watch::Receiver<Seq> {
        self.0.head.clone()
    }

    /// Acquires a permit for a reader of a kind: `stream` or `poll`.
    ///
    /// # Errors
    /// `unavailable` if there are too many readers, in total or of this client.
    pub(super) fn admit(&self, kind: &'static str, client: &Client) -> Result<ReaderPermit, Problem> {
        let max = self.0.limits.per_client;
        let share = ClientShare::try_acquire(&self.0.of_clients, client, max).ok_or_else(|| {
            limit_hit(Limit::ClientPercent);
            let kind = if matches!(client, Client::Token(_)) { "token" } else { "address" };
            let detail = format!(
                "{max} readers with this {kind} are waiting for changes, which is the limit per {kind}. Close some, try \
                 again later, or raise limits.client_percent in the configuration."
            );
            Problem::new(ProblemCode::Unavailable, detail).retry_after(RETRY_AFTER)
        })?;
        let permit = Arc::clone(&self.0.permits).try_acquire_owned().map_err(|_| {
            limit_hit(Limit::Streams);
            let detail = format!(
                "{} readers are waiting for changes, which is the limit. Try again later, poll without wait, or raise \
                 limits.streams in the configuration.",
                self.0.limits.readers
            );
            Problem::new(ProblemCode::Unavailable, detail).retry_after(RETRY_AFTER)
        })?;
        let open_readers = metrics::open_readers(kind);
        open_readers.increment(1.0);
        Ok(ReaderPermit { _permit: permit, _share: share, open_readers })
    }

    /// Begins a long poll of at most `wait`.
    ///
    /// # Errors
    /// `unavailable` if there are too many readers.
    pub(super) fn begin_poll(&self, wait: Duration, client: &Client) -> Result<LongPoll, Problem> {
        let permit = self.admit("poll", client)?;
        let deadline = Instant::now() + wait.min(self.0.limits.wait);
        Ok(LongPoll { head: self.head(), deadline, _permit: permit })
    }

    /// Returns the changes after a cursor, as [`LiveReaders::read`] does, if they are in memory, and `None` otherwise.
    pub(super) fn in_memory(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        self.0.catch_up.in_memory(&self.0.journal, after, limit, bytes)
    }

    /// Reads up to `limit` changes after `after`, for a stream that is behind the changes in memory. Stops once they
    /// have `bytes` of JSON.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn read(
        &self,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        self.0.catch_up.after(&self.0.journal, after, limit, bytes).await
    }
}

/// Long poll: a reader that waits for changes until its deadline.
pub(super) struct LongPoll {
    head: watch::Receiver<Seq>,
    deadline: Instant,
    _permit: ReaderPermit,
}

impl LongPoll {
    /// Waits until there is a change after `after`. Returns `false` if there is none at the deadline, or when the gateway
    /// stops.
    pub(super) async fn change_after(&self, after: Seq) -> bool {
        // Changes that a filter excludes come all the time.
        if Instant::now() >= self.deadline {
            return false;
        }
        let mut head = self.head.clone();
        // The channel closes when the gateway stops.
        timeout_at(self.deadline, head.wait_for(|head| *head > after)).await.is_ok_and(|head| head.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use super::{Client, ClientShare, wake_up_pause};

    #[test]
    fn readers_per_client_are_limited() {
        let counts = Arc::default();
        let (one, other) = (Client::Token("one".into()), Client::Token("other".into()));
        let acquire = |client: &Client| ClientShare::try_acquire(&counts, client, 2);
        let shares = [acquire(&one), acquire(&one)].map(Option::unwrap);
        assert!(acquire(&one).is_none() && acquire(&other).is_some());
        drop(shares);
        assert!(counts.lock().unwrap().is_empty());
        assert!(acquire(&one).is_some());
        let local = [(); 3].map(|()| acquire(&Client::Local));
        assert!(local.iter().all(Option::is_some), "local clients are not limited");
    }

    #[test]
    fn wake_up_pause_grows_with_readers() {
        for (readers, millis) in [(0, 0), (1, 0), (19, 0), (20, 1), (1_000, 50), (2_000, 100), (usize::MAX, 100)] {
            assert_eq!(wake_up_pause(readers), Duration::from_millis(millis), "{readers} readers");
        }
    }
}
