//! Deliveries that an administrator asks for: one change beside the running delivery, a part of the journal again, or one
//! change never.
//!
//! The journal is read and filtered on blocking threads, because the changes can be large and many.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::timeout;

use super::{OperationError, Subscriptions};
use crate::{
    delivery::{
        Definition, Delivery, DeliveryError, DeliveryOutcome, Outgoing, StartPosition,
        engine::{encode, select},
    },
    journal::{
        BlockingQueries, Journal, JournalError, RecordedChange,
        store::StoreError,
        subscriptions::{NewDeadLetter, SubscriptionWrite},
    },
    model::{Filter, Seq, SubscriptionName, Text, Uri},
};

/// Maximum number of changes that are read to find one that a filter selects.
const MAX_EXAMINED: u64 = 10_000;

/// Maximum number of changes from the first to the last one of a part that is sent again.
pub(super) const MAX_RANGE: u64 = 100_000;

/// Begin of the reason of a dead letter that somebody has skipped.
pub const SKIPPED_BY: &str = "skipped by ";

/// Number of changes that are read at once.
const PAGE: usize = 200;

/// Bytes of JSON that are read at once.
const PAGE_BYTES: usize = 4 << 20;

/// Changes to send again.
#[derive(Clone, Debug)]
pub struct RepeatedChanges {
    /// Position of the first change.
    pub from: StartPosition,
    /// Number of the last change; `None` if there is no end.
    pub through: Option<Seq>,
    /// Conditions on the changes.
    pub filter: Filter,
    /// Objects of the changes; all if the list is empty.
    pub objects: Vec<Uri>,
}

/// Result of sending one change.
#[derive(Debug)]
pub struct SentChange {
    /// Number of the change.
    pub seq: Seq,
    /// Answer of the receiver.
    pub outcome: DeliveryOutcome,
}

impl Subscriptions {
    /// Sends one change to the receiver of a subscription, over a connection of its own, and waits for the answer. It is the
    /// change `seq`, or else the newest one that the filter selects. Cursor and dead letters stay as they are.
    ///
    /// # Errors
    /// Fails if the subscription does not exist, has no working definition, does not deliver the change, or the journal
    /// fails.
    pub async fn send_one(&self, name: &SubscriptionName, seq: Option<Seq>) -> Result<SentChange, OperationError> {
        let selection = Selection { definition: self.definition(name)?, filter: Filter::default(), objects: None };
        let definition = Arc::clone(&selection.definition);
        let journal = &self.0.journal;
        let change = match seq {
            Some(seq) => match selection.of_one(journal, seq).await? {
                None => return Err(OperationError::NoChange(seq)),
                Some(selected) => selected.ok_or_else(|| OperationError::NotDelivered { name: name.clone(), seq })?,
            },
            None => {
                let newest = selection.newest(journal).await?;
                newest.ok_or_else(|| OperationError::NothingToSend(name.clone()))?
            }
        };
        let seq = change.seq();
        let attempts = self.0.with(name, |entry| Arc::clone(&entry.attempts))?;
        let mut delivery = definition.config.build(name, &attempts);
        let outcome = send(&mut *delivery, &definition, change, self.0.timeouts.send).await;
        let block = delivery.block();
        let _ = timeout(self.0.timeouts.drain, delivery.close()).await;
        let outcome = outcome.unwrap_or_else(|DeliveryError(reason)| DeliveryOutcome::Retry { reason, after: None });
        Ok(SentChange { seq, outcome: outcome.because(block) })
    }

