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
use tokio_util::sync::CancellationToken;

pub use self::{
    definition::{HarvestParts, InvalidHarvest, ReadDefinition, WorkSettings},
    operations::HarvestOperationError,
};
use super::{
    Engine, HarvestSettings, Harvester, HarvesterContext, HarvesterSettings, Schedule, SetupError, Waits,
    datasets::JobRunner,
    status::{HarvestState, HarvestStatus, HarvestView},
};
use crate::{
    cluster::workers::{WorkerHandle, WorkerLaunch},
    filesets::{FilesetSettings, JobContext, JobLoop},
    format::oai_pmh::kept_record::KeptRecords,
    intake::Source,
    journal::{
        Journal, JournalError,
        subscriptions::{DefinitionText, MadeBy},
    },
    model::{SourceName, Timestamp},
    transfer::HarvestBudget,
};

/// Maximum number of harvests that are made over HTTP.
pub const MAX_HARVESTS: usize = 1000;

/// A harvest to start.
pub type HarvestLaunch = WorkerLaunch<Arc<Harvest>>;

/// Handle to all harvests. Clones share the same state.
#[derive(Clone)]
pub struct Harvests(pub(super) Arc<Inner>);

/// State that all handles share.
pub(super) struct Inner {
    journal: Journal,
    context: HarvesterContext,
    jobs: JobContext,
    read: ReadDefinition,
    /// Names of the sources of the configuration, which no other harvest can have.
    reserved: BTreeSet<SourceName>,
    entries: Mutex<BTreeMap<SourceName, Entry>>,
    launches: mpsc::Sender<HarvestLaunch>,
    /// Definitions of the journal that no longer work.
    broken: Mutex<BTreeMap<SourceName, DefinitionText>>,
    /// Locked during an operation, because operations on harvests run one at a time.
    operation: tokio::sync::Mutex<()>,
    /// Stops all harvests.
    stop: CancellationToken,
}

struct Entry {
    harvest: Arc<Harvest>,
    worker: WorkerHandle,
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
    work: Work,
    /// Definition as the journal stores it; empty for a harvest of the configuration.
    definition: DefinitionText,
    /// Source that has announced the harvest, if one has.
    pub announced_by: Option<SourceName>,
}

/// Work of a harvest.
enum Work {
    /// It reads pages of records at the times of a schedule.
    Pages {
        harvester: Arc<dyn Harvester>,
        settings: Arc<dyn HarvesterSettings>,
        budget: HarvestBudget,
        schedule: Schedule,
    },
    /// It executes the requests of other sources as jobs.
    Jobs(Arc<JobLoop>),
}

