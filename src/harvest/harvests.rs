//! The set of harvests and the operations on them.
//!
//! Harvests of the configuration and of the HTTP interface share one set of names. The journal stores the definitions
//! that arrive over HTTP, and all pauses. With several nodes, each node starts the harvests that another node has made
//! ([`Harvests::synchronize`]); the duty of the source decides which node runs them.

mod definition;
mod operations;
mod synchronization;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::{
    definition::{HarvestParts, InvalidHarvest, ReadDefinition},
    operations::HarvestOperationError,
};
use super::{Engine, HarvestBudget, Harvester, HarvesterContext, Schedule, SetupError, Waits, status::HarvestStatus};
use crate::{
    intake::Source,
    journal::{
        Journal, JournalError,
        subscriptions::{DefinitionText, MadeBy},
    },
    model::SourceName,
};

/// Maximum number of harvests that are made over HTTP.
pub const MAX_HARVESTS: usize = 1000;

/// Handle to all harvests. Clones share the same state.
#[derive(Clone)]
pub struct Harvests(pub(super) Arc<Inner>);

/// State that all handles share.
pub(super) struct Inner {
    journal: Journal,
    context: HarvesterContext,
    read: ReadDefinition,
    /// Names of the sources of the configuration, which no other harvest can have.
    reserved: BTreeSet<SourceName>,
    entries: Mutex<BTreeMap<SourceName, Entry>>,
    launches: mpsc::Sender<HarvestLaunch>,
    /// Definitions of the journal that no longer work.
    broken: Mutex<BTreeMap<SourceName, DefinitionText>>,
    /// Locked during an operation, because operations on harvests run one at a time.
    operation: tokio::sync::Mutex<()>,
}

struct Entry {
    harvest: Arc<Harvest>,
    running: Running,
}

/// Handle to the task of a harvest.
struct Running {
    stop: CancellationToken,
    ended: CancellationToken,
}

/// A harvest that is set up.
pub struct Harvest {
    /// The source of its records.
    pub source: Arc<Source>,
    /// Name of the transport.
    pub transport: &'static str,
    /// Creator of the harvest: the configuration or a client of the HTTP interface.
    pub made_by: MadeBy,
    /// State at this node.
    pub status: Arc<HarvestStatus>,
    harvester: Arc<dyn Harvester>,
    budget: HarvestBudget,
    schedule: Schedule,
    /// Definition as the journal stores it; empty for a harvest of the configuration.
    definition: DefinitionText,
    /// Source that has announced the harvest, if one has.
    pub announced_by: Option<SourceName>,
}

impl Harvest {
    /// Describes the place that is harvested, without credentials.
    #[must_use]
    pub fn place(&self) -> String {
        self.harvester.describe()
    }

    /// Returns the number of records of the present list at a position, if the repository has announced it.
    #[must_use]
    pub fn announced(&self, position: &str) -> Option<u64> {
        self.harvester.announced(position)
    }

    /// Returns a position for people, without the token of the URL for the notifications of a hub.
    #[must_use]
    pub fn public_position(&self, position: &str) -> String {
        match self.harvester.callback(position) {
            Some(callback) => position.replace(&callback.token, "(hidden)"),
            None => position.to_owned(),
        }
    }

    /// Creates the engine, which writes to this journal.
    #[must_use]
    pub fn engine(&self, journal: Journal, waits: Waits) -> Engine {
        Engine {
            journal,
            source: Arc::clone(&self.source),
            harvester: Arc::clone(&self.harvester),
            budget: self.budget.clone(),
            schedule: self.schedule.clone(),
            waits,
            status: Arc::clone(&self.status),
        }
    }
}

/// A harvest to start. The application runs it whenever this node has the duty of the source.
pub struct HarvestLaunch {
    /// The harvest.
    pub harvest: Arc<Harvest>,
    /// Cancelled when the harvest is removed or replaced.
    pub stop: CancellationToken,
    /// Signals, when dropped, that the harvest has ended.
    pub ended: DropGuard,
}