    /// Has changes sent again, beside the running delivery, if the filter of the subscription selects them too. They wait
    /// among the dead letters.
    ///
    /// # Errors
    /// Fails if the subscription does not exist or has no working definition, a position is invalid, the part is too long,
    /// the dead letters have no room for all, or the journal fails. Changes before a failure of the journal are sent again.
    pub async fn replay_range(
        &self,
        name: &SubscriptionName,
        RepeatedChanges { from, through, filter, objects }: RepeatedChanges,
        by: &str,
    ) -> Result<u64, OperationError> {
        let journal = &self.0.journal;
        let objects = Some(objects).filter(|objects| !objects.is_empty());
        let objects = objects.map(|objects| Arc::new(objects.into_iter().collect()));
        let selection = Selection { definition: self.definition(name)?, filter, objects };
        let stored = journal.subscription(name.clone()).await?;
        let stored = stored.map_or(0, |stored| stored.dead_letters + stored.repeats);
        let room = selection.definition.dead_letters.saturating_sub(stored);
        let after = from.cursor(journal).await?;
        let through = through.unwrap_or(Seq(u64::MAX)).min(journal.head());
        if journal.count_after(after).saturating_sub(journal.count_after(through)) > MAX_RANGE {
            return Err(OperationError::RangeTooLong);
        }
        // Counted first, so that nothing is sent if not all can be.
        let counting = selection.clone();
        let count = journal.query_in_a_row(move |journal| counting.count(journal, after, through, room)).await?;
        if count > room {
            return Err(OperationError::NoRoom { name: name.clone(), room });
        }
        let reason: Text = format!("to be sent again, as {by} asked").into();
        let (mut count, mut position) = (0, after);
        loop {
            let selection = selection.clone();
            let page = journal.query_in_a_row(move |journal| selection.page_after(journal, position, through)).await?;
            let Some(SelectedPage { changes: selected, last }) = page else { break };
            (count, position) = (count + selected.len() as u64, last);
            let repeat = |change: &Arc<RecordedChange>| {
                let letter = NewDeadLetter { seq: change.seq(), reason: reason.clone(), json: change.json().clone() };
                SubscriptionWrite::Repeat(name.clone(), letter)
            };
            journal.write_subscriptions(selected.iter().map(repeat).collect()).await?;
        }
        self.0.with(name, |entry| entry.replays.notify_one())?;
        Ok(count)
    }

    /// Skips the next change that a subscription delivers: it becomes a dead letter, and the delivery continues after it.
    ///
    /// # Errors
    /// Fails if the subscription does not exist or has no working definition, `seq` is not the next change that it delivers,
    /// or the journal fails.
    pub async fn skip(&self, name: &SubscriptionName, seq: Seq, by: &str) -> Result<(), OperationError> {
        let _operation = self.0.operation.lock().await;
        let selection = Selection { definition: self.definition(name)?, filter: Filter::default(), objects: None };
        // Stops first, because the engine moves the cursor.
        self.0.stop_engine(name).await;
        let skipped = self.skip_stopped(name, selection, seq, by).await;
        self.0.start_engine(name);
        skipped
    }

    async fn skip_stopped(
        &self,
        name: &SubscriptionName,
        selection: Selection,
        seq: Seq,
        by: &str,
    ) -> Result<(), OperationError> {
        self.0.cursors.flush().await?;
        let stored = self.0.journal.subscription(name.clone()).await?;
        let cursor = stored.ok_or_else(|| OperationError::Unknown(name.clone()))?.cursor;
        let next = selection.first_after(&self.0.journal, cursor).await?;
        let Some(change) = next.filter(|next| next.seq() == seq) else {
            return Err(OperationError::NotNext { name: name.clone(), seq, cursor });
        };
        let letter = NewDeadLetter { seq, reason: format!("{SKIPPED_BY}{by}").into(), json: change.json().clone() };
        self.0.journal.write_subscriptions(vec![SubscriptionWrite::Skip(name.clone(), letter)]).await?;
        self.0.with(name, |entry| {
            entry.status.set_cursor(seq);
            entry.status.update_dead_letters(|count| count + 1);
        })
    }

    /// Returns the definition of a subscription.
    fn definition(&self, name: &SubscriptionName) -> Result<Arc<Definition>, OperationError> {
        let definition = self.0.with(name, |entry| entry.definition.clone())?;
        definition.ok_or_else(|| OperationError::Undefined(name.clone()))
    }
}

/// Changes that a subscription delivers and another filter selects.
#[derive(Clone)]
struct Selection {
    definition: Arc<Definition>,
    filter: Filter,
    /// Objects of the changes; `None` if all.
    objects: Option<Arc<HashSet<Uri>>>,
}

impl Selection {
    /// Returns the selected part of a change.
    fn of(&self, change: &Arc<RecordedChange>) -> Result<Option<Arc<RecordedChange>>, StoreError> {
        let Definition { filter, format, .. } = &*self.definition;
        if let Some(objects) = &self.objects
            && !objects.contains(&change.change()?.modification.object)
        {
            return Ok(None);
        }
        // First the filter of the subscription, which may select the public part of a change.
        match select(change, filter, format)? {
            Some(delivered) => select(&delivered, &self.filter, format),
            None => Ok(None),
        }
    }

