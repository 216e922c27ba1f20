//! Tenures of the duties of subscriptions: prepares the engine from the journal, and shows who delivers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::Inner;
use crate::{
    cluster::Tenure,
    delivery::{
        change_notices::ChangeNotices,
        engine::{Batching, Engine},
        status::{SubscriptionState, SubscriptionStatus},
    },
    journal::subscriptions::SubscriptionRecord,
    model::{Seq, SubscriptionName},
};

/// Marks a subscription as held by this node until it is dropped.
pub(in crate::delivery) struct HeldSubscription {
    is_held: Arc<AtomicBool>,
    status: Arc<SubscriptionStatus>,
}

impl Drop for HeldSubscription {
    fn drop(&mut self) {
        self.is_held.store(false, Ordering::Relaxed);
        let delivers = [SubscriptionState::Connecting, SubscriptionState::Running, SubscriptionState::Retrying];
        if delivers.contains(&self.status.snapshot().state) {
            self.status.set(SubscriptionState::Elsewhere);
        }
    }
}

impl Inner {
    /// Returns the state of a subscription whose duty nobody has taken yet.
    pub(super) fn state_before_tenure(&self) -> SubscriptionState {
        if self.cluster.is_shared() { SubscriptionState::Elsewhere } else { SubscriptionState::Connecting }
    }

    /// Marks a subscription as held by this node; `None` if the node is the only one.
    pub(in crate::delivery) fn hold(&self, name: &SubscriptionName, tenure: &Tenure) -> Option<HeldSubscription> {
        tenure.term()?;
        let held = self.with(name, |entry| {
            entry.is_held.store(true, Ordering::Relaxed);
            entry.status.set(SubscriptionState::Connecting);
            HeldSubscription { is_held: Arc::clone(&entry.is_held), status: Arc::clone(&entry.status) }
        });
        held.ok()
    }

    /// Prepares the engine of a subscription for a tenure of its duty. Returns `None` if the subscription must not
    /// run, or is to be stopped.
    pub(in crate::delivery) async fn prepare_engine(
        &self,
        name: &SubscriptionName,
        tenure: &Tenure,
        notices: Arc<ChangeNotices>,
    ) -> Option<Engine> {
        if tenure.term().is_some() {
            tenure.stop().run_until_cancelled(self.journal.until_losses_are_known()).await?;
            // The node before has moved the cursor.
            let stored = self.read_for(name, tenure).await?;
            let cursor = self.start_after(name, stored.cursor, tenure).await?;
            let agrees = self.with(name, |entry| {
                entry.status.take_progress(&stored);
                entry.status.begin_at(cursor);
                entry.agrees_with(&stored)
            });
            if !agrees.is_ok_and(|agrees| agrees) {
                self.outdated.notify_one();
                return None;
            }
        }
        let engine = self.with(name, |entry| {
            let definition = entry.definition.clone()?;
            Some(Engine {
                name: name.clone(),
                journal: self.journal.under(tenure.term()),
                notices,
                filter: Arc::new(definition.filter.clone()),
                format: definition.format,
                max_dead_letters: definition.dead_letters,
                pause_after: definition.config.pause_after(),
                memory: Arc::clone(&self.memory),
                batching: Batching::default(),
                delivery: definition.config.build(name, &entry.attempts),
                cursor: entry.status.snapshot().cursor,
                cursors: self.cursors.clone(),
                status: Arc::clone(&entry.status),
                replays: Arc::clone(&entry.replays),
                tenure: tenure.clone(),
                timeouts: self.timeouts,
            })
        });
        engine.ok().flatten()
    }

    /// Returns the cursor that a tenure starts with. A failover may have lost changes up to the `stored` cursor, or up to
    /// the one that this node has reached in its last tenure; then the first change after the loss is the next one.
    async fn start_after(&self, name: &SubscriptionName, stored: Seq, tenure: &Tenure) -> Option<Seq> {
        let newest = self.cursors.take_newest(name).unwrap_or_default().max(stored);
        let survived = tenure.read(|| self.journal.surviving(newest)).await?;
        if survived < newest {
            tracing::warn!(
                subscription = %name,
                first_seq = survived.next().0,
                last_seq = newest.0,
                "the journal's database has lost changes that the receiver may have got; delivery continues with the first \
                 change after them, and their numbers are not given again"
            );
        }
        Some(stored.min(survived))
    }

    /// Reads a subscription, for as long as this takes. Returns `None` if it was deleted, or the tenure ends.
    async fn read_for(&self, name: &SubscriptionName, tenure: &Tenure) -> Option<SubscriptionRecord> {
        let stored = tenure.read(|| self.journal.subscription(name.clone())).await?;
        if stored.is_none() {
            self.outdated.notify_one();
        }
        stored
    }
}
