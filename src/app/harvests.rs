//! Wiring of the harvests: sets them up, and runs each on the node that has the duty of its source.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use crate::{
    admin::{harvests::ConfiguredHarvest, sources::ConfiguredSource},
    cluster::{Cluster, Tenure},
    config::Config,
    files::FileStore,
    harvest::{
        Engine, Harvester, HarvesterContext, Hosts, Schedule, Waits,
        status::{HarvestState, HarvestStatus},
    },
    http_client::OutboundPolicy,
    journal::{Journal, nodes::DutyName},
    model::SourceName,
    supervision::{Supervisor, Worker},
};

/// Interval at which the node that harvests a source looks for runs that were requested at other nodes.
const REQUEST_POLL: Duration = Duration::from_secs(5);

/// A harvest that is set up.
pub(super) struct Harvest {
    harvester: Arc<dyn Harvester>,
    schedule: Schedule,
    status: Arc<HarvestStatus>,
}

/// Sets up the harvests of the configuration.
pub(super) async fn set_up(
    config: &Config,
    journal: &Journal,
    public_url: &str,
) -> Result<BTreeMap<SourceName, Harvest>, ServeError> {
    let context = HarvesterContext {
        hosts: Hosts::default(),
        redirects: OutboundPolicy::restricted(config.delivery.allow.clone()),
        max_record_bytes: config.limits.body_bytes,
        journal: journal.clone(),
        files: config.files.folder(&config.journal.data),
        public_url: public_url.into(),
        file_policy: OutboundPolicy::public_files(config.delivery.allow.clone()),
    };
    let mut harvests = BTreeMap::new();
    for (name, source) in &config.sources {
        let Some(settings) = source.transport.harvest() else { continue };
        let harvester = settings.kind.build(context.clone()).await;
        let harvester = harvester.map_err(|error| ServeError::Harvest { name: name.clone(), error })?;
        harvests.insert(name.clone(), Harvest { harvester, schedule: settings.schedule, status: Arc::default() });
    }
    Ok(harvests)
}

/// Opens the file store, if a download has created it.
pub(super) fn file_store(config: &Config) -> Result<Option<FileStore>, ServeError> {
    let folder = config.files.folder(&config.journal.data);
    Ok(if folder.is_dir() { Some(FileStore::open(&folder)?) } else { None })
}

/// Returns the harvests for the administration.
pub(super) fn list(harvests: &BTreeMap<SourceName, Harvest>) -> Arc<BTreeMap<SourceName, ConfiguredHarvest>> {
    let listed = |(name, harvest): (&SourceName, &Harvest)| {
        let (place, status) = (harvest.harvester.describe(), Arc::clone(&harvest.status));
        (name.clone(), ConfiguredHarvest { place, status })
    };
    Arc::new(harvests.iter().map(listed).collect())
}

/// Starts the harvests.
pub(super) fn start(
    tasks: &mut JoinSet<()>,
    harvests: BTreeMap<SourceName, Harvest>,
    (journal, cluster): (&Journal, &Cluster),
    sources: &BTreeMap<String, ConfiguredSource>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) {
    for (name, Harvest { harvester, schedule, status }) in harvests {
        let Some(listed) = sources.get(name.as_str()) else { continue };
        let (journal, cluster, stop) = (journal.clone(), cluster.clone(), stop.clone());
        let (source, worker) = (Arc::clone(&listed.source), name.to_string());
        let request_poll = cluster.is_shared().then_some(REQUEST_POLL);
        let harvest = async move {
            let work = |tenure: Tenure| {
                let engine = Engine {
                    journal: journal.under(tenure.term()),
                    source: Arc::clone(&source),
                    harvester: Arc::clone(&harvester),
                    schedule,
                    waits: Waits { request_poll, ..Waits::default() },
                    status: Arc::clone(&status),
                };
                let elsewhere = tenure.term().map(|_| ElsewhereGuard(Arc::clone(&status)));
                async move {
                    let _elsewhere = elsewhere;
                    engine.run(tenure.stop().clone()).await;
                }
            };
            if cluster.is_shared() {
                status.set(HarvestState::Elsewhere, None);
            }
            cluster.run_duty(DutyName::source(&name), &stop, work).await;
            status.set(HarvestState::Stopped, None);
        };
        tasks.spawn(supervisor.clone().run(Worker::Harvest, Some(worker), harvest));
    }
}

/// Shows, when it is dropped, that another node harvests the source.
struct ElsewhereGuard(Arc<HarvestStatus>);

impl Drop for ElsewhereGuard {
    fn drop(&mut self) {
        self.0.set(HarvestState::Elsewhere, None);
    }
}
