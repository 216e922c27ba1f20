//! Pages with the newest change first. Each reads the journal backwards from a cursor.
//!
//! No index knows the changes of a thing. A search for one is bounded in number, bytes and time, and continues with the
//! next page. A change whose JSON does not contain the URI is not parsed.

use std::time::{Duration, Instant};

use super::{
    super::{block_on, journal_problem},
    Changes,
    page::{Page, PageWriter, Selection},
};
use crate::{
    journal::{Journal, JournalError, store::StoreError},
    model::{Seq, Timestamp},
    web::{Problem, Spool},
};

/// Maximum time for one page, after which it ends with the changes so far.
const MAX_TIME: Duration = Duration::from_secs(2);

impl Changes {
    /// Reads the page with the changes before a number, the newest first. Changes that were received before `since` end it.
    pub(super) async fn read_backwards(
        &self,
        before: Option<Seq>,
        since: Option<Timestamp>,
        selection: &Selection,
    ) -> Result<Page, Problem> {
        let end = self.journal.head().next();
        let cursor = before.map_or(end, |before| before.min(end));
        let oldest = match since {
            Some(since) => self.journal.first_since(since).await.map_err(journal_problem)?.unwrap_or(end),
            None => self.journal.first(),
        };
        let permit = self.readers.spool().page_permit().await;
        let (view, selection) = (self.clone(), selection.clone());
        let fill = move |page: &mut PageWriter<'_>, journal: &Journal| page.fill_backwards(journal, oldest);
        Spool::blocking(permit, move || Page::write(&view, cursor, &selection, |page| fill(page, &view.journal))).await
    }
}

impl PageWriter<'_> {
    /// Reads the journal backwards until the page is full, has examined as many changes as it may, or has the change
    /// `oldest`.
    fn fill_backwards(&mut self, journal: &Journal, oldest: Seq) -> Result<(), Problem> {
        let deadline = Instant::now() + MAX_TIME;
        while self.may_read() && (self.examined == 0 || Instant::now() < deadline) {
            if self.next <= oldest {
                self.is_last = true;
                return Ok(());
            }
            let (count, bytes) = self.next_piece();
            let mut read = match block_on(journal.before_within(self.next, count, bytes)) {
                // The page ends before the damaged change, and the next one reports it.
                Err(JournalError::Store(StoreError::DamagedChange { .. })) if self.examined > 0 => return Ok(()),
                read => read.map_err(journal_problem)?,
            };
            let length = read.len();
            read.truncate(read.partition_point(|change| change.seq() >= oldest));
            if !self.add(&read)? {
                break;
            }
            if read.len() < length || length == 0 {
                self.is_last = true;
                return Ok(());
            }
        }
        self.is_last = self.next <= oldest;
        Ok(())
    }
}
