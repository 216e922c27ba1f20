//! Memory that all push subscriptions together may use for in-flight messages and for pages of the journal.
//!
//! A message reserves its bytes before it is sent and gives them back with its outcome. Receivers that fail share a
//! pool of their own, so that many receivers that hang take nothing from those that work. A session that has to wait
//! for memory keeps neither a message nor a page in the meantime.

use std::{pin::Pin, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of in-flight messages to receivers that take them.
const WORKING: usize = 256 * 1024 * 1024;

/// Bytes of in-flight messages to receivers that have failed and have taken nothing since.
const FAILING: usize = 64 * 1024 * 1024;

/// Pages of the journal that sessions have read from the disk and not sent yet.
const PAGES: usize = 128;

/// Bytes that one permit of a pool stands for.
const UNIT: usize = 1024;

/// Budget of bytes that all engines share.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    working: Pool,
    failing: Pool,
    pages: Arc<Semaphore>,
}

/// Bytes that engines reserve and give back.
#[derive(Clone, Debug)]
struct Pool {
    permits: Arc<Semaphore>,
    units: u32,
}

/// Reserved bytes; dropping it gives them back.
#[derive(Debug)]
pub(super) struct Reservation {
    permit: OwnedSemaphorePermit,
    is_of_failing: bool,
}

/// Reservation that an engine waits for.
pub(super) type Reserving = Pin<Box<dyn Future<Output = Option<Reservation>> + Send>>;

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(WORKING, FAILING)
    }
}

impl MemoryBudget {
    /// Creates a budget with this many bytes for receivers that work and for those that fail.
    pub(super) fn new(working: usize, failing: usize) -> Self {
        let pages = Arc::new(Semaphore::new(PAGES));
        Self { working: Pool::new(working), failing: Pool::new(failing), pages }
    }

    fn pool(&self, is_failing: bool) -> &Pool {
        if is_failing { &self.failing } else { &self.working }
    }

    /// Reserves bytes if so many are free and nobody waits for them.
    pub(super) fn try_reserve(&self, bytes: usize, is_failing: bool) -> Option<Reservation> {
        let pool = self.pool(is_failing);
        let permit = Arc::clone(&pool.permits).try_acquire_many_owned(pool.units_of(bytes)).ok()?;
        Some(Reservation { permit, is_of_failing: is_failing })
    }

    /// Waits for bytes, in the order of the calls.
    pub(super) fn reserve(&self, bytes: usize, is_failing: bool) -> Reserving {
        let pool = self.pool(is_failing).clone();
        Box::pin(async move {
            let permit = pool.permits.clone().acquire_many_owned(pool.units_of(bytes)).await.ok()?;
            Some(Reservation { permit, is_of_failing: is_failing })
        })
    }

    /// Whether a reservation suffices for a message of so many bytes.
    pub(super) fn suffices(&self, reservation: &Reservation, bytes: usize, is_failing: bool) -> bool {
        let enough = self.pool(is_failing).units_of(bytes) as usize;
        reservation.is_of_failing == is_failing && reservation.permit.num_permits() >= enough
    }

    /// Permits to hold a page that comes from the disk.
    pub(super) fn pages(&self) -> Arc<Semaphore> {
        Arc::clone(&self.pages)
    }
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
        Self { permits: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// A message that is larger than the whole pool takes all of it, and so goes alone.
    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, self.units)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::MemoryBudget;

    #[test]
    fn reservations_share_the_bytes_of_their_pool() {
        let budget = MemoryBudget::new(10 * 1024, 1024);
        let first = budget.try_reserve(6 * 1024, false).unwrap();
        assert!(budget.try_reserve(5 * 1024, false).is_none());
        let failing = budget.try_reserve(1, true).unwrap();
        assert!(budget.try_reserve(1, true).is_none(), "the pools are apart");
        assert!(budget.suffices(&first, 6 * 1024, false) && !budget.suffices(&first, 6 * 1024 + 1, false));
        assert!(!budget.suffices(&failing, 1, false));
        let mut waiting = budget.reserve(5 * 1024, false);
        assert!((&mut waiting).now_or_never().is_none());
        assert!(budget.try_reserve(1024, false).is_none(), "nobody passes the one that waits");
        drop(first);
        assert!(waiting.now_or_never().flatten().is_some());
    }

    #[test]
    fn a_message_larger_than_the_pool_takes_all_of_it() {
        let budget = MemoryBudget::new(10 * 1024, 1024);
        let all = budget.try_reserve(usize::MAX, false).unwrap();
        assert!(budget.suffices(&all, usize::MAX, false) && budget.try_reserve(1, false).is_none());
    }
}
