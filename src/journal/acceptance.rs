//! Times of acceptance: when the registry got the newest facts of each object. Readers that harvest the registry by
//! time, as OAI-PMH does, depend on their order.
//!
//! Each batch that writes the registry has a time that is later than those of all batches before it, whatever the clock
//! shows. The store gives it while it holds the lock that also gives the numbers. So an object that changes moves to
//! the end of the order, and a reader that continues after a position misses nothing.
//!
//! A change that the public does not see must not show itself by a time. The registry therefore has a second time for
//! each object: that of the newest facts that the public sees. An object that the public has never seen has none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use super::{
    Journal, JournalError,
    registry::ObjectState,
    store::{Store, time_of_loss},
};
use crate::model::{SourceName, Timestamp, Uri};

/// Time that a batch of a node can take from the time of its receipt until it can be read: each of its calls ends after 20
/// seconds.
const SHARED_MARGIN: Duration = Duration::from_secs(120);

/// Microseconds in a millisecond.
const MICROS_PER_MILLI: i64 = 1_000;

/// Microseconds in a second.
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Time of acceptance, in microseconds since 1970. Milliseconds would not do, because the times of several batches in one
/// millisecond must differ without running ahead of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AcceptanceTime(pub i64);

impl AcceptanceTime {
    /// Returns the time of a batch: that of its receipt, or the next one after `newest`.
    #[must_use]
    pub fn of_batch(received: Timestamp, newest: Self) -> Self {
        Self::from(received).max(Self(newest.0.saturating_add(1)))
    }

    /// Returns the begin of the second.
    #[must_use]
    pub fn whole_second(self) -> Self {
        Self(self.0 - self.0.rem_euclid(MICROS_PER_SECOND))
    }

    /// Returns the begin of the next second.
    #[must_use]
    pub fn next_second(self) -> Self {
        Self(self.whole_second().0.saturating_add(MICROS_PER_SECOND))
    }

    /// Returns the time in milliseconds; `None` if it is outside of the years 0 to 9999.
    #[must_use]
    pub fn timestamp(self) -> Option<Timestamp> {
        Timestamp::from_millis(self.0.div_euclid(MICROS_PER_MILLI))
    }
}

impl From<Timestamp> for AcceptanceTime {
    fn from(time: Timestamp) -> Self {
        Self(time.millis().saturating_mul(MICROS_PER_MILLI))
    }
}

/// Effect of a batch on an object, for readers who harvest the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectNews {
    /// Nothing: known facts were confirmed.
    #[default]
    None,
    /// New facts that the public does not see.
    Hidden,
    /// New facts about the object itself, which the public sees if it sees an item of the object.
    OfObject,
    /// New facts about items that the public sees, or has seen until then.
    Public,
}

/// Position in the order of acceptance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AcceptedPosition {
    /// Time of acceptance.
    pub time: AcceptanceTime,
    /// Number of the object's row in the store, because a batch can write several objects.
    pub object: i64,
}

/// Selection of objects in the order of their times of acceptance.
#[derive(Clone, Debug, Default)]
pub struct AcceptedQuery {
    /// Whether the times are those of the facts that the public sees. Objects that it has never seen are left out.
    pub public: bool,
    /// Position after which the objects are.
    pub after: AcceptedPosition,
    /// Time before which the objects were accepted; `None` for all.
    pub before: Option<AcceptanceTime>,
    /// First source of the objects.
    pub source: Option<SourceName>,
    /// Parent of the objects, which a purge may have made invalid since.
    pub parent: Option<Uri>,
    /// Type of the objects, which a purge may have made invalid since.
    pub object_type: Option<Uri>,
    /// Maximum number of objects.
    pub limit: usize,
}

impl AcceptedQuery {
    /// Number of objects that a query with conditions examines. No index has them, so more would take long.
    pub const WINDOW: u64 = 5000;

    /// Returns the number of the next objects that the query examines; `None` if it has no conditions.
    pub(in crate::journal) fn window(&self) -> Option<u64> {
        let has_conditions = self.source.is_some() || self.parent.is_some() || self.object_type.is_some();
        has_conditions.then_some(Self::WINDOW)
    }

    /// Returns the time before which the objects of a page are, and the position after its window, whose end has this time;
    /// none if the page reaches the end of the list.
    pub(in crate::journal) fn bounds(&self, end: Option<AcceptanceTime>) -> (i64, Option<AcceptedPosition>) {
        let before = self.before.map_or(i64::MAX, |before| before.0);
        match end {
            Some(end) if end.0 < before.saturating_sub(1) => {
                (end.0 + 1, Some(AcceptedPosition { time: end, object: i64::MAX }))
            }
            _ => (before, None),
        }
    }
}

/// Object in the order of acceptance.
#[derive(Clone, Debug)]
pub struct AcceptedObject {
    /// Position of the object.
    pub position: AcceptedPosition,
    /// URI of the object.
    pub uri: Uri,
    /// State of the object with all its items; `None` if its rows are damaged.
    pub state: Option<ObjectState>,
}

/// Page of objects in the order of acceptance.
#[derive(Clone, Debug, Default)]
pub struct AcceptedPage {
    /// The objects. The page ends early if they have very many items or bytes, and has at least one object if there is
    /// one.
    pub objects: Vec<AcceptedObject>,
    /// Position after which the next page begins; `None` at the end. A page with conditions is a part of the next
    /// [`AcceptedQuery::WINDOW`] objects, and can be empty.
    pub next: Option<AcceptedPosition>,
}

/// Times of acceptance of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectTimes {
    /// Time of the newest facts.
    pub accepted: AcceptanceTime,
    /// Time of the newest facts that the public sees; `None` if it has never seen the object.
    pub published: Option<AcceptanceTime>,
}

