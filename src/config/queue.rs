//! The settings of a source that is a queue of a broker.

use std::{ffi::OsString, path::PathBuf};

use serde::Deserializer;

use super::{
    error::ConfigError,
    secret,
    setting::{Setting, whole},
    source::unknown,
};
use crate::amqp::{Address, QueueSettings, QueueType, ShortString};

/// How many messages come before one is acknowledged, where the configuration does not say.
pub(super) const PREFETCH: u16 = 1000;

/// What stands in the table of such a source, beside its address.
pub(super) struct QueueTable {
    pub(super) ca: Option<String>,
    pub(super) exchange: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) queue_type: Option<String>,
    pub(super) bindings: Option<Vec<String>>,
    pub(super) prefetch: Option<u16>,
    pub(super) declare: Option<bool>,
}

/// 1 to 65535 messages: AMQP has two bytes for it, and takes 0 for any number; so the same is allowed for STOMP.
pub(super) fn prefetch<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<u16>, D::Error> {
    whole::<1, 65_535, u16, D>(setting).map(Some)
}

/// Checks the settings.
pub(super) fn read(
    told: QueueTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<QueueSettings, ConfigError> {
    let url = given(table, "url")?;
    let address = Address::parse(&secret::text(&url, environment)?).map_err(|error| url.invalid(error.to_string()))?;
    let ca = authority(told.ca, address.is_encrypted(), "amqps", table)?;
    given(table, "queue")?;
    let queue = name(&told.queue.unwrap_or_default(), table, "queue")?;
    let exchange = told.exchange.map(|exchange| name(&exchange, table, "exchange")).transpose()?;
    let bindings = match (&exchange, told.bindings) {
        (Some(_), None) => vec!["#".into()],
        (None, Some(_)) => {
            return Err(table.entry("bindings")?.invalid("there are no bindings without an exchange; give both"));
        }
        (_, bindings) => {
            let bindings = bindings.unwrap_or_default().into_iter();
            let binding = |text: String| short(&text).ok_or_else(|| too_long(table, "bindings"));
            bindings.map(binding).collect::<Result<_, _>>()?
        }
    };
    let queue_type = match told.queue_type.as_deref() {
        None => QueueType::Quorum,
        Some(told) => match QueueType::ALL.into_iter().find(|known| known.name() == told) {
            Some(known) => known,
            None => {
                let reason = unknown("type of queue", told, &QueueType::ALL.map(QueueType::name));
                return Err(table.entry("queue_type")?.invalid(reason));
            }
        },
    };
    let prefetch = told.prefetch.unwrap_or(PREFETCH);
    let declare = told.declare.unwrap_or(true);
    Ok(QueueSettings { address, ca, exchange, queue, queue_type, bindings, prefetch, declare })
}

/// The file of an authority: there is something to check where the connection is encrypted, by the scheme `encrypted`.
pub(super) fn authority(
    path: Option<String>,
    is_encrypted: bool,
    encrypted: &str,
    table: &Setting,
) -> Result<Option<PathBuf>, ConfigError> {
    let wrong = |reason: String| table.entry("ca").map_or_else(|error| error, |ca| ca.invalid(reason));
    match path {
        Some(_) if !is_encrypted => {
            Err(wrong(format!("nothing is encrypted; give an url with {encrypted}, or leave it out")))
        }
        Some(path) if path.is_empty() => Err(wrong("it is empty; give the path of a file".to_owned())),
        path => Ok(path.map(Into::into)),
    }
}

/// A setting that such a source must have.
pub(super) fn given(table: &Setting, name: &str) -> Result<Setting, ConfigError> {
    let setting = table.entry(name)?;
    if setting.is_given() { Ok(setting) } else { Err(setting.missing()) }
}

/// The name of an exchange or a queue.
fn name(text: &str, table: &Setting, key: &str) -> Result<ShortString, ConfigError> {
    if text.is_empty() {
        return Err(table.entry(key)?.invalid("it is empty; give a name"));
    }
    short(text).ok_or_else(|| too_long(table, key))
}

fn short(text: &str) -> Option<ShortString> {
    ShortString::try_new(text).ok()
}

fn too_long(table: &Setting, key: &str) -> ConfigError {
    match table.entry(key) {
        Ok(setting) => setting.invalid("it has more than 255 bytes, and AMQP takes no longer name"),
        Err(error) => error,
    }
}
