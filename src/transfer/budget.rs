//! Budget of memory for everything that harvests and dataset jobs read from other servers and have not written yet.
//!
//! One budget serves all of them, so that memory does not grow with the number of harvests at work, or with what servers
//! answer. It has these parts:
//!
//! * **Bodies that arrive** ([`body`](super::body)). A body is received into memory while there is room, and into an
//!   unnamed file otherwise. Nobody waits here, so a slow server holds up nobody.
//! * **Shares** ([`HarvestBudget::share`]). A body that has arrived gets a share for its content and for what is made of it,
//!   all at once, in order of arrival. Its holder may use the CPU, the disk and the journal, and must not wait for another
//!   server or for another share. So each share returns soon, and no two holders wait for each other.
//! * **Parts of pages** ([`HarvestBudget::part`]): the records of a page become messages in small parts, which are written
//!   one after the other. The journal's queue has no more records of all harvests than those of one part
//!   ([`HarvestBudget::turn`]), because the writer puts all that wait into one transaction.
//! * **Threads** ([`HarvestBudget::work`]): parsing and decompression run on blocking threads, a few at a time.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Part of the budget that bodies can use while they arrive: one eighth.
const ARRIVING: usize = 8;

/// Maximum size of the messages of all parts that are parsed or written at the same time, in bytes. Parsing may take
/// sixteen times as much (`docs/limits.md`).
const PARTS_BYTES: usize = 4 << 20;

/// Smallest amount that a part takes, in bytes, for the fixed costs of its records.
const LEAST_PART_BYTES: usize = 64 << 10;

/// Maximum size of the files of all bodies that arrive, in bytes.
const DISK_BYTES: usize = 2 << 30;

/// Maximum size of the values that are made of a page besides its text, in bytes, and for each byte of a small page. A record takes
/// about 160 bytes, and has 9 bytes at least.
const MADE_BYTES: usize = 16 << 20;
const MADE_PER_BYTE: usize = 16;

/// Budget of memory for the answers of other servers. Clones share the same budget.
#[derive(Clone, Debug)]
pub struct HarvestBudget(Arc<Pools>);

#[derive(Debug)]
struct Pools {
    /// Folder for the files of bodies.
    folder: PathBuf,
    /// Room for bodies that arrive, in KiB.
    arriving: Arc<Semaphore>,
    /// Disk space for bodies that arrive, in KiB.
    disk: Arc<Semaphore>,
    /// Room for bodies that have arrived and for what is made of them, in KiB.
    shares: Arc<Semaphore>,
    /// Size of `shares`, in KiB.
    all_shares: usize,
    /// Room for the messages of parts, in KiB.
    parts: Arc<Semaphore>,
    /// Room for records in the queue of the journal.
    queued: Arc<Semaphore>,
    /// Blocking threads.
    threads: Arc<Semaphore>,
}

/// Maximum number of records of a transaction, so that a message from somebody else waits for a few of them only.
pub(crate) const PART_RECORDS: usize = 500;

/// Part of the budget. Dropping it returns it.
#[derive(Debug)]
#[must_use = "dropping the share returns it"]
pub struct BudgetShare(Option<OwnedSemaphorePermit>);

/// Whether nobody waits for the result of a work any more.
#[derive(Clone, Debug, Default)]
pub struct Cancelled(Arc<AtomicBool>);

/// The work has panicked, or the gateway is stopping.
#[derive(Debug, thiserror::Error)]
#[error("the parser has failed: {0}")]
pub struct WorkFailed(String);

impl HarvestBudget {
    /// Creates a budget of so many bytes. Bodies that do not fit are written to unnamed files in `folder` while they
    /// arrive.
    #[must_use]
    pub fn new(bytes: usize, folder: &Path) -> Self {
        let semaphore = |bytes: usize| Arc::new(Semaphore::new(kib(bytes).min(Semaphore::MAX_PERMITS)));
        let arriving = bytes / ARRIVING;
        let shares = semaphore(bytes - arriving);
        let threads = available_parallelism().map_or(1, usize::from).div_ceil(2).max(2);
        Self(Arc::new(Pools {
            folder: folder.to_owned(),
            arriving: semaphore(arriving),
            disk: semaphore(DISK_BYTES),
            all_shares: shares.available_permits(),
            shares,
            parts: semaphore(PARTS_BYTES),
            queued: Arc::new(Semaphore::new(PART_RECORDS)),
            threads: Arc::new(Semaphore::new(threads)),
        }))
    }

    /// Waits until this number of bytes is free, behind everybody who has asked before, and takes them. A number above the
    /// whole budget takes all of it, so that a page of any configured size can be read, alone.
    ///
    /// The holder must not wait for another server, nor for another share.
    pub async fn share(&self, bytes: usize) -> BudgetShare {
        let all = kib(bytes).clamp(1, self.0.all_shares);
        acquire(&self.0.shares, all).await
    }

    /// Waits for the room for a part of a page: messages of this number of bytes together.
    pub(crate) async fn part(&self, bytes: usize) -> BudgetShare {
        let part = kib(bytes.clamp(LEAST_PART_BYTES, PARTS_BYTES));
        acquire(&self.0.parts, part).await
    }

