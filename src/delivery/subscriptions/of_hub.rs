//! What the WebSub hub does with its subscriptions, which neither the configuration nor a `PUT` defines: it alone
//! knows what they are, since that is made of its topics.

use std::sync::Arc;

use super::{OperationError, State, Subscriptions};
use crate::{
    delivery::Definition,
    journal::subscriptions::{MadeBy, SubscriptionWrite},
    model::{Seq, SubscriptionName},
};

impl Subscriptions {
    /// Makes a subscription of the hub, or renews it; says whether it is new. One that is not keeps its cursor,
    /// unless what it would go on with is no longer kept.
    ///
    /// # Errors
    /// When the journal fails.
    pub(in crate::delivery) async fn keep(
        &self,
        name: &SubscriptionName,
        kept: String,
        definition: Arc<Definition>,
        cursor: Seq,
    ) -> Result<bool, OperationError> {
        let _doing = self.0.doing.lock().await;
        let fell_behind = self.0.with(name, |entry| entry.status.snapshot().state == State::FellBehind);
        if fell_behind.unwrap_or(false) {
            self.0.journal.write_subscriptions(vec![SubscriptionWrite::Rewind(name.clone(), cursor)]).await?;
            self.0.with(name, |entry| entry.status.moved(cursor))?;
        }
        self.0.place(name, MadeBy::Hub, kept.into(), definition, cursor).await
    }

    /// Has a subscription of the hub go on that the journal has.
    ///
    /// # Errors
    /// When there is none of that name.
    pub(in crate::delivery) fn define(
        &self,
        name: &SubscriptionName,
        definition: Arc<Definition>,
    ) -> Result<(), OperationError> {
        self.0.with(name, |entry| {
            entry.definition = Some(definition);
            let state = if entry.ended { State::Ended } else { State::Paused };
            entry.status.set(state);
        })?;
        self.0.start(name);
        Ok(())
    }

    /// What a subscription is doing; `None` when there is none of that name.
    pub(in crate::delivery) fn state_of(&self, name: &SubscriptionName) -> Option<State> {
        self.0.with(name, |entry| entry.status.snapshot().state).ok()
    }

    /// Says that a subscription of the hub cannot work, and why.
    ///
    /// # Errors
    /// When there is none of that name.
    pub(in crate::delivery) fn cannot_work(&self, name: &SubscriptionName, reason: &str) -> Result<(), OperationError> {
        self.0.with(name, |entry| entry.status.stopped(State::Failed, reason))
    }
}
