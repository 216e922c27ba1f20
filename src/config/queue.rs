//! The settings of a source that is a queue of a broker.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    error::ConfigError,
    secret,
    setting::{Setting, whole},
    source::named,
    transport::{Key, TransportKind},
};
use crate::amqp::{Address, QueueSettings, QueueType, ShortString};

/// How many messages come before one is acknowledged, where the configuration does not say.
pub(super) const PREFETCH: Prefetch = Prefetch(1000);

/// A queue of a broker that speaks AMQP 0-9-1.
pub(super) static AMQP: TransportKind = TransportKind {
    name: "amqp",
    keys: &[
        Key::of::<IgnoredAny>("url"),
        Key::of::<String>("ca"),
        Key::of::<String>("exchange"),
        Key::of::<String>("queue"),
        Key::of::<String>("queue_type"),
        Key::of::<Vec<String>>("bindings"),
        Key::of::<Prefetch>("prefetch"),
        Key::of::<bool>("declare"),
    ],
    read: |table, environment| Ok(Some(Arc::new(read(table, environment)?))),
};

/// 1 to 65535 messages: AMQP has two bytes for it, and takes 0 for any number; so the same is allowed for STOMP.
#[derive(Deserialize)]
pub(super) struct Prefetch(#[serde(deserialize_with = "whole::<1, 65_535, _, _>")] pub(super) u16);

/// Checks the settings.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<QueueSettings, ConfigError> {
    let url = given(table, "url")?;
    let address = Address::parse(&secret::text(&url, environment)?).map_err(|error| url.invalid(error.to_string()))?;
    let ca = authority(table.get("ca")?, address.is_encrypted(), "amqps", table)?;
    let queue = name(&given(table, "queue")?.read::<String>()?, table, "queue")?;
    let exchange = table.get::<String>("exchange")?.map(|exchange| name(&exchange, table, "exchange")).transpose()?;
    let bindings = match (&exchange, table.get::<Vec<String>>("bindings")?) {
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
    let queue_type = named(table, "queue_type", "type of queue", &QueueType::ALL, QueueType::name)?;
    let queue_type = queue_type.unwrap_or(QueueType::Quorum);
    let Prefetch(prefetch) = table.get("prefetch")?.unwrap_or(PREFETCH);
    let declare = table.get("declare")?.unwrap_or(true);
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