impl Harvest {
    /// Describes the place that is harvested, without credentials.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.work {
            Work::Pages { harvester, .. } => harvester.describe(),
            Work::Jobs(jobs) => jobs.describe(),
        }
    }

    /// Returns the number of records of the present list at a position, if the repository has announced it.
    #[must_use]
    pub fn announced(&self, position: &str) -> Option<u64> {
        self.harvester()?.announced(position)
    }

    /// Returns the size of the files that were stored up to a position, in bytes; `None` if the harvest stores no files.
    #[must_use]
    pub fn stored_bytes(&self, position: &str) -> Option<u64> {
        match &self.work {
            Work::Pages { harvester, .. } => harvester.stored_bytes(position),
            Work::Jobs(_) => Some(JobLoop::stored_bytes(position)),
        }
    }

    /// Returns which records the harvest keeps in the file store, if it does.
    #[must_use]
    pub fn kept_records(&self) -> Vec<KeptRecords> {
        self.harvester().map_or_else(Vec::new, |harvester| harvester.kept_records())
    }

    /// Returns a position for people, without the token of the URL for the notifications of a hub.
    #[must_use]
    pub fn public_position(&self, position: &str) -> String {
        match self.harvester().and_then(|harvester| harvester.callback(position)) {
            Some(callback) => position.replace(&callback.token, "(hidden)"),
            None => position.to_owned(),
        }
    }

    /// Returns whether an audit can compare what the harvest lists when it begins anew, or its archived datasets.
    #[must_use]
    pub fn can_be_audited(&self) -> bool {
        match &self.work {
            Work::Pages { settings, .. } => settings.can_be_audited(),
            Work::Jobs(_) => true,
        }
    }

    /// Returns whether a sample of the harvest's objects can be requested.
    #[must_use]
    pub fn requests_objects(&self) -> bool {
        matches!(&self.work, Work::Pages { settings, .. } if settings.requests_objects())
    }

    /// Returns whether the harvest reads pages in runs. Another one has jobs.
    #[must_use]
    pub fn has_runs(&self) -> bool {
        self.harvester().is_some()
    }

    /// Returns the end of the last complete run, or the begin of the first run, if no run has been complete for too long.
    #[must_use]
    pub fn overdue_since(&self, now: Timestamp) -> Option<Timestamp> {
        let Work::Pages { schedule, .. } = &self.work else { return None };
        let HarvestView { state, complete, .. } = self.status.view();
        let has_more = matches!(state, HarvestState::Waiting | HarvestState::Running | HarvestState::Retrying);
        complete.filter(|complete| has_more && schedule.is_overdue(*complete, now))
    }

    /// Returns by how many records the repository and the journal differed when their numbers were last compared.
    #[must_use]
    pub fn difference(&self) -> Option<u64> {
        self.harvester()?.difference()
    }

    fn harvester(&self) -> Option<&Arc<dyn Harvester>> {
        match &self.work {
            Work::Pages { harvester, .. } => Some(harvester),
            Work::Jobs(_) => None,
        }
    }

    /// Works until `stop` is cancelled, and writes to this journal.
    pub async fn run(&self, journal: Journal, waits: Waits, stop: CancellationToken) {
        let (source, status) = (Arc::clone(&self.source), Arc::clone(&self.status));
        match &self.work {
            Work::Pages { harvester, budget, schedule, .. } => {
                let (harvester, budget, schedule) = (Arc::clone(harvester), budget.clone(), schedule.clone());
                Engine { journal, source, harvester, budget, schedule, waits, status }.run(stop).await;
            }
            Work::Jobs(jobs) => JobRunner { journal, source, jobs: Arc::clone(jobs), status, waits }.run(stop).await,
        }
    }
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
        jobs: JobContext,
        configured: Vec<HarvestParts>,
        reserved: BTreeSet<SourceName>,
        read: ReadDefinition,
    ) -> Result<(Self, mpsc::Receiver<HarvestLaunch>), OpenError> {
        // Capacity for all launches that can be pending at the same time.
        let (launches, waiting) = mpsc::channel(2 * MAX_HARVESTS + configured.len());
        let (entries, broken, operation) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        let inner = Inner {
            journal,
            context,
            jobs,
            read,
            reserved,
            entries,
            launches,
            broken,
            operation,
            stop: CancellationToken::new(),
        };
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

    /// Returns the harvester of an audit of a source, which has the politeness of the harvest. `None` if there is no such
    /// harvest, or an audit cannot compare it.
    ///
    /// # Errors
    /// Fails if it cannot be set up.
    pub(crate) async fn reader(&self, name: &SourceName) -> Result<Option<Arc<dyn Harvester>>, SetupError> {
        let Some(harvest) = self.get(name).filter(|harvest| harvest.can_be_audited()) else { return Ok(None) };
        let Work::Pages { settings, .. } = &harvest.work else { return Ok(None) };
        let context = self.0.context_of(name, harvest.made_by);
        settings.build_reader(name, context).await.map(Some)
    }

    /// Returns the jobs of a source of datasets, for an audit; `None` for all other sources.
    pub(crate) fn jobs(&self, name: &SourceName) -> Option<Arc<JobLoop>> {
        match &self.get(name)?.work {
            Work::Jobs(jobs) => Some(Arc::clone(jobs)),
            Work::Pages { .. } => None,
        }
    }

    /// Wakes the harvests that run at this node, because another node may have requested a run or paused one.
    pub fn wake_all(&self) {
        self.0.entries().values().for_each(|entry| entry.harvest.status.wake());
    }

    /// Stops all harvests.
    pub(super) fn stop_all(&self) {
        self.0.stop.cancel();
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
        let HarvestParts { transport, source, work } = parts;
        let work = match work {
            WorkSettings::Pages(settings) => self.set_up_pages(source.name(), settings, made_by).await?,
            WorkSettings::Jobs(settings) => Work::Jobs(self.set_up_jobs(source.name(), &settings).await?),
        };
        let announced_by = definition::announced_by(&definition);
        Ok(Harvest { source, transport, made_by, status: Arc::default(), work, definition, announced_by })
    }

    async fn set_up_pages(
        &self,
        source: &SourceName,
        settings: HarvestSettings,
        made_by: MadeBy,
    ) -> Result<Work, SetupError> {
        let context = self.context_of(source, made_by);
        let budget = context.budget.clone();
        let HarvestSettings { kind: settings, schedule, .. } = settings;
        let harvester = settings.build(source.clone(), context).await?;
        Ok(Work::Pages { harvester, settings, budget, schedule })
    }

    fn context_of(&self, source: &SourceName, made_by: MadeBy) -> HarvesterContext {
        // Its share of each host is its own.
        let hosts = self.context.hosts.of_source(source);
        HarvesterContext { is_configured: made_by == MadeBy::Config, hosts, ..self.context.clone() }
    }

    async fn set_up_jobs(&self, source: &SourceName, settings: &FilesetSettings) -> Result<Arc<JobLoop>, SetupError> {
        Ok(Arc::new(settings.build(source, self.jobs.clone()).await?))
    }

    /// Adds a harvest and starts it.
    fn start(&self, harvest: Harvest) {
        let harvest = Arc::new(harvest);
        let name = harvest.source.name().clone();
        let (worker, launch) = WorkerLaunch::new(Arc::clone(&harvest), self.stop.child_token(), None);
        if self.launches.try_send(launch).is_err() {
            // The gateway is stopping, or the next synchronization starts the harvest.
            tracing::warn!(source = %name, "a harvest cannot be started now");
        }
        self.entries().insert(name, Entry { harvest, worker });
    }

    /// Stops a harvest, waits until it has ended, and removes it from the set.
    async fn stop(&self, name: &SourceName) {
        let ended = self.entries().get(name).map(|entry| entry.worker.stop());
        if let Some(ended) = ended {
            ended.await;
        }
        self.entries().remove(name);
    }
}
