//! The sources: set up as they are configured, and read where a broker has their messages.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use crate::{
    admin::sources::Listed,
    broker::ConnectionStatus,
    config::{Config, SourceConfig},
    intake::{FollowUp, Intake, Source},
    journal::Journal,
    lookup::{Lookup, Mode, Repository},
    source::consumer::SourceConsumer,
    supervision::{Supervisor, Worker},
};

/// Starts to read what brokers have for the sources.
pub(super) fn read_brokers(
    config: &Config,
    journal: &Journal,
    sources: &BTreeMap<String, Listed>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let mut reading_tasks = JoinSet::new();
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
        let reading = broker.read(SourceConsumer { intake, source, broker: (), max_body_bytes, status }, stop.clone());
        reading_tasks.spawn(supervisor.clone().run(Worker::Source, Some(name.to_string()), reading));
    }
    reading_tasks
}

/// Starts to ask repositories about what they have not answered. What they are asked when the gateway stops they are asked
/// again later.
pub(super) fn follow_up(
    journal: &Journal,
    sources: &BTreeMap<String, Listed>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let mut follow_ups = JoinSet::new();
    for listed in sources.values().filter(|listed| listed.source.enrichment_status().is_some()) {
        let (journal, source) = (journal.clone(), Arc::clone(&listed.source));
        let name = source.name().to_string();
        let asking = FollowUp { journal, source }.run(stop.clone());
        follow_ups.spawn(supervisor.clone().run(Worker::FollowUps, Some(name), asking));
    }
    follow_ups
}

/// Sets the sources up.
pub(super) async fn set_up(config: &Config) -> Result<BTreeMap<String, Listed>, ServeError> {
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
        let listed = Listed { source: Arc::new(source), transport: transport.name, connection };
        sources.insert(name.to_string(), listed);
    }
    Ok(sources)
}
