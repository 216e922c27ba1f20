//! Operations of the WebSub hub on its own subscriptions.
//!
//! Neither the configuration nor a `PUT` defines them: the hub derives their definitions from its topics.

use std::sync::Arc;

use super::{OperationError, SubscriptionState, Subscriptions};
use crate::{
    delivery::Definition,
    journal::subscriptions::{MadeBy, SubscriptionWrite},
    model::{Seq, SubscriptionName},
};

impl Subscriptions {
    /// Creates or renews a subscription of the hub. Returns whether it is new. An existing subscription keeps
    /// its cursor, unless retention has removed the changes after it.
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub(in crate::delivery) async fn put_hub_subscription(
        &self,
        name: &SubscriptionName,
        record: String,
        definition: Arc<Definition>,
        cursor: Seq,
    ) -> Result<bool, OperationError> {
        let _operation = self.0.operation.lock().await;
        let fell_behind = self.0.with(name, |entry| entry.status.snapshot().state == SubscriptionState::FellBehind);
        let mut fell_behind = fell_behind.unwrap_or(false);
        if self.0.cluster.is_shared()
            && let Some(stored) = self.0.journal.subscription(name.clone()).await?
        {
            // Only the node that delivers it knows its state.
            fell_behind |= stored.cursor.next() < self.0.journal.first();
        }
        if fell_behind {
            self.0.journal.write_subscriptions(vec![SubscriptionWrite::Rewind(name.clone(), cursor)]).await?;
            self.0.with(name, |entry| entry.status.begin_at(cursor))?;
        }
        self.0.store(name, MadeBy::Hub, record.into(), definition, cursor).await
    }

    /// Attaches the definition to a stored subscription of the hub and starts it.
    ///
    /// # Errors
    /// Fails if no subscription has this name.
    pub(in crate::delivery) fn attach_hub_definition(
        &self,
        name: &SubscriptionName,
        definition: Arc<Definition>,
    ) -> Result<(), OperationError> {
        self.0.with(name, |entry| {
            entry.definition = Some(definition);
            let state = if entry.ended { SubscriptionState::Ended } else { SubscriptionState::Paused };
            entry.status.set(state);
        })?;
        self.0.start_engine(name);
        Ok(())
    }

    /// Returns the state of a subscription; `None` if no subscription has this name.
    pub(in crate::delivery) fn state_of(&self, name: &SubscriptionName) -> Option<SubscriptionState> {
        self.0.with(name, |entry| entry.status.snapshot().state).ok()
    }

    /// Marks a subscription of the hub as failed, with the reason.
    ///
    /// # Errors
    /// Fails if no subscription has this name.
    pub(in crate::delivery) fn mark_failed(&self, name: &SubscriptionName, reason: &str) -> Result<(), OperationError> {
        self.0.with(name, |entry| entry.status.set_stopped(SubscriptionState::Failed, reason))
    }
}
