//! In-memory state of one subscription.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

use super::{SubscriptionHealth, SubscriptionInfo, SubscriptionProgress};
use crate::{
    cluster::workers::WorkerHandle,
    delivery::{
        AttemptLog, Definition, DefinitionContext, StatusSnapshot,
        status::{SubscriptionState, SubscriptionStatus},
    },
    http_client::OutboundPolicy,
    journal::subscriptions::{DefinitionText, MadeBy, SubscriptionRecord},
    model::SubscriptionName,
};

/// A subscription.
pub(super) struct Entry {
    pub(super) made_by: MadeBy,
    /// Definition as the journal stores it.
    pub(super) stored_definition: DefinitionText,
    pub(super) definition: Option<Arc<Definition>>,
    pub(super) paused: bool,
    /// Who paused the subscription, if it is known.
    pub(super) paused_by: Option<Arc<str>>,
    pub(super) ended: bool,
    pub(super) status: Arc<SubscriptionStatus>,
    pub(super) attempts: Arc<AttemptLog>,
    pub(super) replays: Arc<Notify>,
    pub(super) running: Option<WorkerHandle>,
    /// Whether this node has the duty of the subscription.
    pub(super) is_held: Arc<AtomicBool>,
}

impl Entry {
    /// Creates the entry of a stored subscription, with its definition from the configuration or the hub if there is
    /// one.
    pub(super) fn of(stored: &SubscriptionRecord, given: Option<Arc<Definition>>, guard: &OutboundPolicy) -> Self {
        let SubscriptionRecord { made_by, definition, paused, ended, paused_by, .. } = stored;
        let (made_by, paused) = (*made_by, *paused);
        let stored_definition = definition.clone();
        let mut state = SubscriptionState::Connecting;
        let mut trouble = ended.clone();
        let definition = match (given, made_by) {
            (Some(definition), _) => Some(definition),
            // The hub attaches the definitions of its subscriptions later, if it is enabled.
            (None, MadeBy::Config | MadeBy::Hub) => {
                state = SubscriptionState::Orphaned;
                None
            }
            (None, MadeBy::Api) => {
                let read = serde_json::from_str(definition.expose()).map_err(|error| error.to_string());
                let read = read.and_then(|json| {
                    Definition::read(json, &DefinitionContext::api(guard)).map_err(|error| error.to_string())
                });
                let read = read.map(Arc::new);
                read.map_err(|error| {
                    state = SubscriptionState::Failed;
                    trouble = Some(format!("its definition no longer works: {error}").into());
                })
                .ok()
            }
        };
        if definition.is_some() && paused {
            state = SubscriptionState::Paused;
        } else if definition.is_some() && ended.is_some() {
            state = SubscriptionState::Ended;
        }
        let status = SubscriptionStatus::new(state, stored);
        if let Some(trouble) = trouble {
            status.set_stopped(state, trouble.as_str());
        }
        Self {
            made_by,
            stored_definition,
            definition,
            paused,
            paused_by: paused_by.clone(),
            ended: ended.is_some(),
            status: Arc::new(status),
            attempts: Arc::default(),
            replays: Arc::new(Notify::new()),
            running: None,
            is_held: Arc::default(),
        }
    }

    /// Returns whether the entry agrees with the journal, apart from cursor and dead letters.
    pub(super) fn agrees_with(&self, stored: &SubscriptionRecord) -> bool {
        self.made_by == stored.made_by
            && self.stored_definition == stored.definition
            && self.paused == stored.paused
            && self.ended == stored.ended.is_some()
    }

    /// Returns whether this node has the duty of the subscription.
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Returns how the subscription does.
    pub(super) fn health(&self, name: &SubscriptionName) -> SubscriptionHealth {
        let status = self.status.snapshot();
        SubscriptionHealth {
            name: name.clone(),
            made_by: self.made_by,
            state: status.state,
            is_failing: status.is_failing(),
            is_ended: self.ended,
            failing_since: status.failing_since,
            stuck_at: status.stuck_at,
            dead_letters: status.dead_letters,
            last_error: status.last_error.map(|(_, error)| error),
        }
    }

    /// Returns how far the subscription is. `is_alone` if there are no other nodes.
    pub(super) fn progress(&self, name: &SubscriptionName, is_alone: bool) -> SubscriptionProgress {
        let StatusSnapshot { cursor, delivered, .. } = self.status.snapshot();
        SubscriptionProgress { name: name.clone(), cursor, delivered, is_here: is_alone || self.is_held() }
    }

    /// Returns the subscription as the HTTP interface shows it.
    pub(super) fn info(&self, name: &SubscriptionName) -> SubscriptionInfo {
        let definition = self.definition.as_ref().map(|definition| definition.redacted());
        SubscriptionInfo {
            name: name.clone(),
            made_by: self.made_by,
            definition,
            paused_by: self.paused_by.clone().filter(|_| self.paused),
            status: self.status.snapshot(),
        }
    }
}
