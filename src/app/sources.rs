//! Wiring of the sources: sets them up and starts the consumers of brokers and the follow-up lookups, each on the node
//! that has its duty.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{ServeError, SharedJournal};
use crate::{
    admin::sources::ConfiguredSource,
    broker::{ConnectionState, ConnectionStatus},
    cluster::Tenure,
    config::{Config, Connection, SourceConfig},
    intake::{FollowUp, Intake, Source},
    journal::nodes::DutyName,
    lookup::{Lookup, Mode, Repository},
    source::consumer::SourceConsumer,
    supervision::{Supervisor, Worker},
};

/// Starts the consumers of sources that are read from brokers.
pub(super) fn read_brokers(
    config: &Config,
    SharedJournal { journal, cluster }: &SharedJournal,
    sources: &BTreeMap<String, ConfiguredSource>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let mut consumers = JoinSet::new();
    let max_body_bytes = config.limits.body_bytes;
    for listed in sources.values() {
        let name = listed.source.name();
        let broker = config.sources.get(name).and_then(|source| source.transport.broker());
        let (Some(broker), Some(status)) = (broker, listed.connection.clone()) else { continue };
        if let Some(warning) = broker.warning() {
            tracing::warn!(source = %name, "{warning}");
        }
        let (journal, cluster, stop) = (journal.clone(), cluster.clone(), stop.clone());
        let (broker, source) = (Arc::clone(broker), Arc::clone(&listed.source));
        let consumer = async move {
            let work = |tenure: Tenure| {
                let intake = Intake::new(journal.under(tenure.term()));
                let (source, status) = (Arc::clone(&source), Arc::clone(&status));
                let read = SourceConsumer { intake, source, broker: (), max_body_bytes, status: Arc::clone(&status) };
                let reading = broker.read(read, tenure.stop().clone());
                async move {
                    let _elsewhere = tenure.show_elsewhere(|| {
                        status.set_state(ConnectionState::Elsewhere);
                    });
                    reading.await;
                }
            };
            if cluster.is_shared() {
                status.set_state(ConnectionState::Elsewhere);
            }
            cluster.run_duty(DutyName::source(source.name()), &stop, work).await;
            status.set_state(ConnectionState::Stopped);
        };
        consumers.spawn(supervisor.clone().run(Worker::Source, Some(name.to_string()), consumer));
    }
    consumers
}

/// Starts follow-up lookups of incomplete changes. Lookups that a shutdown interrupts are repeated after the next
/// start.
pub(super) fn follow_up(
    SharedJournal { journal, cluster }: &SharedJournal,
    sources: &BTreeMap<String, ConfiguredSource>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let mut follow_ups = JoinSet::new();
    for listed in sources.values().filter(|listed| listed.source.enrichment_status().is_some()) {
        let (journal, source) = (journal.clone(), Arc::clone(&listed.source));
        let (cluster, stop, name) = (cluster.clone(), stop.clone(), source.name().to_string());
        let follow_up = async move {
            let work = |tenure: Tenure| {
                let (journal, source) = (journal.under(tenure.term()), Arc::clone(&source));
                FollowUp { journal, source }.run(tenure.stop().clone())
            };
            let duty = cluster.run_duty(DutyName::follow_ups(source.name()), &stop, work);
            let counts = FollowUp { journal: journal.clone(), source: Arc::clone(&source) }.keep_count();
            tokio::select! {
                () = duty => {}
                () = counts, if cluster.is_shared() => {}
            }
        };
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
        let connection = transport.broker().is_some().then(status);
        let has_hook = matches!(transport.connection, Connection::Hook);
        let warning = transport.broker().and_then(|broker| broker.warning());
        let (source, transport) = (Arc::new(source), transport.name);
        let listed = ConfiguredSource { source, transport, connection, warning, has_hook };
        sources.insert(name.to_string(), listed);
    }
    Ok(sources)
}
