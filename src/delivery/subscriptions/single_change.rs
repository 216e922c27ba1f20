//! Operations on one change of a subscription: send it beside the running delivery, or skip it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::timeout;

use super::{OperationError, Subscriptions};
use crate::{
    delivery::{
        Definition, Delivery, DeliveryError, DeliveryOutcome, Outgoing, StartPosition,
        engine::{encode, select},
    },
    journal::{
        Journal, JournalError, RecordedChange,
        store::StoreError,
        subscriptions::{NewDeadLetter, SubscriptionWrite},
    },
    model::{Filter, Seq, SubscriptionName, Text},
};

/// Maximum number of changes that are read to find one that a filter selects.
const MAX_EXAMINED: u64 = 10_000;

/// Number of changes that are read at once.
const PAGE: usize = 200;

/// Bytes of JSON that are read at once.
const PAGE_BYTES: usize = 4 << 20;

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
    /// Fails if the subscription does not exist, has no working definition, does not select the change, or the journal
    /// fails.
    pub async fn send_one(&self, name: &SubscriptionName, seq: Option<Seq>) -> Result<SentChange, OperationError> {
        self.0.require_definition(name)?;
        let (definition, attempts) =
            self.0.with(name, |entry| (entry.definition.clone(), Arc::clone(&entry.attempts)))?;
        let definition = definition.ok_or_else(|| OperationError::Undefined(name.clone()))?;
        let change = match seq {
            Some(seq) => self.selected(name, &definition, seq).await?,
            None => self.newest_selected(name, &definition).await?,
        };
        let seq = change.seq();
        let mut delivery = definition.config.build(name, &attempts);
        let outcome = send(&mut *delivery, &definition, change, self.0.timeouts.send).await;
        let _ = timeout(self.0.timeouts.drain, delivery.close()).await;
        let outcome = outcome.unwrap_or_else(|DeliveryError(reason)| DeliveryOutcome::Retry { reason, after: None });
        Ok(SentChange { seq, outcome })
    }

    /// Has the changes from one position to the change `through` sent again that the filter of the subscription and `filter`
    /// select, beside the running delivery. They wait among the dead letters.
    ///
    /// # Errors
    /// Fails if the subscription does not exist or has no working definition, a position is invalid, the dead letters have no
    /// room for all, or the journal fails. Changes before a failure of the journal are sent again.
    pub async fn repeat(
        &self,
        name: &SubscriptionName,
        from: StartPosition,
        through: Option<Seq>,
        filter: &Filter,
        by: &str,
    ) -> Result<u64, OperationError> {
        self.0.require_definition(name)?;
        let definition = self.0.with(name, |entry| entry.definition.clone())?;
        let definition = definition.ok_or_else(|| OperationError::Undefined(name.clone()))?;
        let stored = self.0.journal.subscription(name.clone()).await?;
        let stored = stored.map_or(0, |stored| stored.dead_letters + stored.repeats);
        let room = definition.dead_letters.saturating_sub(stored);
        let after = from.cursor(&self.0.journal).await?;
        let through = through.unwrap_or(Seq(u64::MAX)).min(self.0.journal.head());
        let range = Range { journal: &self.0.journal, definition: &definition, filter, through };
        // Counted first, so that nothing is sent if not all can be.
        let (mut count, mut position) = (0, after);
        while let Some((selected, newest)) = range.page_after(position).await? {
            (count, position) = (count + selected.len() as u64, newest);
            if count > room {
                return Err(OperationError::NoRoom { name: name.clone(), room });
            }
        }
        let reason: Text = format!("to be sent again, as {by} asked").into();
        let (mut count, mut position) = (0, after);
        while let Some((selected, newest)) = range.page_after(position).await? {
            (count, position) = (count + selected.len() as u64, newest);
            let repeat = |change: &Arc<RecordedChange>| {
                let letter = NewDeadLetter { seq: change.seq(), reason: reason.clone(), json: change.json().clone() };
                SubscriptionWrite::Repeat(name.clone(), letter)
            };
            self.0.journal.write_subscriptions(selected.iter().map(repeat).collect()).await?;
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
        self.0.require_definition(name)?;
        // Stops first, because the engine moves the cursor.
        self.0.stop_engine(name).await;
        let skipped = self.skip_stopped(name, seq, by).await;
        self.0.start_engine(name);
        skipped
    }

    async fn skip_stopped(&self, name: &SubscriptionName, seq: Seq, by: &str) -> Result<(), OperationError> {
        self.0.cursors.flush().await?;
        let stored = self.0.journal.subscription(name.clone()).await?;
        let cursor = stored.ok_or_else(|| OperationError::Unknown(name.clone()))?.cursor;
        let definition = self.0.with(name, |entry| entry.definition.clone())?;
        let definition = definition.ok_or_else(|| OperationError::Undefined(name.clone()))?;
        let next = first_selected(&self.0.journal, &definition, cursor).await?;
        let Some(change) = next.filter(|next| next.seq() == seq) else {
            return Err(OperationError::NotNext { name: name.clone(), seq, cursor });
        };
        let letter = NewDeadLetter { seq, reason: format!("skipped by {by}").into(), json: change.json().clone() };
        self.0.journal.write_subscriptions(vec![SubscriptionWrite::Skip(name.clone(), letter)]).await?;
        self.0.with(name, |entry| {
            entry.status.set_cursor(seq);
            entry.status.update_dead_letters(|count| count + 1);
            entry.status.reset_failures();
        })
    }

    /// Returns the selected part of a change.
    async fn selected(
        &self,
        name: &SubscriptionName,
        definition: &Definition,
        seq: Seq,
    ) -> Result<Arc<RecordedChange>, OperationError> {
        let before = Seq(seq.0.saturating_sub(1));
        let page = self.0.journal.before(seq.next(), 1).await?;
        let change = page.into_iter().next().filter(|change| change.seq() == seq);
        let change = change.ok_or(OperationError::NoChange(seq))?;
        let selected = select(&change, &definition.filter, definition.format).map_err(JournalError::from)?;
        selected.ok_or_else(|| OperationError::NotSelected { name: name.clone(), after: before })
    }

    /// Returns the newest change that the filter selects.
    async fn newest_selected(
        &self,
        name: &SubscriptionName,
        definition: &Definition,
    ) -> Result<Arc<RecordedChange>, OperationError> {
        let head = self.0.journal.head();
        let (mut before, least) = (head.next(), head.0.saturating_sub(MAX_EXAMINED));
        while before.0 > least {
            let page = self.0.journal.before_within(before, PAGE, PAGE_BYTES).await?;
            let Some(oldest) = page.last() else { break };
            before = oldest.seq();
            for change in &page {
                if let Some(selected) =
                    select(change, &definition.filter, definition.format).map_err(JournalError::from)?
                {
                    return Ok(selected);
                }
            }
        }
        Err(OperationError::NotSelected { name: name.clone(), after: Seq(least) })
    }
}