impl Harvests {
    /// Opens the harvests of the configuration and of the journal. `reserved` are the names of all sources of the
    /// configuration, and `read` reads a definition that has arrived over HTTP. The second value receives the harvests
    /// to start.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or a harvest of the configuration cannot be set up.
    pub async fn open(
        journal: Journal,
        context: HarvesterContext,
        configured: Vec<HarvestParts>,
        reserved: BTreeSet<SourceName>,
        read: ReadDefinition,
    ) -> Result<(Self, mpsc::Receiver<HarvestLaunch>), OpenError> {
        // Capacity for all launches that can be pending at the same time.
        let (launches, waiting) = mpsc::channel(2 * MAX_HARVESTS + configured.len());
        let (entries, broken, operation) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        let inner = Inner { journal, context, read, reserved, entries, launches, broken, operation };
        let harvests = Self(Arc::new(inner));
        harvests.0.context.harvests.set(&harvests.0);
        for parts in configured {
            let name = parts.source.name().clone();
            let set_up = harvests.0.set_up(parts, MadeBy::Config, DefinitionText::default()).await;
            harvests.0.start(set_up.map_err(|error| OpenError::Setup { name, error })?);
        }
        harvests.synchronize().await?;
        Ok((harvests, waiting))
    }

    /// Returns all harvests, ordered by the names of their sources.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Harvest>> {
        self.0.entries().values().map(|entry| Arc::clone(&entry.harvest)).collect()
    }

    /// Returns the harvest of a source.
    #[must_use]
    pub fn get(&self, name: &SourceName) -> Option<Arc<Harvest>> {
        self.0.entries().get(name).map(|entry| Arc::clone(&entry.harvest))
    }

    /// Wakes the harvests that run at this node, because another node may have requested a run or paused one.
    pub fn wake_all(&self) {
        self.0.entries().values().for_each(|entry| entry.harvest.status.wake());
    }

    /// Returns the journal, which has positions and runs.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.0.journal
    }
}

/// Reason why the harvests cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A harvest of the configuration cannot be set up.
    #[error("sources.{name}: {error}")]
    Setup {
        /// Name of the source.
        name: SourceName,
        /// The reason.
        error: SetupError,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<SourceName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a harvest up. It sends no request yet.
    async fn set_up(
        &self,
        parts: HarvestParts,
        made_by: MadeBy,
        definition: DefinitionText,
    ) -> Result<Harvest, SetupError> {
        let HarvestParts { transport, source, settings } = parts;
        let is_configured = made_by == MadeBy::Config;
        // Its share of each host is its own.
        let hosts = self.context.hosts.of_source(source.name());
        let context = HarvesterContext { is_configured, hosts, ..self.context.clone() };
        let budget = context.budget.clone();
        let harvester = settings.kind.build(source.name().clone(), context).await?;
        let (schedule, status) = (settings.schedule, Arc::default());
        let announced_by = definition::announced_by(&definition);
        Ok(Harvest { source, transport, made_by, status, harvester, budget, schedule, definition, announced_by })
    }

    /// Adds a harvest and starts it.
    fn start(&self, harvest: Harvest) {
        let (harvest, stop, ended) = (Arc::new(harvest), CancellationToken::new(), CancellationToken::new());
        let running = Running { stop: stop.clone(), ended: ended.clone() };
        let name = harvest.source.name().clone();
        let launch = HarvestLaunch { harvest: Arc::clone(&harvest), stop, ended: ended.drop_guard() };
        if self.launches.try_send(launch).is_err() {
            // The gateway is stopping, or the next synchronization starts the harvest.
            tracing::warn!(source = %name, "a harvest cannot be started now");
        }
        self.entries().insert(name, Entry { harvest, running });
    }

    /// Stops a harvest, waits until it has ended, and removes it from the set.
    async fn stop(&self, name: &SourceName) {
        let running = self.entries().get(name).map(|entry| {
            entry.running.stop.cancel();
            entry.running.ended.clone()
        });
        if let Some(ended) = running {
            ended.cancelled().await;
        }
        self.entries().remove(name);
    }
}
