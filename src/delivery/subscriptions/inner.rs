//! Shared state of all subscriptions: finds entries, stores definitions, and starts and stops engines.

use std::{
    collections::BTreeMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use super::{BY_GATEWAY, Inner, OperationError, entry::Entry};
use crate::{
    cluster::workers::WorkerLaunch,
    delivery::{Definition, StatusSnapshot, SubscriptionState},
    journal::subscriptions::{DefinitionText, MadeBy, SubscriptionRecord, SubscriptionWrite},
    model::{Seq, SubscriptionName},
};

impl Inner {
    pub(super) fn entries(&self) -> MutexGuard<'_, BTreeMap<SubscriptionName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<T>(
        &self,
        name: &SubscriptionName,
        act: impl FnOnce(&mut Entry) -> T,
    ) -> Result<T, OperationError> {
        self.entries().get_mut(name).map(act).ok_or_else(|| OperationError::Unknown(name.clone()))
    }

    pub(super) fn require_definition(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        match self.with(name, |entry| entry.definition.is_some())? {
            true => Ok(()),
            false => Err(OperationError::Undefined(name.clone())),
        }
    }

    pub(in crate::delivery) fn snapshots(&self) -> Vec<(SubscriptionName, StatusSnapshot)> {
        self.entries().iter().map(|(name, entry)| (name.clone(), entry.status.snapshot())).collect()
    }

    pub(in crate::delivery) fn stop_all(&self) {
        self.stop.cancel();
    }

    /// Stores a subscription with its definition and starts it. Returns whether it is new.
    pub(super) async fn store(
        &self,
        name: &SubscriptionName,
        made_by: MadeBy,
        definition: DefinitionText,
        parsed: Arc<Definition>,
        cursor: Seq,
    ) -> Result<bool, OperationError> {
        let exists = self.with(name, |_| ()).is_ok();
        self.stop_engine(name).await;
        let put = SubscriptionWrite::Put { name: name.clone(), made_by, definition: definition.clone(), cursor };
        self.journal.write_subscriptions(vec![put, SubscriptionWrite::SetEnded(name.clone(), None)]).await?;
        if exists {
            self.with(name, |entry| {
                entry.made_by = made_by;
                entry.stored_definition = definition;
                entry.definition = Some(parsed);
                entry.status.forget_handled();
                entry.ended = false;
            })?;
        } else {
            let stored = SubscriptionRecord::new(name.clone(), made_by, definition, cursor);
            self.entries().insert(name.clone(), Entry::of(&stored, Some(parsed), &self.guard));
        }
        self.start_engine(name);
        Ok(!exists)
    }

    /// Marks a subscription as paused after its engine has paused it.
    pub(in crate::delivery) fn pause_failed(&self, name: &SubscriptionName, reason: &str) {
        let _ = self.with(name, |entry| {
            (entry.paused, entry.ended) = (true, true);
            entry.paused_by = Some(BY_GATEWAY.into());
            entry.status.set_stopped(SubscriptionState::Paused, reason);
        });
    }

    /// Marks a subscription as ended after its receiver has ended it.
    pub(in crate::delivery) fn end_by_receiver(&self, name: &SubscriptionName, reason: &str) {
        let _ = self.with(name, |entry| {
            entry.ended = true;
            entry.status.set_stopped(SubscriptionState::Ended, reason);
        });
    }

    /// Starts the engine of a subscription on the node that has its duty, unless the subscription is paused, ended or undefined.
    pub(super) fn start_engine(&self, name: &SubscriptionName) {
        let _ = self.with(name, |entry| {
            if entry.definition.is_none() || entry.paused || entry.ended {
                if entry.paused {
                    entry.status.set(SubscriptionState::Paused);
                }
                return;
            }
            let (worker, launch) = WorkerLaunch::new(name.clone(), self.stop.child_token(), entry.running.take());
            entry.running = Some(worker);
            entry.status.reset_failures();
            // Set here because the response to a resume request may be sent before the engine runs.
            entry.status.set(self.state_before_tenure());
            if self.launches.try_send(launch).is_err() && !self.stop.is_cancelled() {
                entry
                    .status
                    .set_stopped(SubscriptionState::Failed, "too many subscriptions are being started; resume it");
            }
        });
    }

    /// Stops the engine of a subscription and waits until it has ended.
    pub(super) async fn stop_engine(&self, name: &SubscriptionName) {
        let running = self.with(name, |entry| entry.running.take()).ok().flatten();
        if let Some(running) = running {
            running.stop().await;
        }
    }
}
