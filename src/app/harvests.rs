//! Wiring of the harvests: opens them, and runs each on the node that has the duty of its source.

use std::{collections::BTreeMap, convert::Infallible, pin::pin, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{ServeError, SharedJournal};
use crate::{
    admin::sources::ConfiguredSource,
    cluster::{Cluster, Tenure},
    config::{self, Config, SourceConfig},
    files::{FileStore, FileStoreLocation},
    harvest::{
        Harvest, HarvestBudget, HarvestLaunch, HarvestParts, HarvestSettings, HarvesterContext, Harvests,
        HarvestsHandle, Hosts, Hours, InvalidHarvest, Mode, ReadDefinition, Schedule, SharedClients, Waits,
        announcements::AnnouncementSettings,
        fileset::IngestMonitor,
        status::{HarvestState, HarvestStatus},
    },
    http_client::OutboundPolicy,
    intake::Source,
    journal::{Journal, nodes::DutyName, subscriptions::MadeBy},
    model::SourceName,
    supervision::{Supervisor, Worker},
};

/// Minimum time between two looks at what other nodes have modified, because each reads all harvests.
const PAUSE: Duration = Duration::from_millis(200);

/// Time between two looks at the journal for events about sources, besides those at each event.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Pause before a failed read of the journal is repeated.
const READ_PAUSE: Duration = Duration::from_millis(500);

/// Opens the harvests of the configuration and of the journal.
pub(super) async fn open(
    config: &Config,
    journal: &Journal,
    sources: &BTreeMap<String, ConfiguredSource>,
    public_url: &str,
    ingests: &IngestMonitor,
) -> Result<(Harvests, mpsc::Receiver<HarvestLaunch>), ServeError> {
    let context = HarvesterContext {
        hosts: Hosts::default(),
        budget: HarvestBudget::new(config.limits.harvest_bytes, &config.journal.data),
        clients: SharedClients::default(),
        is_configured: true,
        redirects: OutboundPolicy::restricted(config.delivery.allow.clone()),
        max_record_bytes: config.limits.body_bytes,
        journal: journal.clone(),
        files: config.files.location(&config.journal.data),
        file_links: config.files.links,
        public_url: public_url.into(),
        file_policy: OutboundPolicy::public_files(config.delivery.allow.clone()),
        filesets: Arc::new(config.filesets.clone()),
        ingests: ingests.clone(),
        harvests: HarvestsHandle::default(),
        callbacks: config.server.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').into()),
    };
    let configured = config.sources.iter().filter_map(|(name, source)| {
        let settings = source.transport.harvest()?.clone();
        let source = Arc::clone(&sources.get(name.as_str())?.source);
        Some(HarvestParts { transport: sources.get(name.as_str())?.transport, source, settings })
    });
    let mut configured: Vec<_> = configured.collect();
    for source in config.sources.values() {
        configured
            .extend(source.announcements.as_ref().map(|settings| announcement_harvest(source, settings)).transpose()?);
    }
    let made = configured.iter().map(|parts| parts.source.name().clone());
    let reserved = config.sources.keys().cloned().chain(made).collect();
    Ok(Harvests::open(journal.clone(), context, configured, reserved, reader(config)).await?)
}

/// Returns the harvest that makes those of the sources that another system announces.
fn announcement_harvest(source: &SourceConfig, settings: &AnnouncementSettings) -> Result<HarvestParts, ServeError> {
    let refuse = |reason: String| ServeError::Source { name: settings.of.clone(), reason };
    let name = AnnouncementSettings::name(&settings.of).map_err(refuse)?;
    let (schedule, kind) = (
        Schedule { mode: Mode::Periodic, every: EVERY, jitter: EVERY / 10, hours: Hours::default() },
        settings.clone(),
    );
    let limits = Default::default();
    // It reports nothing itself, so the dialect reads no message.
    let source = Source::new(name, source.dialect, source.settings.clone(), false, limits);
    let source = source.map_err(|error| refuse(error.to_string()))?;
    Ok(HarvestParts {
        transport: "hoarder",
        source: Arc::new(source),
        settings: HarvestSettings { objects: None, schedule, kind: Arc::new(kind) },
    })
}

/// Returns the function that reads the definitions of harvests that are made over HTTP.
fn reader(config: &Config) -> ReadDefinition {
    let policy = OutboundPolicy::public_files(config.delivery.allow.clone());
    let limits = config.limits.message_limits();
    Arc::new(move |name: &SourceName, definition| {
        let source = config::read_harvest(name, definition, &policy)?;
        let transport = source.transport.name;
        let not_harvested = || InvalidHarvest::new("transport", format!("the transport {transport} is no harvest"));
        let settings = source.transport.harvest().cloned().ok_or_else(not_harvested)?;
        let source = Source::new(name.clone(), source.dialect, source.settings, source.metadata_changes, limits)
            .map_err(|error| InvalidHarvest::new("settings", error.to_string()))?;
        Ok(HarvestParts { transport, source: Arc::new(source), settings })
    })
}

/// Opens the file store. One in a folder exists only if a download has created it.
pub(super) fn file_store(config: &Config) -> Result<Option<FileStore>, ServeError> {
    let location = config.files.location(&config.journal.data);
    match &location {
        FileStoreLocation::Folder(folder) if !folder.is_dir() => Ok(None),
        FileStoreLocation::Folder(_) | FileStoreLocation::S3(_) => Ok(Some(FileStore::open(&location)?)),
    }
}

/// Runs the harvests, and those that are made later.
pub(super) struct HarvestRunner {
    pub(super) harvests: Harvests,
    pub(super) launches: mpsc::Receiver<HarvestLaunch>,
    pub(super) shared: SharedJournal,
}

impl HarvestRunner {
    /// Runs until `stop` is cancelled and all harvests have ended.
    pub(super) async fn run(mut self, stop: CancellationToken, supervisor: Supervisor) {
        let mut tasks = JoinSet::new();
        let mut news = pin!(hear_other_nodes(self.harvests.clone(), self.shared.cluster.clone()));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(launch) = self.launches.recv() => {
                    let (name, made_by) = (launch.harvest.source.name().to_string(), launch.harvest.made_by);
                    let task = run(launch, self.harvests.clone(), self.shared.clone(), stop.clone());
                    tasks.spawn(supervise(supervisor.clone(), made_by, name, task));
                }
                Some(_) = tasks.join_next() => {}
                never = &mut news => match never {},
            }
        }
        self.launches.close();
        while tasks.join_next().await.is_some() {}
    }
}

