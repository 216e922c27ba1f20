//! The installed crawlers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    TargetSettings,
    crawler::{Crawler, CrawlerInfo, CrawlerKey, End},
    install::Plan,
    metrics,
    pages::Pages,
    request::Request,
};
use crate::{
    broker::{ConnectionStatus, ConnectionView},
    journal::Journal,
};

/// Number of signals of unknown crawlers that are remembered. A crawler may invalidate itself before it is installed.
const REMEMBERED_SIGNALS: usize = 256;

/// Maximum number of batches that are built and not sent yet.
const UNSENT_BATCHES: usize = 8;

/// Handle to the crawlers of the target. Clones share the same state.
#[derive(Clone)]
pub struct Crawlers(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) settings: TargetSettings,
    pub(super) status: ConnectionStatus,
    pub(super) pages: Arc<Pages>,
    /// Permits to have a batch that is not sent yet.
    pub(super) permits: Semaphore,
    set: Mutex<CrawlerSet>,
    /// Crawlers that begin.
    pub(super) launches: mpsc::Sender<Launch>,
}

#[derive(Default)]
struct CrawlerSet {
    crawlers: BTreeMap<CrawlerKey, Arc<Crawler>>,
    last_id: u64,
    /// Signals `Invalidated` of crawlers that were not installed, with their serial numbers.
    early_signals: VecDeque<(CrawlerKey, u32)>,
}

/// A crawler whose session begins.
pub(super) struct Launch {
    pub(super) crawler: InstalledCrawler,
    pub(super) plan: Plan,
    /// Completes when the crawler has been sent the response to its request.
    pub(super) answered: BoxFuture<'static, ()>,
}

/// An installed crawler. Dropping it frees its place.
pub(super) struct InstalledCrawler {
    pub(super) crawler: Arc<Crawler>,
    crawlers: Arc<Inner>,
}

impl Drop for InstalledCrawler {
    fn drop(&mut self) {
        self.crawlers.set().crawlers.remove(&self.crawler.key);
    }
}

/// Reasons why a crawler is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InstallError {
    #[error("a crawler is installed at the path {0} already; wait until it is invalidated, or use another path")]
    AlreadyInstalled(String),
    #[error("{0} crawlers are installed, which is the limit; raise dbus.crawlers in the configuration of Tidings")]
    TooMany(usize),
}

/// Error of an operation on a crawler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no crawler has the number {0}; GET /subscriptions lists all")]
pub struct UnknownCrawler(u64);

impl Crawlers {
    pub(super) fn new(journal: Journal, settings: TargetSettings) -> (Self, mpsc::Receiver<Launch>) {
        let (launches, waiting) = mpsc::channel(settings.crawlers);
        let pages = Arc::new(Pages::new(journal, settings.selection.clone()));
        let status = ConnectionStatus::new("dbus".to_owned());
        (
            Self(Arc::new(Inner {
                settings,
                status,
                pages,
                permits: Semaphore::new(UNSENT_BATCHES),
                set: Mutex::default(),
                launches,
            })),
            waiting,
        )
    }

    /// Returns the settings of the target.
    #[must_use]
    pub fn settings(&self) -> &TargetSettings {
        &self.0.settings
    }

    /// Returns the state of the connection to the bus.
    #[must_use]
    pub fn connection(&self) -> ConnectionView {
        self.0.status.view()
    }

    /// Returns the installed crawlers, in the order of their installation.
    #[must_use]
    pub fn list(&self) -> Vec<CrawlerInfo> {
        let mut listed: Vec<_> = self.0.set().crawlers.values().map(|crawler| crawler.info()).collect();
        listed.sort_by_key(|crawler| crawler.id);
        listed
    }

    /// Returns the journal that the crawlers read.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        self.0.pages.journal()
    }

    /// Invalidates a crawler: it gets the reason, and no more records.
    ///
    /// # Errors
    /// Fails if no crawler has this number.
    pub fn invalidate(&self, id: u64, reason: &str) -> Result<(), UnknownCrawler> {
        let set = self.0.set();
        let crawler = set.crawlers.values().find(|crawler| crawler.id == id).ok_or(UnknownCrawler(id))?;
        crawler.end(End::ByTarget(crate::text::storable(reason).into_owned()));
        Ok(())
    }
}

impl Inner {
    fn set(&self) -> MutexGuard<'_, CrawlerSet> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Installs a crawler. `serial` is the number of its request among the messages of its connection.
    pub(super) fn install(
        self: &Arc<Self>,
        key: CrawlerKey,
        request: Request,
        serial: u32,
    ) -> Result<InstalledCrawler, InstallError> {
        let mut set = self.set();
        if set.crawlers.contains_key(&key) {
            return Err(InstallError::AlreadyInstalled(key.path.as_str().to_owned()));
        }
        if set.crawlers.len() >= self.settings.crawlers {
            return Err(InstallError::TooMany(self.settings.crawlers));
        }
        set.last_id += 1;
        let crawler = Arc::new(Crawler::new(set.last_id, key.clone(), request, CancellationToken::new()));
        if set.early_signals.iter().any(|(other, later)| *other == key && *later > serial) {
            crawler.end(End::ByCrawler);
        }
        set.crawlers.insert(key, Arc::clone(&crawler));
        Ok(InstalledCrawler { crawler, crawlers: Arc::clone(self) })
    }

    /// Ends a crawler that has emitted `Invalidated`.
    pub(super) fn invalidated(&self, key: CrawlerKey, serial: u32) {
        let mut set = self.set();
        match set.crawlers.get(&key) {
            Some(crawler) => crawler.end(End::ByCrawler),
            None => {
                if set.early_signals.len() >= REMEMBERED_SIGNALS {
                    set.early_signals.pop_front();
                }
                set.early_signals.push_back((key, serial));
            }
        }
    }

    /// Ends the crawlers of a connection that has left the bus.
    pub(super) fn owner_left(&self, owner: &str) {
        self.end_all(|key| (*key.owner == *owner).then(|| End::Left("it has left the bus".to_owned())));
    }

    /// Ends the crawlers for which a function returns an end.
    pub(super) fn end_all(&self, end: impl Fn(&CrawlerKey) -> Option<End>) {
        for (key, crawler) in &self.set().crawlers {
            if let Some(end) = end(key) {
                crawler.end(end);
            }
        }
    }

    /// Forgets the signals of an earlier connection, whose names another connection may have now.
    pub(super) fn forget_signals(&self) {
        self.set().early_signals.clear();
    }

    /// Updates the gauges.
    pub(super) fn update_gauges(&self) {
        let set = self.set();
        let states = set.crawlers.values().map(|crawler| crawler.info());
        metrics::set_crawlers(states.map(|info| (info.state, info.unanswered)));
    }
}
