//! What is held of one subscription while the gateway runs.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Listed;
use crate::{
    delivery::{
        Attempts, Definition, Maker,
        status::{State, Status},
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
    pub(super) status: Arc<Status>,
    pub(super) attempts: Arc<Attempts>,
    pub(super) replays: Arc<Notify>,
    pub(super) running: Option<Running>,
}

/// The engine of one that runs.
pub(super) struct Running {
    pub(super) stop: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl Entry {
    /// As it was kept, with its definition in the configuration if it has one there.
    pub(super) fn of(stored: SubscriptionRecord, configured: Option<Arc<Definition>>, guard: &OutboundPolicy) -> Self {
        let SubscriptionRecord { made_by, definition, cursor, paused, ended, dead_letters, .. } = stored;
        let mut state = State::Connecting;
        let mut trouble = ended.clone();
        let definition = match (configured, made_by) {
            (Some(definition), _) => Some(definition),
            // The hub, if there is one, takes its own up again.
            (None, MadeBy::Config | MadeBy::Hub) => {
                state = State::Orphaned;
                None
            }
            (None, MadeBy::Api) => {
                let read = serde_json::from_str(definition.expose()).map_err(|error| error.to_string());
                let read =
                    read.and_then(|json| Definition::read(json, &Maker::api(guard)).map_err(|error| error.to_string()));
                let read = read.map(Arc::new);
                read.map_err(|error| {
                    state = State::Failed;
                    trouble = Some(format!("its definition no longer works: {error}"));
                })
                .ok()
            }
        };
        if definition.is_some() && paused {
            state = State::Paused;
        } else if definition.is_some() && ended.is_some() {
            state = State::Ended;
        }
        let status = Status::new(state, cursor, dead_letters);
        if let Some(trouble) = trouble {
            status.stopped(state, &trouble);
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

    /// As it is shown.
    pub(super) fn listed(&self, name: &SubscriptionName) -> Listed {
        let definition = self.definition.as_ref().map(|definition| definition.shown());
        Listed { name: name.clone(), made_by: self.made_by, definition, status: self.status.snapshot() }
    }
}