/// Changes up to a number that a definition and another filter select.
struct Range<'a> {
    journal: &'a Journal,
    definition: &'a Definition,
    filter: &'a Filter,
    through: Seq,
}

impl Range<'_> {
    /// Returns the selected changes of the page after a number, and the number of its last change; `None` at the end.
    async fn page_after(&self, after: Seq) -> Result<Option<(Vec<Arc<RecordedChange>>, Seq)>, JournalError> {
        if after >= self.through {
            return Ok(None);
        }
        let page = self.journal.after_within(after, PAGE, PAGE_BYTES).await?;
        let Some(newest) = page.last().map(|change| change.seq()) else { return Ok(None) };
        let mut selected = Vec::new();
        for change in page.iter().take_while(|change| change.seq() <= self.through) {
            // First the filter of the subscription, which may select the public part of a change.
            let Some(change) = select(change, &self.definition.filter, self.definition.format)? else { continue };
            selected.extend(select(&change, self.filter, self.definition.format)?);
        }
        Ok(Some((selected, newest)))
    }
}

/// Returns the first change after a cursor that a definition selects, if it is not too far away.
async fn first_selected(
    journal: &Journal,
    definition: &Definition,
    cursor: Seq,
) -> Result<Option<Arc<RecordedChange>>, OperationError> {
    let mut after = cursor;
    while after.0 < cursor.0.saturating_add(MAX_EXAMINED) {
        let page = journal.after_within(after, PAGE, PAGE_BYTES).await?;
        let Some(newest) = page.last() else { break };
        after = newest.seq();
        for change in &page {
            if let Some(selected) = select(change, &definition.filter, definition.format).map_err(JournalError::from)? {
                return Ok(Some(selected));
            }
        }
    }
    Ok(None)
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
