//! The transports that a source can have, each with the settings of its own.

use std::{ffi::OsString, sync::Arc};

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use super::{
    error::ConfigError,
    queue,
    setting::{Setting, whole},
    stomp,
};
use crate::source::brokered::BrokerSettings;

/// Every transport. To add one: a file that reads its settings, and a line here.
pub(super) static TRANSPORTS: &[&TransportKind] = &[&HTTP, &queue::AMQP, &stomp::STOMP];

/// `POST /hooks/NAME`. What its settings mean is read with those that every source has.
static HTTP: TransportKind = TransportKind {
    name: "http",
    keys: &[Key::of::<Messages>("rate"), Key::of::<Messages>("burst"), Key::of::<SignatureTable>("signature")],
    read: |_, _| Ok(None),
};

/// A transport as the configuration offers it.
pub(super) struct TransportKind {
    /// The name in the configuration.
    pub(super) name: &'static str,
    /// The settings that it has and not every source has.
    pub(super) keys: &'static [Key],
    /// Reads its settings from the table of a source; gives the broker, if the transport has one.
    pub(super) read: fn(&Setting, &[(OsString, OsString)]) -> Read,
}

/// The settings of a transport, if they are those of a broker, or what is wrong with them.
type Read = Result<Option<Arc<dyn BrokerSettings>>, ConfigError>;

/// A setting of a transport.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Refuses a value that is not of its type.
    check: fn(Setting) -> Result<(), ConfigError>,
}

impl Key {
    /// The setting of that name, of the type `T`.
    pub(super) const fn of<T: DeserializeOwned>(name: &'static str) -> Self {
        Self { name, check: |setting| setting.read::<Option<T>>().map(drop) }
    }
}

impl TransportKind {
    /// Refuses values that are not of their types, and the settings of every other transport.
    pub(super) fn check(&self, table: &Setting) -> Result<(), ConfigError> {
        self.keys.iter().try_for_each(|key| (key.check)(table.entry(key.name)?))?;
        let is_own = |name| self.keys.iter().any(|own| own.name == name);
        for other in TRANSPORTS {
            for key in other.keys.iter().filter(|key| !is_own(key.name)) {
                let setting = table.entry(key.name)?;
                if setting.is_given() {
                    let (other, own) = (other.name, self.name);
                    let reason = format!("it is for the transport {other:?}, and this source has {own:?}");
                    return Err(setting.invalid(reason));
                }
            }
        }
        Ok(())
    }
}

/// How the messages of a source come in.
#[derive(Clone, Debug)]
pub struct Transport {
    /// The name in the configuration.
    pub name: &'static str,
    /// The broker that the gateway reads them from; `None` where they are posted to `/hooks/NAME`.
    pub broker: Option<Arc<dyn BrokerSettings>>,
}

/// 1 to 1 000 000 messages.
#[derive(Deserialize)]
pub(super) struct Messages(#[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")] pub(super) u32);

/// What may stand in `signature`; the secret is read by itself, since it may be elsewhere.
#[derive(Deserialize)]
struct SignatureTable {
    #[serde(rename = "secret")]
    _secret: IgnoredAny,
}
