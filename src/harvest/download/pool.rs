//! Downloads that are selected: some in flight, the others waiting for a place.
//!
//! The position has all of them, so a restart loses none. They outlive the page that has selected them: a page reports
//! those that have ended, and a slow server holds up its own files alone.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    task::{AbortHandle, Id, JoinSet},
    time::Instant,
};

use super::{fetch::FetchedFile, position::PendingDownload};
use crate::{journal::JournalError, transfer::TransferError};

/// Number of files that are downloaded at once.
pub(super) const PLACES: usize = 8;

/// Number of places of one host. The second one waits for the host, and begins at once after the first.
const PLACES_OF_HOST: usize = 2;

/// Maximum number of downloads that are selected, which each position has.
pub(super) const MAX_PENDING: usize = 128;

/// Time in which downloads from a host that was too slow fail without a request.
const SLOW_PAUSE: Duration = Duration::from_secs(5 * 60);

/// Result of a download; `None` if the registry has other content by now.
pub(super) type Ended = Result<Option<Result<FetchedFile, TransferError>>, JournalError>;

/// The downloads, in the order of their selection.
#[derive(Default)]
pub(super) struct Pool {
    tasks: JoinSet<Ended>,
    running: HashMap<Id, Running>,
    waiting: VecDeque<PendingDownload>,
    /// Hosts that were too slow, each with the end of its pause.
    slow_hosts: HashMap<String, Instant>,
}

/// A download in flight.
struct Running {
    download: PendingDownload,
    host: String,
    task: AbortHandle,
}

impl Pool {
    /// Continues with the downloads of a position. Others are aborted: their results are already written, or were lost
    /// with a page that was not.
    pub(super) fn continue_at(&mut self, pending: &[PendingDownload]) {
        self.running.retain(|_, running| {
            let is_kept = pending.contains(&running.download);
            if !is_kept {
                running.task.abort();
            }
            is_kept
        });
        self.waiting.retain(|download| pending.contains(download));
        pending.iter().for_each(|download| self.add(download.clone()));
    }

    /// Adds a download, unless it is there already.
    pub(super) fn add(&mut self, download: PendingDownload) {
        if !self.contains(&download) {
            self.waiting.push_back(download);
        }
    }

    /// Returns whether places are free that the selected downloads cannot use, because they are all of a few hosts.
    pub(super) fn wants_more(&self) -> bool {
        let mut of_host = self.running_by_host();
        let can_start = |download: &&PendingDownload| {
            let places = of_host.entry(download.download.host()).or_default();
            *places += 1;
            *places <= PLACES_OF_HOST
        };
        self.len() < MAX_PENDING && self.running.len() + self.waiting.iter().filter(can_start).count() < 2 * PLACES
    }

