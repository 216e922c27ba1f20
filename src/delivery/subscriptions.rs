//! The set of push subscriptions and the operations on them.
//!
//! Subscriptions of the configuration and of the HTTP interface share one set of names. The journal stores
//! everything that must survive a restart: cursors, pauses, dead letters, and the definitions that arrived over
//! HTTP.
//!
//! A subscription that disappears from the configuration becomes an orphan. It retains its cursor and dead
//! letters until somebody deletes it, so that commenting out a line for an afternoon does not cost an indexer
//! its cursor.

mod change_progress;
mod entry;
mod hub_subscriptions;
mod inner;
mod manual_delivery;
mod operations;
mod synchronization;
mod tenure;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, Weak},
};

use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use self::entry::Entry;
pub(super) use self::synchronization::HubRecords;
pub use self::{
    change_progress::ChangeProgress,
    manual_delivery::{RepeatedChanges, SKIPPED_BY, SentChange},
    operations::RewoundChanges,
};
use super::{
    Attempt, Definition, EngineTimeouts, InvalidDefinition, InvalidStartPosition, Runner, StatusSnapshot,
    cursors::Cursors, memory::MemoryBudget, runner::EngineLaunch, status::SubscriptionState, websub,
};
use crate::{
    cluster::Cluster,
    http_client::OutboundPolicy,
    journal::{
        Journal, JournalError,
        subscriptions::{DefinitionText, MadeBy, SubscriptionWrite},
    },
    model::{Seq, SubscriptionName, Timestamp},
};

/// Name in `paused_by` of a subscription whose receiver has failed for too long.
pub(super) const BY_GATEWAY: &str = "the gateway";

/// Maximum number of subscriptions, those of the WebSub hub excluded. The configuration has at most as many.
pub const MAX_SUBSCRIPTIONS: usize = 1000;

/// Handle to all push subscriptions. Clones share the same state.
#[derive(Clone)]
pub struct Subscriptions(Arc<Inner>);

pub(super) struct Inner {
    pub(super) journal: Journal,
    pub(super) cursors: Cursors,
    entries: Mutex<BTreeMap<SubscriptionName, Entry>>,
    launches: mpsc::Sender<EngineLaunch>,
    /// Locked during an operation, because operations on subscriptions run one at a time.
    operation: tokio::sync::Mutex<()>,
    stop: CancellationToken,
    /// Rules for the targets of definitions that arrive over HTTP.
    guard: OutboundPolicy,
    timeouts: EngineTimeouts,
    memory: Arc<MemoryBudget>,
    pub(super) cluster: Cluster,
    /// Notified when an engine has found the entry of its subscription to be outdated.
    outdated: Notify,
    /// The hub, if enabled, which parses the records of its subscribers.
    hub: OnceLock<Weak<dyn HubRecords>>,
}

/// A subscription as the HTTP interface shows it.
#[derive(Clone)]
pub struct SubscriptionInfo {
    /// Name.
    pub name: SubscriptionName,
    /// Origin of the definition.
    pub made_by: MadeBy,
    /// Definition with defaults and without secrets; `None` if there is no working definition.
    pub definition: Option<Map<String, Value>>,
    /// Who paused the subscription, if it is paused and that is known.
    pub paused_by: Option<Arc<str>>,
    /// Current status.
    pub status: StatusSnapshot,
}

/// Health of a subscription, without its definition.
#[derive(Clone, Debug)]
pub struct SubscriptionHealth {
    /// Name.
    pub name: SubscriptionName,
    /// Origin of the definition.
    pub made_by: MadeBy,
    /// State.
    pub state: SubscriptionState,
    /// Whether the subscription should deliver and does not.
    pub is_failing: bool,
    /// Whether it was ended by its receiver, or paused because the receiver failed for too long.
    pub is_ended: bool,
    /// Since when the subscription fails.
    pub failing_since: Option<Timestamp>,
    /// Number of the change that the receiver does not accept.
    pub stuck_at: Option<Seq>,
    /// Number of dead letters.
    pub dead_letters: u64,
    /// Last error.
    pub last_error: Option<String>,
}

/// Position of a subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionProgress {
    /// Name.
    pub name: SubscriptionName,
    /// All changes up to this one are complete.
    pub cursor: Seq,
    /// Number of messages that this node has delivered since it started.
    pub delivered: u64,
    /// Whether this node delivers the subscription.
    pub is_here: bool,
}

