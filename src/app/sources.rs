//! The sources: set up as they are configured, and read where a broker has their messages.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use crate::{
    admin::sources::Listed,
    broker::ConnectionStatus,
    config::{Config, SourceConfig, Transport},
    intake::{FollowUp, Intake, Source},
    journal::Journal,
    lookup::{Lookup, Mode, Repository},
    source::{
        brokered::{Broker, BrokeredSource},
        stomp::Destination,
    },
    supervision::{Supervisor, Worker},
};

/// Starts to read what brokers have for the sources.
pub(super) fn read_queues(
    config: &Config,
    journal: &Journal,
    sources: &BTreeMap<String, Listed>,
    stop: &CancellationToken,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let mut queues = JoinSet::new();
    let intake = Intake::new(journal.clone());
    let largest = config.limits.body_bytes;
    for listed in sources.values() {
        let Some(SourceConfig { transport, .. }) = config.sources.get(listed.source.name()) else { continue };
        match transport {
            Transport::Http => {}
            Transport::Amqp(queue) => {
                let reading = read(&intake, listed, (**queue).clone(), largest, stop);
                queues.spawn(supervisor.clone().run(Worker::Source, Some(listed.source.name().to_string()), reading));
            }
            Transport::Stomp(settings) => {
                let name = listed.source.name();
                if settings.is_topic() && settings.durable.is_none() {
                    tracing::warn!(source = %name, "the subscription is not durable: what the topic is sent while Tidings is away is lost");
                }
                let destination = Destination { settings: (**settings).clone(), largest };
                let reading = read(&intake, listed, destination, largest, stop);
                queues.spawn(supervisor.clone().run(Worker::Source, Some(name.to_string()), reading));
            }
        }
    }
    queues
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
    for listed in sources.values().filter(|listed| listed.source.looked_up().is_some()) {
        let (journal, source) = (journal.clone(), Arc::clone(&listed.source));
        let name = source.name().to_string();
        let asking = FollowUp { journal, source }.run(stop.clone());
        follow_ups.spawn(supervisor.clone().run(Worker::FollowUps, Some(name), asking));
    }
    follow_ups
}

/// Reads what a broker has for a source.
fn read<B: Broker>(
    intake: &Intake,
    listed: &Listed,
    broker: B,
    largest: usize,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + use<B> {
    let (intake, source, stop) = (intake.clone(), Arc::clone(&listed.source), stop.clone());
    let status = listed.connection.clone();
    async move {
        if let Some(status) = status {
            BrokeredSource { intake, source, broker, largest, status }.run(stop).await;
        }
    }
}

/// Sets the sources up.
pub(super) async fn set_up(config: &Config) -> Result<BTreeMap<String, Listed>, ServeError> {
    let mut sources = BTreeMap::new();
    for (name, source) in &config.sources {
        let SourceConfig { transport, dialect, metadata_changes, settings, lookup, repository, .. } = source;
        let limits = config.limits.of_messages();
        let mut source = Source::new(name.clone(), dialect, settings.clone(), *metadata_changes, limits)
            .map_err(|error| ServeError::Source { name: name.clone(), reason: error.to_string() })?;
        if let Some(repository) = repository.clone().filter(|_| *lookup != Mode::Off) {
            let repository = Repository::new(name, repository).await;
            let repository = repository.map_err(|error| ServeError::Repository { name: name.clone(), error })?;
            source = source.looking_up(Lookup::new(*lookup, repository, limits));
        }
        let connection = match transport {
            Transport::Http => None,
            Transport::Amqp(_) | Transport::Stomp(_) => Some(Arc::new(ConnectionStatus::of(format!("sources.{name}")))),
        };
        let listed = Listed { source: Arc::new(source), transport: transport.name(), connection };
        sources.insert(name.to_string(), listed);
    }
    Ok(sources)
}