    /// Returns all downloads, for the position.
    pub(super) fn pending(&self) -> Vec<PendingDownload> {
        self.running.values().map(|running| &running.download).chain(&self.waiting).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    /// Starts downloads as long as places are free, and waits for the end of one; returns `None` if there is none.
    pub(super) async fn next(
        &mut self,
        run: impl Fn(&PendingDownload) -> BoxFuture<'static, Ended>,
    ) -> Option<(PendingDownload, Ended)> {
        loop {
            if let Some(download) = self.take_of_slow_host() {
                let reason = "its server was too slow a few minutes ago".to_owned();
                return Some((download, Ok(Some(Err(TransferError::Transient(reason))))));
            }
            self.start(&run);
            let (id, ended) = match self.tasks.join_next_with_id().await? {
                Ok(ended) => ended,
                Err(error) => {
                    let reason = "the download has ended because of a bug".to_owned();
                    (error.id(), Ok(Some(Err(TransferError::Transient(reason)))))
                }
            };
            // One that is not listed was aborted, or belongs to an earlier position.
            let Some(Running { download, host, .. }) = self.running.remove(&id) else { continue };
            if matches!(ended, Ok(Some(Err(TransferError::TooSlow(_))))) {
                self.slow_hosts.insert(host, Instant::now() + SLOW_PAUSE);
            }
            return Some((download, ended));
        }
    }

    /// Removes the next download from a host that was too slow.
    fn take_of_slow_host(&mut self) -> Option<PendingDownload> {
        let now = Instant::now();
        self.slow_hosts.retain(|_, until| *until > now);
        let is_slow = |download: &PendingDownload| self.slow_hosts.contains_key(&download.download.host());
        let at = self.waiting.iter().position(is_slow).filter(|_| !self.slow_hosts.is_empty())?;
        self.waiting.remove(at)
    }

    fn start(&mut self, run: impl Fn(&PendingDownload) -> BoxFuture<'static, Ended>) {
        let mut of_host = self.running_by_host();
        let mut at = 0;
        while self.running.len() < PLACES && at < self.waiting.len() {
            let host = self.waiting[at].download.host();
            let places = of_host.entry(host.clone()).or_default();
            if *places >= PLACES_OF_HOST {
                at += 1;
                continue;
            }
            *places += 1;
            if let Some(download) = self.waiting.remove(at) {
                // A task of its own, because hashing would hold up the other transfers.
                let task = self.tasks.spawn(run(&download));
                self.running.insert(task.id(), Running { download, host, task });
            }
        }
    }

    fn running_by_host(&self) -> HashMap<String, usize> {
        let mut of_host = HashMap::new();
        for running in self.running.values() {
            *of_host.entry(running.host.clone()).or_default() += 1;
        }
        of_host
    }

    fn contains(&self, download: &PendingDownload) -> bool {
        self.waiting.contains(download) || self.running.values().any(|running| running.download == *download)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::{Ended, MAX_PENDING, PLACES, Pool, TransferError};
    use crate::harvest::download::position::{PendingDownload, tests::download_of};

    fn at(host: &str, number: usize) -> PendingDownload {
        PendingDownload { download: download_of(&format!("http://{host}/{number}")), attempts: 0 }
    }

    /// Downloads of the host `slow` never end, those of `dead` are too slow, and others fail at once.
    fn run(download: &PendingDownload) -> futures_util::future::BoxFuture<'static, Ended> {
        match download.download.host().as_str() {
            "slow" => std::future::pending().boxed(),
            "dead" => async { Ok(Some(Err(TransferError::TooSlow("it drips".to_owned())))) }.boxed(),
            _ => async { Ok(None) }.boxed(),
        }
    }

    #[tokio::test]
    async fn slow_host_holds_up_its_own_files_alone() {
        let mut pool = Pool::default();
        for number in 0..20 {
            pool.add(at("slow", number));
        }
        assert!(pool.wants_more(), "one host does not use all places");
        for number in 0..20 {
            pool.add(at("quick", number));
            pool.add(at("quick", number));
        }
        assert_eq!(pool.len(), 40);
        for number in 0..20 {
            let (ended, _) = pool.next(run).await.unwrap();
            assert_eq!(ended, at("quick", number));
        }
        assert!(pool.next(run).now_or_never().is_none());
        assert_eq!((pool.running.len(), pool.len()), (2, 20));
        // A position without them ends them, and one with others begins those.
        let pending = [at("slow", 0), at("slow", 7), at("quick", 1)];
        pool.continue_at(&pending);
        assert_eq!(pool.pending().len(), 3);
        assert!(pending.iter().all(|download| pool.contains(download)));
        assert_eq!(pool.next(run).await.unwrap().0, at("quick", 1));
    }

    #[tokio::test]
    async fn files_of_a_host_that_was_too_slow_fail_at_once() {
        let mut pool = Pool::default();
        for number in 0..50 {
            pool.add(at("dead", number));
        }
        for _ in 0..50 {
            let (_, ended) = pool.next(run).await.unwrap();
            assert!(matches!(ended, Ok(Some(Err(TransferError::TooSlow(_) | TransferError::Transient(_))))));
        }
        assert_eq!(pool.slow_hosts.len(), 1);
        pool.add(at("dead", 99));
        let (_, ended) = pool.next(|_| panic!("no request is sent")).await.unwrap();
        assert!(
            matches!(ended, Ok(Some(Err(TransferError::Transient(reason)))) if reason.contains("a few minutes ago"))
        );
        assert!(pool.next(run).await.is_none());
    }

    #[test]
    fn selection_is_bounded() {
        let mut pool = Pool::default();
        for number in 0..MAX_PENDING {
            assert!(pool.wants_more());
            pool.add(at("one", number));
        }
        assert!(!pool.wants_more());
        let mut pool = Pool::default();
        for number in 0..2 * PLACES {
            assert!(pool.wants_more());
            pool.add(at(&format!("host{number}"), 0));
        }
        assert!(!pool.wants_more());
    }
}