/// Reads the harvests again whenever a node has modified one or requested a run, and wakes those that run here.
async fn hear_other_nodes(harvests: Harvests, cluster: Cluster) -> Infallible {
    let Some(mut revisions) = cluster.harvest_revisions() else { return std::future::pending().await };
    loop {
        if revisions.changed().await.is_err() {
            return std::future::pending().await;
        }
        while let Err(error) = harvests.synchronize().await {
            tracing::debug!(%error, "cannot read the harvests of other nodes; retrying");
            tokio::time::sleep(PAUSE).await;
        }
        harvests.wake_all();
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs the task of a harvest. One of the configuration ends only with the gateway; one that was made over HTTP also when
/// it is removed.
async fn supervise(supervisor: Supervisor, made_by: MadeBy, name: String, task: impl Future<Output = ()>) {
    match made_by {
        MadeBy::Config => supervisor.run(Worker::Harvest, Some(name), task).await,
        MadeBy::Api | MadeBy::Hub => {
            let _guard = supervisor.guard(Worker::Harvest, Some(name));
            task.await;
        }
    }
}

/// Runs a harvest whenever this node has the duty of its source, until it is removed or the gateway stops.
async fn run(
    launch: HarvestLaunch,
    harvests: Harvests,
    SharedJournal { journal, cluster }: SharedJournal,
    gateway_stop: CancellationToken,
) {
    let HarvestLaunch { harvest, stop, ended } = launch;
    // The harvest also stops with the gateway.
    let stop_with_gateway = stop.clone();
    let name = harvest.source.name().clone();
    let work = |tenure: Tenure| {
        let engine = harvest.engine(journal.under(tenure.term()), Waits::default());
        let elsewhere = tenure.term().map(|_| ElsewhereGuard(Arc::clone(&harvest.status)));
        let (harvests, harvest, losses) = (harvests.clone(), Arc::clone(&harvest), journal.clone());
        async move {
            let _elsewhere = elsewhere;
            let known = losses.until_losses_are_known();
            if tenure.term().is_some() && tenure.stop().run_until_cancelled(known).await.is_none() {
                return;
            }
            if is_current(&harvests, &harvest, &tenure).await {
                engine.run(tenure.stop().clone()).await;
            }
        }
    };
    if cluster.is_shared() {
        harvest.status.set(HarvestState::Elsewhere, None);
    }
    let duty = cluster.run_duty(DutyName::source(&name), &stop, work);
    tokio::pin!(duty);
    tokio::select! {
        () = &mut duty => {}
        () = gateway_stop.cancelled() => {
            stop_with_gateway.cancel();
            duty.await;
        }
    }
    harvest.status.set(HarvestState::Stopped, None);
    drop(ended);
}

/// Returns whether another node has neither removed nor replaced the harvest. A former holder of the duty may have
/// missed that.
async fn is_current(harvests: &Harvests, harvest: &Harvest, tenure: &Tenure) -> bool {
    loop {
        match harvests.is_current(harvest).await {
            Ok(is_current) => return is_current,
            Err(error) => {
                tracing::debug!(source = %harvest.source.name(), %error, "cannot read a harvest; retrying");
                if tenure.stop().run_until_cancelled(tokio::time::sleep(READ_PAUSE)).await.is_none() {
                    return false;
                }
            }
        }
    }
}

/// Shows, when it is dropped, that another node harvests the source.
struct ElsewhereGuard(Arc<HarvestStatus>);

impl Drop for ElsewhereGuard {
    fn drop(&mut self) {
        self.0.set(HarvestState::Elsewhere, None);
    }
}
