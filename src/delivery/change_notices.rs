//! Notices to the engines that the journal has changes for them.
//!
//! An engine that has nothing to deliver waits here. One task reads the new changes and matches them with the filters of all
//! waits, so that a change wakes only the engines that deliver it. The others learn now and then up to which change they have
//! nothing to deliver, so that their cursors follow.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, task::yield_now, time::Instant};

use super::engine::select;
use crate::{
    format::FormatKind,
    journal::{Journal, JournalError, RecordedChange},
    model::{Filter, Seq},
};

/// Maximum number of changes that are read at a time, and of bytes of their JSON.
const PAGE_CHANGES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// Maximum number of engines that are notified together that they have nothing to deliver.
const PROGRESS_BATCH: usize = 64;

/// Rest after such a notice, for each engine that got it: about a hundred times as long as an engine needs for it.
const REST: Duration = Duration::from_millis(1);

/// Waits of engines, and the task that ends them.
pub(super) struct ChangeNotices(Mutex<Waits>);

struct Waits {
    /// In the order of their numbers, so that the oldest wait comes first.
    waits: Vec<Waiting>,
    /// Number of the next wait.
    next: u64,
    /// Newest change that all waits have been matched with.
    through: Seq,
}

/// An engine that waits.
struct Waiting {
    number: u64,
    /// The engine has read all changes up to this one.
    after: Seq,
    filter: Arc<Filter>,
    format: &'static FormatKind,
    notify: oneshot::Sender<Notice>,
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// The engine delivers no change up to this one.
    pub(super) through: Seq,
    /// Whether the next change may be one that the engine delivers.
    pub(super) has_changes: bool,
}

/// Wait of an engine.
pub(super) struct Wait<'a> {
    number: u64,
    notices: &'a ChangeNotices,
    notice: oneshot::Receiver<Notice>,
}

impl ChangeNotices {
    pub(super) fn new(journal: &Journal) -> Self {
        Self(Mutex::new(Waits { waits: Vec::new(), next: 0, through: journal.head() }))
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a wait for changes after `after`. The engine then reads the journal once more, because no notice is
    /// about the changes before.
    pub(super) fn wait(&self, after: Seq, filter: Arc<Filter>, format: &'static FormatKind) -> Wait<'_> {
        let (notify, notice) = oneshot::channel();
        let mut waits = self.waits();
        let number = waits.next;
        waits.next += 1;
        waits.waits.push(Waiting { number, after, filter, format, notify });
        Wait { number, notices: self, notice }
    }

    /// Matches new changes with the waits until the journal is closed.
    pub(super) async fn run(&self, journal: &Journal) {
        let mut head = journal.watch();
        let mut rested = Instant::now();
        let mut is_notified = true;
        loop {
            tokio::select! {
                changed = head.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let newest = *head.borrow_and_update();
                    self.match_up_to(newest, journal).await;
                    is_notified = false;
                }
                () = tokio::time::sleep_until(rested), if !is_notified => {
                    let (notified, rest) = self.notify_progress();
                    rested = Instant::now() + rest;
                    is_notified = notified < PROGRESS_BATCH;
                }
            }
        }
        self.waits().waits.clear();
    }

    /// Matches all changes up to this one.
    async fn match_up_to(&self, newest: Seq, journal: &Journal) {
        let mut through = self.waits().start_of_matching(newest);
        if newest < through {
            // A failover has lost changes, and the engines find out which.
            self.waits().end_all(newest);
        }
        while through < newest {
            match journal.after_within(through, PAGE_CHANGES, PAGE_BYTES).await {
                Ok(page) if !page.is_empty() => {
                    for change in page {
                        through = change.seq();
                        self.waits().match_with(&change);
                        yield_now().await;
                    }
                }
                // The numbers up to the newest one have no changes, or the engines find out what is wrong.
                Ok(_) | Err(_) => {
                    through = newest;
                    self.waits().end_all(newest);
                }
            }
        }
    }

    /// Notifies the engines that have waited longest that they have nothing to deliver of the newest changes. Returns their
    /// number, and the rest after it.
    fn notify_progress(&self) -> (usize, Duration) {
        let mut waits = self.waits();
        let through = waits.through;
        let (mut notified, mut rest) = (0, Duration::ZERO);
        for wait in waits.waits.extract_if(.., |wait| wait.after < through).take(PROGRESS_BATCH) {
            wait.end(through, false);
            (notified, rest) = (notified + 1, rest + REST);
        }
        (notified, rest)
    }
}

impl Waits {
    /// Returns the newest change that needs no matching: if nobody waits, it is `newest`, because an engine reads the journal
    /// after it has begun to wait.
    fn start_of_matching(&mut self, newest: Seq) -> Seq {
        if self.waits.is_empty() {
            self.through = newest;
        }
        self.through
    }

    /// Ends the waits of the engines that deliver a change.
    fn match_with(&mut self, change: &Arc<RecordedChange>) {
        let (before, seq) = (self.through, change.seq());
        for wait in self.waits.extract_if(.., |wait| wait.after < seq && wait.is_for(change)) {
            let through = before.max(wait.after);
            wait.end(through, true);
        }
        self.through = seq;
    }

    /// Ends all waits, because the changes up to `newest` could not be matched.
    fn end_all(&mut self, newest: Seq) {
        for wait in std::mem::take(&mut self.waits) {
            let through = wait.after;
            wait.end(through, true);
        }
        self.through = newest;
    }
}

impl Waiting {
    /// Returns whether the engine delivers a change, or has to find out why it cannot be read.
    fn is_for(&self, change: &Arc<RecordedChange>) -> bool {
        select(change, &self.filter, self.format).map_or(true, |selected| selected.is_some())
    }

    fn end(self, through: Seq, has_changes: bool) {
        // An engine that has stopped waiting needs no notice.
        let _ = self.notify.send(Notice { through, has_changes });
    }
}

impl Wait<'_> {
    /// Waits for a notice.
    ///
    /// # Errors
    /// Fails if the journal is closed.
    pub(super) async fn notice(mut self) -> Result<Notice, JournalError> {
        (&mut self.notice).await.map_err(|_| JournalError::Closed)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waits = &mut self.notices.waits().waits;
        if let Ok(place) = waits.binary_search_by_key(&self.number, |wait| wait.number) {
            waits.remove(place);
        }
    }
}
