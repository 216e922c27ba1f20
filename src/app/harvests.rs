//! Wiring of the harvests: opens them with what they need.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::ServeError;
use crate::{
    admin::sources::ConfiguredSource,
    config::{self, Config, SourceConfig},
    files::{FileStore, FileStoreLocation},
    filesets::{IngestMonitor, JobContext},
    harvest::{
        HarvestLaunch, HarvestParts, HarvestSettings, HarvesterContext, Harvests, HarvestsHandle, InvalidHarvest, Mode,
        ReadDefinition, Schedule, SharedClients, WorkSettings, announcements::AnnouncementSettings,
    },
    http_client::OutboundPolicy,
    intake::Source,
    journal::Journal,
    model::SourceName,
    transfer::{HarvestBudget, Hosts},
};

/// Time between two looks at the journal for events about sources, besides those at each event.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

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
        limits: config.limits.message_limits(),
        journal: journal.clone(),
        files: config.files.location(&config.journal.data),
        file_links: config.files.links,
        public_url: public_url.into(),
        file_policy: OutboundPolicy::public_files(config.delivery.allow.clone()),
        harvests: HarvestsHandle::default(),
        callbacks: config.server.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').into()),
    };
    let jobs = JobContext {
        ingest: Arc::new(config.filesets.clone()),
        files: context.files.clone(),
        file_policy: context.file_policy.clone(),
        public_url: Arc::clone(&context.public_url),
        monitor: ingests.clone(),
        budget: context.budget.clone(),
    };
    let configured = config.sources.iter().filter_map(|(name, source)| {
        let work = source.transport.work()?;
        let source = Arc::clone(&sources.get(name.as_str())?.source);
        Some(HarvestParts { transport: sources.get(name.as_str())?.transport, source, work })
    });
    let mut configured: Vec<_> = configured.collect();
    for source in config.sources.values() {
        configured
            .extend(source.announcements.as_ref().map(|settings| announcement_harvest(source, settings)).transpose()?);
    }
    let made = configured.iter().map(|parts| parts.source.name().clone());
    let reserved = config.sources.keys().cloned().chain(made).collect();
    Ok(Harvests::open(journal.clone(), context, jobs, configured, reserved, reader(config)).await?)
}

/// Returns the harvest that makes those of the sources that another system announces.
fn announcement_harvest(source: &SourceConfig, settings: &AnnouncementSettings) -> Result<HarvestParts, ServeError> {
    let refuse = |reason: String| ServeError::Source { name: settings.of.clone(), reason };
    let name = AnnouncementSettings::name(&settings.of).map_err(refuse)?;
    let (schedule, kind) = (Schedule::new(Mode::Periodic, EVERY, EVERY / 10), settings.clone());
    let limits = Default::default();
    // It reports nothing itself, so the dialect reads no message.
    let source = Source::new(name, source.dialect, source.settings.clone(), false, limits);
    let source = source.map_err(|error| refuse(error.to_string()))?;
    Ok(HarvestParts {
        transport: "hoarder",
        source: Arc::new(source),
        work: WorkSettings::Pages(HarvestSettings { objects: None, schedule, kind: Arc::new(kind) }),
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
        let work = source.transport.work().ok_or_else(not_harvested)?;
        let source = Source::new(name.clone(), source.dialect, source.settings, source.metadata_changes, limits)
            .map_err(|error| InvalidHarvest::new("settings", error.to_string()))?;
        Ok(HarvestParts { transport, source: Arc::new(source), work })
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
