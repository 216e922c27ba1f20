//! State of a harvest at this node, for people.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

use crate::{
    journal::harvest::{HarvestRun, RunState},
    model::{Text, Timestamp},
};

named_values! {
    /// State of a harvest at this node.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum HarvestState {
        /// The harvest waits for its next run.
        #[default]
        Waiting = "waiting",
        /// A run is reading pages.
        Running = "running",
        /// A run waits before it repeats a failed request.
        Retrying = "retrying",
        /// The only run is complete. Another one begins only on request.
        Finished = "finished",
        /// An administrator has paused the harvest.
        Paused = "paused",
        /// Another node harvests the source.
        Elsewhere = "elsewhere",
        /// The gateway is stopping.
        Stopped = "stopped",
    }
}

/// State of a harvest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HarvestView {
    /// State at this node.
    pub state: HarvestState,
    /// Time of the next run, or of the next attempt of a failed request.
    pub next: Option<Timestamp>,
    /// Last failure since the newest page on disk, with its time.
    pub last_error: Option<(Text, Timestamp)>,
    /// Facts about the repository that an administrator should know, from the newest run.
    pub remarks: Vec<Text>,
    /// Last failure since a page was on disk, or since a run was complete, whatever runs have begun since.
    pub failure: Option<(Text, Timestamp)>,
    /// End of the last complete run, or the begin of the first one if none was complete.
    pub complete: Option<Timestamp>,
}

/// Shared state of a harvest.
#[derive(Debug, Default)]
pub struct HarvestStatus {
    view: Mutex<HarvestView>,
    requested: Notify,
    /// Whether an administrator has requested the next run at this node.
    is_urgent: AtomicBool,
}

impl HarvestStatus {
    /// Returns the state.
    #[must_use]
    pub fn view(&self) -> HarvestView {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the state, and the time of the next run or attempt.
    pub fn set(&self, state: HarvestState, next: Option<Timestamp>) {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        (view.state, view.next) = (state, next);
    }

    /// Wakes the engine of this node, because a run was requested.
    pub fn wake(&self) {
        self.requested.notify_one();
    }

    /// Notes that an administrator requests a run, which then waits for nothing.
    pub fn hurry(&self) {
        self.is_urgent.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// Waits until a run is requested at this node.
    pub(super) async fn woken(&self) {
        self.requested.notified().await;
    }

    pub(super) fn fail(&self, reason: Text) {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        view.last_error = Some((reason, Timestamp::now()));
        view.failure = view.last_error.clone();
    }

    /// Forgets a failure that no longer prevents progress.
    pub(super) fn recover(&self) {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        (view.last_error, view.failure) = (None, None);
    }

    /// Forgets the failures and remarks of earlier runs.
    pub(super) fn begin_run(&self) {
        self.is_urgent.store(false, Ordering::Relaxed);
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let (failure, complete) = (view.failure.take(), view.complete.or_else(|| Some(Timestamp::now())));
        *view = HarvestView { state: HarvestState::Running, failure, complete, ..HarvestView::default() };
    }

    /// Notes what the newest runs (newest first) say, if this node has not harvested since.
    pub(super) fn learn(&self, newest: &[HarvestRun]) {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let complete = newest.iter().find(|run| run.state == RunState::Completed).map(|run| run.updated);
        view.complete = complete.or_else(|| newest.last().map(|run| run.started)).or(view.complete);
        // Another node may have harvested since.
        let Some(run) = newest.first().filter(|run| view.failure.as_ref().is_none_or(|(_, at)| *at < run.updated))
        else {
            return;
        };
        match run.state {
            RunState::Failed => view.failure = Some((run.reason.clone().unwrap_or_default(), run.updated)),
            RunState::Completed => view.failure = None,
            RunState::Running => {}
        }
    }

    /// Notes that a run is complete.
    pub(super) fn complete(&self, at: Timestamp) {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).complete = Some(at);
    }

    /// Adds a remark; returns whether it is new.
    pub(super) fn remark(&self, remark: &Text) -> bool {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = view.remarks.len() < MAX_REMARKS && !view.remarks.iter().any(|known| known == remark);
        if is_new {
            view.remarks.push(remark.clone());
        }
        is_new
    }
}

/// Maximum number of remarks of a run.
const MAX_REMARKS: usize = 16;
