//! Wiring of the sources: sets them up and starts the consumers of brokers and the follow-up lookups, each on the node
//! that has its duty.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{ServeError, SharedJournal};
use crate::{
    admin::sources::ConfiguredSource,
    broker::{ConnectionState, ConnectionStatus},
    cluster::{Tenure, source_control::SourceControl},
    config::{Config, Connection, SourceConfig},
    intake::{FollowUp, Intake, Source},
    journal::{Journal, nodes::DutyName},
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
        let (Some(broker), Some(status), Some(control)) = (broker, listed.connection.clone(), listed.control.clone())
        else {
            continue;
        };
        if let Some(warning) = broker.warning() {
            tracing::warn!(source = %name, "{warning}");
        }
        let (journal, cluster, stop) = (journal.clone(), cluster.clone(), stop.clone());
        let (broker, source) = (Arc::clone(broker), Arc::clone(&listed.source));
        let consumer = async move {
            let work = |tenure: Tenure| {
                let intake = Intake::new(journal.under(tenure.term()));
                let (broker, source) = (Arc::clone(&broker), Arc::clone(&source));
                let (control, status) = (Arc::clone(&control), Arc::clone(&status));
                async move {
                    let set_state = |state| {
                        status.set_state(state);
                    };
                    let _elsewhere = tenure.show_elsewhere(|| set_state(ConnectionState::Elsewhere));
                    let read = |stop| {
                        let (intake, source, status) = (intake.clone(), Arc::clone(&source), Arc::clone(&status));
                        broker.read(SourceConsumer { intake, source, broker: (), max_body_bytes, status }, stop)
                    };
                    control.read_unless_paused(&tenure, || set_state(ConnectionState::Paused), read).await;
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
        let SourceConfig { transport: transport_of_source, dialect, metadata_changes, settings, lookup, .. } = source;
        let SourceConfig { repository, silent_after, .. } = source;
        let limits = config.limits.message_limits();
        let mut source = Source::new(name.clone(), dialect, settings.clone(), *metadata_changes, limits)
            .map_err(|error| ServeError::Source { name: name.clone(), reason: error.to_string() })?;
        if let Some(repository) = repository.clone().filter(|_| *lookup != Mode::Off) {
            let repository = Repository::new(name, repository).await;
            let repository = repository.map_err(|error| ServeError::Repository { name: name.clone(), error })?;
            source = source.with_lookup(Lookup::new(*lookup, repository, limits));
        }
        let status = || Arc::new(ConnectionStatus::new(format!("sources.{name}")));
        let connection = transport_of_source.broker().is_some().then(status);
        let has_hook = matches!(transport_of_source.connection, Connection::Hook);
        let warning = transport_of_source.broker().and_then(|broker| broker.warning());
        let (source, transport) = (Arc::new(source), transport_of_source.name);
        let destination = transport_of_source.broker().map(|broker| broker.describe());
        let listed = ConfiguredSource {
            source,
            transport,
            connection,
            control: None,
            destination,
            silent_after: *silent_after,
            warning,
            has_hook,
        };
        sources.insert(name.to_string(), listed);
    }
    Ok(sources)
}

/// Adds the control of each source that reads a broker.
pub(super) fn add_controls(sources: &mut BTreeMap<String, ConfiguredSource>, journal: &Journal) {
    for listed in sources.values_mut().filter(|listed| listed.connection.is_some()) {
        let control = SourceControl::new(listed.source.name().clone(), journal.clone());
        listed.control = Some(Arc::new(control));
    }
}
