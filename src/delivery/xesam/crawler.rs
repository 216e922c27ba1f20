//! An installed crawler, as its session and the administrator see it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::request::Request;
use crate::{dbus, model::Seq};

/// Identifies a crawler on its bus: the unique name of its connection, and the path of its object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CrawlerKey {
    /// Unique name of the connection, as in `:1.42`.
    pub owner: Arc<str>,
    /// Path of the object.
    pub path: dbus::Path,
}

named_values! {
    /// State of a crawler.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schema(as = CrawlerState)]
    pub enum CrawlerState {
        /// Its request was answered.
        Installed = "installed",
        /// It removes its records, before a full dump.
        CleaningUp = "cleaning-up",
        /// It gets the registry.
        FullDump = "full-dump",
        /// It gets older changes of the journal.
        Behind = "behind",
        /// It has all changes, and gets new ones at once.
        Current = "current",
    }
}

/// Reason for which a crawler gets no more records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has left the bus, or its object is not there.
    Left(String),
    /// It has invalidated itself.
    ByCrawler,
    /// The target invalidates it, for this reason.
    ByTarget(String),
    /// The connection to the bus has ended.
    Disconnected,
}

/// An installed crawler.
#[derive(Debug)]
pub(super) struct Crawler {
    pub(super) id: u64,
    pub(super) key: CrawlerKey,
    pub(super) request: Request,
    /// Ends the session.
    stop: CancellationToken,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    state: CrawlerState,
    incremental: bool,
    position: Seq,
    batches: u64,
    records: u64,
    unanswered_since: Option<Instant>,
    end: Option<End>,
}

/// A crawler at one moment.
#[derive(Clone, Debug)]
pub struct CrawlerInfo {
    /// Number that identifies it while the gateway runs.
    pub id: u64,
    /// Its name and path on the bus.
    pub key: CrawlerKey,
    /// State.
    pub state: CrawlerState,
    /// Time in seconds since 1970 after which it asked for records.
    pub mtime: u64,
    /// Whether it gets the changes after this time, and not a full dump.
    pub incremental: bool,
    /// It has all changes up to this one.
    pub position: Seq,
    /// Number of batches that it has answered.
    pub batches: u64,
    /// Number of records in these batches.
    pub records: u64,
    /// Time for which it has not answered a call.
    pub unanswered: Option<Duration>,
}

impl Crawler {
    pub(super) fn new(id: u64, key: CrawlerKey, request: Request, stop: CancellationToken) -> Self {
        let progress = Progress {
            state: CrawlerState::Installed,
            incremental: true,
            position: Seq::ZERO,
            batches: 0,
            records: 0,
            unanswered_since: None,
            end: None,
        };
        Self { id, key, request, stop, progress: Mutex::new(progress) }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session. The first end counts.
    pub(super) fn end(&self, end: End) {
        self.progress().end.get_or_insert(end);
        self.stop.cancel();
    }

    /// Waits until the session must end.
    pub(super) async fn ended(&self) -> End {
        self.stop.cancelled().await;
        self.progress().end.clone().unwrap_or(End::Disconnected)
    }

    pub(super) fn set_position(&self, state: CrawlerState, position: Seq) {
        let progress = &mut *self.progress();
        (progress.state, progress.position) = (state, position);
    }

    pub(super) fn set_incremental(&self, incremental: bool) {
        self.progress().incremental = incremental;
    }

    /// Notes that a call was sent, until the returned guard is dropped.
    pub(super) fn begin_call(&self) -> CallGuard<'_> {
        self.progress().unanswered_since = Some(Instant::now());
        CallGuard(self)
    }

    pub(super) fn count_batch(&self, records: usize) {
        let progress = &mut *self.progress();
        progress.batches += 1;
        progress.records += records as u64;
    }

    pub(super) fn info(&self) -> CrawlerInfo {
        let progress = self.progress();
        CrawlerInfo {
            id: self.id,
            key: self.key.clone(),
            state: progress.state,
            mtime: self.request.mtime,
            incremental: progress.incremental,
            position: progress.position,
            batches: progress.batches,
            records: progress.records,
            unanswered: progress.unanswered_since.map(|since| since.elapsed()),
        }
    }
}

/// A call without an answer.
pub(super) struct CallGuard<'c>(&'c Crawler);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.progress().unanswered_since = None;
    }
}
