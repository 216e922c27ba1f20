//! In-memory state of one subscription.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::SubscriptionInfo;
use crate::{
    delivery::{
        AttemptLog, Definition, DefinitionContext,
        status::{SubscriptionState, SubscriptionStatus},
    },
    http_client::OutboundPolicy,
    journal::subscriptions::{MadeBy, SubscriptionRecord},
    model::SubscriptionName,
};

/// A subscription.
pub(super) struct Entry {
    pub(super) made_by: MadeBy,
    pub(super) definition: Option<Arc<Definition>>,
    pub(super) paused: bool,
    pub(super) ended: bool,
    pub(super) status: Arc<SubscriptionStatus>,
    pub(super) attempts: Arc<AttemptLog>,
    pub(super) replays: Arc<Notify>,
    pub(super) running: Option<Running>,
}

/// Handle to a running engine.
pub(super) struct Running {
    pub(super) stop: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl Entry {
    /// Creates the entry of a stored subscription, with its definition from the configuration if there is one.
    pub(super) fn of(stored: SubscriptionRecord, configured: Option<Arc<Definition>>, guard: &OutboundPolicy) -> Self {
        let SubscriptionRecord { made_by, definition, cursor, paused, ended, dead_letters, .. } = stored;
        let mut state = SubscriptionState::Connecting;
        let mut trouble = ended.clone();
        let definition = match (configured, made_by) {
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
                    trouble = Some(format!("its definition no longer works: {error}"));
                })
                .ok()
            }
        };
        if definition.is_some() && paused {
            state = SubscriptionState::Paused;
        } else if definition.is_some() && ended.is_some() {
            state = SubscriptionState::Ended;
        }
        let status = SubscriptionStatus::new(state, cursor, dead_letters);
        if let Some(trouble) = trouble {
            status.set_stopped(state, &trouble);
        }
        Self {
            made_by,
            definition,
            paused,
            ended: ended.is_some(),
            status: Arc::new(status),
            attempts: Arc::default(),
            replays: Arc::new(Notify::new()),
            running: None,
        }
    }

    /// Returns the subscription as the HTTP interface shows it.
    pub(super) fn info(&self, name: &SubscriptionName) -> SubscriptionInfo {
        let definition = self.definition.as_ref().map(|definition| definition.redacted());
        SubscriptionInfo { name: name.clone(), made_by: self.made_by, definition, status: self.status.snapshot() }
    }
}