/// Error of an operation on a subscription.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// No subscription has this name.
    #[error("there is no subscription {0}; GET /subscriptions lists all")]
    Unknown(SubscriptionName),
    /// The configuration defines the subscription.
    #[error("the subscription {0} is defined in the configuration file; change it there, and reload the gateway")]
    DefinedInConfig(SubscriptionName),
    /// The subscription belongs to a WebSub subscriber.
    #[error("the subscription {0} belongs to a WebSub subscriber, who alone can change it; it can be deleted")]
    OwnedByHub(SubscriptionName),
    /// There are too many subscriptions.
    #[error("there are {MAX_SUBSCRIPTIONS} subscriptions already; delete one")]
    TooMany,
    /// The subscription has no working definition.
    #[error("the subscription {0} has no working definition; PUT one, or fix the configuration")]
    Undefined(SubscriptionName),
    /// The journal has no such change.
    #[error("there is no change {0} in the journal")]
    NoChange(Seq),
    /// There are more changes to send again than dead letters can be stored.
    #[error(
        "the subscription {name} can keep {room} more dead letters, and more changes are to be sent again; give a shorter range, a filter, or rewind it"
    )]
    NoRoom {
        /// The subscription.
        name: SubscriptionName,
        /// Number of dead letters that can still be stored.
        room: u64,
    },
    /// The subscription does not deliver a change.
    #[error("the subscription {name} does not deliver change {seq}, because of its filter or its format")]
    NotDelivered {
        /// The subscription.
        name: SubscriptionName,
        /// The change.
        seq: Seq,
    },
    /// The subscription delivers none of the newest changes.
    #[error("there is no change to send: the subscription {0} delivers none of the newest 10000 changes")]
    NothingToSend(SubscriptionName),
    /// A part of the journal is too long to send it again at once.
    #[error(
        "the part has more than {} changes; give a shorter one, or rewind the subscription",
        manual_delivery::MAX_RANGE
    )]
    RangeTooLong,
    /// A change is not the next one that the subscription delivers.
    #[error(
        "change {seq} is not the next one that the subscription {name} delivers; its cursor is {cursor}, and stuckAt of GET /subscriptions/{name} is the change that its receiver does not accept"
    )]
    NotNext {
        /// The subscription.
        name: SubscriptionName,
        /// The change.
        seq: Seq,
        /// Cursor of the subscription.
        cursor: Seq,
    },
    /// The definition is invalid.
    #[error(transparent)]
    Definition(#[from] InvalidDefinition),
    /// The start position is invalid.
    #[error(transparent)]
    Start(#[from] InvalidStartPosition),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Subscriptions {
    /// Opens the subscriptions of the journal and of the configuration. They begin to deliver when the
    /// [`Runner`] runs, each on the node of the `cluster` that has its duty. `guard` restricts the targets of
    /// definitions from the journal and of later definitions.
    ///
    /// # Errors
    /// Fails if the journal cannot be read or written, or a new subscription of the configuration has an
    /// invalid start position.
    pub async fn open(
        journal: Journal,
        mut configured: BTreeMap<SubscriptionName, Arc<Definition>>,
        guard: OutboundPolicy,
        timeouts: EngineTimeouts,
        cluster: Cluster,
    ) -> Result<(Self, Runner), OperationError> {
        let mut stored: BTreeMap<_, _> =
            journal.subscriptions().await?.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        let mut writes = Vec::new();
        for (name, definition) in &configured {
            if stored.get(name).is_none_or(|stored| stored.made_by != MadeBy::Config) {
                let (name, definition, made_by) =
                    (name.clone(), definition.start.cursor(&journal).await?, MadeBy::Config);
                writes.push(SubscriptionWrite::Put {
                    name,
                    made_by,
                    definition: DefinitionText::default(),
                    cursor: definition,
                });
            }
        }
        if !writes.is_empty() {
            journal.write_subscriptions(writes).await?;
            stored = journal.subscriptions().await?.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        }
        // Capacity for all launches that can be pending at the same time.
        let (launches, waiting) = mpsc::channel(MAX_SUBSCRIPTIONS + websub::MAX_SUBSCRIPTIONS + configured.len());
        let inner = Arc::new(Inner {
            cursors: Cursors::new(journal.clone()),
            journal,
            entries: Mutex::default(),
            launches,
            operation: tokio::sync::Mutex::default(),
            stop: CancellationToken::new(),
            guard,
            timeouts,
            memory: Arc::default(),
            cluster,
            outdated: Notify::new(),
            hub: OnceLock::new(),
        });
        for stored in stored.into_values() {
            let name = stored.name.clone();
            let entry = Entry::of(&stored, configured.remove(&name), &inner.guard);
            inner.entries().insert(name.clone(), entry);
            inner.start_engine(&name);
        }
        let runner = Runner { launches: waiting, subscriptions: Arc::clone(&inner) };
        Ok((Self(inner), runner))
    }

    /// Returns all subscriptions, sorted by name.
    #[must_use]
    pub fn list(&self) -> Vec<SubscriptionInfo> {
        self.0.entries().iter().map(|(name, entry)| entry.info(name)).collect()
    }

    /// Returns how all subscriptions do, sorted by name.
    #[must_use]
    pub fn health(&self) -> Vec<SubscriptionHealth> {
        self.0.entries().iter().map(|(name, entry)| entry.health(name)).collect()
    }

    /// Returns how far all subscriptions are, sorted by name, those of the hub excluded.
    #[must_use]
    pub fn progress(&self) -> Vec<SubscriptionProgress> {
        let is_alone = !self.0.cluster.is_shared();
        let entries = self.0.entries();
        let own = entries.iter().filter(|(_, entry)| entry.made_by != MadeBy::Hub);
        own.map(|(name, entry)| entry.progress(name, is_alone)).collect()
    }

    /// Returns whether other nodes deliver subscriptions, so that their progress is known only after
    /// [`Subscriptions::refresh`].
    #[must_use]
    pub fn are_shared(&self) -> bool {
        self.0.cluster.is_shared()
    }

    /// Returns one subscription.
    ///
    /// # Errors
    /// Fails if no subscription has this name.
    pub fn get(&self, name: &SubscriptionName) -> Result<SubscriptionInfo, OperationError> {
        self.0.with(name, |entry| entry.info(name))
    }

    /// Returns the latest delivery attempts of a subscription, newest first.
    ///
    /// # Errors
    /// Fails if no subscription has this name.
    pub fn attempts(&self, name: &SubscriptionName) -> Result<Vec<Attempt>, OperationError> {
        self.0.with(name, |entry| entry.attempts.list())
    }

    /// Returns the journal that the subscriptions read.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.0.journal
    }
}
