//! Settings of a source that reads a queue over AMQP 0-9-1.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    error::ConfigError,
    secret,
    setting::{Setting, bounded},
    source::named,
    transport::{Connection, TransportKey, TransportKind},
};
use crate::amqp::{BrokerUrl, QueueSettings, QueueType, ShortString};

/// Default number of unacknowledged messages.
pub(super) const PREFETCH: Prefetch = Prefetch(1000);

/// The transport `amqp`: a queue of a broker that supports AMQP 0-9-1.
pub(super) static AMQP: TransportKind = TransportKind {
    name: "amqp",
    keys: &[
        TransportKey::of::<IgnoredAny>("url"),
        TransportKey::of::<String>("ca"),
        TransportKey::of::<String>("exchange"),
        TransportKey::of::<String>("queue"),
        TransportKey::of::<String>("queue_type"),
        TransportKey::of::<Vec<String>>("bindings"),
        TransportKey::of::<Prefetch>("prefetch"),
        TransportKey::of::<bool>("declare"),
    ],
    read: |table, environment| Ok(Connection::Broker(Arc::new(read(table, environment)?))),
};

/// Maximum number of unacknowledged messages, 1 to 65535. AMQP has two bytes for it, where 0 means unlimited. STOMP
/// sources have the same range.
#[derive(Deserialize)]
pub(super) struct Prefetch(#[serde(deserialize_with = "bounded::<1, 65_535, _, _>")] pub(super) u16);

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<QueueSettings, ConfigError> {
    let url = required(table, "url")?;
    let broker_url =
        BrokerUrl::parse(&secret::text(&url, environment)?).map_err(|error| url.invalid(error.to_string()))?;
    let ca = ca_certificate(table.get("ca")?, broker_url.is_encrypted(), "amqps", table)?;
    let queue = name(&required(table, "queue")?.read::<String>()?, table, "queue")?;
    let exchange = table.get::<String>("exchange")?.map(|exchange| name(&exchange, table, "exchange")).transpose()?;
    let bindings = match (&exchange, table.get::<Vec<String>>("bindings")?) {
        (Some(_), None) => vec!["#".into()],
        (None, Some(_)) => {
            return Err(table.entry("bindings")?.invalid("bindings need an exchange; give both"));
        }
        (_, bindings) => {
            let bindings = bindings.unwrap_or_default().into_iter();
            let binding = |text: String| short(&text).ok_or_else(|| too_long(table, "bindings"));
            bindings.map(binding).collect::<Result<_, _>>()?
        }
    };
    let queue_type = named(table, "queue_type", "type of queue", &QueueType::ALL, QueueType::name)?;
    let queue_type = queue_type.unwrap_or(QueueType::Quorum);
    let Prefetch(prefetch) = table.get("prefetch")?.unwrap_or(PREFETCH);
    let declare = table.get("declare")?.unwrap_or(true);
    Ok(QueueSettings { broker_url, ca, exchange, queue, queue_type, bindings, prefetch, declare })
}

/// Validates the path of a CA certificate file. The file is an error if the connection is not encrypted; `encrypted`
/// is the URL scheme to suggest.
pub(super) fn ca_certificate(
    path: Option<String>,
    is_encrypted: bool,
    encrypted: &str,
    table: &Setting,
) -> Result<Option<PathBuf>, ConfigError> {
    let invalid = |reason: String| table.entry("ca").map_or_else(|error| error, |ca| ca.invalid(reason));
    match path {
        Some(_) if !is_encrypted => {
            Err(invalid(format!("the connection is not encrypted; give a URL with {encrypted}, or leave ca out")))
        }
        Some(path) if path.is_empty() => Err(invalid("it is empty; give the path of a file".to_owned())),
        path => Ok(path.map(Into::into)),
    }
}

/// Returns a required setting of the source.
pub(super) fn required(table: &Setting, name: &str) -> Result<Setting, ConfigError> {
    let setting = table.entry(name)?;
    if setting.is_given() { Ok(setting) } else { Err(setting.missing()) }
}

/// Validates the name of an exchange or a queue.
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
        Ok(setting) => setting.invalid("it has more than 255 bytes, the maximum in AMQP"),
        Err(error) => error,
    }
}
