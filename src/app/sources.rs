//! Wiring of the sources: sets them up and starts the consumers of brokers and the follow-up lookups.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use crate::{
    admin::sources::ConfiguredSource,
    broker::ConnectionStatus,
    config::{Config, SourceConfig},
    intake::{FollowUp, Intake, Source},
    journal::Journal,
    lookup::{Lookup, Mode, Repository},
    source::consumer::SourceConsumer,
    supervision::{Supervisor, Worker},
};

/// Starts the consumers of sources that are read from brokers.
pub(super) fn read_brokers(
    config: &Config,
    journal: &Journal,
    sources: &BTreeMap<String, ConfiguredSource>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let mut consumers = JoinSet::new();
    let intake = Intake::new(journal.clone());
    let max_body_bytes = config.limits.body_bytes;
    for listed in sources.values() {
        let name = listed.source.name();
        let broker = config.sources.get(name).and_then(|source| source.transport.broker.as_ref());
        let (Some(broker), Some(status)) = (broker, listed.connection.clone()) else { continue };
        if let Some(warning) = broker.warning() {
            tracing::warn!(source = %name, "{warning}");
        }
        let (intake, source) = (intake.clone(), Arc::clone(&listed.source));
        let consumer = broker.read(SourceConsumer { intake, source, broker: (), max_body_bytes, status }, stop.clone());
        consumers.spawn(supervisor.clone().run(Worker::Source, Some(name.to_string()), consumer));
    }
    consumers
}

/// Starts follow-up lookups of incomplete changes. Lookups that a shutdown interrupts are repeated after the next
/// start.
pub(super) fn follow_up(
    journal: &Journal,
    sources: &BTreeMap<String, ConfiguredSource>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let mut follow_ups = JoinSet::new();
    for listed in sources.values().filter(|listed| listed.source.enrichment_status().is_some()) {
        let (journal, source) = (journal.clone(), Arc::clone(&listed.source));
        let name = source.name().to_string();
        let follow_up = FollowUp { journal, source }.run(stop.clone());
        follow_ups.spawn(supervisor.clone().run(Worker::FollowUps, Some(name), follow_up));
    }
    follow_ups
}

/// Sets up the sources.
pub(super) async fn set_up(config: &Config) -> Result<BTreeMap<String, ConfiguredSource>, ServeError> {
    let mut sources = BTreeMap::new();
    for (name, source) in &config.sources {
        let SourceConfig { transport, dialect, metadata_changes, settings, lookup, repository, .. } = source;
        let limits = config.limits.message_limits();
        let mut source = Source::new(name.clone(), dialect, settings.clone(), *metadata_changes, limits)
            .map_err(|error| ServeError::Source { name: name.clone(), reason: error.to_string() })?;
        if let Some(repository) = repository.clone().filter(|_| *lookup != Mode::Off) {
            let repository = Repository::new(name, repository).await;
            let repository = repository.map_err(|error| ServeError::Repository { name: name.clone(), error })?;
            source = source.with_lookup(Lookup::new(*lookup, repository, limits));
        }
        let status = || Arc::new(ConnectionStatus::new(format!("sources.{name}")));
        let connection = transport.broker.is_some().then(status);
        let listed = ConfiguredSource { source: Arc::new(source), transport: transport.name, connection };
        sources.insert(name.to_string(), listed);
    }
    Ok(sources)
}
