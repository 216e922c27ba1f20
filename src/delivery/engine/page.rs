//! Reads the journal page by page for a session.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    delivery::{head_notices::HeadNotices, memory::MemoryBudget},
    journal::{Journal, JournalError, RecordedChange, take_within},
    model::Seq,
};

/// Approximate number of changes in a page, and maximum bytes of their JSON. A page has at least one change, of
/// any size.
const PAGE_CHANGES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// Changes of a page, and a permit if they were read from disk.
pub(super) type Page = (Vec<Arc<RecordedChange>>, Option<OwnedSemaphorePermit>);

/// Future of a page.
pub(super) type PendingPage = BoxFuture<'static, Result<Page, JournalError>>;

/// Returns the page after `after`, in whole batches of `batch` changes. Continues a read that an earlier call
/// began.
pub(super) async fn next(
    pending_page: &mut Option<PendingPage>,
    journal: &Journal,
    notices: &Arc<HeadNotices>,
    memory: &Arc<MemoryBudget>,
    after: Seq,
    batch: usize,
) -> Result<Page, JournalError> {
    let changes = batch * (PAGE_CHANGES / batch.max(1)).max(1);
    let (journal, notices, memory) = (journal.clone(), Arc::clone(notices), Arc::clone(memory));
    let page = pending_page.get_or_insert_with(|| Box::pin(read(journal, notices, memory, after, changes))).await;
    *pending_page = None;
    page
}

/// Waits for changes after `after` and returns a page of them.
async fn read(
    journal: Journal,
    notices: Arc<HeadNotices>,
    memory: Arc<MemoryBudget>,
    after: Seq,
    changes: usize,
) -> Result<Page, JournalError> {
    let mut heads = notices.receiver();
    loop {
        heads.borrow_and_update();
        // Needs no permit for changes in memory, because all readers share them.
        let permit = match journal.cached_after(after, 1, 1) {
            Some(_) => None,
            None => Some(memory.pages().acquire_owned().await.map_err(|_| JournalError::Closed)?),
        };
        let page = journal.after_within(after, changes, PAGE_BYTES).await?;
        if !page.is_empty() {
            return Ok((take_within(&page, changes, PAGE_BYTES), permit));
        }
        drop(permit);
        heads.changed().await.map_err(|_| JournalError::Closed)?;
    }
}
