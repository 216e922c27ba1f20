//! Transports of sources: what they have in common. Each has a module with its settings.

use std::{ffi::OsString, sync::Arc};

use super::error::ConfigErrors;
use crate::{
    filesets::FilesetSettings,
    harvest::{HarvestSettings, WorkSettings},
    model::SourceName,
    settings::{Key, Setting, Whole},
    source::consumer::BrokerSettings,
};

/// A transport and the settings that it supports.
pub(super) struct TransportKind {
    /// Name in the configuration.
    pub(super) name: &'static str,
    /// Settings that are specific to this transport, by the tables that declare them.
    pub(super) keys: &'static [&'static [Key]],
    /// Reads the settings from the table of a source.
    pub(super) read: ReadConnection,
}

/// Reads the settings of a connection from the table of a source and the environment.
type ReadConnection = fn(&Setting, &[(OsString, OsString)]) -> Result<Connection, ConfigErrors>;

/// Maximum number of unacknowledged messages, 1 to 65535. AMQP has two bytes for it, where 0 means unlimited. The other
/// brokers have the same range.
pub(super) type Prefetch = Whole<u16, 1, 65_535>;

/// Default of [`Prefetch`].
pub(super) const PREFETCH: u16 = 1000;

/// The way in which the messages of a source reach the gateway.
#[derive(Clone, Debug)]
pub enum Connection {
    /// Senders post messages to `/hooks/NAME`.
    Hook,
    /// The gateway consumes from a broker.
    Broker(Arc<dyn BrokerSettings>),
    /// The gateway harvests a repository.
    Harvest(HarvestSettings),
    /// The gateway archives the datasets that other sources request.
    Datasets(FilesetSettings),
}

impl TransportKind {
    /// Returns all settings that are specific to this transport.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.keys.iter().copied().flatten()
    }

    /// Returns whether the transport has this setting.
    pub(super) fn has(&self, name: &str) -> bool {
        self.keys().any(|key| key.name == name)
    }
}

/// Transport of a source.
#[derive(Clone, Debug)]
pub struct Transport {
    /// Name in the configuration.
    pub name: &'static str,
    /// The way in which messages arrive, with its settings.
    pub connection: Connection,
}

impl Transport {
    /// Returns the broker that the gateway consumes from, if the source has one.
    #[must_use]
    pub fn broker(&self) -> Option<&Arc<dyn BrokerSettings>> {
        match &self.connection {
            Connection::Broker(broker) => Some(broker),
            Connection::Hook | Connection::Harvest(_) | Connection::Datasets(_) => None,
        }
    }

    /// Returns the settings of the harvest, if the source is harvested.
    #[must_use]
    pub fn harvest(&self) -> Option<&HarvestSettings> {
        match &self.connection {
            Connection::Harvest(harvest) => Some(harvest),
            Connection::Hook | Connection::Broker(_) | Connection::Datasets(_) => None,
        }
    }

    /// Returns whether an audit can ask the place from which the source is harvested.
    #[must_use]
    pub fn can_be_audited(&self) -> bool {
        match &self.connection {
            Connection::Harvest(harvest) => harvest.kind.can_be_audited(),
            Connection::Datasets(_) => true,
            Connection::Hook | Connection::Broker(_) => false,
        }
    }

    /// Returns the settings of the work that the gateway does for the source at times of its own; `None` if others send its
    /// messages.
    #[must_use]
    pub fn work(&self) -> Option<WorkSettings> {
        match &self.connection {
            Connection::Harvest(harvest) => Some(WorkSettings::Pages(harvest.clone())),
            Connection::Datasets(datasets) => Some(WorkSettings::Jobs(datasets.clone())),
            Connection::Hook | Connection::Broker(_) => None,
        }
    }

    /// Returns the only dialect that the transport can have; `None` if it has a choice.
    pub(super) fn dialect(&self) -> Option<&'static str> {
        match &self.connection {
            Connection::Harvest(harvest) => Some(harvest.kind.dialect()),
            Connection::Datasets(_) => Some(FilesetSettings::DIALECT),
            Connection::Hook | Connection::Broker(_) => None,
        }
    }

    /// Returns the names of the other sources whose changes the source reads.
    pub(super) fn sources(&self) -> &[SourceName] {
        match &self.connection {
            Connection::Harvest(harvest) => harvest.kind.sources(),
            Connection::Datasets(datasets) => &datasets.of,
            Connection::Hook | Connection::Broker(_) => &[],
        }
    }
}