    /// Waits until this number of records may be written.
    pub(crate) async fn turn(&self, records: usize) -> BudgetShare {
        acquire(&self.0.queued, records.clamp(1, PART_RECORDS)).await
    }

    /// Runs work that uses the CPU or the disk on a blocking thread, when one of a few is free. If the caller stops waiting,
    /// the work learns that from [`Cancelled`], and should end soon.
    ///
    /// # Errors
    /// Fails if the work panics.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cancelled) -> T + Send + 'static,
    ) -> Result<T, WorkFailed> {
        let thread = acquire(&self.0.threads, 1).await;
        let cancelled = Cancelled::default();
        let _guard = CancelOnDrop(cancelled.clone());
        let working = tokio::task::spawn_blocking(move || {
            // It returns only when the thread is free.
            let _thread = thread;
            work(&cancelled)
        });
        working.await.map_err(|error| {
            // The text of a panic can repeat the document.
            tracing::error!(is_panic = error.is_panic(), "work on a document has failed");
            let reason = "it is a bug of Tidings; please report it with the document";
            WorkFailed(if error.is_panic() { reason } else { "the gateway is stopping" }.to_owned())
        })
    }

    /// Takes room in memory for a body that arrives; `None` if there is none.
    pub(crate) fn try_arriving(&self, bytes: usize) -> Option<BudgetShare> {
        try_acquire(&self.0.arriving, bytes)
    }

    /// Takes disk space for a body that arrives; `None` if there is none.
    pub(crate) fn try_disk(&self, bytes: usize) -> Option<BudgetShare> {
        try_acquire(&self.0.disk, bytes)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0.folder
    }
}

/// Returns the memory that a page of this size may need: its bytes and its text at the same time, and what is made of it.
pub(crate) fn page_need(bytes: usize) -> usize {
    bytes.saturating_mul(2).saturating_add(MADE_BYTES.min(bytes.saturating_mul(MADE_PER_BYTE)))
}

impl BudgetShare {
    /// Returns all but this number of bytes.
    pub fn keep(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.0 {
            drop(permit.split(permit.num_permits().saturating_sub(kib(bytes))));
        }
    }

    /// Returns the number of bytes, rounded up to KiB.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.0.as_ref().map_or(0, |permit| permit.num_permits() << 10)
    }

    /// Adds another share.
    pub(crate) fn merge(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (Some(permit), Some(other)) => permit.merge(other),
            (none, other) => *none = other,
        }
    }
}

impl Cancelled {
    /// Says that nobody waits for the result any more.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether nobody waits for the result any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Cancels the work when its caller stops waiting. After the end of the work it has no effect.
struct CancelOnDrop(Cancelled);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn acquire(pool: &Arc<Semaphore>, permits: usize) -> BudgetShare {
    let permits = u32::try_from(permits).unwrap_or(u32::MAX);
    // The semaphore is never closed.
    BudgetShare(Arc::clone(pool).acquire_many_owned(permits).await.ok())
}

fn try_acquire(pool: &Arc<Semaphore>, bytes: usize) -> Option<BudgetShare> {
    let permits = u32::try_from(kib(bytes)).ok()?;
    Arc::clone(pool).try_acquire_many_owned(permits).ok().map(|permit| BudgetShare(Some(permit)))
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1 << 10)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::{HarvestBudget, page_need};

    fn budget() -> HarvestBudget {
        HarvestBudget::new(8 << 20, &std::env::temp_dir())
    }

    #[tokio::test]
    async fn shares_are_given_in_order_and_return() {
        let budget = budget();
        let mut first = budget.share(5 << 20).await;
        let mut large = Box::pin(budget.share(6 << 20));
        assert!((&mut large).now_or_never().is_none());
        // A small one does not overtake.
        let mut small = Box::pin(budget.share(1 << 20));
        assert!((&mut small).now_or_never().is_none());
        first.keep(1 << 20);
        let large = large.now_or_never().expect("there is room");
        assert!((&mut small).now_or_never().is_none());
        drop(large);
        assert!(small.now_or_never().is_some());
    }

    #[tokio::test]
    async fn page_above_the_budget_is_read_alone() {
        let budget = budget();
        let all = budget.share(page_need(1 << 30)).await;
        assert!(budget.share(1).now_or_never().is_none());
        drop(all);
        assert!(budget.share(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn work_without_a_caller_is_cancelled() {
        let budget = budget();
        let (began, ended) = (tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel());
        let work = budget.work(move |cancelled| {
            let _ = began.0.send(());
            while !cancelled.is_cancelled() {
                std::thread::yield_now();
            }
            let _ = ended.0.send(());
        });
        tokio::select! {
            _ = work => panic!("it waits for its cancellation"),
            _ = began.1 => {}
        }
        ended.1.await.expect("the work ends");
    }

    #[tokio::test]
    async fn failed_work_is_an_error() {
        let failed = budget().work(|_| panic!("broken")).await;
        assert!(failed.is_err_and(|error| error.to_string().contains("the parser has failed")));
    }
}
