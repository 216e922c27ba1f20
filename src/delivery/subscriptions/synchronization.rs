//! Synchronization with the other nodes: whatever node modifies a subscription, all nodes read it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Weak},
};

use super::{Inner, OperationError, Subscriptions, entry::Entry};
use crate::{
    cluster::workers,
    delivery::Definition,
    journal::{
        JournalError,
        subscriptions::{MadeBy, SubscriptionRecord},
    },
    model::SubscriptionName,
};

/// The subscribers of the WebSub hub.
pub(in crate::delivery) trait HubRecords: Send + Sync {
    /// Adds or replaces a subscriber, and returns the definition of its subscription.
    fn attach(&self, stored: &SubscriptionRecord) -> Result<Arc<Definition>, String>;

    /// Removes a subscriber whose subscription another node has ended.
    fn detach(&self, name: &SubscriptionName);
}

impl Subscriptions {
    /// Has the hub parse the records of its subscribers.
    pub(in crate::delivery) fn set_hub(&self, hub: Weak<dyn HubRecords>) {
        // There is one hub.
        let _ = self.0.hub.set(hub);
    }

    /// Reads the cursors of subscriptions that other nodes deliver. Without other nodes this does nothing.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn refresh(&self) -> Result<(), OperationError> {
        if self.0.cluster.is_shared() {
            for stored in self.0.journal.subscriptions().await? {
                self.0.update_progress(&stored);
            }
        }
        Ok(())
    }

    /// Reads the cursor of a subscription that another node delivers. Without other nodes this does nothing.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn refresh_one(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        if self.0.cluster.is_shared()
            && let Some(stored) = self.0.journal.subscription(name.clone()).await?
        {
            self.0.update_progress(&stored);
        }
        Ok(())
    }
}

impl Inner {
    /// Synchronizes whenever a node has modified a subscription.
    pub(in crate::delivery) async fn keep_synchronized(&self) -> Infallible {
        let revisions = self.cluster.subscription_revisions();
        workers::keep_synchronized(revisions, &self.outdated, || self.synchronize()).await
    }

    /// Reads all subscriptions again, and restarts those that another node has modified.
    async fn synchronize(&self) -> Result<(), JournalError> {
        let _operation = self.operation.lock().await;
        let stored: BTreeMap<_, _> =
            self.journal.subscriptions().await?.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        let known: BTreeSet<_> = self.entries().keys().cloned().collect();
        for name in known.iter().filter(|name| !stored.contains_key(*name)) {
            tracing::info!(subscription = %name, "another node has deleted a subscription");
            self.stop_engine(name).await;
            self.cursors.discard(name).await;
            if let Some(hub) = self.hub() {
                hub.detach(name);
            }
            self.entries().remove(name);
        }
        for (name, stored) in stored {
            if !known.contains(&name) {
                {
                    // Locked, because the hub denies a subscriber that has no subscription.
                    let mut entries = self.entries();
                    let (definition, trouble) = self.hub_definition(&stored);
                    let entry = Entry::of(&stored, definition, &self.guard);
                    if let Some(trouble) = trouble {
                        entry.status.set_stopped(super::SubscriptionState::Failed, &trouble);
                    }
                    entries.insert(name.clone(), entry);
                }
                self.start_engine(&name);
            } else if self.with(&name, |entry| entry.agrees_with(&stored)).unwrap_or(true) {
                self.update_progress(&stored);
                self.update_dead_letters(&stored);
            } else {
                tracing::info!(subscription = %name, "another node has modified a subscription");
                self.stop_engine(&name).await;
                self.replace(&stored);
                self.start_engine(&name);
            }
        }
        Ok(())
    }

    /// Reads the entry of a stopped subscription from the journal again.
    fn replace(&self, stored: &SubscriptionRecord) {
        let (mut definition, trouble) = self.hub_definition(stored);
        let name = stored.name.clone();
        let _ = self.with(&name, |entry| {
            if entry.made_by == stored.made_by && entry.stored_definition == stored.definition {
                definition = entry.definition.clone();
            }
            let (attempts, replays, is_held) =
                (Arc::clone(&entry.attempts), Arc::clone(&entry.replays), Arc::clone(&entry.is_held));
            *entry = Entry { attempts, replays, is_held, ..Entry::of(stored, definition, &self.guard) };
            if let Some(trouble) = trouble {
                entry.status.set_stopped(super::SubscriptionState::Failed, &trouble);
            }
        });
    }

    /// Takes cursor and dead letters of a subscription from the journal, unless its engine runs here and knows better.
    fn update_progress(&self, stored: &SubscriptionRecord) {
        let _ = self.with(&stored.name, |entry| {
            if !entry.is_held() {
                entry.status.take_progress(stored);
            }
        });
    }

    /// Applies an administrator's work on dead letters at another node to the engine of this node.
    fn update_dead_letters(&self, stored: &SubscriptionRecord) {
        let _ = self.with(&stored.name, |entry| {
            // The engine may have stored another one meanwhile.
            let mut is_dropped = false;
            entry.status.update_dead_letters(|count| {
                is_dropped = stored.dead_letters < count;
                count.min(stored.dead_letters)
            });
            if is_dropped {
                entry.status.forget_handled();
            }
            if stored.dead_letters > 0 {
                entry.replays.notify_one();
            }
        });
    }

    fn hub(&self) -> Option<Arc<dyn HubRecords>> {
        self.hub.get()?.upgrade()
    }

    /// Returns the definition of a subscription of the hub, or the reason why it does not work.
    fn hub_definition(&self, stored: &SubscriptionRecord) -> (Option<Arc<Definition>>, Option<String>) {
        match self.hub().filter(|_| stored.made_by == MadeBy::Hub).map(|hub| hub.attach(stored)) {
            Some(Ok(definition)) => (Some(definition), None),
            Some(Err(trouble)) => (None, Some(trouble)),
            None => (None, None),
        }
    }
}