/// Value of [`AcceptanceClock::in_flight`] without a batch.
const NO_BATCH: i64 = i64::MAX;

/// What the batches of this gateway promise the readers of the registry about times.
#[derive(Debug)]
pub struct AcceptanceClock {
    /// Time at which the batch began that is not in the registry yet.
    in_flight: AtomicI64,
    /// Greatest time that a reader has been promised.
    promised: AtomicI64,
}

impl Default for AcceptanceClock {
    fn default() -> Self {
        Self { in_flight: AtomicI64::new(NO_BATCH), promised: AtomicI64::new(i64::MIN) }
    }
}

impl AcceptanceClock {
    /// Begins a batch. The guard ends it, when its rows can be read or never will be.
    pub(super) fn begin(self: &Arc<Self>) -> BatchInFlight {
        let before = self.in_flight.swap(AcceptanceTime::from(Timestamp::now()).0, Ordering::SeqCst);
        BatchInFlight { clock: Arc::clone(self), before }
    }

    /// Returns the earliest time that a batch may have which begins now.
    pub(super) fn earliest(&self) -> AcceptanceTime {
        AcceptanceTime(self.promised.load(Ordering::SeqCst))
    }

    /// Promises that no object that a later read finds for the first time has an earlier time than the result, even if
    /// the clock is set back meanwhile.
    pub(super) fn promise(&self, now: Timestamp) -> AcceptanceTime {
        // Read after the clock: a batch that begins later reads the clock later, too.
        let in_flight = self.in_flight.load(Ordering::SeqCst);
        let time = AcceptanceTime(AcceptanceTime::from(now).0.min(in_flight)).whole_second();
        self.promised.fetch_max(time.0, Ordering::SeqCst);
        time
    }
}

/// A batch that is not in the registry yet.
#[derive(Debug)]
pub(super) struct BatchInFlight {
    clock: Arc<AcceptanceClock>,
    /// Value of the clock before this batch. The search for refused messages has a batch within a batch.
    before: i64,
}

impl Drop for BatchInFlight {
    fn drop(&mut self) {
        self.clock.in_flight.store(self.before, Ordering::SeqCst);
    }
}

impl Journal {
    /// Returns a time, in whole seconds, that no object has which a later read of this journal finds for the first time, or
    /// with newer facts, unless it is later. A reader that harvests by time can therefore continue from it.
    ///
    /// Over a shared store the time is [`SHARED_MARGIN`] before the present one, because a batch of another node may have
    /// its time already, and cannot be read yet.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn acceptance_promise(&self) -> Result<AcceptanceTime, JournalError> {
        if !self.store.is_shared() {
            return Ok(self.acceptance.promise(Timestamp::now()));
        }
        let now = AcceptanceTime::from(self.read(Store::now).await?);
        let margin = i64::try_from(SHARED_MARGIN.as_micros()).unwrap_or(i64::MAX);
        Ok(AcceptanceTime(now.0.saturating_sub(margin)).whole_second())
    }

    /// Returns the time of the last loss of changes, by a restore or a failover. Readers may have objects with the lost facts,
    /// and later times than those of the registry, so all objects count as accepted again at that time.
    #[must_use]
    pub fn acceptance_floor(&self) -> AcceptanceTime {
        let skipped = self.skipped_ranges();
        skipped.iter().filter_map(|(_, floor)| time_of_loss(*floor)).max().map_or(AcceptanceTime::default(), Into::into)
    }

    /// Returns a page of objects in the order of their times of acceptance, from one consistent snapshot.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn accepted(&self, query: AcceptedQuery) -> Result<AcceptedPage, JournalError> {
        self.read(move |store| store.accepted(&query)).await
    }

    /// Returns the times of acceptance of an object; `None` if the registry does not have it.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn object_times(&self, object: Uri) -> Result<Option<ObjectTimes>, JournalError> {
        self.read(move |store| store.object_times(&object)).await
    }

    /// Returns the present time, or the newest time of acceptance if that is later, because the clock was set back.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn acceptance_now(&self) -> Result<AcceptanceTime, JournalError> {
        Ok(self.read(Store::newest_acceptance).await?.max(Timestamp::now().into()))
    }

    /// Returns the secret key of the tokens that readers of the registry get.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn token_key(&self) -> Result<[u8; 16], JournalError> {
        self.read(Store::token_key).await
    }
}

#[cfg(test)]
mod tests {
    use super::{AcceptanceClock, AcceptanceTime, Arc, Timestamp};

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn times_of_batches_increase_although_the_clock_does_not() {
        let mut newest = AcceptanceTime::default();
        for millis in [5_000, 5_000, 5_000, 4_000, 6_000, 1] {
            let next = AcceptanceTime::of_batch(time(millis), newest);
            assert!(next > newest, "{next:?} after {newest:?}");
            newest = next;
        }
        assert_eq!(newest, AcceptanceTime(6_000_001));
    }

    #[test]
    fn promise_is_not_later_than_a_batch_in_flight() {
        let clock = Arc::new(AcceptanceClock::default());
        let now = Timestamp::now();
        assert_eq!(clock.promise(now), AcceptanceTime::from(now).whole_second());
        let batch = clock.begin();
        let later = time(now.millis() + 60_000);
        assert!(clock.promise(later) <= AcceptanceTime::from(Timestamp::now()));
        drop(batch);
        assert_eq!(clock.promise(later), AcceptanceTime::from(later).whole_second());
        // The clock was set back, and the next batch is still not earlier than the promise.
        clock.promise(time(1));
        assert_eq!(clock.earliest(), AcceptanceTime::from(later).whole_second());
    }
}
