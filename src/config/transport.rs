//! Transports of sources, each with its own settings.

use std::{ffi::OsString, sync::Arc};

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use super::{
    amqp, download,
    error::ConfigError,
    feed, filesets, folder, gateway, kafka, oai_pmh,
    setting::{Setting, bounded},
    stomp,
};
use crate::{harvest::HarvestSettings, source::consumer::BrokerSettings};

/// All transports. A new transport needs a module that reads its settings, and an entry here.
pub(super) static TRANSPORTS: &[&TransportKind] = &[
    &HTTP,
    &amqp::AMQP,
    &stomp::STOMP,
    &kafka::KAFKA,
    &oai_pmh::OAI_PMH,
    &feed::FEED,
    &folder::FOLDER,
    &download::DOWNLOAD,
    &gateway::GATEWAY,
    &filesets::FILESET,
];

/// The transport `http`: `POST /hooks/NAME`. Its settings are read with those that every source has.
static HTTP: TransportKind = TransportKind {
    name: "http",
    keys: &[
        TransportKey::of::<MessageCount>("rate"),
        TransportKey::of::<MessageCount>("burst"),
        TransportKey::of::<SignatureTable>("signature"),
    ],
    read: |_, _| Ok(Connection::Hook),
};

/// A transport and the settings that it supports.
pub(super) struct TransportKind {
    /// Name in the configuration.
    pub(super) name: &'static str,
    /// Settings that are specific to this transport.
    pub(super) keys: &'static [TransportKey],
    /// Reads the settings from the table of a source.
    pub(super) read: ReadConnection,
}

/// Reads the settings of a connection from the table of a source and the environment.
type ReadConnection = fn(&Setting, &[(OsString, OsString)]) -> Result<Connection, ConfigError>;

/// The way in which the messages of a source reach the gateway.
#[derive(Clone, Debug)]
pub enum Connection {
    /// Senders post messages to `/hooks/NAME`.
    Hook,
    /// The gateway consumes from a broker.
    Broker(Arc<dyn BrokerSettings>),
    /// The gateway harvests a repository.
    Harvest(HarvestSettings),
}

/// Setting of a transport.
pub(super) struct TransportKey {
    pub(super) name: &'static str,
    /// Refuses a value of the wrong type.
    check: fn(Setting) -> Result<(), ConfigError>,
}

impl TransportKey {
    /// Creates the setting with this name and the type `T`.
    pub(super) const fn of<T: DeserializeOwned>(name: &'static str) -> Self {
        Self { name, check: |setting| setting.read::<Option<T>>().map(drop) }
    }
}

impl TransportKind {
    /// Refuses values of the wrong type and settings of other transports.
    pub(super) fn check(&self, table: &Setting) -> Result<(), ConfigError> {
        self.keys.iter().try_for_each(|key| (key.check)(table.entry(key.name)?))?;
        let has = |transport: &Self, name| transport.keys.iter().any(|key| key.name == name);
        for key in TRANSPORTS.iter().flat_map(|other| other.keys).filter(|key| !has(self, key.name)) {
            let setting = table.entry(key.name)?;
            if setting.is_given() {
                let others = TRANSPORTS.iter().filter(|other| has(other, key.name)).map(|other| other.name);
                let (others, own) = (transports(&others.collect::<Vec<_>>()), self.name);
                return Err(setting.invalid(format!("it is a setting of {others}, but this source has {own:?}")));
            }
        }
        Ok(())
    }
}

/// Names transports in a sentence.
fn transports(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => format!("the transport {last}"),
        Some((last, others)) => format!("the transports {} and {last}", others.join(", ")),
        None => "another transport".to_owned(),
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
            Connection::Hook | Connection::Harvest(_) => None,
        }
    }

    /// Returns the settings of the harvest, if the source is harvested.
    #[must_use]
    pub fn harvest(&self) -> Option<&HarvestSettings> {
        match &self.connection {
            Connection::Harvest(harvest) => Some(harvest),
            Connection::Hook | Connection::Broker(_) => None,
        }
    }
}

/// A number of messages, 1 to 1 000 000.
#[derive(Deserialize)]
pub(super) struct MessageCount(#[serde(deserialize_with = "bounded::<1, 1_000_000, _, _>")] pub(super) u32);

/// `signature`. The secret is read separately, because it may be in a file or a variable.
#[derive(Deserialize)]
struct SignatureTable {
    #[serde(rename = "secret")]
    _secret: IgnoredAny,
}