    /// Returns the selected part of the change with this number; `None` if there is no such change.
    async fn of_one(self, journal: &Journal, seq: Seq) -> Result<Option<Option<Arc<RecordedChange>>>, JournalError> {
        let query = move |journal: &BlockingQueries| {
            let page = journal.before_within(seq.next(), 1, 1)?;
            let change = page.first().filter(|change| change.seq() == seq);
            Ok(change.map(|change| self.of(change)).transpose()?)
        };
        journal.query_in_a_row(query).await
    }

    /// Returns the newest change that is selected, if it is not too far from the head.
    async fn newest(self, journal: &Journal) -> Result<Option<Arc<RecordedChange>>, JournalError> {
        let head = journal.head();
        let query = move |journal: &BlockingQueries| {
            let (mut before, least) = (head.next(), head.0.saturating_sub(MAX_EXAMINED));
            while before.0 > least {
                let page = journal.before_within(before, PAGE, PAGE_BYTES)?;
                for change in &page {
                    if let Some(selected) = self.of(change)? {
                        return Ok(Some(selected));
                    }
                }
                let Some(oldest) = page.last() else { break };
                before = oldest.seq();
            }
            Ok(None)
        };
        journal.query_in_a_row(query).await
    }

    /// Returns the first change after a cursor that is selected, if it is not too far away.
    async fn first_after(self, journal: &Journal, cursor: Seq) -> Result<Option<Arc<RecordedChange>>, JournalError> {
        let through = Seq(cursor.0.saturating_add(MAX_EXAMINED));
        let query = move |journal: &BlockingQueries| {
            let mut position = cursor;
            while let Some(page) = self.page_after(journal, position, through)? {
                if let Some(first) = page.changes.into_iter().next() {
                    return Ok(Some(first));
                }
                position = page.last;
            }
            Ok(None)
        };
        journal.query_in_a_row(query).await
    }

    /// Counts the selected changes after a number up to another one, but not further than beyond `limit`.
    fn count(&self, journal: &BlockingQueries, after: Seq, through: Seq, limit: u64) -> Result<u64, JournalError> {
        let (mut count, mut position) = (0, after);
        while count <= limit
            && let Some(page) = self.page_after(journal, position, through)?
        {
            (count, position) = (count + page.changes.len() as u64, page.last);
        }
        Ok(count)
    }

    /// Returns the selected changes of the page after a number; `None` at the end.
    fn page_after(
        &self,
        journal: &BlockingQueries,
        after: Seq,
        through: Seq,
    ) -> Result<Option<SelectedPage>, JournalError> {
        if after >= through {
            return Ok(None);
        }
        let page = journal.after_within(after, PAGE, PAGE_BYTES)?;
        let Some(last) = page.last().map(|change| change.seq()) else { return Ok(None) };
        let mut changes = Vec::new();
        for change in page.iter().take_while(|change| change.seq() <= through) {
            changes.extend(self.of(change)?);
        }
        Ok(Some(SelectedPage { changes, last }))
    }
}

/// Selected changes among those of a page of the journal.
struct SelectedPage {
    changes: Vec<Arc<RecordedChange>>,
    /// Number of the last change of the page, which need not be selected.
    last: Seq,
}

/// Connects, sends one change as the engine would, and returns the answer.
async fn send(
    delivery: &mut dyn Delivery,
    definition: &Definition,
    change: Arc<RecordedChange>,
    limit: Duration,
) -> Result<DeliveryOutcome, DeliveryError> {
    let late = |_| DeliveryError(format!("the receiver accepted nothing for {} seconds", limit.as_secs()));
    timeout(limit, delivery.connect()).await.map_err(late)??;
    let unreadable = |error: StoreError| DeliveryError(error.to_string());
    let encoded = encode(&change, definition.format).map_err(unreadable)?;
    let window = delivery.window();
    let batch = definition.format.batch.filter(|_| window.changes > 1);
    let body = batch.map_or_else(|| encoded.clone(), |batch| Bytes::from(batch.join(std::slice::from_ref(&encoded))));
    let (more, is_batch, is_repeat) = (Vec::new(), batch.is_some(), true);
    let message = Outgoing { change, more, is_batch, is_repeat, format: definition.format, body };
    let sent = timeout(limit, delivery.send(message)).await.map_err(late)??;
    let late = |_| DeliveryError(format!("the receiver confirmed nothing within {} seconds", limit.as_secs()));
    timeout(window.outcome_timeout.min(limit), sent).await.map_err(late)
}
