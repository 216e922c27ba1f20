//! Pages of the journal, as a session reads them.

use std::{pin::Pin, sync::Arc};

use tokio::sync::OwnedSemaphorePermit;

use crate::{
    delivery::memory::MemoryBudget,
    journal::{Journal, JournalError, RecordedChange, take_within},
    model::Seq,
};

/// Number of changes in a page, about, and bytes of their JSON. A page has one change at least, however large.
const CHANGES: usize = 256;
const BYTES: usize = 1024 * 1024;

/// Changes that were read, and the permit to hold them if they come from the disk.
pub(super) type Page = (Vec<Arc<RecordedChange>>, Option<OwnedSemaphorePermit>);

/// Reading of a page.
pub(super) type Reading = Pin<Box<dyn Future<Output = Result<Page, JournalError>> + Send>>;

/// Reads the page after `after`, of whole batches of `batch` changes. A reading that was begun goes on with the next
/// call.
pub(super) async fn next(
    reading: &mut Option<Reading>,
    journal: &Journal,
    memory: &Arc<MemoryBudget>,
    after: Seq,
    batch: usize,
) -> Result<Page, JournalError> {
    let changes = batch * (CHANGES / batch.max(1)).max(1);
    let (journal, memory) = (journal.clone(), Arc::clone(memory));
    let page = reading.get_or_insert_with(|| Box::pin(read(journal, memory, after, changes))).await;
    *reading = None;
    page
}

/// The changes after `after`, as soon as there are some.
async fn read(journal: Journal, memory: Arc<MemoryBudget>, after: Seq, changes: usize) -> Result<Page, JournalError> {
    let mut head = journal.watch();
    loop {
        head.borrow_and_update();
        // Changes in memory are shared by all that read them.
        let permit = match journal.cached_after(after, 1, 1) {
            Some(_) => None,
            None => Some(memory.pages().acquire_owned().await.map_err(|_| JournalError::Closed)?),
        };
        let page = journal.after_within(after, changes, BYTES).await?;
        if !page.is_empty() {
            return Ok((take_within(&page, changes, BYTES), permit));
        }
        drop(permit);
        head.changed().await.map_err(|_| JournalError::Closed)?;
    }
}
