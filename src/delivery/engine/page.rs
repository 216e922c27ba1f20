//! Reads the journal page by page for a session.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use super::Engine;
use crate::{
    delivery::{change_notices::ChangeNotices, memory::MemoryBudget},
    format::FormatKind,
    journal::{Journal, JournalError, RecordedChange, take_within},
    model::{Filter, Seq},
};

/// Approximate number of changes in a page, and maximum bytes of their JSON. A page has at least one change, of
/// any size.
const PAGE_CHANGES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// Part of the journal that a session reads at a time.
pub(super) struct Page {
    /// The engine delivers nothing up to this change, which may be before the page's changes.
    pub(super) skipped: Option<Seq>,
    pub(super) changes: Vec<Arc<RecordedChange>>,
    /// Permit for these changes, if they were read from disk.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// Future of a page.
pub(super) type PendingPage = BoxFuture<'static, Result<Page, JournalError>>;

impl Engine {
    /// Returns a future of the page after `after`, in whole batches. It waits until there is something to read.
    pub(super) fn page(&self, after: Seq) -> PendingPage {
        let batch = self.delivery.window().changes;
        let reader = PageReader {
            journal: self.journal.clone(),
            notices: Arc::clone(&self.notices),
            memory: Arc::clone(&self.memory),
            filter: Arc::clone(&self.filter),
            format: self.format,
            changes: batch * (PAGE_CHANGES / batch.max(1)).max(1),
        };
        Box::pin(async move { reader.read(after).await })
    }
}

/// Waits until a page arrives; waits forever if none is being read. Continues after a call that was dropped.
pub(super) async fn arrival(pending_page: &mut Option<PendingPage>) -> Result<Page, JournalError> {
    let Some(page) = pending_page else { return std::future::pending().await };
    let page = page.await;
    *pending_page = None;
    page
}

/// Reads pages for an engine.
struct PageReader {
    journal: Journal,
    notices: Arc<ChangeNotices>,
    memory: Arc<MemoryBudget>,
    filter: Arc<Filter>,
    format: &'static FormatKind,
    /// Maximum number of changes in a page.
    changes: usize,
}

impl PageReader {
    async fn read(&self, after: Seq) -> Result<Page, JournalError> {
        let mut through = after;
        loop {
            let skipped = (through > after).then_some(through);
            let wait = self.notices.wait(through, Arc::clone(&self.filter), self.format);
            // Needs no permit for changes in memory, because all readers share them.
            let permit = match self.journal.cached_after(through, 1, 1) {
                Some(_) => None,
                None => Some(self.memory.pages().acquire_owned().await.map_err(|_| JournalError::Closed)?),
            };
            let page = self.journal.after_within(through, self.changes, PAGE_BYTES).await?;
            if !page.is_empty() {
                let changes = take_within(&page, self.changes, PAGE_BYTES);
                return Ok(Page { skipped, changes, permit });
            }
            drop(permit);
            let notice = wait.notice().await?;
            if !notice.has_changes {
                return Ok(Page { skipped: Some(notice.through), changes: Vec::new(), permit: None });
            }
            through = notice.through;
        }
    }
}
