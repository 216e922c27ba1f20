//! Settings of a source that reads a queue or a topic over STOMP.

use std::{ffi::OsString, sync::Arc};

use serde::de::IgnoredAny;

use super::{
    amqp::{PREFETCH, Prefetch, ca_certificate, required},
    error::ConfigError,
    secret,
    setting::Setting,
    source::named,
    transport::{Connection, TransportKey, TransportKind},
};
use crate::stomp::{Acknowledge, StompSettings, address, is_destination, is_header};

/// Maximum length of a setting that is sent as a header, in bytes, because brokers limit headers.
const LONGEST: usize = 1024;

/// The transport `stomp`: a queue or a topic of a broker that supports STOMP.
pub(super) static STOMP: TransportKind = TransportKind {
    name: "stomp",
    keys: &[
        TransportKey::of::<IgnoredAny>("url"),
        TransportKey::of::<String>("ca"),
        TransportKey::of::<String>("destination"),
        TransportKey::of::<String>("durable"),
        TransportKey::of::<String>("client_id"),
        TransportKey::of::<Prefetch>("prefetch"),
        TransportKey::of::<String>("acknowledge"),
    ],
    read: |table, environment| Ok(Connection::Broker(Arc::new(read(table, environment)?))),
};

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<StompSettings, ConfigError> {
    let url = required(table, "url")?;
    let address = address(&secret::text(&url, environment)?).map_err(|error| url.invalid(error.to_string()))?;
    let ca = ca_certificate(table.get("ca")?, address.is_encrypted(), "stomp+ssl", table)?;
    required(table, "destination")?;
    let destination = header(table, "destination")?.unwrap_or_default();
    if !is_destination(&destination) {
        let name = destination.trim_start_matches('/');
        let name = ["queue://", "topic://", "queue/", "topic/"]
            .iter()
            .find_map(|kind| name.strip_prefix(kind))
            .unwrap_or(name);
        let name = if name.is_empty() { "NAME" } else { name };
        let reason = format!(
            "{destination:?} does not say whether it is a topic or a queue, and ActiveMQ would treat it as a queue; give \
             /topic/{name} or /queue/{name}"
        );
        return Err(table.entry("destination")?.invalid(reason));
    }
    let durable = header(table, "durable")?;
    let client_id = header(table, "client_id")?;
    if durable.is_some() && destination.starts_with("/queue/") {
        let reason =
            "only a subscription to a topic can be durable, and a queue keeps its messages anyway; leave it out";
        return Err(table.entry("durable")?.invalid(reason));
    }
    let acknowledge = named(table, "acknowledge", "way to acknowledge", &Acknowledge::ALL, Acknowledge::name)?;
    let acknowledge = acknowledge.unwrap_or(Acknowledge::Cumulative);
    // A broker identifies a durable subscription by its name and the client id.
    let client_id = client_id.or_else(|| durable.clone());
    let Prefetch(prefetch) = table.get("prefetch")?.unwrap_or(PREFETCH);
    Ok(StompSettings { address, ca, destination, durable, client_id, prefetch, acknowledge })
}

/// Reads a setting that is sent as a header.
fn header(table: &Setting, key: &str) -> Result<Option<String>, ConfigError> {
    let Some(text) = table.get::<String>(key)? else { return Ok(None) };
    let reason = match &text {
        text if text.trim().is_empty() => "it is empty; give a name",
        text if text.len() > LONGEST => "it is longer than 1024 bytes",
        text if !is_header(text) => "it contains a line break or another control character",
        _ => return Ok(Some(text)),
    };
    Err(table.entry(key)?.invalid(reason))
}
