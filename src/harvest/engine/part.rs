//! The next part of a page: its messages are made and read, and what the repository has shown of its records is noted.

use std::sync::Arc;

use super::{BudgetShare, Engine, Interruption, PageEnd, Progress};
use crate::{
    harvest::{
        membership::{Memberships, Sight, pending_before},
        page::{HarvestedRecord, PagePart, PageRest},
    },
    intake::Batch,
    journal::{
        JournalError,
        harvest::{ListedRecords, RunCounts},
    },
};

/// Reason of a run that could read nothing.
const NOTHING_READABLE: &str = "no record of the run can be read; the quarantine has the reasons";

/// A part of a page, as it is written.
pub(super) struct ReadPart {
    /// Number of the messages.
    pub(super) messages: usize,
    /// Number of the records that the repository has listed.
    pub(super) records: u64,
    /// Number of the records that cannot be read.
    pub(super) unreadable: u64,
    /// Number of those among them that were unreadable before, and are in the quarantine.
    pub(super) known: u64,
    pub(super) batch: Batch,
    pub(super) listed: ListedRecords,
    /// Room for the messages of the part.
    _share: BudgetShare,
}

impl Engine {
    /// Makes and reads the messages of the next part of a page, when there is room for them.
    pub(super) async fn next_part(&self, mut rest: PageRest) -> Result<(ReadPart, PageRest), Interruption> {
        let made = self.budget.work(move |_| (rest.next_part(), rest)).await;
        let (PagePart { records, bytes, mut listed }, rest) = made.map_err(|_| JournalError::Closed)?;
        let identifiers = records.iter().filter_map(|record| Some(record.listing.as_ref()?.identifier.clone()));
        let identifiers: Vec<_> = identifiers.collect();
        let mut memberships = Memberships::read(&self.journal, self.source.name(), identifiers).await?;
        let (mut messages, mut senders, mut number) = (Vec::with_capacity(records.len()), Vec::new(), 0);
        for HarvestedRecord { message, listing } in records {
            let is_asked =
                listing.as_ref().is_some_and(|listing| matches!(listing.sight, Sight::Confirmed | Sight::Gone));
            number += u64::from(!is_asked);
            let was_unreadable = listing.as_ref().is_some_and(|listing| memberships.is_unreadable(&listing.identifier));
            let counts = listing.as_ref().is_none_or(|listing| memberships.note(listing));
            if let Some(message) = message.filter(|_| counts) {
                messages.push(message);
                senders.push((listing.map(|listing| listing.identifier), was_unreadable));
            }
        }
        let share = self.budget.part(bytes).await;
        let (source, count) = (Arc::clone(&self.source), messages.len());
        let batch = self.budget.work(move |_| Batch::read(&source, messages)).await;
        let mut batch = batch.map_err(|_| JournalError::Closed)?;
        let unreadable = batch.unreadable().to_vec();
        unreadable.iter().filter_map(|at| senders[*at].0.as_deref()).for_each(|id| memberships.note_unreadable(id));
        let known: Vec<_> = unreadable.iter().copied().filter(|at| senders[*at].1).collect();
        batch.forget_unreadable(&known);
        listed.present.extend(memberships.into_rows());
        let (unreadable, known) = (unreadable.len() as u64, known.len() as u64);
        Ok((ReadPart { messages: count, records: number, unreadable, known, batch, listed, _share: share }, rest))
    }

    /// Returns the end of a run. It fails if it could read none of its records, and either something new is wrong, or nothing
    /// of this source can be read.
    pub(super) async fn judged(
        &self,
        written: &Progress,
        last: &ReadPart,
        end: PageEnd,
    ) -> Result<PageEnd, Interruption> {
        let RunCounts { records, quarantined, .. } = written.run.counts;
        let unreadable = quarantined + last.unreadable;
        if end != PageEnd::Complete || unreadable == 0 || unreadable < records {
            return Ok(end);
        }
        let counts = self.journal.listed_counts(self.source.name().clone(), pending_before()).await?;
        let is_new = written.has_new_unreadable || last.unreadable > last.known;
        let is_hopeless = counts.all > 0 && counts.missing == counts.all;
        Ok(if is_new || is_hopeless { PageEnd::Failed(NOTHING_READABLE.to_owned()) } else { end })
    }
}
