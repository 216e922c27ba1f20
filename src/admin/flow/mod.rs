//! The flow: how many changes came from each source and went to each subscription, for the last hour, day and week. `GET
//! /flow` shows it.
//!
//! * `span` has the spans and their slots;
//! * `ring` is the record of a span;
//! * `recorder` is the task that fills it, `file` keeps it over a restart.

mod file;
mod recorder;
mod ring;
mod span;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use self::{recorder::Recorder, ring::Rings};
pub use self::{ring::Passage, span::Span};
use super::sources::Sources;
use crate::{
    delivery::Subscriptions,
    journal::Journal,
    model::{Seq, SourceName, SubscriptionName, Timestamp},
    web::{Problem, Query, problems},
};

/// The recorded flow. Clones share it.
#[derive(Clone)]
pub struct Flow(Arc<Inner>);

struct Inner {
    journal: Journal,
    sources: Sources,
    subscriptions: Subscriptions,
    path: PathBuf,
    rings: Mutex<Rings>,
}

impl Flow {
    /// Creates the flow of a journal, whose record is in the data folder.
    #[must_use]
    pub fn new(journal: Journal, sources: Sources, subscriptions: Subscriptions, data: &Path) -> Self {
        let rings = Mutex::new(Rings::new(Timestamp::now()));
        Self(Arc::new(Inner { journal, sources, subscriptions, path: data.join(file::NAME), rings }))
    }

    /// Records the flow until `stop` is cancelled, and then writes its file.
    pub async fn record(self, stop: CancellationToken) {
        Recorder::open(self).await.run(&stop).await;
    }

    /// Returns when the cursor of a subscription has passed a change, as exactly as is recorded; `None` if it has not, or
    /// nothing is recorded.
    #[must_use]
    pub fn passage(&self, name: &SubscriptionName, seq: Seq) -> Option<Passage> {
        self.rings().passage(name, seq, Timestamp::now())
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.0.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Query parameters of `GET /flow`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FlowQuery {
    /// Span of time.
    #[serde(default)]
    #[param(inline, required = false)]
    span: Span,
}

/// The flow of a span, in slots of equal length.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Flow)]
struct FlowView {
    /// Span of time.
    span: Span,
    /// Length of a slot in seconds.
    slot_seconds: u32,
    /// End of the last slot, which is in progress.
    end: Timestamp,
    /// Number of changes in the journal for each slot, oldest first, by the time of their receipt; `null` if the gateway did
    /// not run.
    #[schema(value_type = Vec<Option<u64>>)]
    changes: Vec<Option<u64>>,
    /// The sources, ordered by name: at most 500.
    sources: Vec<SourceFlow>,
    /// The subscriptions without those of the hub, ordered by name: at most 500.
    subscriptions: Vec<SubscriptionFlow>,
}

/// The flow from a source.
#[derive(Serialize, ToSchema)]
struct SourceFlow {
    /// Name of the source.
    name: SourceName,
    /// Number of its changes for each slot, oldest first; `null` if nothing is known.
    #[schema(value_type = Vec<Option<u64>>)]
    changes: Vec<Option<u64>>,
}

/// The flow to a subscription.
#[derive(Serialize, ToSchema)]
struct SubscriptionFlow {
    /// Name of the subscription.
    name: SubscriptionName,
    /// Number of changes that this node has delivered for each slot, oldest first; `null` if the gateway did not run, or
    /// another node delivers.
    #[schema(value_type = Vec<Option<u64>>)]
    delivered: Vec<Option<u64>>,
    /// Cursor at the end of each slot, oldest first, whichever node delivers; `null` if the gateway did not run.
    #[schema(value_type = Vec<Option<u64>>)]
    cursors: Vec<Option<Seq>>,
}

problems!(Problems: InvalidQuery);

/// Number of changes from each source and to each subscription, in the last hour, day or week.
///
/// # Errors
/// `invalid-query`.
#[utoipa::path(
    get,
    path = "/flow",
    operation_id = "getFlow",
    tag = "administration",
    params(FlowQuery),
    responses((status = 200, description = "The flow.", body = FlowView), Problems),
)]
pub async fn show(State(flow): State<Flow>, Query(query): Query<FlowQuery>) -> Result<Response, Problem> {
    let view = view(&flow.rings(), query.span);
    Ok(Json(view).into_response())
}

fn view(rings: &Rings, span: Span) -> FlowView {
    let ring = rings.of(span);
    let source = |(name, slots): (&SourceName, &ring::Slots<u64>)| SourceFlow {
        name: name.clone(),
        changes: slots.values().collect(),
    };
    let subscription = |(name, slots): (&SubscriptionName, &ring::SubscriptionSlots)| SubscriptionFlow {
        name: name.clone(),
        delivered: slots.delivered.values().collect(),
        cursors: slots.cursors.values().collect(),
    };
    FlowView {
        span,
        slot_seconds: span.slot_seconds(),
        end: ring.end(),
        changes: ring.changes.values().collect(),
        sources: ring.sources.iter().map(source).collect(),
        subscriptions: ring.subscriptions.iter().map(subscription).collect(),
    }
}
