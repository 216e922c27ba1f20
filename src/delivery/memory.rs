//! Memory budget that all push subscriptions share for in-flight messages and journal pages.
//!
//! A message reserves its bytes before it is sent and releases them with its outcome. Failing receivers share a
//! separate pool, so receivers that hang do not take memory from healthy ones. A session that waits for memory
//! retains neither a message nor a page.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of in-flight messages to healthy receivers.
const HEALTHY_BYTES: usize = 256 * 1024 * 1024;

/// Bytes of in-flight messages to receivers that have failed and have accepted nothing since.
const FAILING_BYTES: usize = 64 * 1024 * 1024;

/// Maximum number of journal pages that sessions have read from disk and not sent yet.
const MAX_PAGES: usize = 128;

/// Bytes per permit of a pool.
const BYTES_PER_PERMIT: usize = 1024;

/// Byte budget that all engines share.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    healthy: Pool,
    failing: Pool,
    pages: Arc<Semaphore>,
}

/// Bytes that engines reserve and release.
#[derive(Clone, Debug)]
struct Pool {
    permits: Arc<Semaphore>,
    capacity: u32,
}

/// Reserved bytes; dropping it releases them.
#[derive(Debug)]
pub(super) struct Reservation {
    permit: OwnedSemaphorePermit,
    is_for_failing: bool,
}

/// Reservation that an engine waits for.
pub(super) type PendingReservation = BoxFuture<'static, Option<Reservation>>;

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(HEALTHY_BYTES, FAILING_BYTES)
    }
}

impl MemoryBudget {
    /// Creates a budget with these numbers of bytes for healthy and for failing receivers.
    pub(super) fn new(healthy: usize, failing: usize) -> Self {
        let pages = Arc::new(Semaphore::new(MAX_PAGES));
        Self { healthy: Pool::new(healthy), failing: Pool::new(failing), pages }
    }

    fn pool(&self, is_failing: bool) -> &Pool {
        if is_failing { &self.failing } else { &self.healthy }
    }

    /// Reserves bytes if they are free and nobody waits for memory.
    pub(super) fn try_reserve(&self, bytes: usize, is_failing: bool) -> Option<Reservation> {
        let pool = self.pool(is_failing);
        let permit = Arc::clone(&pool.permits).try_acquire_many_owned(pool.permits_for(bytes)).ok()?;
        Some(Reservation { permit, is_for_failing: is_failing })
    }

    /// Waits for bytes, in the order of the calls.
    pub(super) fn reserve(&self, bytes: usize, is_failing: bool) -> PendingReservation {
        let pool = self.pool(is_failing).clone();
        Box::pin(async move {
            let permit = pool.permits.clone().acquire_many_owned(pool.permits_for(bytes)).await.ok()?;
            Some(Reservation { permit, is_for_failing: is_failing })
        })
    }

    /// Returns whether a reservation suffices for a message of this size.
    pub(super) fn suffices(&self, reservation: &Reservation, bytes: usize, is_failing: bool) -> bool {
        let enough = self.pool(is_failing).permits_for(bytes) as usize;
        reservation.is_for_failing == is_failing && reservation.permit.num_permits() >= enough
    }

    /// Returns the permits for pages that are read from disk.
    pub(super) fn pages(&self) -> Arc<Semaphore> {
        Arc::clone(&self.pages)
    }
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let capacity = u32::try_from(bytes.div_ceil(BYTES_PER_PERMIT)).unwrap_or(u32::MAX).max(1);
        Self { permits: Arc::new(Semaphore::new(capacity as usize)), capacity }
    }

    /// Returns the permits for this number of bytes. A message larger than the pool takes all permits and
    /// therefore is sent alone.
    fn permits_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(BYTES_PER_PERMIT)).unwrap_or(u32::MAX).clamp(1, self.capacity)
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
    fn message_larger_than_the_pool_takes_all_of_it() {
        let budget = MemoryBudget::new(10 * 1024, 1024);
        let all = budget.try_reserve(usize::MAX, false).unwrap();
        assert!(budget.suffices(&all, usize::MAX, false) && budget.try_reserve(1, false).is_none());
    }
}
