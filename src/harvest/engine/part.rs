//! The next part of a page: its messages are made and read, and what the repository has shown of its records is noted.

use std::{collections::BTreeSet, sync::Arc};

use super::{BudgetShare, Engine, Interruption, PageEnd, Progress};
use crate::{
    harvest::{
        AddedHeaders,
        membership::{Listing, Memberships, Sight, Weight, pending_before},
        oddities::Oddities,
        page::{HarvestedRecord, PagePart, PageRest},
    },
    intake::Batch,
    journal::{
        JournalError,
        harvest::{ListedRecords, RunCounts},
    },
    model::Timestamp,
};

/// Reason of a run that could read nothing.
const NOTHING_READABLE: &str = "no record of the run can be read; the quarantine has the reasons";

/// A part of a page, as it is written.
pub(super) struct ReadPart {
    /// Number of the records that the repository has listed.
    pub(super) records: u64,
    /// Number of the records that cannot be read.
    pub(super) unreadable: u64,
    /// Number of those among them that were unreadable before, and are in the quarantine.
    pub(super) known: u64,
    pub(super) batch: Batch,
    pub(super) listed: ListedRecords,
    pub(super) oddities: Oddities,
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
        let mut oddities = Oddities::default();
        for HarvestedRecord { message, listing } in records {
            let is_asked =
                listing.as_ref().is_some_and(|listing| matches!(listing.sight, Sight::Confirmed | Sight::Gone));
            number += u64::from(!is_asked);
            let was_unreadable = listing.as_ref().is_some_and(|listing| memberships.is_unreadable(&listing.identifier));
            let counts = listing.as_ref().is_none_or(|listing| note(&mut memberships, listing, &mut oddities));
            if let Some(message) = message.filter(|_| counts) {
                messages.push(message);
                senders.push((listing, was_unreadable));
            }
        }
        let share = self.budget.part(bytes).await;
        let source = Arc::clone(&self.source);
        let batch = self.budget.work(move |_| Batch::read(&source, messages)).await;
        let mut batch = batch.map_err(|_| JournalError::Closed)?;
        let unreadable = batch.unreadable().to_vec();
        let identifiers = unreadable.iter().filter_map(|at| Some(senders[*at].0.as_ref()?.identifier.as_str()));
        identifiers.for_each(|identifier| memberships.note_unreadable(identifier));
        let known: Vec<_> = unreadable.iter().copied().filter(|at| senders[*at].1).collect();
        batch.forget_unreadable(&known);
        let now = Timestamp::now();
        let is_dropped = |(at, digest): (usize, String)| {
            let listing = senders[at].0.as_ref().filter(|listing| has_content(listing))?;
            let weight = memberships.weigh(listing, &digest, now);
            count(&mut oddities, weight, &listing.identifier);
            (!weight.counts()).then_some(at)
        };
        let dropped: BTreeSet<_> = batch.item_digests().into_iter().filter_map(is_dropped).collect();
        batch.drop_readable(&dropped);
        self.keep(&mut batch).await?;
        listed.present.extend(memberships.into_rows());
        let (unreadable, known) = (unreadable.len() as u64, known.len() as u64);
        let part = ReadPart { records: number, unreadable, known, batch, listed, oddities, _share: share };
        Ok((part, rest))
    }

    /// Keeps the records of a batch, if the harvest does.
    async fn keep(&self, batch: &mut Batch) -> Result<(), Interruption> {
        if self.harvester.kept_records().is_empty() {
            return Ok(());
        }
        let AddedHeaders { name, values, remarks } =
            self.harvester.keep(batch.readable()).await.map_err(Interruption::Files)?;
        self.remark(&remarks);
        batch.add_headers(name, values);
        Ok(())
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

/// Notes how a repository has shown a record. Returns false if the same run has seen a newer state of it, which counts.
fn note(memberships: &mut Memberships, listing: &Listing, oddities: &mut Oddities) -> bool {
    let (identifier, counts) = (listing.identifier.as_str(), memberships.note(listing));
    oddities.doubles.count(listing.doubles, identifier);
    if listing.sight == Sight::Live && !counts {
        oddities.doubles.count(1, identifier);
    }
    if listing.is_foreign && counts && memberships.is_first_sight(identifier) {
        oddities.foreign.count(1, identifier);
    }
    counts
}

/// Returns whether the message of a record has its content.
fn has_content(listing: &Listing) -> bool {
    matches!(listing.sight, Sight::Live | Sight::Confirmed)
}

fn count(oddities: &mut Oddities, weight: Weight, identifier: &str) {
    match weight {
        Weight::Replaces | Weight::Double => oddities.doubles.count(1, identifier),
        Weight::Noisy | Weight::Withheld => oddities.noisy.count(1, identifier),
        Weight::Counts | Weight::Repeated => {}
    }
}
