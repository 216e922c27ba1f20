//! Operations on subscriptions: create, delete, pause, resume, rewind, and replay or drop dead letters.

use std::sync::Arc;

use serde_json::Value;

use super::{MAX_SUBSCRIPTIONS, OperationError, Subscriptions};
use crate::{
    delivery::{Definition, DefinitionContext, StartPosition},
    journal::subscriptions::{DeadLetterId, MadeBy, SubscriptionWrite},
    model::SubscriptionName,
};

/// Changes that a rewind concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewoundChanges {
    /// Number of changes that come again.
    pub repeated: u64,
    /// Number of changes that are not delivered.
    pub skipped: u64,
}

impl Subscriptions {
    /// Creates a subscription or replaces its definition. Returns whether it is new. An existing subscription
    /// keeps its cursor and ignores `start`.
    ///
    /// # Errors
    /// Fails if the definition is invalid, the configuration defines this name, there are too many
    /// subscriptions, or the journal fails.
    pub async fn put(&self, name: &SubscriptionName, definition: Value) -> Result<bool, OperationError> {
        let _operation = self.0.operation.lock().await;
        let exists = match self.0.with(name, |entry| (entry.made_by, entry.definition.is_some())) {
            Ok((MadeBy::Config, true)) => return Err(OperationError::DefinedInConfig(name.clone())),
            Ok((MadeBy::Hub, _)) => return Err(OperationError::OwnedByHub(name.clone())),
            entry => entry.is_ok(),
        };
        // Subscriptions of the hub do not count, because the hub has its own limit.
        if !exists
            && self.0.entries().values().filter(|entry| entry.made_by != MadeBy::Hub).count() >= MAX_SUBSCRIPTIONS
        {
            return Err(OperationError::TooMany);
        }
        let parsed = Arc::new(Definition::read(definition.clone(), &DefinitionContext::api(&self.0.guard))?);
        let cursor = parsed.start.cursor(&self.0.journal).await;
        // An existing subscription ignores the start position, even an invalid one.
        let cursor = if exists { cursor.unwrap_or_default() } else { cursor? };
        self.0.store(name, MadeBy::Api, definition.to_string().into(), parsed, cursor).await
    }

    /// Deletes a subscription with its cursor and dead letters.
    ///
    /// # Errors
    /// Fails if the subscription does not exist, the configuration defines it, or the journal fails.
    pub async fn delete(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        let _operation = self.0.operation.lock().await;
        if self.0.with(name, |entry| entry.made_by == MadeBy::Config && entry.definition.is_some())? {
            return Err(OperationError::DefinedInConfig(name.clone()));
        }
        self.0.stop_engine(name).await;
        let deleted = self.0.journal.write_subscriptions(vec![SubscriptionWrite::Delete(name.clone())]).await;
        if deleted.is_err() {
            self.0.start_engine(name);
        }
        deleted?;
        self.0.cursors.discard(name).await;
        self.0.entries().remove(name);
        Ok(())
    }

    /// Pauses a subscription: its in-flight messages complete, and nothing more is sent until it is resumed.
    /// The pause survives a restart, with the one who has paused it.
    ///
    /// # Errors
    /// Fails if the subscription does not exist or the journal fails.
    pub async fn pause(&self, name: &SubscriptionName, by: Arc<str>) -> Result<(), OperationError> {
        let _operation = self.0.operation.lock().await;
        self.0.with(name, |_| ())?;
        self.0.journal.write_subscriptions(vec![SubscriptionWrite::Pause(name.clone(), Arc::clone(&by))]).await?;
        self.0.with(name, |entry| (entry.paused, entry.paused_by) = (true, Some(by)))?;
        self.0.stop_engine(name).await;
        self.0.start_engine(name);
        Ok(self.0.cursors.flush().await?)
    }

    /// Resumes a subscription that was paused, that its receiver ended, or that failed. If it waits for its
    /// next attempt, it tries immediately.
    ///
    /// # Errors
    /// Fails if the subscription does not exist, has no working definition, or the journal fails.
    pub async fn resume(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        let _operation = self.0.operation.lock().await;
        self.0.require_definition(name)?;
        // Stops first, because an engine that is ending may still write that it has paused.
        self.0.stop_engine(name).await;
        let writes = vec![SubscriptionWrite::Resume(name.clone()), SubscriptionWrite::SetEnded(name.clone(), None)];
        let written = self.0.journal.write_subscriptions(writes).await;
        if written.is_ok() {
            self.0.with(name, |entry| (entry.paused, entry.ended) = (false, false))?;
        }
        self.0.start_engine(name);
        Ok(written.map(|_| ())?)
    }

    /// Moves the cursor of a subscription back or forward and restarts it, even if its receiver ended it. A
    /// paused subscription stays paused. Returns how many changes it meets again or not at all, whatever its filter selects.
    ///
    /// # Errors
    /// Fails if the subscription does not exist, the position is invalid, or the journal fails.
    pub async fn rewind(&self, name: &SubscriptionName, to: StartPosition) -> Result<RewoundChanges, OperationError> {
        let _operation = self.0.operation.lock().await;
        self.0.with(name, |_| ())?;
        let cursor = to.cursor(&self.0.journal).await?;
        self.refresh_one(name).await?;
        self.0.stop_engine(name).await;
        let former = self.0.with(name, |entry| entry.status.snapshot().cursor)?;
        self.0.cursors.discard(name).await;
        let writes =
            vec![SubscriptionWrite::Rewind(name.clone(), cursor), SubscriptionWrite::SetEnded(name.clone(), None)];
        let written = self.0.journal.write_subscriptions(writes).await;
        if written.is_ok() {
            self.0.with(name, |entry| {
                entry.status.begin_at(cursor);
                entry.ended = false;
            })?;
        }
        self.0.start_engine(name);
        written?;
        let number = |from, to| self.0.journal.count_after(from).saturating_sub(self.0.journal.count_after(to));
        Ok(RewoundChanges { repeated: number(cursor, former), skipped: number(former, cursor) })
    }

    /// Marks one or all dead letters for replay, each as a message of its own. Returns their number.
    ///
    /// # Errors
    /// Fails if the subscription does not exist or the journal fails.
    pub async fn replay(&self, name: &SubscriptionName, id: Option<DeadLetterId>) -> Result<u64, OperationError> {
        self.0.with(name, |_| ())?;
        let affected =
            self.0.journal.write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(name.clone(), id)]).await?;
        self.0.with(name, |entry| entry.replays.notify_one())?;
        Ok(affected.iter().sum())
    }

    /// Drops one or all dead letters. Returns their number.
    ///
    /// # Errors
    /// Fails if the subscription does not exist or the journal fails.
    pub async fn drop_dead_letters(
        &self,
        name: &SubscriptionName,
        id: Option<DeadLetterId>,
    ) -> Result<u64, OperationError> {
        self.0.with(name, |_| ())?;
        // A change that waits to be sent again was never counted. With all of them, the count becomes 0.
        let is_repeat = match id {
            Some(id) => self.0.journal.dead_letter(name.clone(), id).await?.is_some_and(|letter| letter.attempts == 0),
            None => false,
        };
        let affected =
            self.0.journal.write_subscriptions(vec![SubscriptionWrite::DropDeadLetters(name.clone(), id)]).await?;
        let dropped: u64 = affected.iter().sum();
        if !is_repeat {
            self.0.with(name, |entry| {
                entry.status.update_dead_letters(|count| count.saturating_sub(dropped));
                if dropped > 0 {
                    entry.status.forget_handled();
                }
            })?;
        }
        Ok(dropped)
    }
}
